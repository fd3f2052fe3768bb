"""The facts of a capture: what it is of, its sites, its texts, its picture, and of its heads the
health and the known kinds."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from limelight.arrays import jsonable
from limelight.capture import Capture, Site
from limelight.capture.health import FIGURES
from limelight.heads import Heads, find
from limelight.health import Summary
from limelight.views.schema import (
    BundledCapture,
    CaptureInfo,
    CaptureSummary,
    HealthTable,
    KindScores,
    SiteHealth,
    SiteInfo,
)
from limelight.views.stories import story
from limelight.writing.png import encode

LONGEST_TEXT = 400
WORDS = {"previous": "previous token", "next": "next token", "diagonal": "own token",
         "bracket": "bracket matching", "induction-2": "induction by two",
         "duplicate": "duplicate token", "separator": "separators", "word": "own word"}  # fmt: skip


def summary(capture: Capture, name: str, origin: Any = "made") -> CaptureSummary:
    """What stands in a list of captures; `name` is its id, and its title where it has none."""
    return CaptureSummary(**_brief(capture, name, origin))


def facts(capture: Capture, name: str, origin: Any = "made") -> CaptureInfo:
    """Everything but the numbers."""
    return CaptureInfo(**_brief(capture, name, origin), **_long(capture))


def entry_facts(capture: Capture, name: str, batch: int) -> BundledCapture:
    """The facts of one batch entry: its texts alone, and its picture."""
    data, picture = _long(capture), None
    for side in ("key_tokens", "query_tokens"):
        data[side] = data[side][batch : batch + 1]
    if capture.image is not None and batch < len(capture.image):
        encoded = base64.b64encode(encode(capture.image[batch])).decode()
        picture = f"data:image/png;base64,{encoded}"
    return BundledCapture(**_brief(capture, name, "made"), **data, picture=picture)


def _brief(capture: Capture, name: str, origin: str) -> dict[str, Any]:
    sites, source = capture.sites, capture.source
    text = _text(source.get("text"))
    return {
        "id": name,
        "origin": origin,
        "title": _text(source.get("title")) or name.replace(":", " / "),
        "model": _text(source.get("model")),
        "text": text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…",
        "layers": len({site.layer for site in sites}),
        "heads": max((site.heads for site in sites), default=0),
        "tokens": max((max(site.keys, site.queries) for site in sites), default=0),
        "image": capture.image is not None,
        "story": story(capture, name) if origin == "shipped" else None,
    }


def _long(capture: Capture) -> dict[str, Any]:
    grid = capture.grid
    return {
        "source": capture.source,
        "key_tokens": texts(capture, "key"),
        "query_tokens": texts(capture, "query"),
        "grid": None if grid is None else (grid.rows, grid.columns),
        "grid_start": 0 if grid is None else grid.start,
        "sites": [site_facts(at, site) for at, site in enumerate(capture.sites)],
    }


def site_facts(at: int, site: Site) -> SiteInfo:
    kind: Any = site.kind
    return SiteInfo(
        index=at, name=site.name, layer=site.layer, kind=kind, batch=site.batch,
        heads=site.heads, key_heads=site.key_heads, queries=site.queries, keys=site.keys,
        head_size=int(site.query.shape[3]),
        value_size=0 if site.value is None else int(site.value.shape[3]),
        writes=site.writes, scale=site.scale, softcap=site.softcap, sinks=site.sinks is not None,
        bias=site.bias is not None, only_weights=site.only_weights,
        mask="everything" if site.mask is None else site.mask.expression,
    )  # fmt: skip


def health_of(site: Site, batch: int) -> Summary:
    """The health of one batch entry's heads; of the last one where the site has fewer entries."""
    one = site.entry(max(0, min(batch, site.batch - 1))) if site.batch else site
    return one.health().summary()


def site_health(at: int, seen: Summary) -> SiteHealth:
    figures: Any = {name: jsonable(getattr(seen, name)) for name in FIGURES}
    return SiteHealth(site=at, figures=figures, verdicts=seen.verdict.tolist())


def health_table(capture: Capture, rows: Sequence[SiteHealth]) -> HealthTable:
    """The figures of every site, layers down."""
    figures: Any = {name: [row.figures[name] for row in rows] for name in FIGURES}  # type: ignore[index]
    return HealthTable(
        layers=[site.layer for site in capture.sites],
        heads=max((site.heads for site in capture.sites), default=0),
        figures=figures,
        verdicts=[row.verdicts for row in rows],
    )


def kinds(
    capture: Capture, batch: int = 0, progress: Callable[[int, int], None] | None = None
) -> Heads | None:
    """The scores of one batch entry's heads; None where no site, or not every one, has it."""
    batch = capture.entry_number(batch)
    if not capture.sites or any(batch >= site.batch for site in capture.sites):
        return None
    return find(capture, batch=batch, progress=progress)


def kind_tables(found: Heads | None) -> list[KindScores]:
    """Every kind that at least one head can be judged by, with all heads' scores."""
    if found is None:
        return []
    return [
        KindScores(
            name=kind.name, title=words(kind.name), meaning=kind.meaning, threshold=kind.threshold,
            scores=jsonable(found.scores[kind.name].round(4)),
            chance=jsonable(found.chance[kind.name].round(4)),
            rows=np.nan_to_num(found.rows[kind.name]).astype(int).tolist(),
        )
        for kind in found.known if found.judged(kind.name)
    ]  # fmt: skip


def words(kind: str) -> str:
    return WORDS.get(kind, kind)


def numbers(capture: Capture, at: int, head: int) -> tuple[str, str]:
    """The layer and the head as the model counts them; the site's name where layers have several.

    A head that was taken out of its site says which it was.
    """
    site, layers = capture.sites[at], {site.layer for site in capture.sites}
    alone = all(site.heads <= 1 for site in capture.sites)
    own = capture.source.get("head") if alone else None
    named = str(site.layer) if len(layers) == len(capture.sites) else site.name
    return named, str(head if own is None else own)


def texts(capture: Capture, side: str) -> list[list[str]]:
    """The capture's texts, or those of its longest site: the sites of a model mostly share them."""
    own = capture.query_tokens if side == "query" and capture.query_tokens else capture.tokens
    if own or not capture.sites:
        return [list(entry) for entry in own]
    site = max(capture.sites, key=lambda site: site.keys)
    return [list(site.labels(side, batch)) for batch in range(site.batch)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
