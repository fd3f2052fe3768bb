"""Figures of the Python library that the web tests hold their own arithmetic to.

python web/golden/make.py           writes web/golden/attention.json
python web/golden/make.py --check   fails where the file is not what the library gives
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from compare import same

import limelight as ll
from limelight.worked.trace import trace

HERE = Path(__file__).parent


def cases() -> dict[str, dict[str, Any]]:
    """Name → the arguments of trace(). Odd and prime sizes, and every option once."""
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).round(3)

    def three(queries: int, keys: int, size: int, values: int) -> dict[str, Any]:
        return {"query": normal(queries, size), "key": normal(keys, size),
                "value": normal(keys, values)}  # fmt: skip

    hidden_row = np.ones((3, 5), bool)
    hidden_row[1] = False
    hidden_row[2, 3] = False
    bias = normal(3, 5)
    bias[0, 2] = -np.inf
    return {
        "worked example": {"query": [[2, 1]], "key": [[2, 1], [1, 0], [0, -1]],
                           "value": [[10, 0], [0, 8], [1, 1]]},
        "plain": three(5, 7, 3, 2),
        "no scaling": {**three(3, 11, 13, 5), "scale": 1.0},
        "causal": {**three(7, 7, 5, 3), "mask": ll.Causal()},
        "causal, fewer queries": {**three(3, 5, 3, 2), "mask": ll.Causal()},
        "a row without keys": {**three(3, 5, 3, 2), "mask": hidden_row},
        "softcap": {**three(3, 5, 7, 2), "softcap": 0.7},
        "bias": {**three(3, 5, 3, 2), "bias": bias},
        "sink": {**three(3, 5, 3, 2), "sinks": [1.5]},
        "a large sink": {**three(3, 5, 3, 2), "sinks": [9.0]},
        "large logits": {**three(3, 5, 3, 2), "scale": 1e6},
        "one key": three(2, 1, 3, 2),
        "everything": {**three(3, 5, 3, 2), "softcap": 2.0, "bias": bias, "mask": ll.Causal(),
                       "sinks": [-0.5], "scale": 0.9},
    }  # fmt: skip


def figures(given: dict[str, Any]) -> dict[str, Any]:
    done = trace(**given)
    record = done.to_dict()
    rows, columns = np.shape(done.weights)
    bias, sinks = given.get("bias"), given.get("sinks")
    return {
        **{name: record[name] for name in
           ("query", "key", "value", "scale", "softcap", "raw", "scaled", "capped", "biased",
            "allowed", "logits", "weights", "output", "health")},
        # −∞ is null, as everywhere in the JSON.
        "bias": None if bias is None else [[None if x == -np.inf else x for x in row]
                                           for row in np.asarray(bias).tolist()],
        "sink": None if sinks is None else sinks[0],
        "cells": [[done.cell(i, j).to_dict() for j in range(columns)] for i in range(rows)],
    }  # fmt: skip


def main() -> int:
    made = json.dumps({name: figures(given) for name, given in cases().items()},
                      ensure_ascii=False, allow_nan=False)  # fmt: skip
    path = HERE / "attention.json"
    if "--check" in sys.argv[1:]:
        if same(json.loads(path.read_text("utf-8")), json.loads(made)):
            return 0
        print(f"{path.name} is not what the library gives: run python web/golden/make.py")
        return 1
    path.write_text(made, "utf-8")
    print(f"{path.name}: {len(made):,} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
