"""The pictures of seeing.md, by the commands that stand under them: python docs/seeing.py"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "pictures"
COMMANDS = (
    "heatmap llama --layer 11 --head 1 -o map.svg",
    "heatmap llama --layer 11 --head 1 --as lines -o lines.svg",
    "heatmap llama-paragraph --layer 17 --head 5 -o induction.svg",
    "heatmap llama-paragraph -o grid.svg",
    "heatmap vit --layer 0 --head 1 --as patches --query 0 --batch 9 -o patches.svg",
)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for command in COMMANDS:
        subprocess.run([sys.executable, "-m", "limelight", *shlex.split(command), "--force"],
                       cwd=HERE, check=True)  # fmt: skip


if __name__ == "__main__":
    main()
