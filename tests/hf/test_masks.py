"""Masks as rules: the same cells as Transformers' own booleans, without holding them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers import masking_utils as theirs
from transformers.models.llama import modeling_llama

from limelight.hf.compact import CompactMask
from limelight.hf.masks import KINDS, mask
from limelight.masks import Causal, Window

BATCH = 2
SDPA = LlamaConfig()  # of a family that runs on sdpa
assert modeling_llama.LlamaModel._supports_sdpa
IDS = torch.tensor([[0] * 4 + [1] * 5 + [2] * 14, [0] * 9 + [1] * 14])
BLOCKS = torch.tensor([[-1] * 3 + [0] * 4 + [-1] * 2 + [1] * 3 + [-1] * 11, [-1] * 23])


def odd(batch: Any, head: Any, query: Any, key: Any) -> Any:
    """A rule that nobody knows: every second key, and the query's own."""
    return (key % 2 == 0) | (key == query)


FUNCTIONS = {
    "causal": theirs.causal_mask_function,
    "everything": theirs.bidirectional_mask_function,
    "window": theirs.sliding_window_causal_mask_function(3),
    "no window": theirs.sliding_window_causal_mask_function(0),
    "no window alone": theirs.sliding_window_overlay(0),
    "both ways": theirs.sliding_window_bidirectional_mask_function(2),
    "chunks": theirs.chunked_causal_mask_function(4, torch.tensor([3, 0])),
    "packed": theirs.and_masks(
        theirs.causal_mask_function, theirs.packed_sequence_mask_function(IDS)
    ),
    "unknown": theirs.and_masks(theirs.causal_mask_function, odd),
    "unknown alone": odd,
}
if hasattr(theirs, "blockwise_overlay"):  # not every 5.x has it
    FUNCTIONS["blocks"] = theirs.or_masks(
        theirs.causal_mask_function, theirs.blockwise_overlay(BLOCKS)
    )
# queries, keys, the first query's position, the first key's position
VIEWS = {
    "one pass": (11, 11, 0, 0),
    "next token": (1, 12, 11, 0),
    "several next": (3, 14, 11, 0),
    "static cache, first": (7, 17, 0, 0),
    "static cache, next": (1, 17, 9, 0),
    "static cache, several next": (4, 17, 9, 0),
    "sliding cache": (1, 5, 11, 7),
}
PADDINGS = {
    "none": None,
    "left": [[0] * 3 + [1] * 20, [1] * 23],
    "right": [[1] * 23, [1] * 8 + [0] * 15],
    "both": [[0] * 2 + [1] * 18 + [0] * 3, [0] + [1] * 22],
    "holes": [[1, 1, 0, 1, 0, 0] + [1] * 17, [1] * 23],
    "an empty entry": [[0] * 23, [1] * 23],
}


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("function", "view"), list(itertools.product(FUNCTIONS, VIEWS)))
def test_cells_are_those_of_transformers(function: str, view: str, padding: str) -> None:
    nq, nk, q_offset, k_offset = VIEWS[view]
    flags = PADDINGS[padding]
    real = None if flags is None else torch.tensor(flags, dtype=torch.bool)[:, : k_offset + nk]
    where = {"batch_size": BATCH, "q_length": nq, "kv_length": nk, "q_offset": q_offset,
             "kv_offset": k_offset, "attention_mask": real,
             "mask_function": FUNCTIONS[function], "use_vmap": "unknown" in function}  # fmt: skip
    expected = theirs.sdpa_mask(**where, allow_is_causal_skip=False)
    found = mask(**where, allow_is_causal_skip=nq == 1)
    if found is None:  # everything is visible
        found = torch.ones_like(expected)
    torch.testing.assert_close(found & True, expected.expand(BATCH, 1, nq, nk))


@pytest.mark.parametrize("view", ["one pass", "static cache, first"])
def test_plain_causal_needs_no_mask(view: str) -> None:
    nq, nk, q_offset, k_offset = VIEWS[view]
    assert mask(BATCH, nq, nk, q_offset, k_offset, config=SDPA) is None
    assert mask(BATCH, nq, nk, q_offset, k_offset) is not None  # of a model that nobody knows


