"""python -m tests.fuzz --inputs 500 --seed 1 --keep folder"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.run import Tally, fuzz, table

parser = argparse.ArgumentParser(
    prog="python -m tests.fuzz", description="Hostile files through every reader."
)
parser.add_argument("--inputs", type=int, default=500, help="mutations a reader, beside the corpus")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--keep", type=Path, help="a folder for the inputs that went wrong")
asked = parser.parse_args()


def tell(tally: Tally) -> None:
    print(f"{tally.reader}: {tally.inputs:,} inputs", file=sys.stderr)
    for wrong in tally.wrong:
        print(f"  {wrong}", file=sys.stderr)


found = fuzz(asked.inputs, asked.seed, asked.keep, tell)
print(table(found))
sys.exit(any(tally.wrong or tally.hangs for tally in found))
