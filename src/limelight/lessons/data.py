"""What lies in a lessons file: what Learn would ask the studio for, answered beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

from limelight.capture import shipped
from limelight.errors import ArgumentError
from limelight.learn import exercises, experiments
from limelight.learn.exercises.marking import StepMarking, marking, mistakes
from limelight.texts import known
from limelight.views import facts, looks

# The parts of Learn by their ids, in its order, and what the address of each can say.
STATE: dict[str, tuple[str, ...]] = {
    "input": ("placed", "swapped"),
    "step": ("sentence", "x", "w_q", "w_k", "w_v", "causal", "stage", "table", "row", "column"),
    "map": ("of", "row", "column"),
    "lab": ("d_k", "scaled", "keys", "draw"),
    "example": ("query", "keys", "values"),
    "scaling": ("scores", "d_k"),
    "softmax": ("scores", "nudge"),
    "future": ("ahead", "row", "written", "masked"),
    "apply": ("tab", "level", "seed", "question", "answer"),
    "heads": ("layer", "row", "word", "traits", "deeds", "replace"),
    "next": ("text", "replace", "at"),
    "not": (),
    "stays": (),
}
PARTS = tuple(STATE)

EACH = 12  # exercises of a level
CAPTURE, LAYER, HEAD = "llama", 11, 1  # the real head of the lessons
LAYERS = (0, 5, 11, 17, 23, 29)  # all heads of these come along

# Which parts need what: a page of one part holds its own alone.
NEEDS: dict[str, tuple[str, ...]] = {
    "map": ("head",), "heads": ("head", "layers"), "apply": ("exercises", "quiz"),
    "scaling": ("experiment",),
}  # fmt: skip


@dataclass(kw_only=True)
class MistakeText:
    kind: str
    says: str
    instead: str


@dataclass(kw_only=True)
class HeldExercise:
    """An exercise as the studio sends it, and how the page checks it."""

    info: Any
    marking: dict[str, StepMarking]


@dataclass(kw_only=True)
class LessonsData:
    """part     the one part that is shown; null: all of them
    home     where the whole course is, beside a page of one part; null: nowhere
    address  where the page opens when its own address says nothing, as #/learn/lab?lab.d_k=64
    answers  by path, what the studio would send
    """

    part: str | None
    home: str | None
    address: str
    answers: dict[str, Any]
    exercises: list[HeldExercise]
    mistakes: list[MistakeText]


def lessons_data(
    part: str | None = None,
    state: Mapping[str, Any] | None = None,
    home: str | None = None,
    language: str = "en",
) -> LessonsData:
    """Of all parts, or of one; `state` is what the part opens on, by its names in the address.

    The page opens in `language`; whoever reads it can choose another.
    """
    if part is not None and part not in PARTS:
        raise ArgumentError(f"there is no part {part!r}: choose {', '.join(PARTS)}")
    if state and part is None:
        raise ArgumentError("a state to open on belongs to one part: name the part first")
    unknown = [name for name in state or () if name not in STATE[part or ""]]
    if unknown:
        raise ArgumentError(
            f"{part} has no {unknown[0]!r} to open on: it knows {', '.join(STATE[part or ''])}"
        )
    needed = {each for name in ([part] if part else NEEDS) for each in NEEDS.get(name, ())}
    answers: dict[str, Any] = {}
    if "head" in needed:
        answers |= _heads(LAYERS if "layers" in needed else ())
    if "quiz" in needed:
        answers["/api/quiz"] = [item.to_dict(answers=True) for item in exercises.QUIZ]
    if "experiment" in needed:
        answers["/api/experiments/scaling"] = _experiment()
        answers["/api/experiments/remedies"] = experiments.remedies().shown()
    return LessonsData(
        part=part,
        home=home if part else None,
        address=_address(part, state or {}, known(language)),
        answers=answers,
        exercises=list(_exercises()) if "exercises" in needed else [],
        mistakes=[MistakeText(**each) for each in mistakes()] if "exercises" in needed else [],
    )


def _address(part: str | None, state: Mapping[str, Any], language: str) -> str:
    spoken = {} if language == "en" else {"page.language": language}
    said = urlencode({f"{part}.{name}": _text(value) for name, value in state.items()} | spoken)
    return "#/learn" + (f"/{part}" if part else "") + (f"?{said}" if said else "")


def _text(value: Any) -> str:
    """As an address has it: 1 and 0 for true and false, rows of numbers as 2,1;1,0."""
    if isinstance(value, (list, tuple)):
        rows = [row if isinstance(row, (list, tuple)) else [row] for row in value]
        return ";".join(",".join(map(str, row)) for row in rows)
    return str(int(value)) if isinstance(value, bool) else str(value)


@cache
def _heads(layers: tuple[int, ...]) -> Mapping[str, Any]:
    """The real head, and those of some layers without their values, by the paths Learn asks for."""
    capture = shipped.open(CAPTURE)
    answers: dict[str, Any] = {
        "/api/captures": [asdict(facts.summary(capture, CAPTURE, "shipped"))],
        f"/api/captures/{CAPTURE}": asdict(facts.facts(capture, CAPTURE, "shipped")),
    }
    for index, site in enumerate(capture.sites):
        for head in range(site.heads):
            real = (site.layer, head) == (LAYER, HEAD)
            if real or site.layer in layers:
                rows = asdict(looks.head_rows(site.one(head, 0)))
                path = f"/api/captures/{CAPTURE}/sites/{index}/heads/{head}/rows?batch=0"
                answers[path] = rows if real else {**rows, "value": None}
    return answers


def _experiment() -> dict[str, Any]:
    found = experiments.scaling()
    return {
        **found.to_dict(), "figures": experiments.FIGURES, "settings": experiments.SETTINGS,
        "scales": found.scales, "sizes": found.sizes,
    }  # fmt: skip


@cache
def _exercises() -> tuple[HeldExercise, ...]:
    levels = [{"level": n, "summary": level.summary} for n, level in exercises.LEVELS.items()]
    asked = [(0, 1)] + [(n, seed) for n in exercises.LEVELS if n for seed in range(1, EACH + 1)]
    made = [exercises.generate(level, seed) for level, seed in asked]
    return tuple(
        HeldExercise(info={**e.to_dict(), "levels": levels}, marking=marking(e)) for e in made
    )
