"""The contract with the pages is the structs': what is generated is fresh, what is sent fits it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from limelight import journal
from limelight.capture import Capture
from limelight.capture.health import FIGURES
from limelight.journal.run import LOW_IS_WORSE
from limelight.report import bundle
from limelight.views import figures, schema
from limelight.views.facts import kinds
from tests.studio import samples

WEB = Path(__file__).parents[2] / "web"


def test_what_web_holds_of_python_is_not_stale() -> None:
    run = subprocess.run(
        [sys.executable, WEB / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_figures_are_the_librarys() -> None:
    assert get_args(schema.Figure) == FIGURES
    offered = [kind.name for kind in figures.KINDS]
    assert set(offered) == set(FIGURES) - {"rows", "judged"}
    assert set(journal.FIGURES) <= set(offered)
    low = {kind.name for kind in figures.KINDS if kind.lit == "low"}
    assert low & set(journal.FIGURES) == LOW_IS_WORSE


@pytest.mark.parametrize(
    "capture",
    [samples.text_capture(), samples.image_capture(), Capture(())],
    ids=["text", "image", "empty"],
)
def test_a_bundle_fits_its_type(capture: Capture) -> None:
    made = bundle(capture, budget=10**7, found=kinds(capture))
    sent = json.loads(made.to_json())
    held = msgspec.to_builtins(msgspec.convert(sent, schema.BundleData))
    assert json.loads(json.dumps(held)) == sent


def test_pictures_reports_and_notebooks_need_numpy_alone() -> None:
    code = (
        "import sys\nfor name in ('msgspec', 'typer', 'rich', 'starlette', 'PIL'):\n    sys.modules[name] = None\n"
        "import limelight.pictures, limelight.notebook\nfrom limelight.capture.shipped import captures\n"
        "from limelight.views.bundle import bundle\nfrom limelight.views.facts import kinds\n"
        "held = captures()['llama']\nprint(len(bundle(held, budget=10**7, found=kinds(held)).data['findings']))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "270", run.stderr
