"""limelight demo: the operation, a real head, and a run with its health, in ten seconds."""

from __future__ import annotations

from typing import Any

from limelight.cli._edge import (
    JsonOption,
    bar,
    bar_room,
    console,
    indented,
    print_json,
    right,
    show,
    table,
)
from limelight.health import written
from limelight.writing.numbers import percent


def demo(json: JsonOption = False) -> None:
    """See what there is: the worked example, a head of a real model, a training run's health."""
    import limelight as ll
    from limelight.learn.recall import recall

    trace = ll.trace([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])
    site, head = ll.captures()["llama"][11], 1
    found = site.top(k=1, head=head)
    tokens = [token.strip() or token for token in site.labels("key")]
    looks: list[dict[str, Any]] = [
        {"word": word, "looks_at": tokens[int(best)], "weight": float(weight)}
        for word, best, weight in zip(
            tokens, found.columns[..., 0].ravel(), found.weights[..., 0].ravel(), strict=True
        )
    ]
    run = [
        {"step": moment.step, "loss": moment.loss,
         **{name: getattr(moment.health, name)[0]
            for name in ("max_logit", "entropy", "max_prob", "saturated")}}
        for moment in recall()
    ]  # fmt: skip
    if json:
        print_json({"trace": trace.to_dict(), "head": looks, "run": run})
        return
    out = console()
    _heading(out, "1  One attention, every number", "limelight score")
    out.print()
    out.print(trace.text(width=out.width))

    out.print()
    _heading(out, "2  A head of a real model", "limelight heatmap llama --layer 11")
    out.print("\nSmolLM2-135M, layer 11, head 1: what each word looks at most\n")
    view = table("word", "looks at", "weight", "")
    texts = [[heading, *(row[name] for row in looks)]
             for heading, name in (("word", "word"), ("looks at", "looks_at"))]  # fmt: skip
    room = bar_room(out, 20, *texts, ["weight"])
    for row in looks:
        cells = row["word"], row["looks_at"], f"{row['weight']:.2f}"
        view.add_row(*cells, bar(row["weight"], room))
    show(out, right(view, 2))

    _heading(out, "3  A run with the lights on", "limelight watch")
    out.print("\nOne head learns to look things up; its health comes from the same pass\n")
    view = table("step", "loss", "max logit", "entropy", "max p", "saturated")
    for now in run:
        view.add_row(str(now["step"]), f"{now['loss']:.3f}", f"{now['max_logit']:.2f}",
                     f"{now['entropy']:.2f}", written(now["max_prob"]),
                     percent(now["saturated"]))  # fmt: skip
    show(out, right(view, *range(6)))
    out.print("limelight studio opens all of it in a browser.")


def _heading(out: Any, title: str, command: str) -> None:
    if len(f"{title}  ({command})") <= out.width:
        out.print(title, style="bold", end=f"  ({command})\n")
    else:
        out.print(title, style="bold")
        indented(out, f"({command})", 3)
