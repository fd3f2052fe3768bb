"""What the library says of answers to exercises, for the checker of the lessons to be held to.

python web/golden/check.py           writes web/golden/check.json
python web/golden/check.py --check   fails where the file is not what the library gives
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from compare import same

from limelight.learn.exercises import check, generate
from limelight.learn.exercises.marking import marking, mistakes
from limelight.learn.exercises.mistakes import candidates

HERE = Path(__file__).parent
ASKED = ((0, 1), (1, 1), (2, 4), (4, 2), (5, 3))


def answers(task: Any, step: str) -> list[list[str]]:
    """Right, rounded, cut, in per cent, in words, far off, and what every mistake leads to."""
    if task.options(step):
        return [[str(n)] for n in range(len(task.options(step)))]
    exact = task.expected(step)
    cut = np.sign(exact) * np.floor(np.abs(exact) * 100) / 100
    rows = [exact, exact.round(2), exact.round(4), cut, exact + 0.011, exact * 3 + 7, -exact,
            100 * exact, np.append(exact[:-1], exact[-1] + 2)]  # fmt: skip
    seen: set[str] = set()
    for mistake, wrong in candidates(task, step):
        if mistake.kind not in seen:
            rows.append(wrong.round(3))
        seen.add(mistake.kind)
    written = [[f"{x:.6f}".rstrip("0").rstrip(".") for x in row] for row in rows]
    words = [["hidden" if n == len(exact) - 1 else text for n, text in enumerate(written[1])],
             ["one" if n == 0 else text for n, text in enumerate(written[1])]]  # fmt: skip
    return written + words


def cases() -> dict[str, Any]:
    made = []
    for level, seed in ASKED:
        task = generate(level, seed)
        judged = [
            {"step": step, "answer": answer, "says": check(task, step, answer).to_dict()}
            for step in marking(task)
            for answer in answers(task, step)
        ]
        held = {step: asdict(each) for step, each in marking(task).items()}
        made.append({"info": task.to_dict(), "marking": held, "judged": judged})
    return {"mistakes": mistakes(), "exercises": made}


def main() -> None:
    path, found = HERE / "check.json", cases()
    if "--check" in sys.argv:
        sys.exit(0 if same(json.loads(path.read_text()), found) else f"{path.name} is stale")
    path.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
