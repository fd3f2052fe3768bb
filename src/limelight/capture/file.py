"""A capture as a file: what the container's tensors and texts mean.

The text "limelight" is JSON: the format's version, the sites with the names of their tensors, the
masks and the token texts (each once, however many sites share it), the grid and the source. Readers
check every name, shape and number before anything is built from them, and what they do not know
they leave alone.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from limelight.capture import tensors
from limelight.capture.capture import Capture, Grid
from limelight.capture.site import Labels, Rows, Site
from limelight.errors import ArgumentError, FileError, LimelightError
from limelight.intake import ANEW, from_json, open_plain
from limelight.masks import Mask
from limelight.masks import file as mask_file
from limelight.writing.files import as_path

FORMAT, VERSION, MARK = "limelight-capture", 1, "limelight"
MOST_SITES = 16_384
MOST_POSITIONS = 1 << 25  # queries and keys of all sites together, in every entry of the batch
MOST_MASKS = 1 << 25  # intervals of all sites' masks together
LONGEST_NAME, LONGEST_TOKEN = 1_000, 10_000  # characters
MOST_PIXELS = 50_000_000  # of one image
MOST_PATCHES = 1 << 24
ARRAYS = ("query", "key", "value", "sinks", "bias", "written")
ROWS = ("logsumexp", "max_logit", "entropy")
REAL = ("real_keys", "real_queries")
MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError,
             OverflowError)  # fmt: skip
SAVED_AS = {None: None, "float64": np.float64, "float32": np.float32, "float16": np.float16}


def save(capture: Capture, path: str | os.PathLike[str], dtype: str | None = None) -> None:
    if dtype not in SAVED_AS:
        raise ArgumentError(f"dtype={dtype!r}: a capture is saved as float16, float32 or float64, "
                            f"or None for what it is")  # fmt: skip
    parts: dict[str, Any] = {}
    masks: list[Mask] = []
    labels: list[Labels] = []
    meaning = {
        "format": FORMAT,
        "version": VERSION,
        "sites": [_describe(site, f"site.{i}", parts, masks, labels, SAVED_AS[dtype])
                  for i, site in enumerate(capture.sites)],
        "tokens": _once(labels, capture.tokens),
        "query_tokens": _once(labels, capture.query_tokens),
        "grid": None if capture.grid is None else vars(capture.grid),
        "image": capture.image is not None,
        "source": capture.source,
    }  # fmt: skip
    meaning["masks"] = [mask_file.encode(mask, f"mask.{i}", parts) for i, mask in enumerate(masks)]
    meaning["labels"] = labels
    if capture.image is not None:
        parts["image"] = np.asarray(capture.image)
    try:
        text = json.dumps(meaning, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise ArgumentError(
            f"the capture's texts cannot be written: {half!r} is half of a character; replace it"
        ) from None
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"the capture cannot be written as JSON: {error}") from None
    try:
        _capture(_meaning(text), parts)  # what could not be opened again is not saved
    except LimelightError as error:
        raise ArgumentError(f"the capture cannot be saved: {error}") from None
    except MALFORMED:
        raise ArgumentError("the capture cannot be saved: a number or text about it is of another "
                            "type than Site, Grid and Capture take") from None  # fmt: skip
    tensors.write(path, parts, {MARK: text})


def load(
    path: str | os.PathLike[str],
    *,
    file: BinaryIO | None = None,
    verify: bool = True,
    mapped: bool = False,
    numbers: bool = True,
) -> Capture:
    """The capture in a file; `file`, `verify`, `mapped` and `numbers` as in tensors.read."""
    target = as_path(path)
    with open_plain(target) if file is None else nullcontext(file) as opened:
        parts, texts = tensors.read(
            path, file=opened, mark=MARK, verify=verify, mapped=mapped, numbers=numbers
        )
        watch = tensors.Watch(target, opened) if mapped and numbers else None
    try:
        return _capture(_meaning(texts[MARK]), parts, watch)
    except (tensors.Foreign, tensors.Newer) as error:
        raise type(error)(f"{path}: {error}") from None
    except FileError as error:
        raise FileError(f"{path}: {error}. {ANEW}") from None
    except LimelightError as error:
        raise FileError(f"{path}: the capture does not fit together: {error}. {ANEW}") from None
    except MALFORMED:
        raise FileError(f"{path}: the capture's description is malformed. {ANEW}") from None
    except MemoryError:
        raise tensors.no_room(path) from None


def _meaning(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise FileError(f"the capture's description is malformed: {error}") from None


def _describe(
    site: Site, name: str, parts: dict[str, Any], masks: list[Mask], labels: list[Labels],
    dtype: Any,
) -> dict[str, Any]:  # fmt: skip
    site = site if dtype in (None, site.query.dtype) else _rounded(site, dtype)
    held = {part: getattr(site, part) for part in ARRAYS}
    held["written"] = site.brought if site.writes else None  # lengths are kept, and never W_O
    held |= {} if site.rows is None else vars(site.rows)
    held |= {part: getattr(site, part) for part in REAL}
    names = {}
    for part, array in held.items():
        if array is not None:
            # Layers may share one array, as T5's do their position bias: it is written once.
            known = next((at for at, other in parts.items() if other is array), f"{name}.{part}")
            parts[known], names[part] = array, known
    return {
        "name": site.name, "layer": site.layer, "kind": site.kind, "scale": site.scale,
        "softcap": site.softcap, "tensors": names,
        "mask": None if site.mask is None else _place(masks, site.mask),
        "tokens": _once(labels, site.tokens), "query_tokens": _once(labels, site.query_tokens),
    }  # fmt: skip


def _rounded(site: Site, dtype: Any) -> Site:
    """The site in another precision; sinks stay, since rounding a few numbers saves nothing.

    Recorded statistics belong to the numbers before: with rounded queries and keys the weights of
    SmolLM2's rows would sum to 1 ± 0.005. So they are measured again.
    """
    named = ((part, getattr(site, part)) for part in ("query", "key", "value", "bias"))
    arrays = {part: _narrowed(array, dtype, f"the {part} of {site.name}")
              for part, array in named if array is not None}  # fmt: skip
    found = replace(site, **arrays, rows=None)
    return found if site.rows is None else replace(found, rows=found.statistics)


def _narrowed(array: Any, dtype: Any, what: str) -> Any:
    """The array in another precision, unless a number in it is beyond that."""
    with np.errstate(over="ignore"):
        found = array.astype(dtype)
    lost = np.isinf(found) & np.isfinite(array)
    if lost.any():
        limit, largest = np.finfo(dtype).max, np.abs(array[lost]).max()
        wider = next(name for name in ("float32", "float64") if largest <= np.finfo(name).max)
        raise ArgumentError(f"{np.dtype(dtype)} holds numbers up to {limit:g}, and {what} has "
                            f"{largest:g}: {wider} keeps it")  # fmt: skip
    return found


def _place(masks: list[Mask], mask: Mask) -> int:
    for at, known in enumerate(masks):
        if known is mask or known == mask:
            return at
    masks.append(mask)
    return len(masks) - 1


def _once(known: list[Labels], labels: Labels) -> int | None:
    """The place of these texts in the file's table, entered if new; None for none."""
    if not labels:
        return None
    if labels not in known:
        known.append(labels)
    return known.index(labels)


