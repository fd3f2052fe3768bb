"""The report: within its budget, true to the library, harmless whatever the tokens say."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from limelight.capture import Capture, Site
from limelight.cli import app
from limelight.errors import ArgumentError, LimelightError
from limelight.report import bundle, page, report, write_report
from tests.studio import samples

DTYPES = {"u1": np.uint8, "u2": np.dtype("<u2"), "f2": np.dtype("<f2"), "f4": np.dtype("<f4")}


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the built view, so that these tests need no Node."""
    parts = {"report.js": "const end = '</script><!--';", "report.css": "body{margin:0}"}
    monkeypatch.setattr(page, "built", parts.__getitem__)


def unpacked(packed: dict[str, Any]) -> Any:
    data = zlib.decompress(base64.b64decode(packed["data"]))
    return np.frombuffer(data, DTYPES[packed["dtype"]]).reshape(packed["shape"])


class Elements(HTMLParser):
    """The elements of a page as a browser's parser finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data


@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_the_vectors_are_the_captures(precision: str) -> None:
    capture = samples.text_capture()
    made = bundle(capture, budget=10**7, precision=precision)
    assert len(made.complete) == 12
    vectors = made.data["vectors"]
    for site in range(3):
        for head in range(4):
            parts = vectors["heads"][f"{site}.{head}"]
            query, key, value = (
                unpacked(vectors["arrays"][parts[name]]) for name in ("query", "key", "value")
            )
            exact = capture.sites[site]
            np.testing.assert_array_equal(query, exact.query[0, head].astype(precision))
            np.testing.assert_array_equal(key, exact.key[0, head // 2].astype(precision))
            np.testing.assert_array_equal(value, exact.value[0, head // 2].astype(precision))
            mask = np.unpackbits(unpacked(vectors["arrays"][parts["mask"]]))[: 23 * 23].reshape(
                23, 23
            )
            np.testing.assert_array_equal(mask, np.tri(23))
    assert len(vectors["arrays"]) == 12 + 6 + 6 + 1  # queries; keys and values shared; one mask


def test_the_maps_are_the_heatmaps() -> None:
    capture = samples.long_capture(301)
    made = bundle(capture, budget=10**7)
    coded = unpacked(made.data["maps"][0])
    assert coded.shape == (1, 128, 128)
    expected = capture.sites[0].heatmap((128, 128), head=0).values
    seen = np.where(coded[0] == 65_535, np.nan, (coded[0] / 65_533) ** 2)
    np.testing.assert_array_equal(np.isnan(seen), np.isnan(expected))
    np.testing.assert_allclose(seen, expected, atol=2e-5)


@pytest.mark.parametrize("side", [64, 32, 16])
def test_smaller_maps_are_those_of_that_size(side: int) -> None:
    from limelight.views.bundle import _halved
    from limelight.views.tiles import coded

    site = samples.long_capture(701).sites[0]
    whole = coded(site.heatmap((128, 128), head=0))[None]
    np.testing.assert_array_equal(
        _halved(whole, side)[0], coded(site.heatmap((side, side), head=0))
    )


@pytest.mark.parametrize("budget", [40_000, 60_000, 100_000, 10**6])
def test_it_stays_within_its_budget(views: None, budget: int) -> None:
    capture = samples.text_capture(97)
    made = report(capture, budget=budget)
    assert made.size == len(made.html.encode()) <= budget
    assert made.heads == 12
    if budget == 40_000:
        assert made.complete < 12
    if budget == 10**6:
        assert made.complete == 12


def test_what_to_look_at_first_keeps_its_vectors_first() -> None:
    capture = samples.text_capture(97)
    whole = bundle(capture, budget=10**7)
    some = bundle(capture, budget=whole.size // 4)
    assert 0 < len(some.complete) < 12
    assert some.complete[0] == (1, 1)
    order = [(finding["site"], finding["head"]) for finding in whole.data["findings"]]
    assert some.complete == [place for place in order if place in some.complete]


@pytest.mark.parametrize("batch", [0, 1])
def test_the_health_is_that_of_the_entry_shown(batch: int) -> None:
    data = bundle(samples.batch_capture(), budget=10**7, batch=batch).data
    word = ("healthy", "saturated")[batch]
    assert data["health"]["verdicts"] == [[word] * 3] * 2
    assert data["health"]["figures"]["rows"] == [[13] * 3] * 2
    assert len(data["findings"]) == 6


@pytest.mark.parametrize("page_bytes", [100, 190_000])
def test_the_least_that_the_error_states_does_work(
    monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    monkeypatch.setattr(page, "built", lambda name: "x" * (page_bytes // 2))
    capture = samples.text_capture(97)
    least = None
    for budget in (100, 9_000, page_bytes, page_bytes + 5_000):
        with pytest.raises(ArgumentError) as caught:
            report(capture, budget=budget)
        told = re.search(r"takes at least (\d\.\d\d) MB, .* and (\S+) MB were", str(caught.value))
        assert told is not None
        assert float(told[2]) == budget / 1e6
        assert least in (None, told[1])
        least = told[1]
    allowed = round(float(str(least)) * 1e6)
    assert report(capture, budget=allowed).size <= allowed
    with pytest.raises(ArgumentError, match="at least"):
        report(capture, budget=allowed - 10_000)


def test_the_smallest_bundle_keeps_its_budget() -> None:
    capture = samples.text_capture(5)
    sizes = []
    for budget in range(3_000, 9_000, 10):
        try:
            made = bundle(capture, budget=budget)
        except ArgumentError:
            continue
        sizes.append(made.size)
        assert len(made.to_json()) == made.size <= budget
        if len(sizes) == 20:
            break
    assert len(sizes) == 20


def test_what_cannot_be_reported_is_said(views: None) -> None:
    with pytest.raises(ArgumentError, match="float16 or float32"):
        report(samples.text_capture(5), precision="float8")
    with pytest.raises(
        ArgumentError, match="there is no batch entry 1: there is one, batch entry 0"
    ):
        report(samples.text_capture(5), batch=1)
    assert report(samples.text_capture(5), batch=-1).html == report(samples.text_capture(5)).html


def test_the_data_cannot_leave_their_element(views: None) -> None:
    capture = samples.text_capture()
    html = report(capture, title='</title><script>alert(1)</script>"\x00‮').html
    parsed = Elements()
    parsed.feed(html)
    names = [tag for tag, _ in parsed.found]
    assert names.count("script") == 2
    assert "img" not in names
    assert not [attrs for _, attrs in parsed.found if any(name.startswith("on") for name in attrs)]
    assert not [attrs for _, attrs in parsed.found if "src" in attrs or "href" in attrs]
    data = json.loads(parsed.texts["limelight-data"])
    assert data["capture"]["key_tokens"] == [list(samples.tokens(23))]
    assert "<" not in parsed.texts["limelight-data"]
    assert "\x00" not in html
    assert "‮" not in parsed.texts["title"]


def test_the_policy_names_exactly_what_is_in_the_page(views: None) -> None:
    import hashlib

    html = report(samples.text_capture(5)).html
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert "default-src 'none'" in policy[1]
    for element in ("script", "style"):
        inside = re.search(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
        assert inside is not None
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy[1]
    assert html.index("Content-Security-Policy") < html.index("<style")


@pytest.mark.parametrize(
    "capture",
    [
        Capture(()),
        Capture((Site("a", 0, np.zeros((1, 2, 1, 3)), np.zeros((1, 2, 1, 3))),)),
        Capture((Site("a", 0, np.zeros((1, 2, 0, 3)), np.zeros((1, 1, 0, 3))),)),
        Capture((Site("a", 0, np.zeros((1, 1, 2, 3)), np.zeros((1, 1, 5, 3)), kind="cross"),)),
        Capture((Site("a", 0, np.ones((2, 1, 3, 3)), np.ones((2, 1, 3, 3)), softcap=5.0, sinks=np.ones(1),
                      bias=np.zeros((1, 1, 3, 3))),)),
        samples.image_capture(),
        samples.long_capture(5000),
    ],
    ids=["empty", "one token", "no tokens", "cross", "sinks", "image", "long"],
)  # fmt: skip
def test_every_kind_of_capture_makes_a_report(views: None, capture: Capture) -> None:
    made = report(capture, budget=3_000_000)
    assert made.size <= 3_000_000
    data = json.loads(made.html.partition('id="limelight-data">')[2].partition("</script>")[0])
    assert len(data["maps"]) == len(capture.sites)


def test_the_command(views: None, tmp_path: Path) -> None:
    source, target = tmp_path / "x.safetensors", tmp_path / "out.html"
    samples.text_capture().save(source)
    runner = CliRunner()
    done = runner.invoke(app, ["report", str(source), "-o", str(target), "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["bytes"] == target.stat().st_size
    assert facts["heads_with_vectors"] == 12
    again = runner.invoke(app, ["report", str(source), "-o", str(target)])
    assert isinstance(again.exception, (SystemExit, LimelightError))
    assert "--force" in again.output or "--force" in str(again.exception)
    forced = runner.invoke(
        app, ["report", str(source), "-o", str(target), "--force", "--budget", "0.5"]
    )
    assert forced.exit_code == 0, forced.output
    assert "12 heads, all of them with their vectors (float16)" in forced.output


@pytest.mark.parametrize(
    ("layers", "kept"), [("-1", [29]), ("0,-2", [0, 28]), ("3-4, 27-40", [3, 4, 27, 28, 29])]
)
def test_the_command_takes_layers_as_inspect_does(
    layers: str, kept: list[int], views: None, tmp_path: Path
) -> None:
    target = tmp_path / "out.html"
    done = CliRunner().invoke(app, ["report", "llama", "-o", str(target), "--layers", layers])
    assert done.exit_code == 0, done.output
    data = json.loads(
        target.read_text().partition('id="limelight-data">')[2].partition("</script>")[0]
    )
    assert [site["layer"] for site in data["capture"]["sites"]] == kept


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("99", "--layers 99: the capture has 30 layers, 0 to 29"),
        ("-31", "--layers -31: the capture has 30 layers, 0 to 29"),
        ("a", "'a' is no layer: write 0,3,10-14 or -1"),
    ],
)
def test_layers_that_are_not_there(layers: str, message: str, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    done = CliRunner().invoke(app, ["report", "llama", "-o", str(target), "--layers", layers])
    assert (done.exit_code, target.exists()) == (2, False)
    assert message in done.stderr


def test_the_command_writes_html_alone(views: None, tmp_path: Path) -> None:
    target = tmp_path / "out.pdf"
    done = CliRunner().invoke(app, ["report", "llama", "-o", str(target)])
    assert done.exit_code == 2
    assert "out.pdf ends in .pdf: give a name that ends in .html" in done.stderr
    assert not target.exists()


def test_a_file_is_written_whole_or_not_at_all(views: None, tmp_path: Path) -> None:
    with pytest.raises(LimelightError, match="cannot be written"):
        write_report(samples.text_capture(5), tmp_path / "none" / "x.html")
    made = write_report(samples.text_capture(5), tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text() == made.html
    assert list(tmp_path.iterdir()) == [tmp_path / "x.html"]
