"""Runs a function on several Gloo ranks, each a process of its own, and collects what they return.

Worker processes are started once for each number of ranks and kept, since importing torch takes
longer than any of the tests.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

_pools: dict[int, Pool] = {}


class Pool:
    """`ranks` processes with a process group among them."""

    def __init__(self, ranks: int, timeout: float = 60.0) -> None:
        context = mp.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        store = os.path.join(self.folder.name, "store")
        self.pipes, self.processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, ranks, store, timeout, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any, wait: float = 120.0) -> list[Any]:
        """function(rank, *arguments) on every rank; an exception comes back as itself."""
        for pipe in self.pipes:
            pipe.send((function, arguments))
        answers = []
        for pipe in self.pipes:
            if not pipe.poll(wait):
                answers.append(TimeoutError("no answer"))
                continue
            try:
                answers.append(pipe.recv())
            except EOFError:
                answers.append(ConnectionError("the rank died"))
        return answers

    def close(self) -> None:
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                continue
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self.pipes:
            pipe.close()
        self.folder.cleanup()


def on(ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What the function returns on each rank; the first exception is raised here."""
    if ranks not in _pools:
        _pools[ranks] = Pool(ranks)
        if len(_pools) == 1:
            atexit.register(_close_all)
    answers = _pools[ranks].run(function, *arguments)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def _close_all() -> None:
    for pool in _pools.values():
        pool.close()


def _serve(rank: int, ranks: int, store: str, timeout: float, pipe: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout)
    )
    while (task := pipe.recv()) is not None:
        function, arguments = task
        try:
            pipe.send(function(rank, *arguments))
        except BaseException as error:
            error.add_note(traceback.format_exc())
            pipe.send(error)
