"""What the layers above do for those below, which cannot import them.

A capture shows itself in a notebook, a map draws itself, attention takes tensors: who does it
stands above, and the root package, which stands above all, says so. A thing is loaded when it is
first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_offers: dict[str, Callable[[], Any]] = {}


def offer(**who: Callable[[], Any]) -> None:
    """Say who does a thing: a function that imports and returns it."""
    _offers.update(who)


def offered(what: str) -> Any:
    """The module that does it."""
    return _offers[what]()
