"""What masks remember: the same object for the same question, and nothing that can change."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import limelight as ll
from limelight.call import prepare
from limelight.masks import Mask, as_mask
from limelight.masks.memory import MOST

MASKS = [
    ll.Lengths([2, 3]),
    ll.Documents([0, 0, 1, 1, 1]),
    ll.Causal() | ll.Prefix(2),
    ll.Causal() & ~ll.Lengths(3),
    ll.Documents([0, 1] * 40),  # too scattered for intervals
    ll.Prefix(2) & np.ones((5, 5), bool),
]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.expression)
def test_a_mask_works_out_each_size_once(mask: Mask) -> None:
    n = 80 if isinstance(mask, ll.Documents) and mask.ids.size > 5 else 5
    assert mask.allowed(n, n) is mask.allowed(n, n)


def test_every_call_of_a_shape_reads_the_same_intervals() -> None:
    mask, x = ll.Lengths([2, 3]), np.ones((2, 1, 5, 4), np.float32)
    first, second = (prepare(x, x, x, mask=mask).allowed for _ in range(2))
    assert first is second
    assert first.spans is not None


def test_a_mask_forgets_rather_than_grow() -> None:
    mask = ll.Prefix(3)
    for n in range(3 * MOST):
        mask.allowed(n, n)
    assert 0 < len(mask.memory) <= MOST


def test_an_array_that_can_be_written_to_is_read_each_time() -> None:
    array = np.ones((1, 5), bool)
    for mask in (~as_mask(array), ll.Causal() | as_mask(array), ~~as_mask(array)):
        array[:] = True
        before = mask.allowed(5, 5).count().sum()
        array[:, 2:] = False
        assert mask.allowed(5, 5).count().sum() != before


def test_copies_begin_without_a_memory() -> None:
    mask = ll.Lengths([2, 3])
    allowed = mask.allowed(5, 5)
    assert allowed.rows.shape
    assert allowed.flatten((2,), 1) is allowed.flatten((2,), 1)
    for value in (mask, allowed):
        for other in (copy.copy(value), pickle.loads(pickle.dumps(value))):
            assert not {"memory", "rows"} & set(vars(other))


def test_what_kernels_take_and_counts_of_keys_stand_side_by_side() -> None:
    torch = pytest.importorskip("torch")
    from limelight.engines.gpu.masks import mask_arguments
    from limelight.masks.tensors import count_keys

    allowed = ll.Lengths([2, 3]).allowed(3, 4)
    device = torch.device("cpu")
    for _ in range(2):
        assert mask_arguments(allowed, device).slots == 1
        assert count_keys(allowed, None, device)[:, 0, 0].tolist() == [2, 3]
