"""Every bench script says what it takes before it measures anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))


# In one process, so that torch is imported once.
ASK = """
import contextlib, io, json, runpy, sys
said = {}
for script in sys.argv[1:]:
    out = io.StringIO()
    sys.argv = [script, "--help"]
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            said[script] = [end.code or 0, out.getvalue()]
print(json.dumps(said))
"""


def test_help() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-c", ASK, *map(str, SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    for script in SCRIPTS:
        code, text = said[str(script)]
        assert code == 0, script.name
        assert text.startswith(f"usage: {script.name}"), script.name
