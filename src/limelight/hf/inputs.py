"""What went into a model: token ids, padding and pixels, as its parts received them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from limelight.arrays import as_numpy
from limelight.capture import Grid, Site
from limelight.capture.site import Labels
from limelight.errors import ArgumentError
from limelight.torch.arguments import by_name
from limelight.writing.pieces import SPACE, joined, spelled_bytes, told

Array = NDArray[Any]
MASKS = ("attention_mask", "encoder_attention_mask")


class Inputs:
    """The ids that each part of the model was called with, in order, and the last image.

    `masks` holds what each part was told last about padding, by what it is about: "attention_mask"
    for its own positions, "encoder_attention_mask" for those that a decoder looks back at.
    """

    def __init__(self) -> None:
        self.ids: dict[str, list[Array]] = {}
        self.masks: dict[tuple[str, str], Any] = {}
        self.pixels: Array | None = None

    def add(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        given, parameters = by_name(module, args, kwargs), signature(module.forward).parameters
        ids, pixels = given.get("input_ids"), given.get("pixel_values")
        for side in MASKS:
            if side in parameters or side in given or "pixel_values" in given:
                self.masks[name, side] = given.get(side)
        if "decoder_attention_mask" in parameters:
            decoder = f"{name}.decoder".lstrip(".")
            self.masks[decoder, MASKS[0]] = given.get("decoder_attention_mask")
        if isinstance(ids, torch.Tensor) and ids.ndim == 2 and not ids.is_floating_point():
            self.ids.setdefault(name, []).append(as_numpy(ids).copy())
        if isinstance(pixels, torch.Tensor) and pixels.ndim == 4:
            self.pixels = np.array(as_numpy(pixels), np.float32)

    def received_by(self, owner: str, batch: int, length: int) -> Array | None:
        """The ids [batch, length] that the owner, or the nearest part around it, received last."""
        for name in (*_around(owner), *self.ids):
            ids = self._last(name, batch, length)
            if ids is not None:
                return ids
        return None

    def real(self, owner: str, batch: int, length: int, side: str = "attention_mask") -> Any:
        """Which positions are no padding, [batch, length], as the nearest part was told; else None.

        NotImplemented where it was told by a mask of four axes, as generate() makes for a static
        cache: what that hides is not padding alone.
        """
        opaque = False
        for name in _around(owner):
            if (name, side) not in self.masks:
                continue
            given = self.masks[name, side]
            if given is None:
                return None
            if isinstance(given, torch.Tensor) and given.ndim == 2:
                same = tuple(given.shape) == (batch, length)
                return np.array(as_numpy(given) != 0) if same else None
            opaque = True
        return NotImplemented if opaque else None

    def find_encoder(self, batch: int, length: int) -> Array | None:
        """The ids that an encoder was called with."""
        found = (self._last(name, batch, length) for name in self.ids if "encoder" in name)
        return next((ids for ids in found if ids is not None), None)

    def _last(self, name: str, batch: int, length: int) -> Array | None:
        """The part's last ids that make up this length: one call's, or those of several steps."""
        taken: list[Array] = []
        for ids in reversed(self.ids.get(name, [])):
            if len(ids) != batch:
                return None
            taken.insert(0, ids)
            total = sum(part.shape[1] for part in taken)
            if total >= length:
                return np.concatenate(taken, axis=1) if total == length else None
        return None


def _around(name: str) -> Iterator[str]:
    """The module's own name and those of the modules around it, the nearest first."""
    parts = name.split(".")
    for count in range(len(parts), -1, -1):
        yield ".".join(parts[:count])


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse what cannot name tokens, before a model runs; None leaves them their ids."""
    if tokenizer is not None and not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise ArgumentError(
            f"tokenizer={tokenizer!r} is no tokenizer: give what AutoTokenizer.from_pretrained "
            f"returns; of a processor its .tokenizer"
        )


def texts(ids: Array, tokenizer: Any) -> Labels:
    """Each token as a person reads it, its leading space kept; its number where it has no text.

    So without a tokenizer, and beyond its last token: vocabularies are padded to round sizes.
    """
    if tokenizer is None:
        return tuple(tuple(str(i) for i in entry) for entry in ids)
    known: dict[tuple[int, ...], str | None] = {}

    def decoded(some: tuple[int, ...]) -> str | None:
        if some not in known:  # part of a character, in a byte-level vocabulary, is no text
            text = str(tokenizer.decode(list(some)))
            known[some] = None if "\N{REPLACEMENT CHARACTER}" in text else text
        return known[some]

    def entry(row: tuple[int, ...]) -> tuple[str, ...]:
        named = zip(row, tokenizer.convert_ids_to_tokens(list(row)), strict=True)
        names = [str(i if name is None else name) for i, name in named]
        spelled = [told(spelled_bytes(name), name) for name in names]

        def read(start: int, stop: int) -> str | None:
            text, name = decoded(row[start:stop]), names[start]
            if text is None or text.startswith(SPACE):
                return text
            # A decoder of Llama 2's kind takes a text's first space away, or all of them.
            spaces = len(name) - len(name.lstrip(SPACE))
            return " " * spaces + text.lstrip(" ") if spaces else text

        return joined(read, spelled)

    return tuple(entry(tuple(int(i) for i in row)) for row in ids)


def patch_grid(config: Any, pixels: Array) -> Grid | None:
    """How many patches the image makes; where they stand among the keys, a site tells."""
    vision = getattr(config, "vision_config", None) or config
    size = getattr(vision, "patch_size", None)
    pair = (size, size) if isinstance(size, int) else tuple(size or ())
    if len(pair) != 2 or pixels.shape[2] < pair[0] or pixels.shape[3] < pair[1]:
        return None
    return Grid(pixels.shape[2] // pair[0], pixels.shape[3] // pair[1])


def place_grid(grid: Grid | None, sites: tuple[Site, ...]) -> Grid | None:
    """The grid where the first site that can hold it has it: after class and register tokens."""
    for site in sites if grid is not None else ():
        assert grid is not None
        start = site.keys - grid.rows * grid.columns
        if site.kind == "self" and site.queries == site.keys and 0 <= start <= 16:
            return Grid(grid.rows, grid.columns, start)
    return None


def named_patches(site: Site, grid: Grid | None) -> Site:
    """Names for the tokens of an image: the class token and registers, then row,column."""
    if grid is None or site.tokens or site.kind != "self":
        return site
    if not site.queries == site.keys == grid.start + grid.rows * grid.columns:
        return site
    first = ["[CLS]", *(f"[REG{i}]" for i in range(1, grid.start))][: grid.start]
    patches = [f"{r},{c}" for r in range(grid.rows) for c in range(grid.columns)]
    names = ((*first, *patches),) * site.batch
    return replace(site, tokens=names, query_tokens=names)


def picture(pixels: Array, processor: Any) -> Array:
    """The pixels as the model saw them, brought back to uint8 [B, height, width, 3]."""
    image = np.moveaxis(pixels[:, :3], 1, -1)
    image = image if image.shape[3] == 3 else np.repeat(image[..., :1], 3, axis=3)
    mean, std = (getattr(processor, name, None) for name in ("image_mean", "image_std"))
    if mean is not None and std is not None:
        image = image * np.asarray(std, np.float32) + np.asarray(mean, np.float32)
    else:
        low, high = image.min(initial=np.inf), image.max(initial=-np.inf)
        if low < 0.0 or high > 1.0:
            image = (image - low) / max(high - low, 1e-6)
    return (np.clip(image, 0.0, 1.0) * 255.0).round().astype(np.uint8)
