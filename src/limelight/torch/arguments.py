"""Arguments: what a module's forward was called with, by name, and numbers that must be above 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from torch import nn

from limelight.errors import ArgumentError


def by_name(module: nn.Module, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in order take the names of forward's parameters; hooks are told in two parts.

    >>> by_name(nn.Identity(), [3], {"more": 4})
    {'input': 3, 'more': 4}
    """
    return {**dict(zip(signature(module.forward).parameters, given, strict=False)), **named}


def positive(name: str, value: Any, wanted: str) -> float:
    """A finite number above 0, or an error that says what is wanted."""
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # a tensor of several: Runtime
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ArgumentError(f"{name}={value!r}: {wanted}")
    return number