def test_everything_needs_no_mask() -> None:
    function = theirs.bidirectional_mask_function
    real = torch.ones((BATCH, 7), dtype=torch.bool)
    assert mask(BATCH, 5, 7, mask_function=function, attention_mask=real,
                allow_is_causal_skip=False, allow_is_bidirectional_skip=True,
                config=SDPA) is None  # fmt: skip


def test_padding_at_an_end_is_a_length() -> None:
    real = torch.ones((BATCH, 11), dtype=torch.bool)
    real[0, -3:] = False
    found = mask(BATCH, 11, 11, attention_mask=real)
    assert isinstance(found, CompactMask)
    assert found.rule is not None
    assert found.rule.expression == "Causal() & Lengths([8, 11])"


def test_a_mask_that_is_asked_for_is_there() -> None:
    """Some models join masks, and then need one even where it hides nothing."""
    function = theirs.bidirectional_mask_function
    found = mask(BATCH, 5, 7, mask_function=function, allow_is_causal_skip=False)
    assert torch.cat([found, found], dim=-1).shape == (BATCH, 1, 5, 14)


def test_every_kind_of_transformers_is_known() -> None:
    """Should Transformers rename what its functions close over, this says so first."""
    for name, function in FUNCTIONS.items():
        assert (function.__code__ in KINDS) != (name == "unknown alone")


def test_memory_is_linear() -> None:
    n = 1 << 17  # n² booleans would take 16 GiB
    real = torch.ones((1, n), dtype=torch.bool)
    real[:, :5] = False
    found = mask(1, n, n, attention_mask=real)
    assert isinstance(found, CompactMask)
    assert found.shape == (1, 1, n, n)
    assert found.rule.expression == "Causal() & ~Prefix([5])"
    window = mask(1, n, n, mask_function=theirs.sliding_window_causal_mask_function(9))
    assert window.rule == Window(8, 0)


def test_a_compact_mask_is_a_tensor_to_everybody_else() -> None:
    found = mask(BATCH, 3, 5, 2, allow_is_causal_skip=False)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.bool
    assert found.ndim == 4
    truth = torch.from_numpy(Causal().dense(3, 5))
    torch.testing.assert_close(found[:, :, 1:, :2], truth[1:, :2].expand(BATCH, 1, 2, 2))
    torch.testing.assert_close(found[:, :, -1:], truth[-1:].expand(BATCH, 1, 1, 5))
    torch.testing.assert_close(found[:, :, ::2], truth[::2].expand(BATCH, 1, 2, 5))
    torch.testing.assert_close(found.to(torch.float32), truth.float().expand(BATCH, 1, 3, 5))
    assert "Causal() on 5 keys" in repr(found)
    assert found.detach() is found


def test_a_mask_made_beforehand_is_kept() -> None:
    found = mask(BATCH, 3, 5, 2, allow_is_causal_skip=False)
    assert mask(BATCH, 3, 5, 2, attention_mask=found) is found


def test_while_tracing_the_mask_is_a_plain_tensor() -> None:
    real = torch.ones((BATCH, 7), dtype=torch.bool)

    def traced(flags: torch.Tensor) -> torch.Tensor:
        return mask(BATCH, 7, 7, attention_mask=flags) & True

    compiled = torch.compile(traced, backend="eager", fullgraph=True)
    real[0, :2] = False
    expected = theirs.sdpa_mask(BATCH, 7, 7, attention_mask=real)
    torch.testing.assert_close(compiled(real), expected)


def test_the_unknown_is_evaluated_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limelight.hf.masks.CELLS", 50)
    where = {"mask_function": odd, "use_vmap": True, "allow_is_causal_skip": False}
    found = mask(BATCH, 11, 11, **where)
    expected = theirs.sdpa_mask(BATCH, 11, 11, **where)
    np.testing.assert_array_equal(np.asarray(found.cells()), np.asarray(expected))
