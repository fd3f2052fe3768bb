"""A survey as a file: the same container as a capture's, read with NumPy alone.

The text "limelight" is JSON: the sites, the kinds, how many texts, the source. Tables of integers,
token texts and passages are tensors; texts as their UTF-8 bytes, one after the other, and where
each ends. Every size is bounded by the sites, heads and kinds before anything is made of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.capture import tensors
from limelight.capture.file import MALFORMED, MARK, MOST_SITES
from limelight.errors import ArgumentError, FileError
from limelight.heads import Kind
from limelight.intake import ANEW, check_text, from_json
from limelight.survey import sums
from limelight.survey.examples import KEPT, NONE, Examples
from limelight.survey.passages import Passage
from limelight.survey.received import Received
from limelight.survey.survey import Survey, shapes

FORMAT, VERSION = "limelight-survey", 1
MOST_HEADS, MOST_KINDS = 4_096, 256
MOST_TOKENS = 1 << 22  # of a vocabulary
LONGEST = 10_000  # characters of a name, a token, a passage


def save(survey: Survey, path: str | os.PathLike[str]) -> None:
    meaning = {
        "format": FORMAT, "version": VERSION, "sites": survey.sites, "layers": survey.layers,
        "heads": survey.counts, "texts": survey.texts, "tokens": survey.tokens, "cut": survey.cut,
        "longest": survey.longest, "source": survey.source,
        "kinds": [{"name": kind.name, "meaning": kind.meaning, "threshold": kind.threshold}
                  for kind in survey.known],
    }  # fmt: skip
    examples = survey.strongest
    parts: dict[str, Any] = {f"table.{name}": table for name, table in survey.tables.items()}
    parts |= {
        "max_logit": survey.max_logit, "token.ids": survey.given.ids,
        "token.seen": survey.given.seen, "token.weights": survey.given.weights,
        "example.score": examples.score, "example.text": examples.text,
        "passage.digests": np.array(sorted(examples.passages), np.int64),
    }  # fmt: skip
    order = [examples.passages[digest] for digest in sorted(examples.passages)]
    for name, texts in (
        ("token", survey.given.texts),
        ("passage.name", [passage.name for passage in order]),
        ("passage", [passage.text for passage in order]),
    ):
        parts[f"{name}.bytes"], parts[f"{name}.ends"] = _bytes(texts)
    try:
        text = json.dumps(meaning, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"the survey's source cannot be written as JSON: {error}") from None
    tensors.write(path, parts, {MARK: text})


def load(path: str | os.PathLike[str]) -> Survey:
    parts, texts = tensors.read(path, mark=MARK)
    try:
        return _survey(from_json(texts[MARK]), parts)
    except (tensors.Foreign, tensors.Newer) as error:
        raise type(error)(f"{path}: {error}") from None
    except FileError as error:
        raise FileError(f"{path}: {error}. {ANEW}") from None
    except ValueError as error:
        raise FileError(f"{path}: the survey's description is malformed: {error}. {ANEW}") from None
    except MALFORMED:
        raise FileError(f"{path}: the survey's description is malformed. {ANEW}") from None


def is_survey(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it is a survey; a file that says nothing is none."""
    try:
        _, texts = tensors.read(path, mark=MARK, numbers=False)
        return bool(from_json(texts[MARK])["format"] == FORMAT)
    except (FileError, *MALFORMED):
        return False


