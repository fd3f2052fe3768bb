"""A live model: a small decoder in NumPy on limelight's own engines.

load(name)     "gpt" and "code", which come along; "smollm2", from its package; any GGUF file
               of the Llama family
Off            what a run goes without: heads, layers, cells
missing(name)  why a model cannot be run here; None where it can

model = limelight.live.load("smollm2")
run = model.run("The curious cat watched the", off=[(11, 1)])
run.next(5), run.capture, run.write(20), model.effects("The curious cat watched the")
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from limelight.errors import FileError
from limelight.live import small
from limelight.live.effects import Effects
from limelight.live.model import Model
from limelight.live.off import Off
from limelight.live.run import Guess, Run

if TYPE_CHECKING:
    from limelight.hf.places import Place

NAMES = ("gpt", "code", "smollm2")  # smallest first

__all__ = ["NAMES", "Effects", "Guess", "Model", "Off", "Run", "load", "missing"]


def load(name: str | os.PathLike[str], *, progress: Callable[[str], None] | None = None) -> Model:
    """A model by its name, or from a GGUF file of the Llama family; nothing is downloaded.

    >>> load("gpt")
    Model(gpt: 1.6M parameters in 6 MB, 5 layers × 5 heads, reads 256 tokens)
    """
    if name in small.FACTS:
        decoder, alphabet = small.read(str(name))
        return Model(str(name), decoder, alphabet, dict(small.FACTS[str(name)]))
    from limelight.hf import places
    from limelight.live import llama

    place = _place(name)
    if place.gguf is None:
        raise FileError(
            f"{name}: a folder for Transformers, and a live model is a GGUF file of the Llama "
            f"family, or {', '.join(NAMES)}: limelight.hf.load reads folders"
        )
    path = place.folder / place.gguf
    decoder, pieces = llama.read(path, progress)
    known = str(name) if str(name) in places.BUILTIN else Path(path).stem
    return Model(known, decoder, pieces, dict(place.facts))


def _place(name: str | os.PathLike[str]) -> Place:
    """Where the model is; the error for none names the models that are run here."""
    from limelight.hf.places import place_of

    try:
        return place_of(name)
    except FileError as error:
        here = f"not built in ({', '.join(NAMES)})"
        raise FileError(re.sub(r"not built in \([^)]*\)", here, str(error))) from None


def missing(name: str) -> str | None:
    """Why a model cannot be run here; None where it can."""
    if name in small.FACTS:
        return None
    try:
        _place(name)
    except FileError as error:
        return str(error)
    return None
