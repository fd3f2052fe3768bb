"""What comes from files is shown, not obeyed: no control, escape or bidi sign, no markup."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from limelight.cli import app
from limelight.writing.terminal import HIDDEN, shown
from tests.fuzz import corpus

MARKUP = "[/x][bold]"


def test_every_sign_that_acts_is_escaped_and_every_other_stays() -> None:
    for code in range(0x110000):
        sign, kind = chr(code), unicodedata.category(chr(code))
        acts = kind in ("Cc", "Cs", "Zl", "Zp") and sign not in "\t\n"
        acts |= unicodedata.bidirectional(sign) in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
        if acts:
            assert HIDDEN.match(sign), hex(code)
            assert shown(sign).isascii(), hex(code)
        elif kind not in ("Cf", "Cn"):
            assert shown(sign) == sign, hex(code)
    assert shown("👩‍🔬 naïve שלום\tx\n") == "👩‍🔬 naïve שלום\tx\n"


@pytest.mark.parametrize("command", ["watch", "heatmap", "heads"])
@pytest.mark.parametrize("as_json", [False, True])
def test_no_text_of_a_file_acts_on_the_terminal(
    command: str, as_json: bool, tmp_path: Path
) -> None:
    if command == "watch":
        path, names = tmp_path / "x.jsonl", ["markup in the names"]
        made = corpus.LOGS
    else:
        path, names = (
            tmp_path / "x.safetensors",
            ["markup and escapes in every text", "a name that is markup"],
        )
        made = corpus.SOUND_CAPTURES
    for name in names:
        path.write_bytes(made[name]())
        options = ["--once"] if command == "watch" else []
        done = CliRunner().invoke(
            app, [command, str(path), *options, *(["--json"] if as_json else [])]
        )
        assert done.exit_code == 0, done.stderr
        assert not HIDDEN.search(done.stdout)
        if not as_json and name != "a name that is markup":
            assert MARKUP in done.stdout.replace("\n", ""), done.stdout


def test_errors_and_file_names_too(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m‮b.safetensors"
    path.write_bytes(b"")
    done = CliRunner().invoke(app, ["heatmap", str(path)])
    assert done.exit_code == 2
    assert not HIDDEN.search(done.stderr)
    assert r"a\x1b[31m\u202eb.safetensors" in done.stderr
