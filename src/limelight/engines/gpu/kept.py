"""Tensors that outlive a call: flags at zero, uploaded masks, plans made from them, slabs.

They are made by another thread, on a stream of its own: while torch warms up a CUDA graph, all that
the calling thread allocates belongs to the graph and must not be kept by anybody else, and nothing
waits for what the caller's stream has still to do.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, TypeVar

import torch

MASKS = 64  # uploaded masks and plans that are kept
MOST_ROOM = 1 << 22  # numbers that are kept for what a call writes on the way
SLAB = 1 << 17  # numbers that are given out piece by piece, up to PIECE of them together
PIECE = 256
FLAGS = 1 << 16  # of the usual size: another one is made apart, which takes a while
Made = TypeVar("Made")
Give = Callable[[], torch.Tensor]


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


def zeros(device: torch.device, size: int) -> Give:
    """What gives at least `size` flags or counters at zero, which kernels leave at zero."""
    held = FLAGS if size <= FLAGS else 1 << (size - 1).bit_length()
    return _of_stream(
        device,
        lambda stream: _zeros(device, stream, held),
        lambda: torch.zeros(size, dtype=torch.int32, device=device),
    )


@cache
def _room(device: torch.device, stream: int, size: int, what: str) -> torch.Tensor:
    return apart(lambda: torch.empty(size, dtype=torch.float32, device=device), device)


def room(device: torch.device, size: int, what: str) -> Give:
    """What gives at least `size` numbers, float32, that a call writes and nobody reads after it.

    They are kept for a purpose, up to MOST_ROOM of them.
    """
    held = max(1 << 18, 1 << (size - 1).bit_length())

    def fresh() -> torch.Tensor:
        return torch.empty(size, dtype=torch.float32, device=device)

    if size > MOST_ROOM:
        return fresh
    return _of_stream(device, lambda stream: _room(device, stream, held, what), fresh)


@lru_cache(1024)
def piece(device: torch.device, size: int) -> Callable[[], tuple[torch.Tensor, int]]:
    """What gives `size` numbers, float32, that are the caller's: a tensor and where they begin.

    Few of them are a piece of a slab, in a third of the time that a tensor takes. No piece is given
    twice; a slab lives as long as somebody holds one. While a CUDA graph is captured, and for more
    than PIECE of them, the tensor is theirs alone.
    """
    like = number(device).expand(size)

    def whole() -> tuple[torch.Tensor, int]:
        return torch.empty_like(like, memory_format=torch.contiguous_format), 0

    if device.type != "cuda" or size > PIECE:
        return whole
    index, slabs = device.index, dict[int, tuple[torch.Tensor, Iterator[int]]]()

    def give() -> tuple[torch.Tensor, int]:
        if torch._C._cuda_isCurrentStreamCapturing():
            return whole()
        stream = torch._C._cuda_getCurrentRawStream(index)
        slab = slabs.get(stream)
        first = None if slab is None else next(slab[1], None)
        if slab is None or first is None:  # two threads may both come here: each has a slab then
            slab = slabs[stream] = _slab(device), iter(range(size, SLAB - size + 1, size))
            first = 0
        return slab[0], first

    return give


def _slab(device: torch.device) -> torch.Tensor:
    tensor = apart(lambda: torch.empty(SLAB, dtype=torch.float32, device=device), device)
    tensor.record_stream(torch.cuda.current_stream(device))
    return tensor


def _of_stream(device: torch.device, keep: Callable[[int], torch.Tensor], fresh: Give) -> Give:
    """What gives the tensor that is kept for the current stream.

    While a CUDA graph is captured it is the graph's own, so that replays may run beside other work.
    """
    if device.type != "cuda":
        return fresh
    index, found = device.index, dict[int, torch.Tensor]()

    def give() -> torch.Tensor:
        if torch._C._cuda_isCurrentStreamCapturing():
            return fresh()
        stream = torch._C._cuda_getCurrentRawStream(index)
        tensor = found.get(stream)
        if tensor is None:
            tensor = found[stream] = keep(stream)
        return tensor

    return give
