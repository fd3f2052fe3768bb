"""Connections: a clock on silence, and room made by dropping those that ask for nothing.

A server that waits for whoever connects can be filled by anybody: open, say nothing, repeat. So a
connection has a few seconds to send a whole request, and where there are too many the quiet ones
go, those that never asked first and among them the oldest. One that is being answered stays, as
long as it takes its answer.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from limelight.studio.limits import KIB, Limits

LEAST = 64 * KIB  # of an answer that waits, taken in the time that it has


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 connection."""

    limits: Limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._born, self._asked = self.loop.time(), False
        self._clock: asyncio.TimerHandle | None = None
        self._untaken: asyncio.TimerHandle | None = None
        self._watch()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More is answered than is taken."""
        super().pause_writing()
        self._keep(inf)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def shutdown(self) -> None:
        if self._untaken is not None:
            self.transport.abort()
        super().shutdown()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """A handshake is whole here, or it is none: the second parser may wait for more."""
        super().handle_websocket_upgrade(event)
        if not getattr(self.transport.get_protocol(), "handshake_initiated", True):
            self.send_400_response("Invalid WebSocket handshake.")

    @property
    def quiet(self) -> bool:
        """Whether nothing of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        """The clock runs from the first silence on: what trickles in does not wind it again."""
        self._asked = self._asked or self.cycle is not None
        if not self.quiet or self not in self.connections:  # being answered, or a WebSocket now
            self._stop()
        elif self._clock is None and self.timeout_keep_alive_task is None:
            self._clock = self.loop.call_later(self.limits.first_seconds, self._drop)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _taken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def _keep(self, before: float) -> None:
        """An answer of which some is taken stays, over a slow line as long as it needs."""
        left = self.transport.get_write_buffer_size()
        if left > before - LEAST:
            self.transport.abort()
        else:
            self._untaken = self.loop.call_later(self.limits.body_seconds, self._keep, left)

    def _drop(self) -> None:
        self._clock = None
        if self.quiet and self in self.connections:
            self.transport.abort()

    def _make_room(self) -> None:
        if len(self.connections) <= self.limits.connections:
            return
        quiet = [one for one in self.connections
                 if isinstance(one, Connection) and one.quiet and one is not self]  # fmt: skip
        if quiet:
            oldest = min(quiet, key=lambda one: (one._asked, one._born))
            self.connections.discard(oldest)  # at once: the next to come counts without it
            oldest.transport.abort()


def connection(limits: Limits) -> Any:
    """The class with these limits, as uvicorn takes it."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
