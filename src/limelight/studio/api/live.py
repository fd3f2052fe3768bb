"""/api/live: a model that answers while one types, and what it says without some of its heads.

Runs in NumPy, without torch; the small models are always there. A run continues from the last one's
beginning, so that a word more costs that word, and ends between two layers when its page asks anew.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from limelight import live
from limelight.errors import ArgumentError
from limelight.studio.answers import Missing, NotFound
from limelight.studio.api.asked import Few, Index, Name
from limelight.studio.cache import Cache
from limelight.studio.endpoint import Asked, Endpoint, Nothing
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

MOST_TOKENS = 1024
MEASURED = 32  # answers that took many runs of a model, kept for who asks the same
TITLES = {
    "gpt": "Shakespeare, a letter a token",
    "code": "Python, a letter a token",
    "smollm2": "SmolLM2, English",
}
EXAMPLES = {
    "gpt": "It is the east, and Juliet is the su",
    "code": "for key in sorted(table):\n    print(ke",
    "smollm2": "The curious cat watched the bird on the old oak",
}

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
Pair = Annotated[list[Index], msgspec.Meta(min_length=2, max_length=2)]
Heads = Annotated[list[Pair], msgspec.Meta(max_length=1024)]  # (layer, head) each


class LiveModel(msgspec.Struct):
    id: str
    title: str
    example: str
    missing: str | None


class LiveGuess(msgspec.Struct):
    """A token that may come next; `before` is its probability with every head on."""

    id: int
    token: str
    whole: bool  # else it is part of a character, and no text by itself
    probability: float
    before: float


class LiveRun(msgspec.Struct):
    capture: str
    text: str
    tokens: list[str]
    next: list[LiveGuess]


class LiveEffects(msgspec.Struct):
    """What each head's absence does to the log-probability of the answer: layers down."""

    answer: str
    before: float
    change: list[list[float]]


class ToRun(Asked, frozen=True):
    model: Name
    text: Text
    off: Heads = msgspec.field(default_factory=list)
    next: Few = 8


class ToMeasure(Asked, frozen=True):
    model: Name
    text: Text


@dataclass
class Stage:
    """The live models in use, the last run, to continue from, and what was measured."""

    models: dict[str, live.Model] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: live.Run | None = None
    measured: Cache[Any] = field(default_factory=lambda: Cache(MEASURED))

    def model(self, name: str, progress: Callable[[str], None]) -> live.Model:
        if name not in live.NAMES:
            raise NotFound(f"there is no live model {name!r}: {', '.join(live.NAMES)} are known")
        if why := live.missing(name):
            raise Missing(why)
        if name not in self.models:
            self.models[name] = live.load(name, progress=progress)
        return self.models[name]


def live_models(studio: Studio, _: Nothing, __: Cancel) -> list[LiveModel]:
    return [LiveModel(name, TITLES[name], EXAMPLES[name], live.missing(name))
            for name in live.NAMES]  # fmt: skip


def live_run(studio: Studio, asked: ToRun, cancel: Cancel) -> LiveRun:
    stage = studio.stage
    with stage.lock:
        cancel.check()
        model = stage.model(asked.model, cancel.told)
        whole = stage.last = _run(stage.last, model, asked.text, [], cancel)
        run = whole if not asked.off else _run(None, model, asked.text, asked.off, cancel)
    before = {guess.id: guess.probability for guess in whole.next(model.decoder.vocabulary)}
    read = model.vocabulary.decode
    name = repr((asked.model, asked.text, sorted(asked.off))).encode()
    book = studio.shelf.show(f"live-{hashlib.sha256(name).hexdigest()[:16]}", run.capture)
    return LiveRun(
        book.id, asked.text, list(run.tokens),
        [LiveGuess(g.id, g.token, read([g.id]) == g.token, g.probability, before[g.id])
         for g in run.next(asked.next)],
    )  # fmt: skip


def live_effects(studio: Studio, asked: ToMeasure, cancel: Cancel) -> LiveEffects:
    stage = studio.stage

    def step(_: str) -> None:
        cancel.check()

    def measured() -> LiveEffects:
        with stage.lock:
            model = stage.model(asked.model, step)
        _check(model, asked.text)
        found = model.effects(asked.text, progress=step)
        assert found.answer is not None
        return LiveEffects(found.answer, found.before, found.change.tolist())

    effects: LiveEffects = stage.measured.get(asked, measured)
    return effects


def _run(
    last: live.Run | None, model: live.Model, text: str, off: Heads, cancel: Cancel
) -> live.Run:
    _check(model, text)
    heads = [(layer, head) for layer, head in off]
    return model.run(text, heads, like=last, progress=cancel.told)


def _check(model: live.Model, text: str) -> None:
    length = len(model.encode(text))
    if length > MOST_TOKENS:
        raise ArgumentError(
            f"the text has {length:,} tokens, and the studio runs up to {MOST_TOKENS:,} live: make "
            f"a capture of a longer one with limelight inspect MODEL --save FILE"
        )


ENDPOINTS = (
    Endpoint("/api/live", live_models, Nothing, list[LiveModel],
             "Models that answer while one types, and why one is missing."),
    Endpoint("/api/live/run", live_run, ToRun, LiveRun,
             "Run a live model on a text, without some heads: what comes next, and its capture.",
             method="POST", lane="heavy"),
    Endpoint("/api/live/effects", live_effects, ToMeasure, LiveEffects,
             "What each head's absence does to the likeliest next token.",
             method="POST", lane="heavy"),
)  # fmt: skip
