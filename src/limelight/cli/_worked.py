"""One query's attention as a worked calculation for people: four steps, four tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from limelight.cli._edge import bar, bar_room, column, narrow, right, show, table, whole
from limelight.worked.flow import leaders, listed, not_a_number
from limelight.writing.numbers import counted, fixed, given, number, operand, percent

if TYPE_CHECKING:
    from limelight.worked.by_hand import ByHand
    from limelight.worked.trace import Trace


MARGIN, GAP = 3, 3  # of the tables: before them, and between two columns


class Worked:
    """The steps of one row of a trace, ready to print."""

    def __init__(self, out: Console, found: Trace, row: int) -> None:
        self.out, self.found, self.row = out, found, row
        call = found.call
        self.query = np.asarray(call.query, np.float64)[0, 0, row]
        self.key = np.asarray(call.key, np.float64)[0, 0]
        self.value = np.asarray(call.value, np.float64)[0, 0]
        self.step = {name: steps[0, 0, row] for name, steps in vars(found.steps).items()}
        self.seen = self.step["allowed"]
        queries, keys = found.tokens or ((), ())
        self.title = f"query {row} {escape(repr(queries[row]))}" if queries else f"query {row}"
        self.names = [f"key {j}" for j in range(call.keys)]
        if keys:
            self.names = [f"{name} {escape(repr(keys[j]))}" for j, name in enumerate(self.names)]
        self.room = max(18, (out.width - widest(self.names) - 32) // 2)  # of two wide columns

    def show(self) -> None:
        call = self.found.call
        facts = f"{counted(call.keys, 'key')}, d_k = {call.head_size}"
        room = self.out.width - len(f"{self.title} = [], {facts}")
        query = fit(map(given, self.query), ", ", room)
        self.out.print(f"[bold]{self.title}[/] = \\[{query}], {facts}\n")
        self.compare()
        self.scale()
        self.normalise()
        self.mix()
        self.out.print(self.verdict())

    def compare(self) -> None:
        self.out.print("[bold]1  Compare[/]: the dot product of the query with each key")
        view = table("", "key", "products", "", "score")
        keys, scores = [self.typed(key) for key in self.key], column(self.step["raw"])
        others = widest(self.names) + widest(keys) + len("=") + widest(scores)
        room = max(self.room, self.out.width - MARGIN - 4 * GAP - others)
        for j, score in enumerate(scores):
            pairs = zip(self.query, self.key[j], strict=True)
            terms = fit((f"{operand(q, given)}·{operand(k, given)}" for q, k in pairs), " + ", room)
            view.add_row(self.names[j], keys[j], terms, "=", score)
        show(self.out, right(view, 4))

    def scale(self) -> None:
        call = self.found.call
        how = scaling(call.scale, call.head_size)
        names = ["raw", "scaled"]
        if call.softcap is None:
            same = ", so the scores stay as they are" if call.scale == 1.0 else ""
            self.out.print(f"[bold]2  Scale[/]: {how}{same}")
        else:
            self.out.print(f"[bold]2  Scale[/]: {how}")
            cap = given(call.softcap)
            self.out.print(f"   and cap: {cap} · tanh(scaled / {cap})")
            names.append("capped")
        view = table("", "score", *names[1:], *([] if self.seen.all() else [""]))
        for j, cells in enumerate(zip(*(column(self.step[n]) for n in names), strict=True)):
            view.add_row(self.names[j], *cells, *([] if self.seen[j] else ["hidden by the mask"]))
        show(self.out, right(view, *range(1, len(names) + 1)))

    def normalise(self) -> None:
        largest = self.step["max_logit"] if self.seen.any() else 0.0
        with np.errstate(invalid="ignore"):  # a score that is not finite says so in the table
            shift = np.where(self.seen, self.step["logits"] - largest, 0.0)
            power = np.where(self.seen, np.exp(shift), 0.0)
        weights = self.step["weights"]
        which = "score" if self.found.call.softcap is None else "capped score"
        self.out.print(
            f"[bold]3  Normalise[/]: softmax, e to the power of each {which} over the sum of all"
        )
        shifted = "score −\nlargest" if narrow(self.out) else "score − largest"
        view = whole(table("", shifted, "e to that", "÷ sum", ""), 1, 2, 3)
        columns = [column(numbers) for numbers in (shift, power, weights)]
        room = bar_room(self.out, 20, self.names, [*shifted.split("\n"), *columns[0]],
                        ["e to that", *columns[1]], columns[2])  # fmt: skip
        for j, cells in enumerate(zip(*columns, strict=True)):
            shown = cells if self.seen[j] else ("hidden", "0", "0")
            view.add_row(self.names[j], *shown, bar(weights[j], room))
        view.add_section()
        view.add_row("sum", "", number(power.sum()), number(weights.sum()), "")
        show(self.out, right(view, 1, 2, 3))

    def mix(self) -> None:
        weights = self.step["weights"]
        self.out.print("[bold]4  Mix[/]: each value times its weight, all added")
        view = table("", "weight", "", "value", "", "contribution")
        for j, weight in enumerate(column(weights)):
            hidden = "nothing: it is hidden"
            mixed = self.brief(weights[j] * self.value[j]) if self.seen[j] else hidden
            view.add_row(self.names[j], weight, "×", self.typed(self.value[j]), "=", mixed)
        view.add_section()
        view.add_row("output", "", "", "", "", f"[bold]{self.brief(self.step['output'])}[/]")
        show(self.out, right(view, 1))

    def verdict(self) -> str:
        """What the row's health says, in a sentence."""
        weights = self.step["weights"]
        figures = {name: np.asarray(figure).reshape(-1)[self.row]
                   for name, figure in self.found.health.to_dict().items()}  # fmt: skip
        whole = f"\\[{', '.join(map(number, self.step['output']))}]"
        cut = whole != self.brief(self.step["output"])
        output = f"output = {whole}\n" if cut else ""
        if figures["keys"] == 0:
            return "There is no key to look at, so the output is 0."
        if np.isnan(weights).any():
            return f"{output}The row is not a number: {not_a_number(self.found, (0, 0, self.row))}."
        best = leaders(weights)
        names = listed([self.names[j] for j in best])
        part = percent(weights[best[0]], 1)
        share = f"{names} {'has' if len(best) == 1 else 'each have'} the largest weight, {part}"
        if figures["keys"] == 1:
            return f"{output}{share}: it is the only one in view."
        return (
            f"{output}{share}{self.contributes()}. The row is {figures['verdict']}: max prob "
            f"{figures['max_prob']:.4f}, gradient {figures['gradient']:.4f}, spread "
            f"{figures['spread']:.4f}."
        )

    def contributes(self) -> str:
        """Which value is most of the output, by Σ|weight × number|; not always the top key's."""
        with np.errstate(all="ignore"):  # a value that is not finite has no share to compare
            adds = np.where(self.seen, self.step["weights"] * np.abs(self.value).sum(axis=-1), 0.0)
        if not adds.any() or not np.isfinite(adds).all():
            return ""
        most = leaders(adds)
        names = listed([f"value {j}" for j in most]) if len(most) < 4 else f"{len(most)} values"
        return f", and {names} contribute{'s' if len(most) == 1 else ''} most to the output"

    def beside(self, paper: ByHand) -> None:
        """Exact beside by hand, saying which is which."""
        self.out.print(
            f"\n[bold]By hand[/]: every number written with {paper.digits} digits, and the output "
            f"mixed from the weights as written.\nThe exact column is the answer; the other is "
            f"what paper gives.\n"
        )
        view = table("step", "exact", f"by hand, {paper.digits} digits")
        for name in ("raw", "scaled", "weights", "output"):
            exact, rough = (getattr(side, name)[self.row] for side in (self.found, paper))
            view.add_row(name, digits(exact, 6), digits(rough, paper.digits))
        show(self.out, view)

    def typed(self, numbers: Any) -> str:
        """A vector as it was given."""
        return f"\\[{fit(map(given, numbers), ', ', self.room - 2)}]"

    def brief(self, numbers: Any) -> str:
        """A vector in the room there is; the backslash keeps rich from reading it as markup."""
        return f"\\[{fit(map(number, numbers), ', ', self.room - 2)}]"


def widest(texts: list[str]) -> int:
    return max(map(len, texts), default=0)


def fit(parts: Any, joint: str, room: int) -> str:
    """As many parts as have room, and … for the rest; always at least one.

    >>> fit(["1", "2", "3"], ", ", 20), fit(["1.5", "2.5", "3.5"], ", ", 12)
    ('1, 2, 3', '1.5, 2.5, …')
    """
    parts = list(parts)
    whole = joint.join(parts)
    if len(whole) <= room:
        return whole
    count = len(parts) - 1
    while count > 1 and len(joint.join(parts[:count])) + len(joint) + 1 > room:
        count -= 1
    return joint.join([*parts[:count], "…"])


def scaling(scale: float, size: int) -> str:
    if scale == size == 1:
        return "√d_k = √1 = 1"
    if scale == 1.0:
        return "left out"
    if scale == 1.0 / math.sqrt(size):
        return f"divide by √d_k = √{size} = {number(math.sqrt(size))}"
    return f"multiply by {given(scale)}"


def digits(row: Any, count: int) -> str:
    return ", ".join(fixed(x, count) for x in row.tolist())
