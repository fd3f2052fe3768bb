"""/api/learn: what the lessons ask of the smallest live model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from limelight.live.journey import Part, journey
from limelight.live.looks import looks
from limelight.studio.endpoint import Asked, Endpoint
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight import live
    from limelight.studio.studio import Studio

MODEL = "gpt"
Line = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class ToFollow(Asked, frozen=True):
    text: Line
    replace: bool = False


class ToLook(Asked, frozen=True):
    text: Line


class JourneyGuess(msgspec.Struct):
    token: str
    probability: float


class JourneyStop(msgspec.Struct):
    """After one part of the way; the embedding's layer is −1."""

    layer: int
    part: Part
    added: float
    size: float
    guesses: list[JourneyGuess]


class JourneyInfo(msgspec.Struct):
    tokens: list[str]
    stops: list[JourneyStop]


class LookInfo(msgspec.Struct):
    """One large weight of the last token, and what hiding it changes."""

    layer: int
    head: int
    key: int
    weight: float
    brought: float
    change: float


class LooksInfo(msgspec.Struct):
    tokens: list[str]
    answer: str
    probability: float
    looks: list[LookInfo]


def learn_journey(studio: Studio, asked: ToFollow, cancel: Cancel) -> JourneyInfo:
    run = _run(studio, asked.text, cancel)
    stops = [
        JourneyStop(stop.layer, stop.part, stop.added, stop.size,
                    [JourneyGuess(guess.token, guess.probability) for guess in stop.guesses])
        for stop in journey(run, replace=asked.replace)
    ]  # fmt: skip
    return JourneyInfo(list(run.tokens), stops)


def learn_looks(studio: Studio, asked: ToLook, cancel: Cancel) -> LooksInfo:
    def measured() -> LooksInfo:
        run = _run(studio, asked.text, cancel)
        guess = run.next(1)[0]
        found = [LookInfo(look.layer, look.head, look.key, look.weight, look.brought, look.change)
                 for look in looks(run)]  # fmt: skip
        return LooksInfo(list(run.tokens), guess.token, guess.probability, found)

    info: LooksInfo = studio.stage.measured.get(asked, measured)
    return info


def _run(studio: Studio, text: str, cancel: Cancel) -> live.Run:
    with studio.stage.lock:
        model = studio.stage.model(MODEL, cancel.told)
        return model.run(text, progress=cancel.told)


ENDPOINTS = (
    Endpoint("/api/learn/journey", learn_journey, ToFollow, JourneyInfo,
             "The last token's way through the smallest live model, and the guess at every stop.",
             method="POST", lane="heavy"),
    Endpoint("/api/learn/looks", learn_looks, ToLook, LooksInfo,
             "The large weights of the last token, and what hiding each of them changes.",
             method="POST", lane="heavy"),
)  # fmt: skip
