"""Every link of a built site leads somewhere: files and the places in them.

    python docs/making/links.py build/site

Prints what it read, or each link that leads nowhere, with the page that has it. Addresses of other
hosts are not asked for.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page points to, and the places in it that can be pointed to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "data") and value:
                self.targets.append(value)
            elif name == "srcset" and value:
                self.targets += [each.split()[0] for each in value.split(",")]
            elif name == "id" or (name == "name" and tag == "a"):
                self.places.add(value or "")


def dead(site: Path) -> tuple[int, list[str]]:
    """How many links were followed, and "page: target" of those that lead nowhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    followed, nowhere = 0, []
    for path, page in pages.items():
        for target in page.targets:
            there = urlsplit(target)
            if there.scheme or there.netloc:
                continue
            followed += 1
            # "/…" is the host's root, which a site is served from
            start = site if there.path.startswith("/") else path.parent
            file = (start / unquote(there.path).lstrip("/")).resolve() if there.path else path
            if file.is_dir():
                file /= "index.html"
            place = unquote(there.fragment)
            # "#/…" is an address within an app, which the app reads, and "#" the top of the page
            known = not place or place.startswith("/") or file not in pages
            if not file.is_file() or not (known or place in pages[file].places):
                nowhere.append(f"{path.relative_to(site)}: {target}")
    return followed, nowhere


def main(folder: str) -> int:
    site = Path(folder).resolve()
    followed, nowhere = dead(site)
    for each in nowhere:
        print(f"leads nowhere: {each}", file=sys.stderr)
    if not followed:
        print(f"{folder} has no links: build the site first, make docs-site", file=sys.stderr)
    print(f"{folder}: {followed} links within the site, {len(nowhere)} lead nowhere")
    return 1 if nowhere or not followed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else "build/site"))
