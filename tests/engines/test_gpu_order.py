"""The order in which a GPU's processors take the tiles of causal heads: they end together."""

from __future__ import annotations

import heapq

import pytest

from limelight.engines.gpu import absent
from limelight.engines.triton import OLDEST

if lacking := absent(OLDEST):
    pytest.skip(lacking, allow_module_level=True)

from limelight.engines.gpu.blocks import together

PROCESSORS = 132


def ends(heads: int, width: int, tiles: int) -> float:
    """When the last processor ends, as a multiple of when all would if work had no grain."""
    free = [0] * PROCESSORS
    for first in range(0, heads, width):
        for weight in range(tiles, 0, -1):
            for _ in range(min(width, heads - first)):
                heapq.heappush(free, heapq.heappop(free) + weight)
    return max(free) / (heads * tiles * (tiles + 1) / 2 / PROCESSORS)


@pytest.mark.parametrize(
    ("heads", "tiles", "wished"),
    [(16, 128, 3), (32, 64, 5), (16, 64, 5), (64, 32, 9), (128, 16, 17), (8, 64, 5), (32, 128, 4),
     (96, 64, 5), (7, 128, 3), (40, 64, 4), (8, 64, 2), (8, 32, 4)],
)  # fmt: skip
def test_processors_end_together(heads: int, tiles: int, wished: int) -> None:
    width = together(heads, wished, tiles, PROCESSORS)
    assert wished <= width <= min(heads, 2 * wished) or width == heads
    assert ends(heads, width, tiles) < 1.05
    assert ends(heads, width, tiles) <= ends(heads, min(heads, wished), tiles) + 0.005


def test_no_more_than_there_are() -> None:
    assert together(3, 5, 64, PROCESSORS) == 3
    assert together(1, 1, 1, PROCESSORS) == 1
