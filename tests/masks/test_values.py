"""Masks: the dense form is the definition, and everything that engines read agrees with it."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import limelight as ll
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.masks import Explicit, Mask, as_mask
from limelight.masks.allowed import EMPTY, FULL, MOST_SLOTS, PARTIAL

SIZES = st.tuples(st.integers(0, 12), st.integers(0, 12))


def leaves(nq: int, nk: int) -> st.SearchStrategy[Mask]:
    align = st.sampled_from(["bottom-right", "top-left"])
    width = st.one_of(st.none(), st.integers(0, 5))
    numbers = st.one_of(st.integers(0, nk), st.lists(st.integers(0, nk), min_size=2, max_size=2))
    return st.one_of(
        st.builds(lambda a: ll.Causal(align=a), align),
        st.builds(ll.Window, width, width, align),
        st.builds(ll.Lengths, numbers),
        st.builds(lambda n, q: ll.Lengths(n, queries=q), st.integers(0, nk), st.integers(0, nq)),
        st.builds(ll.Prefix, numbers),
        st.builds(
            as_mask, arrays(np.bool_, st.sampled_from([(nk,), (nq, nk), (nq, 1), (2, 1, 1, nk)]))
        ),
        st.builds(
            ll.Documents,
            st.lists(st.integers(0, 3), min_size=nk, max_size=nk),
            st.lists(st.integers(0, 3), min_size=nq, max_size=nq),
        ),
    )


def trees(nq: int, nk: int) -> st.SearchStrategy[Mask]:
    return st.recursive(
        leaves(nq, nk),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=4,
    )


@st.composite
def masks(draw: Any, count: int = 1) -> tuple[Any, ...]:
    nq, nk = draw(SIZES)
    return (nq, nk, *(draw(trees(nq, nk)) for _ in range(count)))


def cells(mask: Mask, nq: int, nk: int) -> np.ndarray:
    """The mask as engines see it, at most two batch entries."""
    dense = mask.dense(nq, nk)
    batch = dense.shape[:-3] if dense.ndim > 2 else ()
    allowed = mask.allowed(nq, nk).flatten(batch or (1,), 1)
    tile = allowed.tile(np.arange(nq), np.arange(nk))
    shape = (batch[0] if batch else 1, 1, nq, nk)
    return np.ones(shape, bool) if tile is None else np.broadcast_to(tile, shape)


@given(masks())
def test_what_engines_read_is_the_dense_form(drawn: tuple[int, int, Mask]) -> None:
    nq, nk, mask = drawn
    dense = mask.dense(nq, nk)
    np.testing.assert_array_equal(
        cells(mask, nq, nk), dense if dense.ndim > 2 else dense[None, None]
    )


@given(masks(), st.integers(1, 5), st.integers(1, 5))
def test_blocks_are_right(drawn: tuple[int, int, Mask], height: int, width: int) -> None:
    nq, nk, mask = drawn
    blocks = mask.blocks(nq, nk, (height, width))
    dense = np.broadcast_to(mask.dense(nq, nk), (*blocks.shape[:-2], nq, nk))
    for i in range(blocks.shape[-2]):
        for j in range(blocks.shape[-1]):
            block = dense[..., i * height : (i + 1) * height, j * width : (j + 1) * width]
            expected = np.where(
                block.all((-1, -2)), FULL, np.where(block.any((-1, -2)), PARTIAL, EMPTY)
            )
            np.testing.assert_array_equal(blocks[..., i, j], expected)


@given(masks(), st.data())
def test_counts_and_reach(drawn: tuple[int, int, Mask], data: st.DataObject) -> None:
    nq, nk, mask = drawn
    dense = mask.dense(nq, nk)
    batch = dense.shape[:-3] if dense.ndim > 2 else ()
    allowed = mask.allowed(nq, nk).flatten(batch or (1,), 1)
    count = np.broadcast_to(allowed.count(), (batch[0] if batch else 1, 1, nq))
    np.testing.assert_array_equal(
        count, dense.sum(-1) if dense.ndim > 2 else dense.sum(-1)[None, None]
    )
    start = data.draw(st.integers(0, nq))
    stop = data.draw(st.integers(start, nq))
    first, last = allowed.reach(start, stop)
    rest = dense[..., start:stop, :].copy()
    rest[..., first:last] = False
    assert not rest.any()


@given(masks(count=2))
def test_laws(drawn: tuple[int, int, Mask, Mask]) -> None:
    nq, nk, a, b = drawn

    def same(x: Mask, y: Mask) -> bool:
        shape = np.broadcast_shapes(x.dense(nq, nk).shape, y.dense(nq, nk).shape)
        return np.array_equal(
            np.broadcast_to(x.dense(nq, nk), shape), np.broadcast_to(y.dense(nq, nk), shape)
        )

    assert same(~~a, a)
    assert same(~(a & b), ~a | ~b)
    assert same(~(a | b), ~a & ~b)
    assert same(a & b, b & a)
    assert same(a | b, b | a)
    assert same(a & (a | b), a)
    assert not (a & ~a).dense(nq, nk).any()
    assert (a | ~a).dense(nq, nk).all()


def test_alignments() -> None:
    assert ll.Causal().dense(2, 4).tolist() == [[True, True, True, False], [True] * 4]
    top_left = ll.Causal(align="top-left").dense(2, 4)
    assert top_left.tolist() == [[True, False, False, False], [True, True, False, False]]
    assert ll.Causal().dense(3, 1).tolist() == [[False], [False], [True]]
    assert ll.Window(1, 0).dense(2, 4).tolist() == [
        [False, True, True, False],
        [False, False, True, True],
    ]


def test_documents_with_fewer_queries_are_the_last() -> None:
    mask = ll.Documents([0, 0, 1, 1])
    assert mask.dense(1, 4).tolist() == [[False, False, True, True]]
    assert ll.Documents([0, 1], queries=[1, 1, 2]).dense(3, 2).tolist() == [[False, True]] * 2 + [
        [False] * 2
    ]


def test_structured_masks_stay_small() -> None:
    n = 1 << 16
    ids = np.repeat(np.arange(64), n // 64)
    mask = (ll.Causal() & ll.Documents(ids)) | ll.Prefix(100) | ~ll.Window(1000, None)
    allowed = mask.allowed(n, n)
    assert allowed.dense is None
    assert allowed.spans is not None
    assert allowed.spans.nbytes < 5 * n * 8


def test_boolean_arrays_join_in() -> None:
    array = np.array([[True, False], [True, True]])
    for mask in (ll.Causal() & array, array & ll.Causal(), ll.Causal() & array.tolist()):
        assert isinstance(mask, Mask)
        assert mask.dense(2, 2).tolist() == [[True, False], [True, True]]
    assert (array | ~ll.Causal()).dense(2, 2).tolist() == [[True, True], [True, True]]


def test_masks_are_values() -> None:
    assert ll.Causal() == ll.Causal()
    assert ll.Causal() != ll.Causal(align="top-left")
    assert ll.Lengths([1, 2]) == ll.Lengths(np.array([1, 2]))
    assert len({ll.Window(1, 2) & ll.Causal(), ll.Window(1, 2) & ll.Causal(), ll.Prefix(3)}) == 2
    lengths = np.array([1, 2])
    mask = ll.Lengths(lengths)
    lengths[0] = 9
    assert mask == ll.Lengths([1, 2])
    with pytest.raises(AttributeError):
        ll.Causal().align = "top-left"  # type: ignore[misc]


def test_repr_draws() -> None:
    assert repr(ll.Causal(align="top-left") & ll.Window(1, None)).splitlines()[:3] == [
        "Causal(align='top-left') & Window(left=1, right=None)",
        "■ · · · · · · ·",
        "■ ■ · · · · · ·",
    ]
    assert repr(ll.Documents([0, 1])) == "Documents([0, 1])\n■ ·\n· ■"
    assert "batch 1:" in repr(ll.Lengths([1, 2]))
    assert "▒" in ll.Causal().draw(1000, 1000)
    assert max(len(line) for line in ll.Causal().draw(1000, 1000).splitlines()) < 70
    assert repr(ll.Causal() & True) == f"Causal() & mask1×1\n{ll.Causal().draw()}"


@given(masks())
def test_what_fits_some_size_draws_itself(drawn: tuple[int, int, Mask]) -> None:
    """Of a mask's parts one may need its size, while another would do with any that is larger."""
    _, _, mask = drawn
    assert repr(mask) == f"{mask.expression}\n{mask.draw()}"


