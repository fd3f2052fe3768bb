"""Pages with generated parts: text between markers, and pictures in two themes.

    <!-- made: name -->
    whatever stood here is replaced
    <!-- end -->

and for a number in a sentence <!-- = name -->0.93<!-- / -->.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from limelight.pictures import Picture

DOCS = Path(__file__).parent.parent
BLOCK = re.compile(r"<!-- made: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
INLINE = re.compile(r"<!-- = ([\w-]+) -->[^<]*<!-- / -->")


@dataclass
class Page:
    """One Markdown page: fill in its blocks and numbers, then write or compare it."""

    path: Path
    blocks: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    pictures: dict[Path, str] = field(default_factory=dict)  # SVG by file

    def table(self, name: str, heading: list[str], rows: list[list[str]]) -> None:
        lines = [heading, ["---"] * len(heading), *rows]
        self.blocks[name] = "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def code(self, name: str, text: str, language: str = "") -> None:
        self.blocks[name] = f"```{language}\n{text.rstrip()}\n```"

    def picture(self, name: str, draw: Callable[[str], Picture]) -> None:
        """`draw(theme)` in both themes, as files in images/, and the block that shows them."""
        file = f"{self.path.stem}-{name}"
        for theme in ("light", "dark"):
            drawn = draw(theme)
            self.pictures[DOCS / "images" / f"{file}-{theme}.svg"] = drawn.svg() + "\n"
        folder = os.path.relpath(DOCS / "images", self.path.parent)
        words = drawn.description.replace('"', "'")
        self.blocks[name] = (
            f'<picture><source media="(prefers-color-scheme: dark)" '
            f'srcset="{folder}/{file}-dark.svg"><img alt="{words}" '
            f'src="{folder}/{file}-light.svg"></picture>'
        )

    def text(self) -> str:
        """The page with everything filled in; a marker without content is an error."""
        page = self.path.read_text(encoding="utf-8")
        wanted = {*BLOCK.findall(page), *INLINE.findall(page)}
        missing = wanted - {*self.blocks, *self.numbers}
        unused = set(self.blocks) - wanted
        if missing or unused:
            raise ValueError(f"{self.path.name}: no content for {sorted(missing)}, no marker for "
                             f"{sorted(unused)}")  # fmt: skip
        block, number = "<!-- made: {} -->\n{}\n<!-- end -->", "<!-- = {} -->{}<!-- / -->"
        page = BLOCK.sub(lambda m: block.format(m[1], self.blocks[m[1]]), page)
        return INLINE.sub(lambda m: number.format(m[1], self.numbers[m[1]]), page)

    def write(self) -> list[Path]:
        """Write what changed, pictures included, and say which files that were."""
        (DOCS / "images").mkdir(exist_ok=True)
        made = {**self.pictures, self.path: self.text()}
        changed = [path for path, text in made.items() if _read(path) != text]
        for path in changed:
            path.write_text(made[path], encoding="utf-8")
        return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
