"""The example of a model over several ranks: the table of four ranks is that of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from limelight import hf
from limelight.capture import Capture

EXAMPLE = Path(__file__).parents[2] / "examples" / "context_parallel.py"


def run(*command: str) -> list[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_table_of_four_ranks_is_that_of_one(smollm2: hf.Loaded, tmp_path: Path) -> None:
    del smollm2  # here for the skip where the model is not installed
    asked = (str(EXAMPLE), "--tokens", "331")
    first, *table = run(*asked)
    saved = tmp_path / "run.safetensors"
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4")
    again, *found = run(*launch, *asked, "--save", str(saved))
    assert first.startswith("smollm2, 331 tokens over 1 rank: ")
    assert again.startswith("smollm2, 331 tokens over 4 ranks: ")
    assert first.rpartition(", ")[2] == again.rpartition(", ")[2]  # nats a token
    assert found == [*table, f"wrote {saved}"]
    assert len(Capture.open(saved)) == 30
