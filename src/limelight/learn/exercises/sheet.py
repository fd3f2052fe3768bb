"""sheet(): exercises for paper, with a page of answers, in one HTML file that prints."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from limelight.errors import ArgumentError
from limelight.learn.exercises.check import LETTERS, check
from limelight.learn.exercises.exercise import LEVELS, STEPS, Exercise
from limelight.learn.exercises.generate import generate
from limelight.texts import known, speaker
from limelight.worked.by_hand import by_hand, rounded
from limelight.writing.numbers import fixed, vector

MOST = 200  # exercises on a sheet: some seventy pages
NUMBERS = range(1, 10_000)  # of exercises: short enough to type

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem; max-width: 50rem; background: #fff; color: #1c1a17;
  font: 15px/1.45 "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 1.6rem; letter-spacing: -0.01em; }
h2 { margin: 0 0 0.5rem; font-size: 1.05rem; }
h2 small { margin-left: 0.5em; color: #5d574b; font-size: 0.85em; font-weight: 400; }
p { margin: 0.4rem 0; }
.name { display: flex; gap: 1.5rem; margin: 1rem 0; }
.name span { flex: 1; border-bottom: 1px solid #8f897b; }
.name span + span { flex: 0 0 10rem; }
.how { color: #4a453b; font-size: 0.92em; }
section { break-inside: avoid; margin: 1.4rem 0 0; padding-top: 0.9rem;
  border-top: 1px solid #cfc9bb; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: 0.3rem 0.5rem; border: 1px solid #b9b2a3; text-align: center; }
thead th { background: #f4f1ea; font-size: 0.85em; font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 400; text-align: left; white-space: nowrap; }
td { min-width: 3.6rem; height: 2.1rem; }
td.given { min-width: 0; white-space: nowrap; }
tfoot th { border: 0; text-align: right; font-weight: 600; }
.hidden td, .hidden th { color: #6b6559; }
ol.why { display: grid; grid-template-columns: 1fr 1fr; gap: 0.15rem 1.5rem; margin: 0.2rem 0 0;
  padding-left: 1.4rem; list-style: lower-alpha; font-size: 0.92em; }
.answer { display: inline-block; min-width: 3.5rem; margin: 0 0.8rem 0 0.2rem;
  border-bottom: 1px solid #8f897b; text-align: center; font-weight: 600; }
.answers { break-before: page; margin-top: 3rem; padding-top: 1.5rem;
  border-top: 3px double #8f897b; }
.answers section { margin-top: 0.9rem; padding-top: 0.6rem; font-size: 0.88em; }
.answers td { height: auto; padding-block: 0.1rem; }
.answers tbody th { padding-block: 0.1rem; }
footer { margin-top: 1.5rem; color: #5d574b; font-size: 0.8em; }
@media (max-width: 34rem) { ol.why { grid-template-columns: 1fr; } }
@page { margin: 14mm 15mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  .scroll { overflow: visible; }
  .answers { margin-top: 0; padding-top: 0; border-top: 0; }
  thead th { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""


@dataclass(frozen=True)
class Sheet:
    """Some exercises of rising level, for paper. `to_html` is the sheet and its answers, in the
    language that was asked for."""

    seed: int
    exercises: tuple[Exercise, ...]
    language: str = "en"

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(sorted({task.level for task in self.exercises}))

    def to_dict(self) -> dict[str, Any]:
        """Every exercise with its solution, and the answers as the answer page prints them."""
        tasks = [
            {**task.to_dict(answers=True), "printed": {step: printed(task, step) for step in STEPS}}
            for task in self.exercises
        ]
        return {"seed": self.seed, "exercises": tasks}

    def to_html(self, title: str | None = None) -> str:
        """One page for a browser and for paper; it holds no script and asks nobody for anything."""
        say = speaker(self.language)
        title = escape(say("Attention by hand") if title is None else title)
        tasks = list(enumerate(self.exercises, start=1))
        again = (
            f"limelight exercise --sheet --seed {self.seed} --count {len(self.exercises)}"
            + "".join(f" --level {level}" for level in self.levels)
            + self._spoken
        )
        single = f"limelight exercise --level LEVEL --seed EXERCISE{self._spoken}"
        footer = say(
            "The same sheet again: {1}. One of its exercises, checked step by step: {2}.",
            f"<code>{again}</code>",
            f"<code>{single}</code>",
        )
        exact = say(
            "Exact numbers, written with two digits. An output mixed from weights that were "
            "rounded first is right as well; where it differs it stands below."
        )
        return (
            "<!doctype html>\n"
            f'<html lang="{self.language}"><head><meta charset="utf-8">\n'
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n"
            f"<main>\n<h1>{title}</h1>\n"
            f'<p class="name">{say("Name")} <span></span> {say("Date")} <span></span></p>\n'
            f'<p class="how">{_how(self.exercises, say)}</p>\n'
            + "".join(_section(number, task, False, say) for number, task in tasks)
            + f'</main>\n<article class="answers">\n<h1>{say("Answers: {1}", title)}</h1>\n'
            f'<p class="how">{exact}</p>\n'
            + "".join(_section(number, task, True, say) for number, task in tasks)
            + f"<footer><p>{footer}</p></footer>\n</article>\n</body></html>\n"
        )

    @property
    def _spoken(self) -> str:
        """What a command needs to speak this language."""
        return "" if self.language == "en" else f" --language {self.language}"


def sheet(
    seed: int = 0,
    count: int = 12,
    levels: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    language: str = "en",
) -> Sheet:
    """`count` exercises of these levels, the easier first, no two alike.

    The same seed, count and levels always give the same exercises, in every language.

    >>> made = sheet(seed=7, count=5)
    >>> [(task.level, task.seed) for task in made.exercises]
    [(1, 5154), (2, 9332), (3, 3083), (4, 3308), (5, 5294)]
    """
    chosen = sorted(set(levels))
    wrong = [level for level in chosen if level not in LEVELS or level == 0]
    if wrong or not chosen:
        said = f"there is no level {wrong[0]!r} for a sheet" if wrong else "no level was chosen"
        raise ArgumentError(f"{said}: choose from 1 to {max(LEVELS)}")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise ArgumentError(f"count={count!r}: give a whole number from 1 to {MOST}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ArgumentError(f"seed={seed!r}: give a whole number ≥ 0")
    drawn = random.Random(f"limelight sheet, seed {seed}").sample(NUMBERS, count)
    made = (generate(chosen[n * len(chosen) // count], drawn[n]) for n in range(count))
    return Sheet(seed, tuple(made), known(language))


def printed(exercise: Exercise, step: str) -> str:
    """The answer as it is written on paper: with as few digits as check() takes for right.

    >>> from limelight.learn.exercises import WORKED
    >>> [printed(WORKED, step) for step in ("raw", "scaled", "why")]
    ['5, 2, −1', '3.54, 1.41, −0.71', 'b']
    """
    exact = exercise.expected(step)
    if step == "why":
        return LETTERS[int(exact[0])]
    texts = (_written(exact, digits) for digits in (0, 2, 6))
    return next(text for text in texts if check(exercise, step, text).right)


def _written(numbers: Any, digits: int) -> str:
    return ", ".join(_digits(x, digits) for x in np.asarray(numbers))


def _digits(value: float, digits: int) -> str:
    return fixed(float(rounded(value, digits)), digits)


def _power(value: float) -> str:
    """An exponential, with digits enough that the small ones keep some."""
    return _digits(value, 2 if value >= 1 else 4)


Say = Callable[..., str]


def _how(tasks: Sequence[Exercise], say: Say) -> str:
    how = [
        say("One exercise.") if len(tasks) == 1 else say("{1} exercises.", len(tasks)),
        say(
            "Fill in the tables: the dot product of the query with each key, the score divided by "
            "√d_k, e to that power, its share of the sum, and the value times that share; the "
            "output is their sum."
        ),
        say("Two digits after the point are enough; keys and values are counted from 0."),
        say("A calculator helps with e to a power."),
    ]
    if any(not all(task.allowed) for task in tasks):
        how.append(say("A hidden key comes after the query: it gets no weight."))
    return " ".join(how)


def _section(number: int, task: Exercise, filled: bool, say: Say) -> str:
    head = say(
        "Level {1}: {2} · exercise {3}",
        task.level,
        escape(say(LEVELS[task.level].summary)),
        task.seed,
    )
    given = "" if filled else f"<p>{say('query = {1}', vector(task.query))}</p>\n"
    asked = {
        "key": say("Largest weight: key"),
        "value": say("Contributes most: value"),
        "why": say("Why?"),
    }
    lines = " ".join(
        f'{label} <span class="answer">{printed(task, step) if filled else ""}</span>'
        for step, label in asked.items()
    )
    reasons = "".join(f"<li>{escape(say(text))}</li>" for text in task.options("why"))
    options = "" if filled else f'<ol class="why">{reasons}</ol>\n'
    return (
        f"<section>\n<h2>{number} <small>{head}</small></h2>\n{given}"
        f'<div class="scroll"><table>\n{_table(task, filled, say)}</table></div>\n'
        f"<p>{lines}</p>\n"
        f"{options}{_also_right(task, say) if filled else ''}</section>\n"
    )


def _table(task: Exercise, filled: bool, say: Say) -> str:
    names = ("", say("key"), say("value"), "q · k", f"÷ √{task.d_k}", say("e to that"),
             say("weight"), say("weight × value"))  # fmt: skip
    head = "".join(f"<th>{name}</th>" for name in names)
    columns = [printed(task, step).split(", ") for step in ("raw", "scaled", "weights")]
    rows = ""
    for j, seen in enumerate(task.allowed):
        power = _power(math.exp(task.scaled[j])) if seen else "–"
        mixed = f"[{_written(task.weights[j] * np.asarray(task.values[j]), 2)}]" if seen else "–"
        raw, scaled, weight = (column[j] for column in columns)
        cells = (raw, scaled, power, weight, mixed) if filled else ("",) * 5
        mark = "" if seen else ' class="hidden"'
        label = str(j) if seen else say("{1}, hidden", j)
        rows += (
            f"<tr{mark}><th>{label}</th>"
            f'<td class="given">{vector(task.keys[j])}</td>'
            f'<td class="given">{vector(task.values[j])}</td>'
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>\n"
        )
    total = _power(sum(math.exp(task.scaled[j]) for j, seen in enumerate(task.allowed) if seen))
    sums = (total, "1", f"[{printed(task, 'output')}]") if filled else ("", "", "")
    totals = "".join(f"<td>{cell}</td>" for cell in sums)
    foot = f'<tr><th colspan="5">{say("sum")}</th>{totals}</tr>'
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n<tfoot>{foot}</tfoot>\n"


def _also_right(task: Exercise, say: Say) -> str:
    """The output as rounded weights give it, where paper shows another than the exact one."""
    rough = _written(by_hand(task.trace, 2).output[0], 2)
    if rough == printed(task, "output") or not check(task, "output", rough).right:
        return ""
    return f"<p>{say('From weights rounded to two digits: {1}.', f'[{rough}]')}</p>\n"
