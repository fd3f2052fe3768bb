"""Kernels started without Triton's launchers: CUDA is handed what those would hand it.

No GPU is needed: a library that writes launches down stands in the driver's place. Triton loads one
driver a process, so that this is done in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from limelight.engines.gpu import absent
from limelight.engines.hopper import OLDEST

if lacking := absent(OLDEST):
    pytest.skip(lacking, allow_module_level=True)

from triton.backends.nvidia.driver import include_dirs

from limelight.engines.gpu import direct

HERE = Path(__file__).parent
COMPILER = shutil.which(os.environ.get("CC", "cc"))


@pytest.mark.skipif(not direct.CHECKED, reason="written for another Triton")
@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_cuda_is_handed_the_same(tmp_path: Path) -> None:
    build = [COMPILER, "-shared", "-fPIC", f"-I{include_dirs[0]}", "-o", "libcuda.so.1"]
    subprocess.run([*build, HERE / "libcuda_stub.c"], cwd=tmp_path, check=True)
    places = {"LD_LIBRARY_PATH": str(tmp_path), "TRITON_LIBCUDA_PATH": str(tmp_path),
              "TRITON_CACHE_DIR": str(tmp_path / "cache")}  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-m", "tests.engines.gpu_direct"], cwd=HERE.parents[1],
        env={**os.environ, **places}, capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "the same\n"), run.stderr
