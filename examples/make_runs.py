"""What comes along of the runs that remedies.py trained: their results, and some monitor files.

    python examples/remedies.py --data tinyshakespeare.txt -o runs/ --steps 600 --workers 6
    python examples/make_runs.py runs/

The results of all runs with their curves go to one small file, which
limelight.learn.experiments.remedies() reads. Each point of a curve stands for two records: the loss
of the first, the largest logit and the smallest entropy of both. Of one learning rate and seed, the
run of each remedy comes along for limelight watch and the studio: every fifth record, and all that
alarms and QKClip wrote.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from remedies import LARGEST, NO_ENTROPY

from limelight.journal import shipped
from limelight.learn import experiments

RATE, SEED = 0.01, 1  # of the runs that come along
RECORDS_A_POINT, RECORDS_KEPT = 2, 5
DIGITS = 4  # of a figure
NAMES = {"none": "gpt-nothing-done", "clip": "gpt-qkclip", "z_loss": "gpt-z-loss",
         "floor": "gpt-entropy-floor", "norm": "gpt-qk-norm"}  # fmt: skip


def rounded(value: Any) -> Any:
    """Numbers of any nested value to so many digits, whole ones as they are."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {k: v if k in ("time", "started") else rounded(v) for k, v in value.items()}
    return value


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def gathered(run: dict[str, Any], folder: Path) -> tuple[list[int], dict[str, Any]]:
    """The steps of the curves, and what the results say of one run."""
    records = [line for line in lines(folder / run["file"]) if line["kind"] == "record"]
    # a logit that is not finite is None in a record
    logits = [[math.inf if x is None else x for x in _heads(record, "max_logit")]
              for record in records]  # fmt: skip
    largest = [max(each) for each in logits]
    entropy = [min((x for x in _heads(record, "entropy") if x is not None), default=0.0)
               for record in records]  # fmt: skip
    dead = [record["step"] for record, m, h in zip(records, largest, entropy, strict=True)
            if m > LARGEST or h < NO_ENTROPY]  # fmt: skip
    below = [record["step"] for record in records if any(
        h is not None and m is not None and h < NO_ENTROPY and m < 0
        for site in record["sites"]
        for h, m in zip(site["entropy"], site["max_logit"], strict=True)
    )]  # fmt: skip
    peak = largest.index(max(largest))
    head = logits[peak].index(largest[peak])
    starts = range(0, len(records), RECORDS_A_POINT)
    told = {
        **{name: run[name] for name in ("remedy", "rate", "seed", "died")},
        "since": dead[0] if dead else None, "dead": len(dead), "below": len(below),
        "end": run["loss"], "held_out": run["held_out"],
        "most": run["largest"], "before": _finite(logits[max(0, peak - 1)][head]),
        "lowest": min(map(min, logits)), "least": run["entropy"],
        "clipped": run["clipped"],
    }  # fmt: skip
    curves = rounded({
        "loss": [records[n]["loss"] for n in starts],
        "largest": [_finite(max(largest[n : n + RECORDS_A_POINT])) for n in starts],
        "entropy": [min(entropy[n : n + RECORDS_A_POINT]) for n in starts],
    })  # fmt: skip
    return [records[n]["step"] for n in starts], told | curves


def _heads(record: dict[str, Any], figure: str) -> list[float | None]:
    return [x for site in record["sites"] for x in site[figure]]


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def thinned(path: Path) -> str:
    """A monitor's file with every few records, without the times between."""
    kept, count = [], 0
    for line in lines(path):
        count += line["kind"] == "record"
        if line["kind"] != "record" or count % RECORDS_KEPT == 1:
            kept.append(json.dumps(rounded(line), separators=(",", ":")))
    return "\n".join(kept) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="the folder that remedies.py wrote")
    options = parser.parse_args()
    found = json.loads((options.runs / "remedies.json").read_text(encoding="utf-8"))
    (steps, *others), runs = zip(
        *(gathered(run, options.runs) for run in found["runs"]), strict=True
    )
    if any(other != steps for other in others):
        raise SystemExit("the runs have records at different steps: train them all in one go")
    facts = {**found["facts"], "seeds": len({run["seed"] for run in runs}),
             "records": RECORDS_A_POINT * len(steps)}  # fmt: skip
    target = Path(experiments.__file__).parent / "remedies.json"
    head = {"facts": facts, "steps": steps}
    body = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    target.write_text(f'{json.dumps(head)[:-1]}, "runs": [\n{body}\n]}}\n', encoding="utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes")
    for remedy, name in NAMES.items():
        target = shipped.HERE / f"{name}.jsonl"
        target.write_text(thinned(options.runs / f"{remedy}-{RATE:g}-{SEED}.jsonl"), "utf-8")
        print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
