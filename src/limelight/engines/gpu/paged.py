"""How the portable kernels run a forward pass over keys and values in pages, by their table.

The kernels find a key by its page (`cells.in_memory`); all else is as over keys that lie together.
A tile of keys that a row's interval ends in is mixed with care: past a sequence's end lies what
another one left there.
"""

from __future__ import annotations

import torch

from limelight.call import Call
from limelight.engines.gpu import blocks, launch
from limelight.engines.gpu.cells import Array, Where
from limelight.engines.gpu.decode import decode_kernel
from limelight.engines.gpu.forward import Rows, forward_kernel
from limelight.engines.gpu.portable import between_parts, split_kernel, tile_kernel, upright
from limelight.masks.allowed import Allowed
from limelight.reference import State


def fits(query: torch.Tensor, value: torch.Tensor, largest: int) -> bool:
    """Whether the kernels take such head sizes as they are: pages are not copied to pad them."""
    sizes = query.shape[-1], value.shape[-1]
    return all(blocks.fitting(size) == size <= largest for size in sizes)


def forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, table: torch.Tensor, page: int,
    spans: torch.Tensor, sinks: torch.Tensor | None, scale: float, softcap: float | None,
    health: bool,
) -> State:  # fmt: skip
    """See protocol.RunsPages."""
    batch, _, rows, _ = query.shape
    keys = table.shape[1] * page
    shaped = [_in_shape(x, batch, keys) for x in (key, value)]
    form = (Allowed(rows, keys), None, scale, softcap, sinks)
    call = upright(Call(query, shaped[0], shaped[1], *form, (batch,), False))
    with launch.device_of(call):
        return _run(
            call, key, value, (table, table.stride(0), page.bit_length() - 1), spans, health
        )


def _run(
    call: Call, key: torch.Tensor, value: torch.Tensor, pages: tuple[torch.Tensor, int, int],
    spans: torch.Tensor, health: bool,
) -> State:  # fmt: skip
    state = launch.empty_state(call, health)(call)
    arguments = (
        launch.plain(call.query),
        _array(key, pages), _array(value, pages),
        Where(0, 0, spans, spans.stride(0), 0, spans.stride(2), None, 0, 0, 0, 0),
        launch.form_of(call), call.sinks, launch.plain(state.output),
        Rows(state.logsumexp, state.max_logit, state.entropy), launch.sizes_of(call),
    )  # fmt: skip
    if blocks.packs(call):
        (programs, constants, options), share, between = split_kernel(call, health, False, 1)
        parts = between_parts(call, between)
        launch.start(decode_kernel, programs, (*arguments, share, *parts()), constants, **options)
        return state
    for care in (False, True):  # and with care what something past an end spoilt
        programs, constants, options = tile_kernel(call, health, False, 1, care, care)
        launch.start(forward_kernel, programs, arguments, constants, **options)
    return state


def _in_shape(rows: torch.Tensor, batch: int, keys: int) -> torch.Tensor:
    """A tensor of the shape that keys would have together, in one number's memory."""
    heads, _, size = rows.shape
    return rows[:1, :1, :1].expand(heads, keys, size)[None].expand(batch, -1, -1, -1)


def _array(rows: torch.Tensor, pages: tuple[torch.Tensor, int, int]) -> Array:
    head, row, number = rows.stride()
    return Array(rows, 0, head, row, number, *pages)
