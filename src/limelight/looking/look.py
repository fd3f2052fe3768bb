"""Look: a call made ready to be looked at, with the engine that looks and the rows' logsumexp.

A fused pass never holds the weights, but it leaves each row's logsumexp, and with that

    weight(i, j) = exp(scale · qᵢ·kⱼ → softcap → + bias  −  logsumexpᵢ)

so any weight is one dot product away. What is looked at costs what is looked at, in O(picture + n)
memory; a logsumexp that is at hand is reused, and without one a single pass over the keys finds it.

Torch tensors may come in, on any device; what comes out is NumPy, there to be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_array, is_torch
from limelight.call import Call
from limelight.engines import choose
from limelight.engines.protocol import Looks
from limelight.errors import ShapeError

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Look:
    """What a look needs; `logsumexp` is of the call's kind, on its device, [B, Hq, Nq]."""

    call: Call
    engine: Looks
    logsumexp: Any

    @classmethod
    def at(
        cls, call: Call, engine: str, start: int, stop: int, logsumexp: Array | None = None
    ) -> Look:
        """At rows start..stop of a call, of which the logsumexp is found unless it is given.

        Tensors on a CPU become NumPy arrays. Weights need no values, but GPU engines want some to
        mix: the keys will do.
        """
        if is_torch(call.query):
            call = call.numpy() if call.device == "cpu" else _detached(call)
        if not is_torch(call.query) and call.value_size:
            call = replace(call, value=call.key[..., :0])
        chosen = choose(call, engine)
        if logsumexp is None and not call.empty:
            logsumexp = chosen.module.forward(call.some_rows(start, stop), health=False).logsumexp
            if (start, stop) != (0, call.queries):
                logsumexp = _among_all(call, start, stop, logsumexp)
        return cls(call, chosen.looking, _beside(call, logsumexp))

    def nothing(self, *shape: int) -> Array:
        """What there is to see of a call without a cell, in the type of its weights."""
        dtype = np.float64 if self.call.dtype == "float64" else np.float32
        return np.zeros((self.call.batch, self.call.query_heads, *shape), dtype)


def _detached(call: Call) -> Call:
    given = (call.query, call.key, call.bias, call.sinks)
    query, key, bias, sinks = (None if tensor is None else tensor.detach() for tensor in given)
    return replace(call, query=query, key=key, value=key, bias=bias, sinks=sinks)


def _among_all(call: Call, start: int, stop: int, found: Any) -> Array:
    """The logsumexp of some rows in its place among those of all."""
    part = as_array(found)
    whole = np.full((call.batch, call.query_heads, call.queries), np.nan, part.dtype)
    whole[:, :, start:stop] = part
    return whole


def _beside(call: Call, array: Any) -> Any:
    if array is None or not is_torch(call.query):
        return array
    import torch

    return torch.as_tensor(array, device=call.query.device).contiguous()


def check_logsumexp(call: Call, logsumexp: Any) -> Array | None:
    """One that the caller has from an earlier pass, as [B, Hq, Nq]."""
    if logsumexp is None:
        return None
    array = as_array(logsumexp)
    lead = call.batch_shape if call.headless else (*call.batch_shape, call.query_heads)
    if array.shape != (*lead, call.queries):
        raise ShapeError(
            f"the logsumexp has shape {array.shape}, but one number a row is "
            f"{(*lead, call.queries)}: pass that of the same queries and keys, of all "
            f"rows"
        )
    return array.reshape(call.batch, call.query_heads, call.queries)
