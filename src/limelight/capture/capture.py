"""Capture: the attention sites of one model run, its tokens or image, and where it came from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from limelight.arrays import index
from limelight.capture.health import HealthTables
from limelight.capture.site import Array, Labels, Site, as_labels
from limelight.errors import ArgumentError
from limelight.offers import offered
from limelight.writing.numbers import counted
from limelight.writing.terminal import shown


@dataclass(frozen=True)
class Grid:
    """Where an image's patches stand among the keys: rows × columns of them, from `start` on."""

    rows: int
    columns: int
    start: int = 0


@dataclass(frozen=True, eq=False)
class Capture:
    """What a model attended to, ready to be looked at.

    sites         one for each attention of the model that was captured, in the order they ran
    tokens        the texts of the input, one tuple for each batch entry (() for none)
    query_tokens  those of the decoder, where a model has an encoder and a decoder
    image, grid   for vision models: uint8 [B, height, width, 3], and where its patches stand
    source        plain facts: model, text, licence, how it was made

    `cap[11]` is the site of layer 11, `cap["name"]` the one of that name; both raise an error that
    lists what there is. A capture is also a sequence of its sites.
    """

    sites: tuple[Site, ...]
    tokens: Labels = ()
    query_tokens: Labels = ()
    image: Array | None = None
    grid: Grid | None = None
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sites", as_sites(self.sites))
        for name in ("tokens", "query_tokens"):
            object.__setattr__(self, name, as_labels(getattr(self, name), name))

    @property
    def entries(self) -> int:
        """How many entries the largest batch of a site has; 1 where there is no site."""
        return max((site.batch for site in self.sites), default=1)

    def entry_number(self, batch: int) -> int:
        """The number of a batch entry; negative ones count from the end."""
        return index(batch, self.entries, "batch entry")

    def __getitem__(self, which: int | str) -> Site:
        if isinstance(which, str):
            found = [site for site in self.sites if site.name == which]
        elif not isinstance(which, Integral):
            raise ArgumentError(f"{which!r} names no site: give a layer's number, or a site's name")
        else:
            layers = sorted({site.layer for site in self.sites})
            number = layers[which] if which < 0 and -which <= len(layers) else which
            found = [site for site in self.sites if site.layer == number]
        if len(found) == 1:
            return found[0]
        names = ", ".join(site.name for site in (found or self.sites)[:12])
        names += ", …" if len(found or self.sites) > 12 else ""
        if found:
            raise ArgumentError(
                f"layer {which} has {len(found)} sites: take one by its name: {names}"
            )
        raise ArgumentError(f"the capture has no site {which!r}; it has: {names or 'none'}")

    def __len__(self) -> int:
        return len(self.sites)

    def __iter__(self) -> Iterator[Site]:
        return iter(self.sites)

    def health(self) -> HealthTables:
        """Layers × heads tables of every figure."""
        return HealthTables.of(self.sites)

    def save(self, path: str | os.PathLike[str], dtype: str | None = None) -> None:
        """One safetensors file; dtype="float16" halves it and rounds queries, keys and values."""
        from limelight.capture import file

        file.save(self, path, dtype)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, verify: bool = True, mapped: bool = False
    ) -> Capture:
        """Read a saved capture; a damaged or foreign file is a FileError that says why.

        verify   compare the content with the file's checksum
        mapped   look at the file where it is, for one that is larger than the memory. A file that
                 was written to meanwhile is refused where that is noticed; but one that is cut
                 short in the middle of a look ends the process (SIGBUS). Without it the file is
                 read, and nothing done to it afterwards matters
        """
        from limelight.capture import file

        return file.load(path, verify=verify, mapped=mapped)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        made: dict[str, Any] = offered("notebook").mimebundle(self)
        return made

    def __repr__(self) -> str:
        words = [counted(len(self.sites), "site")]
        if self.sites:
            site = self.sites[0]
            size = f"{site.queries:,} × {site.keys:,}"
            words.append(f"batch {site.batch}, {counted(site.heads, 'head')}, {size}")
        if self.grid is not None:
            words.append(f"image of {self.grid.rows} × {self.grid.columns} patches")
        if "model" in self.source:
            words.append(f"from {shown(str(self.source['model']))}")
        return f"Capture({'; '.join(words)})"


def as_sites(given: Any) -> tuple[Site, ...]:
    """The sites of a capture, or of any sequence of them."""
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if each is given or not isinstance(each, Site):
            got = "for one, give [site]" if isinstance(each, Site) else f"got {type(each).__name__}"
            raise ArgumentError(f"sites come as a capture or as a list of Site: {got}")
    return found
