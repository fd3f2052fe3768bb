"""Runs a function on several ranks, each a process of its own, and collects what they return.

Importing torch takes longer than any of the tests, so the processes are forked from one that has
imported it; four of them are kept, and two or three are a group within the four.
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

MOST = 4
IMPORTED = ["tests.torch.ranks", "limelight.torch", "torch.distributed.fsdp"]  # before the fork
_pools: list[Pool] = []


class Pool:
    """`ranks` processes with a process group among them; with `gpus`, each on one of the GPUs."""

    def __init__(
        self, ranks: int, timeout: float = 60.0, backend: str = "gloo", gpus: bool = False
    ) -> None:
        context = mp.get_context("spawn" if gpus else "forkserver")  # CUDA is not to be forked
        if not gpus:
            context.set_forkserver_preload(IMPORTED)
        self.folder = tempfile.TemporaryDirectory()
        store = os.path.join(self.folder.name, "store")
        self.pipes, self.processes = [], []
        os.environ.update(
            OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"
        )  # read when NumPy loads there
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(rank, ranks, store, timeout, theirs, backend, gpus),
                daemon=True,
            )
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any, wait: float = 120.0) -> list[Any]:
        """function(group, *arguments) on every rank; an exception comes back as itself."""
        return self.run_on(len(self.pipes), function, *arguments, wait=wait)

    def run_on(
        self, ranks: int, function: Callable[..., Any], *arguments: Any, wait: float = 120.0
    ) -> list[Any]:
        """The same on the first ranks alone, with a group of their own."""
        pipes = self.pipes[:ranks]
        for pipe in pipes:
            pipe.send((ranks, function, arguments))
        answers: list[Any] = []
        for pipe in pipes:
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
    """What function(group, *arguments) returns on each rank; the first exception is raised here."""
    if not _pools:
        _pools.append(Pool(MOST))
        atexit.register(_close_all)
    return good(_pools[0].run_on(ranks, function, *arguments))


def good(answers: list[Any]) -> list[Any]:
    """The answers, unless one is an exception: then that is raised."""
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def _close_all() -> None:
    for pool in _pools:
        pool.close()


def _serve(
    rank: int, ranks: int, store: str, timeout: float, pipe: Any, backend: str, gpus: bool
) -> None:
    torch.set_num_threads(1)
    if gpus:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout),
    )
    groups = {n: dist.new_group(list(range(n))) for n in range(2, ranks)}
    groups[ranks] = dist.group.WORLD
    while (task := pipe.recv()) is not None:
        count, function, arguments = task
        try:
            pipe.send(function(groups[count], *arguments))
        except BaseException as error:
            error.add_note(traceback.format_exc())
            pipe.send(error)
