"""Make every generated page and picture in docs/.

python docs/make.py                     all parts
python docs/make.py experiment cli      some
python docs/make.py --list              which there are

What a part needs beyond limelight: systems, PyTorch, for the samples of the models trained here;
screenshots, a browser.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from making import benches, consoles, experiment, remedies, systems

DOCS = Path(__file__).parent


def cli() -> list[Path]:
    from limelight.cli.docs import markdown

    page = DOCS / "cli.md"
    text = markdown()
    if page.read_text(encoding="utf-8") == text:
        return []
    page.write_text(text, encoding="utf-8")
    return [page]


def ranks() -> list[Path]:
    before = _contents()
    runpy.run_path(str(DOCS.parent / "bench" / "ranks.py"))["draw"](DOCS / "context-parallel.png")
    return _changed(before)


def script(name: str) -> list[Path]:
    """A page's own script beside it."""
    before = _contents()
    runpy.run_path(str(DOCS / name), run_name="__main__")
    return _changed(before)


def _contents() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in DOCS.rglob("*") if path.is_file()}


def _changed(before: dict[Path, bytes]) -> list[Path]:
    return sorted(path for path, held in _contents().items() if before.get(path) != held)


PARTS: dict[str, Callable[[], list[Path]]] = {
    "cli": cli,
    "consoles": consoles.make,
    "benches": benches.make,
    "systems": systems.make,
    "experiment": experiment.make,
    "remedies": remedies.make,
    "ranks": ranks,
    "seeing": lambda: script("seeing.py"),
    "screenshots": lambda: script("screenshots.py"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--list", action="store_true", help="which parts there are")
    options = parser.parse_args()
    if options.list:
        print("\n".join(PARTS))
        return
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}: choose {', '.join(PARTS)}")
    sys.argv = sys.argv[:1]
    for name in options.parts or PARTS:
        changed = PARTS[name]()
        print(f"{name}: {', '.join(path.name for path in changed) or 'all as it was'}")


if __name__ == "__main__":
    main()