def test_what_fits_no_size_says_so_where_it_would_draw_itself() -> None:
    assert "has 2 ids for keys" in repr(ll.Documents([0, 1]) & ll.Documents([0, 1, 2]))
    assert "4,294,967,296 keys: a call has up to" in repr(ll.Lengths(2**32))
    meta = torch.ones(3, 3, dtype=torch.bool, device="meta")
    assert "is on meta" in repr(ll.Causal() & meta)


@pytest.mark.parametrize("mask", [ll.Lengths([]), ll.Documents(np.zeros((0, 4), int)),
    ~ll.Prefix([]), ll.Causal() & np.ones((0, 1, 3, 3), bool), as_mask(np.ones((2, 0, 3, 3), bool)),
])  # fmt: skip
def test_a_mask_of_no_batch_has_nothing_to_draw(mask: Mask) -> None:
    assert repr(mask) == f"{mask.expression}\n"
    assert 0 in mask.blocks(*mask._size()).shape[:2]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ll.Causal(align="left"), ArgumentError, "align='left'.*'bottom-right'.*'top-left'"),
        (lambda: ll.Window(-1, 0), ArgumentError, r"Window\(left=-1\).*whole number ≥ 0"),
        (lambda: ll.Window(1.5, 0), ArgumentError, r"Window\(left=1.5\)"),
        (lambda: ll.Lengths([-1]), ArgumentError, "numbers ≥ 0, and got -1"),
        (lambda: ll.Lengths([1.5]), DtypeError, "whole numbers, and got float64"),
        (lambda: ll.Lengths(9).dense(2, 4), ShapeError, "9 keys, but there are 4"),
        (lambda: ll.Lengths(4, queries=3).dense(2, 4), ShapeError, "3 queries, but there are 2"),
        (lambda: ll.Documents([0, 1]).dense(3, 3), ShapeError, "2 ids for keys.*3 keys and 3 queries"),
        (lambda: ll.Lengths(2, queries=1).dense(1, 1), ShapeError, "2 keys, but there are 1: lengths"),
        (lambda: ll.Documents([0]).dense(1, 3), ShapeError, "1 id for keys and 0 for .*3 keys and 1 query:"),
        (lambda: as_mask(np.ones((5, 4), bool)).dense(1, 1), ShapeError, "there are 1 query and 1 key:"),
        (lambda: ll.Documents(3), ShapeError, "one id for each position"),
        (lambda: ll.Documents(None), DtypeError, r"Documents\(ids=…\) takes whole numbers.*None"),
        (lambda: ll.Causal() & "causal", DtypeError, "text 'causal'.*limelight.Causal"),
        (lambda: ll.Causal() & np.ones((2, 2)), DtypeError, "this one is float64.*bias="),
        (lambda: as_mask(np.ma.array([[True]])), DtypeError, r"masked array.*mask.filled\(False\)"),
        (lambda: ll.masks.as_mask(ll.Causal), DtypeError, r"Causal is a class: write Causal\(\)$"),
        (lambda: ll.Causal() & ll.Lengths, DtypeError, r"Lengths is a class: write Lengths\(…\)$"),
        (lambda: ll.Causal() and ll.Prefix(1), ArgumentError, "&, | and ~, not and/or/not"),
    ],
)  # fmt: skip
def test_errors(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        make()
    assert isinstance(caught.value, ll.LimelightError)


@pytest.mark.parametrize("mask", [
    ll.Causal(), ll.Window(3, 3), ll.Prefix(3), ll.Lengths(4), ~ll.Prefix(3), ll.Causal() | ll.Prefix(3), ll.Causal() & ll.Lengths(4),
])  # fmt: skip
def test_more_keys_than_are_counted_are_refused(mask: Mask) -> None:
    """In 32 bits: more of them would wrap around, and a row would see fewer than none."""
    for nq, nk, words in (
        (4, 2**40, "1,099,511,627,776 keys"),
        (2**31, 4, "2,147,483,648 queries"),
    ):
        for look in (mask.allowed, mask.blocks, mask.draw):
            with pytest.raises(ShapeError, match=f"{words}: a call has up to 2,147,483,647"):
                look(nq, nk)
    query, key = np.zeros((1, 4, 8)), np.broadcast_to(np.zeros(8), (1, 2**40, 8))
    with pytest.raises(ShapeError, match="1,099,511,627,776 keys"):
        ll.attention(query, key, key, mask=mask)
    assert int(ll.Causal().allowed(4, 2**31 - 1).count().max()) == 2**31 - 1


@pytest.mark.parametrize(
    "make", [ll.Documents, ll.Lengths, ll.Prefix, lambda lists: ll.Causal() & lists]
)
def test_lists_that_are_no_array(make: Any) -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    for lists in (deep, [[1], [2, 3]]):
        with pytest.raises(ShapeError, match="ragged list"):
            make(lists)


def test_lists_without_an_entry_are_a_mask() -> None:
    assert as_mask([[], []]).dense(2, 0).dtype == np.bool_
    empty = np.ones((0, 4))
    assert ll.attention(np.ones((2, 4)), empty, empty, mask=[[], []]).tolist() == [[0] * 4] * 2
    with pytest.raises(DtypeError, match="this one is float64"):
        as_mask(np.ones((2, 0)))


SIDED: tuple[Mask, ...] = (
    ll.Causal(), ll.Window(1, 1), ll.Lengths([1]), ll.Documents([1, 1, 1]), ll.Prefix(2),
    ~ll.Causal(), ll.Causal() & ll.Prefix(1), as_mask(np.ones((1, 1), bool)),
)  # fmt: skip


@pytest.mark.parametrize("mask", SIDED, ids=lambda mask: mask.expression)
@pytest.mark.parametrize("sides", [(-1, 3), (3, -1), (2.5, 3), ("a", 3)])
def test_a_mask_is_for_whole_numbers_of_queries_and_keys(mask: Mask, sides: Any) -> None:
    for act in (mask.dense, mask.draw, mask.blocks, mask.allowed):
        with pytest.raises(ArgumentError, match=r"(queries|keys)=.*: a mask is for a whole number"):
            act(*sides)


@pytest.mark.parametrize("size", [(0, 4), (4, -1), 4, (2.5, 4), (4,), "ab", None])
def test_a_block_has_rows_and_columns(size: Any) -> None:
    with pytest.raises(ArgumentError, match=r"size=.*: give a block's rows and columns as a pair"):
        ll.Causal().blocks(8, 8, size)
    for most in (0, -1, 1.5, "x"):
        with pytest.raises(ArgumentError, match=r"most=.*: draw at least one row"):
            ll.Causal().draw(4, 4, most=most)


def test_what_was_worked_out_does_not_travel() -> None:
    torch = pytest.importorskip("torch")
    mask = ll.Causal() | ll.Prefix(3)
    before = pickle.dumps(mask)
    x = torch.zeros(1, 1, 9, 4)
    ll.attention(x, x, x, mask=mask)
    assert pickle.dumps(mask) == before
    assert pickle.loads(before) == mask
    causal = ll.Causal(align="top-left")
    assert pickle.loads(pickle.dumps(causal)) == causal


def test_a_huge_mask_draws_itself_at_once() -> None:
    for mask in (ll.Prefix(2**62), ll.Lengths([10**9, 5]), ll.Causal() | ll.Prefix(10**9)):
        assert "■" in repr(mask)


def test_widths_of_numpy_are_numbers_like_others() -> None:
    assert ll.Window(np.int64(2), np.int32(0)) == ll.Window(2, 0)
    assert type(ll.Window(np.int64(2), 0).left) is int


def test_scattered_documents_take_the_matrix_and_no_more() -> None:
    n = 3000
    mask = ll.Documents(np.arange(n) % 2)
    tracemalloc.start()
    allowed = mask.allowed(n, n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert allowed.dense is not None
    assert peak < 2 * n * n


def peak_of(mask: Mask, n: int) -> tuple[Any, int]:
    """What engines read of it, and the most memory it took to find out."""
    tracemalloc.start()
    allowed = mask.allowed(n, n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return allowed, peak


def test_one_row_for_all_joins_other_masks_as_intervals() -> None:
    n = 4001
    keep = np.zeros(n, np.bool_)
    keep[:: n // (MOST_SLOTS - 1)] = True
    for mask in (
        ll.Causal() | keep,
        ~(ll.Causal() & keep),
        (ll.Window(9, 0) | keep) & ll.Lengths([7, n]),
    ):
        allowed, peak = peak_of(mask, n)
        assert allowed.dense is None
        assert peak < n * n / 2


def test_what_is_the_same_for_all_rows_stays_one_row() -> None:
    n = 8009
    keep = np.arange(n) % 2 == 0
    batch = np.stack([keep, ~keep])[:, None, None]
    for mask in (
        ~as_mask(keep),
        as_mask(keep) | batch,
        ~(as_mask(keep) & batch),
        ll.Causal() & ~as_mask(keep),
    ):
        allowed, peak = peak_of(mask, n)
        assert allowed.dense.shape[-2:] == (1, n)
        assert peak < n * n / 4
    scattered, peak = peak_of(ll.Causal() | keep, n)  # no form is smaller than the cells
    assert scattered.dense.shape == (1, 1, n, n)
    assert peak < 3 * n * n


@pytest.mark.parametrize("shape", [(3,), (3, 3), (2, 1, 3, 3)])
@pytest.mark.parametrize("tensors", [False, True])
def test_an_array_that_joined_is_part_of_a_value(shape: tuple[int, ...], tensors: bool) -> None:
    array: Any = np.random.default_rng(0).random(shape) < 0.5
    array = torch.from_numpy(array) if tensors else array
    masks = [ll.Causal() & array, array & ll.Causal(), ll.Causal() | array, array | ll.Causal()]
    before = [np.asarray(mask.dense(3, 3)) for mask in masks]
    array[...] = ~array
    for mask, cells in zip(masks, before, strict=True):
        np.testing.assert_array_equal(mask.dense(3, 3), cells)
        if not tensors:
            part = next(side for side in vars(mask).values() if isinstance(side, Explicit))
            assert not part.array.flags.writeable


def test_an_array_passed_as_it_is_is_not_copied() -> None:
    for shape in ((3,), (3, 3)):
        array = np.ones(shape, bool)
        assert np.shares_memory(as_mask(array).array, array)


def test_documents_of_other_lengths_are_refused_on_either_side() -> None:
    ids = ll.Documents([0, 0, 1])
    for nq, nk in ((3, 4), (4, 3)):
        with pytest.raises(ShapeError, match="has 3 ids"):
            ids.allowed(nq, nk)


def test_the_reach_of_rows_is_the_smallest_that_holds_their_keys() -> None:
    both = (ll.Documents([0, 0, 1, 1]) & ll.Causal()).allowed(4, 4)
    assert both.reach(2, 4) == (2, 4)
    assert both.reach(0, 2) == (0, 2)
    assert ll.Causal().allowed(4, 4).reach(0, 2) == (0, 2)
    assert ll.Lengths(3).allowed(4, 4).reach(1, 4) == (0, 3)
