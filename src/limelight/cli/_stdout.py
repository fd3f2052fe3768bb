"""Standard output as it may be: without Unicode, full, or closed by its reader."""

from __future__ import annotations

import codecs
import errno
import os
import sys
from typing import Any

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
SIGNS = {"…": "...", "√": "sqrt "} | dict(
    zip("−·×÷─■░▒▓█▉▊▋▌▍▎▏▁▂▃▄▅▆▇", "-*x/-#:+%####....1234567", strict=True)
)


def lenient(stream: Any) -> None:
    """Have a stream write what its encoding lacks as near as it can, rather than fail."""
    if getattr(stream, "errors", "") in ("strict", "surrogateescape"):
        codecs.register_error("limelight", _nearest)
        stream.reconfigure(errors="limelight")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(SIGNS.get(sign, "?") for sign in missing), error.end


def discard() -> None:
    """Drop what is still to be written, so that Python does not fail on it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
