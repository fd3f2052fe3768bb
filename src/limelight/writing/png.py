"""PNG files by hand: colours in, bytes out (RFC 2083), with nothing but zlib."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RGB = 2  # the colour type


def encode(colours: NDArray[np.uint8], dots_per_metre: int | None = None) -> bytes:
    """uint8 [rows, columns, 3] as a PNG file.

    Each row is stored as its difference to the row above (filter 2): flat areas and repeated cells
    become runs of zeros.
    """
    colours = np.ascontiguousarray(colours, np.uint8)
    height, width, _ = colours.shape
    rows = np.zeros((height, 1 + width * 3), np.uint8)
    flat = colours.reshape(height, width * 3)
    rows[:, 0] = 2
    rows[0, 1:] = flat[0]
    rows[1:, 1:] = flat[1:] - flat[:-1]
    size = struct.pack("!I", dots_per_metre or 0) * 2 + b"\x01"
    return b"".join([
        SIGNATURE,
        _chunk(b"IHDR", struct.pack("!IIBBBBB", width, height, 8, RGB, 0, 0, 0)),
        _chunk(b"pHYs", size) if dots_per_metre else b"",
        _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
        _chunk(b"IEND", b""),
    ])  # fmt: skip


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + name + data + struct.pack("!I", zlib.crc32(name + data))
