"""Which cases of a test run by default, and which with the slow ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def later(*values: Any) -> Any:
    """A case for the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def quick(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """The chosen ones, or else the first, by default; all others in the slow tests."""
    every = list(values)
    kept = chosen or every[:1]
    return [value if value in kept else later(value) for value in every]