def _capture(meaning: Any, parts: dict[str, Any], watch: tensors.Watch | None = None) -> Capture:
    if meaning["format"] != FORMAT:
        raise tensors.Foreign("a safetensors file, but not a limelight capture")
    if type(meaning["version"]) is not int or meaning["version"] > VERSION:
        raise tensors.Newer(
            f"a capture of version {meaning['version']!r}, and this limelight reads up to "
            f"{VERSION}: update limelight"
        )
    if not all(isinstance(meaning[part], list) for part in ("sites", "masks", "labels")):
        raise TypeError
    if len(meaning["sites"]) > MOST_SITES:
        raise FileError(f"{len(meaning['sites']):,} sites, and a capture has up to {MOST_SITES:,}")
    masks = mask_file.decode_all(meaning["masks"], parts)
    labels = [_labels(entries) for entries in meaning["labels"]]
    room = Room()

    def texts(which: Any) -> Labels:
        return () if which is None else labels[_count(which)]

    sites = []
    for entry in meaning["sites"]:
        named = entry["tensors"]
        held = {part: parts[named[part]] for part in ARRAYS if part in named}
        rows = [parts[named[part]] for part in ROWS if part in named]
        real = {part: _real(parts[named[part]]) for part in REAL if part in named}
        name = _text(entry["name"], LONGEST_NAME)
        if any(array.dtype.kind != "f" for array in (*held.values(), *rows)):
            raise FileError(f"the site {name!r} holds arrays that are not numbers")
        mask = None if entry["mask"] is None else masks[_count(entry["mask"])]
        room.take(held["query"], held["key"], mask)
        sites.append(_checked(Site(
            name=name, layer=_count(entry["layer"]), kind=entry["kind"],
            scale=_number(entry["scale"]),
            softcap=None if entry["softcap"] is None else _number(entry["softcap"]),
            mask=mask, tokens=texts(entry["tokens"]), query_tokens=texts(entry["query_tokens"]),
            rows=Rows(*rows) if rows else None, watch=watch, **held, **real,
        )))  # fmt: skip
    grid = meaning["grid"]
    return Capture(
        sites=tuple(sites),
        tokens=texts(meaning["tokens"]),
        query_tokens=texts(meaning["query_tokens"]),
        image=_image(parts["image"]) if meaning["image"] else None,
        grid=None if grid is None else _grid(grid),
        source=dict(meaning["source"]),
    )


