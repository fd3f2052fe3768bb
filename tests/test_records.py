"""Records: frozen dataclasses with a constructor of their own."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from limelight.records import lean


@lean
@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


def test_a_lean_record_is_a_frozen_dataclass() -> None:
    point = Point(1.0)
    assert point == Point(y=0.0, x=1.0)
    assert replace(point, y=2.0) == Point(1.0, 2.0)
    assert str(inspect.signature(Point)) == "(x: 'float', y: 'float' = 0.0) -> None"
    with pytest.raises(FrozenInstanceError):
        point.x = 3.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]


def test_a_record_that_does_more_is_refused() -> None:
    @dataclass(frozen=True)
    class Checked:
        x: float

        def __post_init__(self) -> None:
            raise ValueError

    with pytest.raises(TypeError, match="Checked does more than take its fields"):
        lean(Checked)
