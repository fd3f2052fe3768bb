"""Schema: what the views are given, as types.

web/generate.py writes them into web/src/lib/schema.ts, so that a page, a report and a widget read
what Python sends. A number that is not finite travels as null: JSON has neither NaN nor infinity.
Plain dataclasses, so that reports and notebooks need nothing beyond NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Real = float | None
Numbers = list[Real]
Pool = Literal["max", "mean"]
Side = Literal["row", "column"]
Lit = Literal["weight", "value"]  # what a cell is lit by: its weight, or what it brings
Verdict = Literal["healthy", "peaked", "saturated", ""]
Figure = Literal[
    "rows", "judged", "not_a_number", "max_logit", "max_prob", "gradient", "entropy", "spread",
    "effective_keys", "peaked", "saturated",
]  # fmt: skip


@dataclass(kw_only=True)
class Mention:
    """A head that is worth seeing, the cell that shows it, what it does, and what to see of it."""

    site: int
    head: int
    cell: tuple[int, int]
    words: str
    why: str


@dataclass(kw_only=True)
class Story:
    """What a capture that comes along shows; `page` of the docs tells it in full.

    `beside` is a capture to put beside it; `cosines` say how alike the vectors of `word` are in
    the two, in the embeddings and after each layer.
    """

    words: str
    page: str
    mentions: list[Mention]
    beside: str | None
    word: str | None
    cosines: list[float]


@dataclass(kw_only=True)
class CaptureSummary:
    """What stands in a list of captures; `id` is used in addresses."""

    id: str
    origin: Literal["shipped", "folder", "made"]
    title: str
    model: str
    text: str
    layers: int
    heads: int
    tokens: int
    image: bool
    story: Story | None


@dataclass(kw_only=True)
class SiteInfo:
    """One place in a model where attention happens."""

    index: int
    name: str
    layer: int
    kind: Literal["self", "cross"]
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    head_size: int
    value_size: int
    writes: bool  # whether what W_O makes of the values is known
    scale: Real
    softcap: Real
    sinks: bool
    bias: bool
    only_weights: bool
    mask: str


@dataclass(kw_only=True)
class CaptureInfo(CaptureSummary):
    """Everything of a capture but its numbers.

    The texts have one list for each batch entry; `grid` is rows and columns of patches, where the
    capture is of an image, and `grid_start` the keys before the first patch.
    """

    source: dict[str, Any]
    key_tokens: list[list[str]]
    query_tokens: list[list[str]]
    grid: tuple[int, int] | None
    grid_start: int
    sites: list[SiteInfo]


@dataclass(kw_only=True)
class SiteHealth:
    """One row of the grid: figure → one number a head."""

    site: int
    figures: dict[Figure, Numbers]
    verdicts: list[Verdict]


@dataclass(kw_only=True)
class HealthTable:
    """figure → [site][head]; null where no row gives one."""

    layers: list[int]
    heads: int
    figures: dict[Figure, list[Numbers]]
    verdicts: list[list[Verdict]]


@dataclass(kw_only=True)
class Finding:
    """What was found of one head: its known kinds, a sentence, and whether something is wrong.

    `cell` is the one to look at first, of the heads to look at first.
    """

    site: int
    head: int
    kinds: list[str]
    wrong: bool
    why: str
    cell: tuple[int, int] | None


@dataclass(kw_only=True)
class KindScores:
    """A known kind of head: what such a head does, and how much each head does it.

    `scores` and `chance` (what an even head would score) are [site][head], null where no row can
    be judged; `rows` is how many were.
    """

    name: str
    title: str
    meaning: str
    threshold: float
    scores: list[Numbers]
    chance: list[Numbers]
    rows: list[list[int]]


@dataclass(kw_only=True)
class HeadRows:
    """The vectors of one head; in the mask true is "may attend", and null is everything."""

    query: list[Numbers]
    key: list[Numbers]
    value: list[Numbers] | None
    scale: Real
    softcap: Real
    sink: Real
    mask: list[list[bool]] | None
    query_tokens: list[str]
    key_tokens: list[str]


@dataclass(kw_only=True)
class CellData:
    """One weight with all that goes into it, at any length."""

    row: int
    column: int
    head: int
    batch: int
    query_token: str
    key_token: str
    query: Numbers
    key: Numbers
    products: Numbers
    raw: Real
    scale: Real
    scaled: Real
    softcap: Real
    capped: Real
    bias: Real
    biased: Real
    allowed: bool
    logit: Real
    row_max: Real
    exponential: Real
    row_sum: Real
    weight: Real
    value: Numbers | None
    contribution: Numbers | None


@dataclass
class Top:
    index: int
    token: str
    weight: Real


@dataclass(kw_only=True)
class StripData:
    """One row (a query over its keys) or one column (a key under its queries) of the weights.

    `values` are coded as those of a tile, a weight that is not a number as null; pooled by the
    maximum where the line is long. `total` is 1 for a row, less what a sink takes; for a column
    what the key is given in all.
    """

    side: Side
    index: int
    token: str
    length: int
    values: Numbers
    top: list[Top]
    total: Real


@dataclass(kw_only=True)
class LinesData:
    """The strongest keys of each row: three lists of equal length."""

    rows: list[int]
    columns: list[int]
    weights: Numbers


@dataclass(kw_only=True)
class DifferenceInfo:
    """Two heads beside one another: the positions that both texts have, pair by pair.

    The tokens name each pair; `change` is how much of its attention a row gives elsewhere in the
    second head, on average.
    """

    query_tokens: list[str]
    key_tokens: list[str]
    first_queries: list[int]
    second_queries: list[int]
    first_keys: list[int]
    second_keys: list[int]
    change: Real


@dataclass
class Packed:
    """An array as base64 of zlib of little-endian numbers."""

    dtype: Literal["u1", "u2", "f2", "f4"]
    shape: list[int]
    data: str


@dataclass(kw_only=True)
class Vectors:
    """The names of one head's arrays; a mask is one bit a cell."""

    query: str
    key: str
    sink: Real
    value: str | None = None
    mask: str | None = None
    bias: str | None = None


@dataclass
class Held:
    """Arrays by name, and by "site.head" which of them are a head's."""

    arrays: dict[str, Packed]
    heads: dict[str, Vectors]


@dataclass(kw_only=True)
class BundledCapture(CaptureInfo):
    """With the picture a vision model saw, as an address that holds it."""

    picture: str | None


@dataclass(kw_only=True)
class BundleData:
    """A capture as plain data: limelight/views/bundle.py says what fits in.

    `maps` has one array a site, [heads, rows, columns].
    """

    format: Literal["limelight.bundle"]
    version: int
    title: str
    precision: Literal["float16", "float32"]
    batch: int
    capture: BundledCapture
    health: HealthTable
    findings: list[Finding]
    kinds: list[KindScores]
    maps: list[Packed]
    vectors: Held
