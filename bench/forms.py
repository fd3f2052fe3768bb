"""Forms of the GPU kernels beside each other, each a tree of its own: right, and how fast.

    python bench/forms.py new=. old=../before --kind 128,causal --kind 128,causal,dropout=0.1
    python bench/forms.py a=. b=../b --kind 64,causal,heads=64/8,health --passes backward both

A kind is a head size and what differs from a plain call: causal, health, n=8192, heads=16/16,
softcap=20, dropout=0.1, bias, sinks, spread=8 (of the queries). Every form and kind is compiled in
a process of its own, beside the others, and compared with the portable kernels of the same tree, at
a length that is no multiple of a tile and at which a group of heads may not be taken in parts. Then
each form has one process, and kinds and forms take turns in another order each round: the card's
clock drifts by more than forms differ. Ratios are to the first form.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

PASSES = ("forward", "backward", "both")
WIDTH, AT_ONCE = 2048, 16
MARK = "\x01"  # before an answer, among what compilers print


def options(kind: str) -> dict[str, str]:
    """What a kind says, by name; `size` is what comes first."""
    size, *rest = kind.split(",")
    return {"size": size, **{name: value for name, _, value in (x.partition("=") for x in rest)}}


def call_of(kind: str, n: int | None = None) -> tuple[Any, Any]:
    """The call of a kind, and a gradient of its output."""
    import torch

    import limelight as ll
    from limelight.call import prepare
    from limelight.dropout import Dropout

    said = options(kind)
    size = int(said["size"])
    heads, key_heads = (
        int(x) for x in said.get("heads", f"{WIDTH // size}/{WIDTH // size}").split("/")
    )
    n = n or int(said.get("n", 8192))
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=generator)

    query, grad = (
        normal(1, heads, n, size) * float(said.get("spread", 1)),
        normal(1, heads, n, size),
    )
    seed = torch.tensor([12345, 7], device="cuda")
    call = prepare(
        query, normal(1, key_heads, n, size), normal(1, key_heads, n, size),
        mask=ll.Causal() if "causal" in said else None,
        softcap=float(said["softcap"]) if "softcap" in said else None,
        bias=normal(1, 1, n, n) if "bias" in said else None,
        sinks=torch.zeros(heads, device="cuda") if "sinks" in said else None,
        dropout=Dropout(float(said["dropout"]), seed) if "dropout" in said else None,
    )  # fmt: skip
    return call, grad


def runs_of(kind: str) -> dict[str, Callable[[], Any]]:
    """The passes of a kind, ready to run."""
    from limelight.engines import find

    call, grad = call_of(kind)
    health, hopper = "health" in options(kind), find("hopper").module
    state = hopper.forward(call, health=health)

    def forward() -> Any:
        return hopper.forward(call, health=health)

    return {
        "forward": forward,
        "backward": lambda: hopper.backward(call, state, grad, with_bias=False),
        "both": lambda: hopper.backward(call, forward(), grad, with_bias=False),
    }


def errors(kind: str, step: str) -> str:
    """Relative distances from the portable kernels, of 1,160 rows and keys."""
    from limelight.engines import find

    call, grad = call_of(kind, 1160)
    hopper, portable = find("hopper").module, find("triton").module
    ours, theirs = (x.forward(call, health=True) for x in (hopper, portable))
    names = "output", "logsumexp", "entropy"
    pairs = [(name, getattr(ours, name), getattr(theirs, name)) for name in names]
    if step != "forward":
        ours, theirs = (x.backward(call, theirs, grad, with_bias=False) for x in (hopper, portable))
        pairs += [
            (name, getattr(ours, name), getattr(theirs, name)) for name in ("query", "key", "value")
        ]
    found = [
        (name, ((a.double() - b.double()).norm() / b.double().norm()).item())
        for name, a, b in pairs
    ]
    return ", ".join(f"{name} {error:.1e}" for name, error in found)


def work() -> None:
    """A form's own process: questions a line, answers a line."""
    # What is installed from another tree would be found before PYTHONPATH's.
    sys.meta_path[:] = [x for x in sys.meta_path if "editable" not in type(x).__module__]
    from gpu import timed

    kept: dict[str, dict[str, Callable[[], Any]]] = {}
    for line in sys.stdin:
        what, kind, step = json.loads(line)
        try:
            if what == "check":
                answer: Any = errors(kind, step)
            else:
                if kind not in kept:
                    kept[kind] = runs_of(kind)
                answer = timed({step: kept[kind][step]}, rounds=1)[step]
        except Exception as error:
            answer = f"{type(error).__name__}: {str(error)[:200]}"
        print(MARK + json.dumps(answer), flush=True)


Ask = Callable[[str, str, str], Any]


@contextmanager
def worker(tree: Path) -> Iterator[Ask]:
    command = [sys.executable, __file__, "--worker"]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(tree / "src")}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    sent, said = process.stdin, process.stdout
    assert sent is not None
    assert said is not None

    def ask(*question: str) -> Any:
        sent.write(json.dumps(question) + "\n")
        sent.flush()
        for line in said:
            if line.startswith(MARK):
                return json.loads(line[1:])
        return "it ended"

    yield ask
    sent.close()
    process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("forms", nargs="*", metavar="NAME=TREE")
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=["forward"])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return
    trees = {
        name: Path(tree).resolve() for name, _, tree in (x.partition("=") for x in given.forms)
    }
    if not trees or not given.kind:
        parser.error("name a form (new=.) and a --kind (128,causal)")
    jobs = [(name, kind, step) for kind in given.kind for step in given.passes for name in trees]

    def check(job: tuple[str, str, str]) -> str:
        with worker(trees[job[0]]) as ask:
            ask("time", *job[1:])
            return f"{' '.join(job)}: {ask('check', *job[1:])}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in pool.map(check, jobs):
            print(line, flush=True)
    taken: dict[tuple[str, str, str], list[float]] = {job: [] for job in jobs}
    with ExitStack() as stack:
        asks = {name: stack.enter_context(worker(tree)) for name, tree in trees.items()}
        for turn in range(given.rounds + 1):
            for job in random.Random(turn).sample(jobs, len(jobs)):
                answer = asks[job[0]]("time", *job[1:])
                if turn and isinstance(answer, float):  # the first round loads what was compiled
                    taken[job].append(answer)
    first = next(iter(trees))
    for name, kind, step in jobs:
        series, base = taken[name, kind, step], taken[first, kind, step]
        if not series or not base:
            print(f"{kind:36} {step:9} {name:12} –")
            continue
        median = statistics.median(series)
        ratio = statistics.median(base) / median
        spread = f"[{min(series):.4f} to {max(series):.4f}]"
        print(f"{kind:36} {step:9} {name:12} {median:.4f} ms, {ratio:.3f} of {first} {spread}")


if __name__ == "__main__":
    main()
