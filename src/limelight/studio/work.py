"""Work: bounded threads, so that the server answers while it computes.

Three lanes, so that what costs little never waits behind what costs much:

    quick   milliseconds: listings, exercises, a single cell
    look    a map's tiles, rows and lines: milliseconds once a head's row statistics are there
    heavy   seconds: the health of a long capture, a report, a model's run

A request whose page goes away is taken out of the line, or told to stop at its next step.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from starlette.types import Receive

from limelight.studio.guard import TooLarge, TooSlow
from limelight.studio.limits import Limits

Answer = TypeVar("Answer")
Lane = Literal["quick", "look", "heavy"]


class Busy(Exception):
    """More requests are waiting than the limits allow."""


class Gone(Exception):
    """The page went away before its answer was ready, or the studio is stopping."""


class Cancel:
    """What long work asks between its steps: `cancel()` is True when nobody waits any more."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise Gone when nobody waits any more."""
        if self():
            raise Gone

    def told(self, *_: Any) -> None:
        """The same, for work that tells of its progress."""
        self.check()


class Work:
    """The threads of one studio."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes: dict[Lane, ThreadPoolExecutor] = {
            "quick": ThreadPoolExecutor(limits.threads, "limelight-quick"),
            "look": ThreadPoolExecutor(limits.threads, "limelight-look"),
            "heavy": ThreadPoolExecutor(limits.heavy, "limelight-heavy"),
        }
        self._under_way: dict[Cancel, asyncio.Future[Any]] = {}
        self._stopped = False

    @property
    def under_way(self) -> int:
        """Requests being computed or in line."""
        return len(self._under_way)

    async def run(
        self, function: Callable[[Cancel], Answer], receive: Receive, lane: Lane = "quick"
    ) -> Answer:
        """`function(cancel)` in a thread of the lane; Gone when the page hangs up meanwhile.

        Work that nobody waits for any more still counts until its thread has ended, so that pages
        that come and go cannot pile it up.
        """
        if self._stopped:
            raise Gone
        if len(self._under_way) >= self._limits.waiting:
            raise Busy
        cancel = Cancel()
        try:
            future = self._lanes[lane].submit(_start, function, cancel)
        except RuntimeError:  # the lane was closed between the check and here
            raise Gone from None
        waiting: asyncio.Future[Answer] = asyncio.wrap_future(future)
        self._under_way[cancel] = waiting
        # The count goes down when the thread has ended, not when its page has left.
        future.add_done_callback(lambda _: self._under_way.pop(cancel, None))
        watcher = asyncio.ensure_future(_hang_up(receive, cancel, waiting))
        try:
            return await waiting
        except asyncio.CancelledError:
            cancel.set()
            raise Gone from None
        finally:
            watcher.cancel()

    def stop(self) -> None:
        """Tell all work to stop, drop what waits, and take nothing new; returns at once."""
        self._stopped = True
        for cancel, waiting in list(self._under_way.items()):
            cancel.set()
            waiting.cancel()
        for lane in self._lanes.values():
            lane.shutdown(wait=False, cancel_futures=True)

    def join(self, seconds: float) -> bool:
        """Wait that long for threads to end; whether all did."""
        deadline = time.monotonic() + seconds
        threads = [thread for lane in self._lanes.values() for thread in lane._threads]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


def _start(function: Callable[[Cancel], Answer], cancel: Cancel) -> Answer:
    cancel.check()
    return function(cancel)


async def _hang_up(receive: Receive, cancel: Cancel, waiting: asyncio.Future[Any]) -> None:
    # A body that comes too long or too slowly while nobody reads it is a page that went away.
    with contextlib.suppress(TooLarge, TooSlow):
        while (await receive())["type"] != "http.disconnect":
            pass
    cancel.set()
    waiting.cancel()
