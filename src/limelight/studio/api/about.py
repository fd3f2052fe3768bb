"""/api/about: what this studio is and what it can do here."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import msgspec

from limelight import __version__
from limelight.studio.endpoint import Endpoint, Nothing
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio


class About(msgspec.Struct):
    version: str
    folders: list[str]
    models: bool  # torch and transformers are here: a capture can be made from a model


def about(studio: Studio, _: Nothing, __: Cancel) -> About:
    found = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return About(__version__, [root.name for root in studio.folders.roots], found)


ENDPOINTS = (
    Endpoint("/api/about", about, Nothing, About, "What this studio is and what it can do here."),
)
