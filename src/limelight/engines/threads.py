"""How many threads the native engine uses."""

from __future__ import annotations

import operator
import os

from limelight.engines import native
from limelight.errors import ArgumentError, EngineError


def set_threads(count: int | None) -> None:
    """Use so many threads from now on; None goes back to the default.

    The default is what torch or any other user of OpenMP has set in this process
    (torch.set_num_threads, OMP_NUM_THREADS), else the processors this process may run on. Results
    have the same bits for any number of threads.

    >>> set_threads(1)
    >>> native.threads()
    1
    >>> set_threads(None)
    """
    if count is None:
        count = 0
    else:
        try:
            count = operator.index(count)
        except TypeError:
            raise ArgumentError(f"threads={count!r}: give a whole number, or None") from None
        most = max(64, 8 * (os.cpu_count() or 1))
        if not 1 <= count <= most:
            raise ArgumentError(f"threads={count}: give a number from 1 to {most}, which is what "
                                f"this machine may be asked for, or None")  # fmt: skip
    reason = native.missing()
    if reason is not None:
        raise EngineError(f"the native engine, whose threads these are, is missing: {reason}")
    native.set_threads(count)
