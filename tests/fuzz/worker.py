"""The process that reads: a line with a reader and a path in, a line with what came of it out."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import traceback
from pathlib import Path

from tests.fuzz.readers import READERS


def main() -> None:
    import limelight.studio.app
    import limelight.studio.studio  # noqa: F401  (what is imported later would count as an input's)

    asked, told = sys.stdin, sys.stdout
    sys.stdout = sys.stderr
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    limit = held + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print("ready", file=told, flush=True)
    for line in asked:
        reader, path = json.loads(line)
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that of this input
        try:
            with contextlib.redirect_stderr(None):
                outcome: str = READERS[reader].read(Path(path))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome = f"wrong: {type(error).__name__}: {str(error)[:400]} ({where.filename}:{where.lineno})"
        print(json.dumps({"outcome": outcome, "peak": _peak()}), file=told, flush=True)


def _peak() -> int:
    """Bytes that this process has held at most since that was last forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    held = next(line for line in lines if line.startswith("VmHWM:"))
    return int(held.split()[1]) * 1024


if __name__ == "__main__":
    main()
