"""The saturation lab's curves: means over draws from limelight.learn.saturation, by size and keys.

python web/golden/curves.py           writes web/src/learn/lab/curves.json
python web/golden/curves.py --check   fails where the file is not what the library gives
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from compare import same

from limelight.learn.saturation import curve

PATH = Path(__file__).parents[1] / "src/learn/lab/curves.json"
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
KEYS = (2, 4, 8, 16, 32, 64)
DRAWS = 2000
FIGURES = ("max_prob", "gradient", "spread")


def curves() -> str:
    """{"sizes", "draws", "keys": {"8": {"scaled": {"max_prob": [...]}, "unscaled": ...}}}"""
    keys = {}
    for count in KEYS:
        found = curve(SIZES, keys=count, draws=DRAWS)
        keys[str(count)] = {
            setting: {
                figure: [round(getattr(mean, figure), 5) for mean in getattr(found, setting)]
                for figure in FIGURES
            }
            for setting in ("scaled", "unscaled")
        }
    return json.dumps({"sizes": SIZES, "draws": DRAWS, "keys": keys}) + "\n"


def main() -> int:
    made = curves()
    if "--check" in sys.argv[1:]:
        if same(json.loads(PATH.read_text("utf-8")), json.loads(made), within=2e-5):
            return 0
        print(f"{PATH.name} is not what the library gives: run python web/golden/curves.py")
        return 1
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(made, "utf-8")
    print(f"{PATH.name}: {len(made):,} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
