"""Tensors that outlive a call: flags at zero, uploaded masks, plans made from them.

They are made by another thread, on a stream of its own: while torch warms up a CUDA graph, all that
the calling thread allocates belongs to the graph and must not be kept by anybody else, and nothing
waits for what the caller's stream has still to do.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import torch

MASKS = 64  # uploaded masks and plans that are kept
Made = TypeVar("Made")
_masks: OrderedDict[tuple[Any, ...], tuple[Any, torch.Tensor]] = OrderedDict()
_in_graphs: dict[int, torch.Tensor] = {}  # a captured graph reads them whenever it is replayed
_lock = threading.Lock()


@cache
def _side(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def apart(make: Callable[[], Made], device: torch.device) -> Made:
    """What `make` gives, made by another thread and complete on return."""
    if device.type != "cuda":
        return make()

    def work() -> Made:
        with torch.cuda.stream(_side(device)):
            made = make()
        _side(device).synchronize()
        return made

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def remember(
    owner: Any, key: tuple[Any, ...], make: Callable[[], torch.Tensor], device: torch.device
) -> torch.Tensor:
    """The tensor that `make` gives, kept while it is among the last used; `owner` lives as long."""
    full = (id(owner), device, *key)
    with _lock:
        if full in _masks:
            _masks.move_to_end(full)
            found = _masks[full][1]
        else:
            found = apart(make, device)
            _masks[full] = (owner, found)
            if len(_masks) > MASKS:
                _masks.popitem(last=False)
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            _in_graphs[found.data_ptr()] = found
        found.record_stream(torch.cuda.current_stream(device))  # not reused before that is done
    return found


@cache
def _zeros(device: torch.device, stream: int, size: int) -> torch.Tensor:
    return apart(lambda: torch.zeros(size, dtype=torch.int32, device=device), device)


def zeros(device: torch.device, size: int) -> torch.Tensor:
    """At least `size` flags or counters at zero, which kernels leave at zero: kept a stream.

    While a CUDA graph is captured they are its own, so that replays may run beside other work.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(size, dtype=torch.int32, device=device)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    return _zeros(device, stream, 1 << max(size - 1, 1).bit_length())
