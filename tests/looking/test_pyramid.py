"""Tiles at every zoom: right, in agreement with each other, kept in budget, shared and cancelled."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.capture import Site
from limelight.errors import ArgumentError
from limelight.looking import pyramid as module
from limelight.looking.pyramid import Address, Cancelled, Pyramid
from tests.cases import HERE
from tests.looking.test_heatmap import assert_as_good, dense, plain

FAST = [name for name in HERE if name != "reference"]
MASKS = {
    "none": None, "causal": ll.Causal(), "window": ll.Causal() & ll.Window(90, None),
    "array": np.random.default_rng(2).random((2, 1, 150, 203)) < 0.03,
}  # fmt: skip


def site(nq: int = 150, nk: int = 203, mask: Any = None, **more: Any) -> Site:
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(2, h, n, 16)).astype(np.float32) for h, n in ((4, nq), (2, nk)))
    mask = None if mask is None else ll.masks.as_mask(mask)
    return Site("here", 0, query, key, mask=mask, **more)


def pool_up(cells: Any, allowed: Any, level: int, kind: str) -> Any:
    """Bins of side 2^level, straight from the dense weights."""
    starts = [np.arange(0, n, 1 << level) for n in cells.shape]

    def both(how: Any, x: Any) -> Any:
        return how.reduceat(how.reduceat(x, starts[0], axis=0), starts[1], axis=1)

    count = both(np.add, allowed.astype(np.int64))
    with np.errstate(invalid="ignore"):
        if kind == "mean":
            return both(np.add, np.where(allowed, cells, 0)) / count
        return np.where(count == 0, np.nan, both(np.maximum, np.where(allowed, cells, -np.inf)))


def whole(tiles: Pyramid, level: int) -> Any:
    height, width = tiles.grid(level)
    return np.block([[tiles.tile(level, r, c) for c in range(width)] for r in range(height)])


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize("name", MASKS)
def test_every_level_is_the_dense_weights_pooled(name: str, kind: str, engine: str) -> None:
    here = site(mask=MASKS[name], softcap=5.0, sinks=np.float32([0, 1, -1, 2]))
    cells, allowed = (x[1, 3] for x in dense(here.call))
    rough = plain(here.call, np.float32)[1, 3]
    for budget in (0, 64 << 20):
        tiles = Pyramid(here, head=3, batch=1, tile=32, pool=kind, budget=budget, engine=engine)
        assert tiles.levels == 4
        for level in range(tiles.levels):
            got = whole(tiles, level)
            assert got.shape == tiles.shape(level)
            exact, near = (pool_up(x, allowed, level, kind) for x in (cells, rough))
            assert_as_good(here.call, got, exact, near, f"{name} {kind} level {level}")


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", MASKS)
def test_levels_agree_whichever_way_they_are_made(name: str, engine: str) -> None:
    """A level made from the one under it has the bits of the level made from the cells."""
    here = site(mask=MASKS[name])
    for kind in ("max", "mean"):
        direct = Pyramid(here, head=0, tile=32, pool=kind, budget=0, engine=engine)
        built = Pyramid(here, head=0, tile=32, pool=kind, engine=engine)
        for level in range(direct.levels):
            a, b = whole(direct, level), whole(built, level)
            if kind == "max":
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, rtol=3e-7)


def test_a_weight_that_is_not_a_number_stays_visible() -> None:
    here = site(64, 64, mask=ll.Causal())
    here.key[0, 0, 40] = np.nan
    for budget in (0, 64 << 20):
        tiles = Pyramid(here, head=0, tile=32, budget=budget, engine="numpy")
        whole(tiles, 0)
        top = tiles.tile(1, 0, 0)
        assert np.isnan(top[20:]).all()
        assert np.isfinite(top[:20][np.tril_indices(20)]).all()


def test_tiles_are_made_from_below_where_that_is_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = Pyramid(site(), head=0, tile=32, engine="numpy")
    whole(tiles, 0)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("computed from the cells")

    monkeypatch.setattr(module, "pooled", never)
    for level in range(1, tiles.levels):
        whole(tiles, level)


def test_the_least_recently_used_goes_first() -> None:
    one = 32 * 32 * 4
    tiles = Pyramid(site(128, 128), head=0, tile=32, budget=3 * one, engine="numpy")
    for column in range(3):
        tiles.tile(0, 0, column)
    tiles.tile(0, 0, 0)
    tiles.tile(0, 0, 3)
    assert tiles.kept == 3 * one
    assert [Address(0, 0, c) in tiles for c in range(4)] == [True, False, True, True]
    none = Pyramid(site(), head=0, tile=32, budget=one - 1, engine="numpy")
    assert none.tile(0, 0, 0).shape == (32, 32)
    assert none.kept == 0


def test_a_tile_cannot_be_changed_under_others() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Pyramid(site(), head=0, engine="numpy").tile(0, 0, 0)[0, 0] = 1


def test_work_is_called_off_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORK", 64)
    tiles = Pyramid(site(), head=0, tile=32, engine="numpy")
    steps = []

    def after_three() -> bool:
        steps.append(len(steps))
        return len(steps) > 3

    with pytest.raises(Cancelled, match="called off before it was done"):
        tiles.tile(3, 0, 0, cancel=after_three)
    assert len(steps) == 4
    assert tiles.kept == 0
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        tiles.tile(3, 0, 0, cancel=stop)
    assert tiles.tile(3, 0, 0).shape == (19, 26)
    assert tiles.tile(3, 0, 0, cancel=stop).shape == (19, 26)  # what is there costs no work


def test_threads_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = Pyramid(site(), head=0, tile=64, engine="numpy")
    tiles.tile(0, 0, 1)  # the row statistics are there
    calls, go = [], threading.Event()
    real = module.pooled

    def slow(*args: Any, **options: Any) -> Any:
        calls.append(args)
        go.wait(5)
        return real(*args, **options)

    monkeypatch.setattr(module, "pooled", slow)
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(tiles.tile(0, 0, 0))) for _ in range(6)]
    for thread in threads:
        thread.start()
    stop = threading.Event()
    impatient = threading.Thread(target=lambda: got.append(_caught(tiles, stop)))
    impatient.start()
    stop.set()
    impatient.join(5)
    assert isinstance(got[0], Cancelled)  # one who waits for another's work may leave
    go.set()
    for thread in threads:
        thread.join(5)
    assert len(calls) == 1
    assert all(tile is got[1] for tile in got[1:])


def _caught(tiles: Pyramid, stop: threading.Event) -> Any:
    try:
        return tiles.tile(0, 0, 0, cancel=stop)
    except Cancelled as error:
        return error


def test_one_that_fails_leaves_the_tile_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = Pyramid(site(), head=0, engine="numpy")
    with monkeypatch.context() as patch:
        patch.setattr(module, "pooled", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tiles.tile(0, 0, 0)
    assert tiles.tile(0, 0, 0).shape == (150, 203)


def test_which_cells_a_tile_covers() -> None:
    tiles = Pyramid(site(), head=0, tile=32, engine="numpy")
    assert tiles.cells(1, 2, 3) == (range(128, 150), range(192, 203))
    assert "150 × 203, max, 4 levels of 32 × 32 tiles" in repr(tiles)


def test_small_matrices_have_one_tile() -> None:
    tiles = Pyramid(site(1, 1), head=0, engine="numpy")
    assert (tiles.levels, tiles.grid(0)) == (1, (1, 1))
    np.testing.assert_array_equal(tiles.tile(0, 0, 0), [[1.0]])
    assert [Pyramid(site(n, n), 0).levels for n in (256, 257, 512, 513)] == [1, 2, 2, 3]


@pytest.mark.parametrize(("make", "text"), [
    (lambda s: Pyramid(s, 0, pool="sum"), "pool='sum': choose 'max'"),
    (lambda s: Pyramid(s, 0, tile=100), "tile=100: give a power of two"),
    (lambda s: Pyramid(s, 0, budget=-1), "budget=-1: give the bytes"),
    (lambda s: Pyramid(s, 7), "there is no head 7: there are 4, numbered from 0"),
    (lambda s: Pyramid(s, 0, batch=2), "there is no batch entry 2: there are 2"),
    (lambda s: Pyramid(s, 0).tile(2, 0, 0), "level 2 is outside the pyramid's 1: 0 shows single cells"),
    (lambda s: Pyramid(s, 0, tile=32).tile(0, 5, 0), r"tile \(5, 0\) is outside level 0: it has 5 × 7 tiles"),
    (lambda s: Pyramid(s, 0).tile(0, 0, 0, cancel=3), "cancel=3: give a function"),
    (lambda s: Pyramid(site(0, 5), 0), "0 queries and 5 keys: there is no cell to show"),
])  # fmt: skip
def test_errors_say_what_to_do(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make(site())
