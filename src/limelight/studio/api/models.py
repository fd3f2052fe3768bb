"""/api/models: run a model on a text or an image, where torch and Transformers are installed.

Only models that stand in the folders given at start, and those installed as packages: safetensors
and GGUF, never a pickle, never code that comes with a model, never a download.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib.util
import io
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from limelight import hf
from limelight.errors import ArgumentError, LimelightError
from limelight.intake import from_json, read_bounded
from limelight.studio.answers import Missing, NotFound
from limelight.studio.api.asked import Name
from limelight.studio.api.captures import summary
from limelight.studio.endpoint import Asked, Endpoint, Nothing
from limelight.studio.folders import check
from limelight.studio.limits import Limits
from limelight.studio.work import Cancel
from limelight.views.schema import CaptureSummary

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

MOST_TOKENS = 4096
WITH_VALUES = 1024  # tokens up to which values are kept, for the last step of a cell
MOST_PIXELS = 50_000_000


class ModelInfo(msgspec.Struct):
    id: str
    title: str
    takes: Literal["text", "image"]


class Models(msgspec.Struct):
    missing: str | None
    models: list[ModelInfo]


class ToMake(Asked, frozen=True):
    model: Name
    text: Annotated[str, msgspec.Meta(max_length=200_000)] | None = None
    image: str | None = None


@dataclass
class Workshop:
    """The model that was used last, so that a second text costs only its run."""

    name: str | None = None
    loaded: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, name: str, path: str) -> Any:
        if self.name != name:
            self.name, self.loaded = None, None  # give the old one back before the new one comes
            self.loaded = hf.load(path)
            self.name = name
        return self.loaded


def models(studio: Studio, _: Nothing, __: Cancel) -> Models:
    if why := hf.missing():
        return Models(why, [])
    found = places(studio)
    return Models(
        None, [ModelInfo(name, title, takes) for name, (title, _, takes) in found.items()]
    )


def make_capture(studio: Studio, asked: ToMake, cancel: Cancel) -> CaptureSummary:
    if (asked.text is None) == (asked.image is None):
        raise ArgumentError("give a text or an image, and not both")
    if why := hf.missing():
        raise Missing(why)
    found = places(studio).get(asked.model)
    if found is None:
        raise NotFound(f"there is no model {asked.model!r}: /api/models lists those that are here")
    picture = None if asked.image is None else _picture(asked.image)
    title, path, _ = found

    def step(_: str) -> None:
        cancel.check()

    with studio.workshop.lock:
        cancel.check()
        loaded = studio.workshop.get(asked.model, path)
        cancel.check()
        length = 0
        if asked.text is not None:
            length = int(loaded.inputs(asked.text)["input_ids"].shape[1])
            if length > MOST_TOKENS:
                raise ArgumentError(
                    f"the text has {length:,} tokens, and the studio runs up to {MOST_TOKENS:,}: "
                    f"make a longer capture with limelight inspect MODEL --save FILE, and open "
                    f"it here"
                )
        made = loaded.capture(asked.text, picture, values=length <= WITH_VALUES, progress=step)
    return summary(studio.shelf.add(_name(title), made))


def places(studio: Studio) -> dict[str, tuple[str, str, Literal["text", "image"]]]:
    """id → title, path and what it takes, of every model there is."""
    from limelight.hf.places import BUILTIN, place_of

    found: dict[str, tuple[str, str, Literal["text", "image"]]] = {}
    for name, package in BUILTIN.items():
        try:
            place_of(name)
        except LimelightError:
            continue
        found[name] = (str(package.facts["model"]), name, "text")
    limits = studio.limits
    for listed in studio.folders.find(".gguf", ".json").values():
        with contextlib.suppress(LimelightError, OSError):  # a bad file is none, and costs no other
            if listed.path.suffix.lower() == ".gguf":
                path = check(listed, limits.file_bytes)
                found.setdefault(listed.id, (listed.id.replace(":", " / "), str(path), "text"))
            elif listed.path.name == "config.json":
                folder = check(listed, limits.config_bytes).parent
                if any(folder.glob("*.safetensors")):
                    name = ":".join(listed.id.split(":")[:-1]) or listed.folder.name
                    takes: Literal["text", "image"] = "image" if _sees(folder, limits) else "text"
                    found.setdefault(name, (name.replace(":", " / "), str(folder), takes))
    return found


def _sees(folder: Any, limits: Limits) -> bool:
    """Whether a model folder is a vision model's: it says how its images are cut into patches."""
    try:
        config = from_json(read_bounded(folder / "config.json", limits.config_bytes).decode())
    except ValueError:
        return False
    has_text = (folder / "tokenizer.json").is_file() or (folder / "tokenizer_config.json").is_file()
    return isinstance(config, dict) and "patch_size" in config and not has_text


def _picture(text: str) -> Any:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ArgumentError("the image is not base64") from None
    if importlib.util.find_spec("PIL") is None:
        raise Missing("opening images needs the package pillow: pip install pillow")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise ArgumentError(f"the image has more than {MOST_PIXELS:,} pixels")
            return opened.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, LimelightError):
            raise
        raise ArgumentError("the image is not a PNG or JPEG that can be read") from None


def _name(title: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-._" else "-" for c in title.lower())
    return "-".join(part for part in kept.split("-") if part)[:60] or "capture"


ENDPOINTS = (
    Endpoint("/api/models", models, Nothing, Models, "Models that can be run here."),
    Endpoint("/api/captures", make_capture, ToMake, CaptureSummary,
             "Run a model on a text or an image, and keep what its heads attend to.",
             method="POST", lane="heavy"),
)  # fmt: skip
