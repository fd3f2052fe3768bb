"""What requests ask for, as types: a value outside its range never reaches the library."""

from __future__ import annotations

from typing import Annotated

import msgspec

from limelight.errors import ArgumentError
from limelight.studio.endpoint import Asked

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Few = Annotated[int, msgspec.Meta(ge=1, le=64)]
Part = Annotated[str, msgspec.Meta(pattern=r"^\d{1,10}:\d{1,10}$")]  # from:to, as in Python


class OfCapture(Asked, frozen=True):
    id: Name


class OfEntry(OfCapture, frozen=True):
    batch: Index = 0


class OfSite(OfCapture, frozen=True):
    site: Index


class OfHead(OfSite, frozen=True):
    head: Index
    batch: Index = 0


def part(text: str | None, length: int, name: str) -> tuple[int, int]:
    """'from:to' as a pair inside 0..length; None is all of it."""
    if text is None:
        return 0, length
    start, stop = (int(number) for number in text.split(":"))
    if not 0 <= start < stop <= length:
        raise ArgumentError(f"{name}={text}: ask for a part from:to of the {length:,} there are, "
                            f"with from below to")  # fmt: skip
    return start, stop