class Room:
    """What a file may ask for: tensors and masks can be named by any number of sites."""

    def __init__(self) -> None:
        self.positions, self.masks = MOST_POSITIONS, MOST_MASKS

    def take(self, query: Any, key: Any, mask: Mask | None) -> None:
        if query.ndim != 4 or key.ndim != 4:
            return  # no site is made of them
        batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
        self.positions -= max(1, batch) * (queries + keys)
        if self.positions < 0:
            raise FileError(f"its sites have more than {MOST_POSITIONS:,} queries and keys")
        if mask is not None:
            self.masks -= mask_file.intervals(mask, queries, keys)
        if self.masks < 0:
            raise FileError(f"its masks are more than {MOST_MASKS:,} intervals")


def _checked(site: Site) -> Site:
    """Shapes and mask must fit: the engines rely on what this lets through."""
    site.call  # noqa: B018 (checks the mask too)
    return site


def _labels(entries: Any) -> Labels:
    return tuple(tuple(_text(text, LONGEST_TOKEN) for text in entry) for entry in entries)


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, str):
        raise TypeError
    if len(value) > longest:
        raise FileError(f"a text in it has {len(value):,} characters, and may have {longest:,}")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise TypeError
    return value


def _grid(grid: Any) -> Grid:
    rows, columns, start = (_count(grid[part]) for part in ("rows", "columns", "start"))
    if not 0 < rows * columns <= MOST_PATCHES:
        raise FileError(f"its image has {rows:,} × {columns:,} patches, and may have from 1 to "
                        f"{MOST_PATCHES:,}")  # fmt: skip
    return Grid(rows, columns, start)


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _real(array: Any) -> Any:
    """Flags, which the file holds as bytes."""
    if array.dtype not in (np.uint8, np.bool_):
        raise FileError("it marks its padding by other numbers than bytes")
    return array.astype(np.bool_)


def _image(array: Any) -> Any:
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or not array.size:
        raise FileError("its image is not one: uint8 [batch, height, width, 3], and none of them 0")
    if array.shape[1] * array.shape[2] > MOST_PIXELS:
        raise FileError(f"its image has more than {MOST_PIXELS:,} pixels")
    return array
