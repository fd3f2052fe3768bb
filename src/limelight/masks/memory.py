"""How a mask remembers: what a frozen value has worked out from its fields, for later.

`value.memory` holds what depends on something else beside the value, such as a shape or a device;
what depends on the value alone is a cached_property. Both stand in the instance's own dictionary
and are no part of the value: they are not compared, not copied by `replace` and not pickled. What
an array decides that the caller may write to is never kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields
from functools import cached_property
from typing import Any, TypeVar

MOST = 16  # things a value keeps; the next one begins anew
Kept = TypeVar("Kept")


class Memory(dict[Hashable, Any]):
    """What was worked out, by what it was worked out for."""

    def keep(self, key: Hashable, found: Kept) -> Kept:
        if len(self) >= MOST:
            self.clear()
        self[key] = found
        return found


class Remembers:
    """A frozen dataclass with a memory."""

    @cached_property
    def memory(self) -> Memory:
        return Memory()

    def __getstate__(self) -> dict[str, Any]:
        own = {each.name for each in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in vars(self).items() if name in own}
