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
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import torch

MASKS = 64  # uploaded masks and plans that are kept
MOST_ROOM = 1 << 22  # numbers that are kept for what a call writes on the way
FLAGS = 1 << 16  # of the usual size: another one is made apart, which takes a while
Made = TypeVar("Made")


@dataclass(frozen=True)
class _Kept:
    owner: Any  # lives as long
    tensor: torch.Tensor
    streams: set[int] = field(default_factory=set)  # that have read it


_masks: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
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
        found = _masks.get(full)
        if found is not None:
            _masks.move_to_end(full)
        else:
            found = _masks[full] = _Kept(owner, apart(make, device))
            if len(_masks) > MASKS:
                _masks.popitem(last=False)
    if device.type == "cuda":
        _use(found, device)
    return found.tensor


def _use(kept: _Kept, device: torch.device) -> None:
    """The current stream reads it: its memory is not used again before that is done."""
    if torch._C._cuda_isCurrentStreamCapturing():
        _in_graphs[kept.tensor.data_ptr()] = kept.tensor
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    if stream not in kept.streams:
        kept.tensor.record_stream(torch.cuda.current_stream(device))
        kept.streams.add(stream)


@cache
def number(device: torch.device) -> torch.Tensor:
    """A float32 of no meaning."""
    return apart(lambda: torch.empty((), dtype=torch.float32, device=device), device)


@cache
def _zeros(device: torch.device, stream: int, size: int) -> torch.Tensor:
    return apart(lambda: torch.zeros(size, dtype=torch.int32, device=device), device)


def zeros(device: torch.device, size: int) -> torch.Tensor:
    """At least `size` flags or counters at zero, which kernels leave at zero: kept a stream.

    While a CUDA graph is captured they are its own, so that replays may run beside other work.
    """
    if device.type != "cuda" or torch._C._cuda_isCurrentStreamCapturing():
        return torch.zeros(size, dtype=torch.int32, device=device)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    return _zeros(device, stream, FLAGS if size <= FLAGS else 1 << (size - 1).bit_length())


@cache
def _room(device: torch.device, stream: int, size: int, what: str) -> torch.Tensor:
    return apart(lambda: torch.empty(size, dtype=torch.float32, device=device), device)


def room(device: torch.device, size: int, what: str) -> torch.Tensor:
    """At least `size` numbers, float32, for what a call writes and nobody reads after it.

    Kept a stream and a purpose, up to MOST_ROOM numbers; while a CUDA graph is captured they are
    its own.
    """
    if device.type != "cuda" or size > MOST_ROOM or torch._C._cuda_isCurrentStreamCapturing():
        return torch.empty(size, dtype=torch.float32, device=device)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    return _room(device, stream, max(1 << 18, 1 << (size - 1).bit_length()), what)
