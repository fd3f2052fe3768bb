"""What a module's forward was called with, by name: what hooks are told in two parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from torch import nn


def by_name(module: nn.Module, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in order take the names of forward's parameters.

    >>> by_name(nn.Identity(), [3], {"more": 4})
    {'input': 3, 'more': 4}
    """
    return {**dict(zip(signature(module.forward).parameters, given, strict=False)), **named}
