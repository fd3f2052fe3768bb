"""check(): right, a rounding slip, or which mistake it was; and Progress, which answers move on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from limelight.errors import ArgumentError
from limelight.learn.exercises.exercise import STEPS, Array, Exercise, known
from limelight.learn.exercises.mistakes import candidates, distance
from limelight.learn.exercises.where import close, where
from limelight.worked.by_hand import by_hand, rounded
from limelight.writing.numbers import counted, number, parse, percent, two_digits, vector

CLOSE = 0.005 + 1e-9  # two digits after the point
HIDDEN_WORDS = frozenset(
    {"hidden", "masked", "mask", "-inf", "−inf", "-∞", "−∞", "-", "−", "x", "·"}
)
LETTERS = "abcdefghij"
LARGEST = 1e12  # no answer is near it


@dataclass(frozen=True)
class Feedback:
    """What the checker says about one answer.

    verdict  right, rounding (nearly, but rounded wrongly), mistake (a known one), wrong, unreadable
    kind     which mistake, or which remark; "" where there is none
    says     what happened, in a sentence or two
    instead  what to do; "" where the answer is right
    numbers  for each number whether it is right; empty where the answer could not be read
    exact    the exact answer, given only when the answer is right; of a choice the option's number
    """

    step: str
    verdict: str
    kind: str
    says: str
    instead: str = ""
    numbers: tuple[bool, ...] = ()
    exact: tuple[float, ...] = ()

    @property
    def right(self) -> bool:
        return self.verdict == "right"

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "numbers": list(self.numbers),
            "exact": list(self.exact),
            "right": self.right,
        }


@dataclass(frozen=True)
class Progress:
    """The steps done so far, and how many tries each took.

    >>> from limelight.learn.exercises import WORKED
    >>> now = Progress(WORKED).answer("5, 2, -1")
    >>> now.feedback.says, now.step
    ('Right.', 'scaled')
    """

    exercise: Exercise
    done: int = 0
    begun: int = 0  # the step that was asked first
    tries: tuple[int, ...] = (0,) * len(STEPS)
    shown: frozenset[str] = field(default_factory=frozenset)  # steps whose solution was shown
    hinted: frozenset[str] = field(default_factory=frozenset)  # steps with a hint taken
    feedback: Feedback | None = None

    @classmethod
    def at(cls, exercise: Exercise, step: str) -> Progress:
        """Starting in the middle: the steps before are not asked."""
        done = STEPS.index(known(step))
        return cls(exercise, done, done)

    @property
    def step(self) -> str | None:
        """The step to answer now; None at the end."""
        return STEPS[self.done] if self.done < len(STEPS) else None

    def answer(self, given: Any) -> Progress:
        """After an answer: one step on if it is right; else the same step with feedback.

        An answer that cannot be read does not count as a try.
        """
        if self.step is None:
            return self
        feedback = check(self.exercise, self.step, given)
        tries = list(self.tries)
        tries[self.done] += feedback.verdict != "unreadable"
        return replace(self, done=self.done + feedback.right, tries=tuple(tries), feedback=feedback)

    def hint(self) -> Progress:
        """The same step, with a hint taken."""
        return self if self.step is None else replace(self, hinted=self.hinted | {self.step})

    def show(self) -> Progress:
        """Past this step, with its solution shown."""
        if self.step is None:
            return self
        return replace(self, done=self.done + 1, shown=self.shown | {self.step}, feedback=None)


def check(exercise: Exercise, step: str, answer: Any) -> Feedback:
    """Judge one answer: text as typed ('3.54, 1.41, -0.71'), numbers, or None for a hidden key; of
    a choice the option's number, or the letter of a reason.

    >>> from limelight.learn.exercises import WORKED
    >>> check(WORKED, "scaled", [5, 2, -1]).kind
    'not-scaled'
    >>> check(WORKED, "output", "8.81, 0.89").says.splitlines()[0]
    'Right, from weights rounded to two digits; the exact output is [8.829123, 0.858154].'
    """
    if exercise.options(known(step)):
        return _check_choice(exercise, step, answer)
    try:
        given = read_numbers(answer)
    except ArgumentError as error:
        return Feedback(step, "unreadable", "", str(error), _form(exercise, step))
    exact = exercise.expected(step)
    if len(given) != len(exact):
        return _miscounted(exercise, step, given)
    return _check_numbers(exercise, step, given)


def _check_numbers(exercise: Exercise, step: str, given: list[float | None]) -> Feedback:
    exact = exercise.expected(step)
    seen = np.ones(len(exact), bool) if step == "output" else np.asarray(exercise.allowed)
    wrongly_hidden = [j for j, x in enumerate(given) if x is None and seen[j]]
    if wrongly_hidden:
        what = "number" if step == "output" else "key"
        says = f"{what.capitalize()} {wrongly_hidden[0]} is not hidden: it needs a number."
        instead = "Only keys after the query are hidden." if step != "output" else "None is hidden."
        marks = tuple(x is not None for x in given)
        return Feedback(step, "wrong", "hid-too-much", says, instead, marks)
    # A hidden key may be left open; it stands for what is right there.
    numbers = np.array([exact[j] if x is None else x for j, x in enumerate(given)], np.float64)
    percent = step == "weights" and abs(numbers.sum() - 100) < 3 and numbers.max() > 1.5
    if percent:
        numbers = numbers / 100
    right = tuple(bool(mark) for mark in np.abs(numbers - exact) <= CLOSE)
    if all(right):
        return _right(exercise, step, numbers, percent)
    paper = _on_paper(exercise, step, numbers)
    if paper is not None:
        return Feedback(step, "right", "by-hand", paper, "", right, tuple(exact.tolist()))
    return _explain(exercise, step, numbers, right)


def _right(exercise: Exercise, step: str, numbers: Array, percent: bool) -> Feedback:
    exact = exercise.expected(step)
    says, kind = "Right.", ""
    if percent:
        kind = "percent"
        says = "Right, in per cent; weights are usually written as parts of 1."
    elif step != "raw" and not np.array_equal(numbers, exact):
        says = f"Right. Exactly: {vector(exact)}."
    return Feedback(step, "right", kind, says, "", (True,) * len(exact), tuple(exact.tolist()))


def _on_paper(exercise: Exercise, step: str, numbers: Array) -> str | None:
    """The remark for an answer that follows from rounded numbers, or None where it does not."""
    exact = exercise.expected(step)
    for rough, says in papers(exercise, step):
        if (np.minimum(np.abs(numbers - rough), np.abs(numbers - exact)) <= CLOSE).all():
            return says
    return None


def papers(exercise: Exercise, step: str) -> Iterator[tuple[Array, str]]:
    """What a step gives on paper, from numbers rounded before it, and what is said of that."""
    if step not in ("weights", "output"):
        return
    exact = vector(exercise.expected(step))
    for digits, carried in ((2, False), (2, True), (3, False), (3, True)):
        rough = getattr(by_hand(exercise.trace, digits, carry_scores=carried), step)[0]
        what, count = "scores" if carried else "weights", "two" if digits == 2 else "three"
        says = (
            f"Right, from {what} rounded to {count} digits; the exact {step} {_is(step)} {exact}."
        )
        yield rough, says


def _explain(exercise: Exercise, step: str, numbers: Array, right: tuple[bool, ...]) -> Feedback:
    """The nearest explanation of an answer that is not right."""
    exact = exercise.expected(step)
    off = distance(exercise, step, numbers, exact)
    best, mistake = min(
        (
            (distance(exercise, step, numbers, wrong), -n, mistake)
            for n, (mistake, wrong) in enumerate(candidates(exercise, step))
        ),
        key=lambda found: found[0],
        default=(math.inf, 0, None),
    )[::2]
    if mistake is not None and best <= 1.0 and best < off:
        return Feedback(step, "mistake", mistake.kind, mistake.says, mistake.instead, right)
    if off <= 1.0 and step != "raw":
        return _rounding(step, numbers, exact, right)
    says = close(exercise, step, numbers, right)
    kind = "close" if says else ""
    says = says or _what_is_off(exercise, step, numbers, right)
    return Feedback(step, "wrong", kind, says, where(exercise, step, numbers, right), right)


def _rounding(step: str, numbers: Array, exact: Array, right: tuple[bool, ...]) -> Feedback:
    j = right.index(False)
    cut = np.sign(exact) * np.floor(np.abs(exact) * 100) / 100
    if abs(numbers[j] - cut[j]) < 1e-9:
        nearest = two_digits(float(rounded(exact[j], 2)))
        says = f"Nearly: {number(exact[j])} was cut off; rounded to two digits it is {nearest}."
        instead = "Round the last digit to the nearer one, not towards 0."
        return Feedback(step, "rounding", "cut-off", says, instead, right)
    says = f"Nearly: {number(numbers[j])} is off by {abs(numbers[j] - exact[j]):.3f}."
    instead = "Keep three or more digits on the way and round to two at the end."
    return Feedback(step, "rounding", "slip", says, instead, right)


def _what_is_off(exercise: Exercise, step: str, numbers: Array, right: tuple[bool, ...]) -> str:
    """What can be seen without knowing how the answer came about."""
    if step == "weights":
        seen = np.asarray(exercise.allowed)
        if (numbers < 0).any():
            return "A weight is never negative: e to any power is positive."
        if (numbers[~seen] > CLOSE).any():
            return f"Key {int(np.argmax((numbers > CLOSE) & ~seen))} is hidden: its weight is 0."
        if abs(numbers.sum() - 1) > 0.03:
            return f"The weights sum to {numbers.sum():.4g}, and must sum to 1."
        if (np.argsort(numbers[seen]) != np.argsort(exercise.weights[seen])).any():
            return "The weights are not in the order of the scores: the larger score gets more."
    if not any(right):
        return "None of these is right."
    what = "number" if step == "output" else "key"
    wrong = [str(j) for j, mark in enumerate(right) if not mark]
    return f"Look again at {what} {' and '.join(wrong)}; the rest is right."


def _check_choice(exercise: Exercise, step: str, answer: Any) -> Feedback:
    options, top = exercise.options(step), int(exercise.expected(step)[0])
    chosen = read_choice(answer, step)
    if chosen == top:
        says = _why_right(exercise, step)
        return Feedback(step, "right", "", says, "", (True,), (float(top),))
    for mistake, wrong in () if chosen is None else candidates(exercise, step):
        if wrong[0] == chosen:
            also = " (They are counted from 0.)" if chosen == top + 1 < len(options) else ""
            says = mistake.says + also
            return Feedback(step, "mistake", mistake.kind, says, mistake.instead, (False,))
    if chosen is None or not 0 <= chosen < len(options):
        what = "reason" if step == "why" else step
        says = f"That is not one of the {counted(len(options), what)}."
        return Feedback(step, "unreadable", "", says, _form(exercise, step))
    if step == "why":
        reason = exercise.reasons[chosen]
        instead = "Compare weight × value for all values in view: what makes the largest large?"
        return Feedback(step, "mistake", reason.kind, reason.says, instead, (False,))
    also = " (They are counted from 0.)" if chosen == top + 1 else ""
    more = "key has a larger weight" if step == "key" else "value contributes more"
    says = f"Another {more}.{also}"
    return Feedback(step, "wrong", "", says, where(exercise, step), (False,))


def _why_right(exercise: Exercise, step: str) -> str:
    key, value = exercise.top_key, exercise.top_value
    share = percent(exercise.weights[key])
    if step == "key":
        return f"Right: key {key} matches best and has {share} of the weight."
    if step == "value":
        though = "" if key == value else f", though key {key} has the larger weight"
        return f"Right: value {value} adds {exercise.contributions[value]:.2f}{though}."
    return exercise.reasons[int(exercise.expected(step)[0])].says


def _miscounted(exercise: Exercise, step: str, given: list[float | None]) -> Feedback:
    asked, came = len(exercise.expected(step)), len(given)
    if step == "raw" and came == len(exercise.keys) * exercise.d_k:
        says, instead = "These are the single products.", "Add those of each key: one number a key."
        return Feedback(step, "mistake", "not-added", says, instead)
    if step == "output" and came == len(exercise.values[0]) * len(exercise.values):
        says, instead = "These are the weighted values.", "Add them up, number by number."
        return Feedback(step, "mistake", "not-added", says, instead)
    says = f"{counted(came, 'number')} came, and {asked} are asked for."
    if step in ("raw", "scaled", "weights") and came == sum(exercise.allowed):
        says = f"{came} numbers came for {asked} keys: the hidden ones are missing."
    return Feedback(step, "unreadable", "", says, _form(exercise, step))


def _form(exercise: Exercise, step: str) -> str:
    if exercise.options(step):
        last = len(exercise.options(step)) - 1
        if step == "why":
            return f"Choose from a to {LETTERS[last]}."
        return f"Choose its number, from 0 to {last}."
    example = {
        "raw": ["5", "2", "-1", "0", "3"],
        "scaled": ["3.54", "1.41", "-0.71", "0", "2.12"],
        "weights": ["0.88", "0.11", "0.01", "0", "0"],
        "output": ["8.83", "0.86", "1.20"],
    }[step]
    return f"Write it like this: {', '.join(example[: len(exercise.expected(step))])}"


def _is(step: str) -> str:
    return "are" if step == "weights" else "is"


def read_numbers(answer: Any) -> list[float | None]:
    """Numbers as typed or as given; None for a word that means hidden."""
    if isinstance(answer, str):
        parts: Sequence[Any] = _split(answer)
        if not parts:
            raise ArgumentError("Nothing to check: the answer is empty.")
    elif np.ndim(answer) == 0:
        parts = [answer]
    else:
        parts = list(answer)
    return [_number(part) for part in parts]


def _split(text: str) -> list[str]:
    """At commas, semicolons and spaces; '3,54; 1,41' has decimal commas."""
    text = text.strip().strip("[]()")
    if ";" in text and "." not in text:
        text = text.replace(",", ".")
    parts = text.replace(";", " ").replace(",", " ").split()
    return [part for part in parts if part.lower() not in ("key", "value")]


def _number(part: Any) -> float | None:
    if part is None:
        return None
    text = str(part).strip().lower()
    if text in HIDDEN_WORDS:
        return None
    found = parse(text.removeprefix("v").removesuffix("%"))
    if found == -math.inf:
        return None
    if math.isnan(found):
        raise ArgumentError(f"{str(part)!r} is not a number.")
    if abs(found) > LARGEST:
        raise ArgumentError(f"{str(part)!r} is far too large.")
    return found


def read_choice(answer: Any, what: str) -> int | None:
    """The number of an option: 1, '1', 'key 1', 'k1', 'b' among reasons. None where it is none."""
    if not isinstance(answer, str) and np.ndim(answer) > 0:
        if len(answer) != 1:
            return None
        answer = answer[0]
    text = str(answer).strip().lower()
    if what == "why":
        if len(text) == 1 and text in LETTERS:
            return LETTERS.index(text)
    else:
        text = text.removeprefix(what).removeprefix(what[0])
    found = parse(text)
    return int(found) if abs(found) < LARGEST and found == round(found) else None
