"""What one request may ask for: checked before anything is read, allocated or computed."""

from __future__ import annotations

import os
from dataclasses import dataclass

from limelight.intake import memory

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Limits:
    """Every bound of the studio in one place; the defaults suit one person and a large model."""

    header_bytes: int = 16 * KIB  # all request headers together
    query_bytes: int = 8 * KIB  # the part of the address after '?'
    body_bytes: int = 8 * MIB  # a POST body: numbers to trace, a text, a picture
    message_bytes: int = 4 * KIB  # one WebSocket message from a page
    file_bytes: int = min(8 * 2**30, memory() // 4)  # a capture file; it is read, never mapped
    open_bytes: int = memory() // 2  # captures kept open, all together
    config_bytes: int = 4 * MIB  # a model's config.json
    run_bytes: int = 256 * MIB  # the part of a training run's log that is read
    open_captures: int = 4  # kept open; the least recently used is closed
    made_captures: int = 8  # made from a model since the start and kept
    tile_bytes: int = 192 * MIB  # tiles kept, over all heads
    pyramids: int = 24  # heads whose tiles are kept, over all captures
    threads: int = max(4, os.cpu_count() or 4)  # of each lane but the heavy one
    heavy: int = 4  # threads for what takes seconds: one such answer does not block the others
    waiting: int = 512  # requests in line before new ones are told to come back
    connections: int = 256  # beyond it those that ask for nothing are dropped, the oldest first
    first_seconds: float = 15.0  # for a connection to send its first request, or the rest of one
    body_seconds: float = 30.0  # for a body to arrive, and for more of an answer to be taken
    sockets: int = 32  # WebSockets at once
