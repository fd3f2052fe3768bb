"""An install where there is no compiler still works, on the numpy engine, and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "csrc", "src",
          "web/backend.py", "web/pages.py")  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree with every compiler hidden."""
    work = tmp_path_factory.mktemp("no-compiler")
    skipped = shutil.ignore_patterns("*.so", "__pycache__", "static")
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, work / name, ignore=skipped)
        else:
            (work / name).parent.mkdir(exist_ok=True)
            shutil.copy(source, work / name)
    env = {**os.environ, "CXX": "/nonexistent/c++", "CC": "/nonexistent/cc"}
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q",
               "--disable-pip-version-check", "-w", str(work / "dist"), str(work)]  # fmt: skip
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next((work / "dist").glob("*.whl"))


def test_the_install_succeeds_and_says_what_is_missing(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert not [
            name for name in archive.namelist() if "_native" in name and not name.endswith(".pyi")
        ]
        archive.extractall(tmp_path)
    code = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
        "import numpy as np, limelight as ll; print(ll.__file__); print(ll.engines())\n"
        "x = np.eye(3, dtype=np.float32); print(ll.attention(x, x, x).dtype)\n"
        "ll.attention(x, x, x, engine='native')"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert str(tmp_path) in done.stdout
    assert "native is missing here: its module could not be loaded" in done.stdout
    assert "float32" in done.stdout
    assert "the engine 'native' cannot do this call: its module could not be loaded" in done.stderr
    assert "These can: auto, reference, numpy" in done.stderr
