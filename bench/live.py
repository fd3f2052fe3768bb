"""How quickly a live model answers, writes and tells what its heads do, beside Transformers.

    python bench/live.py smollm2                       against Transformers with sdpa, where it is
    python bench/live.py smollm2 --induction           do the heads that look like induction matter?
    OPENBLAS_NUM_THREADS=1 python bench/live.py --cpu  processor time, where others share the cores

Contenders take turns, and the median of the rounds counts. "all effects" is the table of what every
head's absence does to the next token; Transformers makes the same table with every head of a layer
as one batch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from limelight import heads, live
from limelight.live.effects import outcomes
from limelight.live.measure import Measure

SENTENCE = "The curious cat watched the bird on the old oak"  # ten tokens for SmolLM2
WORDS = 32  # written in a round
ROWS = {
    "load": ("load", 1e0, "s"),
    "first": ("first answer to the sentence", 1e3, "ms"),
    "token": ("each further token", 1e3, "ms"),
    "effects": ("all effects", 1e0, "s"),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("model", nargs="?", default="smollm2")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--alone", action="store_true", help="without Transformers beside it")
    options.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    options.add_argument("--induction", action="store_true", help="kinds of heads against effects")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    if asked.induction:
        found: Any = induction(live.load(asked.model))
    else:
        clock = time.process_time if asked.cpu else time.perf_counter
        found = measure(asked.model, asked.rounds, asked.alone, clock)
    if asked.json:
        print(json.dumps(found, indent=2))
    elif asked.induction:
        _tell(found)
    else:
        _show(found)


def measure(
    name: str, rounds: int, alone: bool, clock: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Seconds by contender and by what it did."""
    contenders = {"limelight.live": _ours} | ({} if alone else {"Transformers, sdpa": _theirs})
    made, seconds = {}, {who: {what: [] for what in ROWS} for who in contenders}
    for who, prepare in contenders.items():
        started = clock()
        made[who] = prepare(name)
        seconds[who]["load"].append(clock() - started)
        made[who]["first"]()  # the first pass of all pages the weights in
    for number in range(rounds):
        for who, jobs in made.items():
            for what, job in jobs.items():
                if what == "effects" and number >= max(1, rounds // 3):
                    continue
                started = clock()
                count = job() or 1
                seconds[who][what].append((clock() - started) / count)
    return {who: {what: median(t) for what, t in rows.items() if t}
            for who, rows in seconds.items()}  # fmt: skip


def _ours(name: str) -> dict[str, Callable[[], Any]]:
    model = live.load(name)
    begun = model.run(SENTENCE)

    def write() -> int:
        return begun.write(WORDS).written

    def first() -> None:
        model.run(SENTENCE).next(5)

    def effects() -> None:
        model.effects(SENTENCE)

    return {"first": first, "token": write, "effects": effects}


def _theirs(name: str) -> dict[str, Callable[[], Any]]:
    import torch

    from limelight import hf

    hf.quiet()
    loaded = hf.load(name)
    loaded.model.set_attn_implementation("sdpa")
    given = loaded.inputs(SENTENCE)

    def first() -> None:
        with torch.no_grad():
            loaded.model(**given, logits_to_keep=1).logits[0, -1].softmax(0).topk(5)

    def write() -> int:
        loaded.model.generate(**given, max_new_tokens=WORDS, min_new_tokens=WORDS, do_sample=False)
        return WORDS

    def effects() -> None:
        hf.effects(loaded, SENTENCE)

    return {"first": first, "token": write, "effects": effects}


def induction(model: live.Model, length: int = 16, seed: int = 0) -> dict[str, Any]:
    """Random words twice over: which heads look like induction, and what their absence costs.

    The cost is the rise of the loss on the second half, where only the first half helps: with the
    whole head off, and with only its looks at what followed each token before hidden (its cells).
    """
    chance = np.random.default_rng(seed)
    known = (model.vocabulary.piece(i) for i in range(model.decoder.vocabulary // 2))
    words = [piece for piece in known if piece[0] == " " and piece[1:].isalpha()]
    once = "".join(chance.choice(words, length, replace=False))
    run, decoder = model.run(once + once, keep="all"), model.decoder
    half = len(run.ids) // 2
    follow = Measure(run.ids, since=half + 1)
    before = float(follow(follow.rows(run.logits[None]))[0])
    kinds = heads.find(run.capture)
    places = [(n, h) for n in range(decoder.depth) for h in range(decoder.heads)]
    looks = [(query, query - half + 1) for query in range(half, len(run.ids))]
    variants = {
        "head off": [live.Off(heads=[at]) for at in places],
        "look hidden": [live.Off(cells=[(*at, *look) for look in looks]) for at in places],
    }
    costs = {name: outcomes(run, offs, follow).reshape(decoder.depth, -1) - before
             for name, offs in variants.items()}  # fmt: skip
    sinks = np.where(kinds.is_kind("sink"), np.abs(costs["head off"]), np.inf)
    least = np.unravel_index(int(sinks.argmin()), sinks.shape)
    return {
        "tokens": len(run.ids),
        "loss": before,
        "induction_heads": int(kinds.is_kind("induction").sum()),
        **{name: _agreement(kinds, cost) for name, cost in costs.items()},
        "sink_nobody_misses": {"layer": int(least[0]), "head": int(least[1]),
                               "weight_on_the_first": float(kinds.scores["sink"][least]),
                               "change": float(costs["head off"][least])},
    }  # fmt: skip


def _agreement(kinds: heads.Heads, cost: Any) -> dict[str, Any]:
    """How well the induction score foretells the cost."""
    score, named = kinds.scores["induction"], kinds.is_kind("induction")
    order = np.argsort(-cost, axis=None)
    return {
        "rank_correlation": float(np.corrcoef(_ranks(score), _ranks(cost))[0, 1]),
        "induction_among_as_many_costliest": int(named.flat[order[: int(named.sum())]].sum()),
        "mean_cost_of_induction": float(cost[named].mean()),
        "mean_cost_of_others": float(cost[~named].mean()),
        "costliest": [[*divmod(int(i), cost.shape[1]), float(cost.flat[i]), float(score.flat[i])]
                      for i in order[:5]],
    }  # fmt: skip


def _ranks(x: Any) -> Any:
    return np.argsort(np.argsort(x, axis=None, kind="stable"), kind="stable").astype(float)


def _show(found: dict[str, dict[str, float]]) -> None:
    print(f"{'':<32}" + "".join(f"{who:>22}" for who in found))
    for what, (words, scale, unit) in ROWS.items():
        cells = (f"{rows[what] * scale:.1f} {unit}" for rows in found.values())
        print(f"  {words:<30}" + "".join(f"{cell:>22}" for cell in cells))


def _tell(found: dict[str, Any]) -> None:
    count, sink = found["induction_heads"], found["sink_nobody_misses"]
    print(f"{found['tokens']} tokens, random and twice over; loss on the second half "
          f"{found['loss']:.3f} nats a token; {count} induction heads")  # fmt: skip
    for name in ("head off", "look hidden"):
        rows = found[name]
        print(f"\n  {name}: rank correlation with the induction score "
              f"{rows['rank_correlation']:.2f} over all heads")  # fmt: skip
        print(f"    costs {rows['mean_cost_of_induction']:+.3f} for an induction head, "
              f"{rows['mean_cost_of_others']:+.3f} for another; "
              f"{rows['induction_among_as_many_costliest']} of the {count} costliest are "
              f"induction")  # fmt: skip
        for layer, head, cost, score in rows["costliest"]:
            print(f"    layer {layer:>2} head {head}: {cost:+.3f}, induction score {score:.2f}")
    print(f"\n  a sink nobody misses: layer {sink['layer']} head {sink['head']} rests with "
          f"{sink['weight_on_the_first']:.2f} on the first token; off, the loss changes by "
          f"{sink['change']:+.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