def _survey(meaning: Any, parts: dict[str, Any]) -> Survey:
    if meaning["format"] != FORMAT:
        raise tensors.Foreign("a safetensors file, but not a limelight survey: Capture.open opens "
                              "a capture")  # fmt: skip
    if type(meaning["version"]) is not int or meaning["version"] > VERSION:
        raise tensors.Newer(f"a survey of version {meaning['version']!r}, and this limelight reads "
                            f"up to {VERSION}: update limelight")  # fmt: skip
    sites = tuple(_text(name) for name in meaning["sites"])
    layers, counts = (tuple(_count(n) for n in meaning[part]) for part in ("layers", "heads"))
    known = tuple(_kind(entry) for entry in meaning["kinds"])
    if not len(sites) == len(layers) == len(counts) <= MOST_SITES or len(known) > MOST_KINDS:
        raise FileError(
            f"it has {len(sites):,} sites, {len(layers):,} layers, {len(known):,} kinds"
        )
    if len({kind.name for kind in known}) < len(known) or max(counts, default=0) > MOST_HEADS:
        raise FileError("its kinds or heads are more than there can be")
    size = len(sites), max(counts, default=0)
    tables = {name: _array(parts, f"table.{name}", shape, np.int64)
              for name, shape in shapes(*size, len(known)).items()}  # fmt: skip
    for name, table in tables.items():
        if (table < 0).any() and not name.endswith(".whole"):
            raise FileError(f"its table {name} counts below 0")
        if name.endswith(".part") and (table >> sums.FRACTION).any():
            raise FileError(f"its table {name} has fractions that are none")
    tokens = len(parts["token.ids"])
    if tokens > MOST_TOKENS:
        raise FileError(f"it has {tokens:,} tokens, and a vocabulary has up to {MOST_TOKENS:,}")
    given = Received(
        _array(parts, "token.ids", (tokens,), np.int64), _texts(parts, "token", tokens),
        _array(parts, "token.seen", (tokens,), np.int64),
        _array(parts, "token.weights", (tokens, *size), np.int64),
    )  # fmt: skip
    if (np.diff(given.ids) <= 0).any() or (given.seen < 1).any() or (given.weights < 0).any():
        raise FileError("its tokens are not in order, or were given less than nothing")
    amounts = {
        part: _count(meaning[part], 1 << 53) for part in ("texts", "tokens", "cut", "longest")
    }
    return Survey(
        sites, layers, counts, known, **amounts, tables=tables,
        max_logit=_array(parts, "max_logit", size, np.float64), given=given,
        strongest=_examples(parts, (len(known), *size, KEPT)), source=dict(meaning["source"]),
    )  # fmt: skip


def _examples(parts: dict[str, Any], shape: tuple[int, ...]) -> Examples:
    score = _array(parts, "example.score", shape, np.float64)
    text = _array(parts, "example.text", shape, np.int64)
    many = len(parts["passage.digests"])
    digests = _array(parts, "passage.digests", (many,), np.int64)
    if many > text.size or not np.isin(text[score > NONE], digests).all():
        raise FileError("its examples name passages that it does not have")
    if np.isnan(score).any():
        raise FileError("a score of its examples is not a number")
    names, texts = (_texts(parts, part, many) for part in ("passage.name", "passage"))
    found = {int(digest): Passage(name, text)
             for digest, name, text in zip(digests, names, texts, strict=True)}  # fmt: skip
    return Examples(score, text, found)


def _bytes(texts: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts as their bytes one after the other, and where each ends; half characters replaced."""
    written = [text.encode("utf-8", "replace") for text in texts]
    ends = np.cumsum([len(text) for text in written], dtype=np.int64)
    return np.frombuffer(b"".join(written), np.uint8), ends


def _texts(parts: dict[str, Any], name: str, count: int) -> tuple[str, ...]:
    ends = _array(parts, f"{name}.ends", (count,), np.int64)
    data = parts[f"{name}.bytes"]
    if data.dtype != np.uint8 or data.ndim != 1 or (np.diff(ends, prepend=0) < 0).any():
        raise FileError(f"its texts of {name} are malformed")
    if int(ends[-1]) != len(data) if count else len(data):
        raise FileError(f"its texts of {name} end elsewhere than they say")
    whole = data.tobytes()
    starts = [0, *ends.tolist()]
    return tuple(_text(whole[a:b].decode()) for a, b in pairwise(starts))


def _array(parts: dict[str, Any], name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    array = parts[name]
    if array.shape != shape or array.dtype != dtype:
        raise FileError(f"its table {name} is {array.dtype} of shape {array.shape}, and the sites, "
                        f"heads and kinds ask for {shape}")  # fmt: skip
    return array


def _kind(entry: Any) -> Kind:
    threshold = entry["threshold"]
    if type(threshold) not in (int, float):
        raise TypeError
    return Kind(_text(entry["name"]), _text(entry["meaning"]), float(threshold))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    check_text(value, LONGEST)
    return value


def _count(value: Any, most: int = 1 << 31) -> int:
    if type(value) is not int or not 0 <= value < most:
        raise TypeError
    return value
