"""The `limelight` command, also as `python -m limelight`, where the command line is installed."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from limelight.cli import main as run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.exit("limelight: the command line, studio and report come with the extra "
                 "limelight[studio]: in the checkout, pip install '.[studio]'")  # fmt: skip
    run()


if __name__ == "__main__":
    main()
