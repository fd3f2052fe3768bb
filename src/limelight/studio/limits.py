"""What one request may ask for: checked before anything is read, allocated or computed."""

from __future__ import annotations

import os
from dataclasses import dataclass

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Limits:
    """Every bound of the studio in one place; the defaults suit one person and a large model."""

    header_bytes: int = 16 * KIB  # all request headers together
    query_bytes: int = 8 * KIB  # the part of the address after '?'
    body_bytes: int = 8 * MIB  # a POST body: numbers to trace, a text, a picture
    message_bytes: int = 4 * KIB  # one WebSocket message from a page
    file_bytes: int = 8 * 2**30  # a capture file
    read_bytes: int = 512 * MIB  # a capture up to this is read; a larger one is mapped, not copied
    config_bytes: int = 4 * MIB  # a model's config.json
    run_bytes: int = 256 * MIB  # the part of a training run's log that is read
    open_captures: int = 4  # kept open; the least recently used is closed
    made_captures: int = 8  # made from a model since the start and kept
    tile_bytes: int = 192 * MIB  # tiles kept, over all heads
    pyramids: int = 24  # heads whose tiles are kept, over all captures
    threads: int = max(2, os.cpu_count() or 2)  # of each lane but the heavy one
    waiting: int = 512  # requests in line before new ones are told to come back
    connections: int = 256
    sockets: int = 32  # WebSockets at once
