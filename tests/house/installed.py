"""What an installed limelight with its studio must do: run outside the checkout.

    python tests/house/installed.py

Prints what it found, and fails where the native engine, a shipped capture or run, results or a page are missing.
"""

from __future__ import annotations

import sys

import numpy as np

import limelight as ll


def main() -> int:
    print(ll.engines())
    x = np.eye(3, dtype=np.float32)
    native = ll.attention(x, x, x, engine="native")
    assert np.allclose(native, ll.attention(x, x, x, engine="reference"), atol=1e-6)
    for row in ll.captures():
        assert row.open().health()["max_prob"].size
    from limelight.journal.run import Run
    from limelight.journal.shipped import runs
    from limelight.learn import experiments
    from limelight.lessons import write_lessons
    from limelight.report import write_report

    assert all(Run.open(row.path).ended == "closed" for row in runs())
    assert experiments.scaling().runs
    assert experiments.remedies().runs
    made = write_report(ll.captures()["llama"], "installed.html")
    lessons = write_lessons("lessons.html")
    print(f"{len(ll.captures())} captures open; a report of {made.size / 1e6:.1f} MB is written")
    print(f"the lessons are written, {lessons / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
