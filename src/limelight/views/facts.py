"""The facts of a capture: what it is of, its sites, its texts, its picture, its heads' health."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from limelight.arrays import jsonable
from limelight.capture import Capture, Site
from limelight.capture.health import FIGURES
from limelight.health import Summary
from limelight.views.schema import (
    BundledCapture,
    CaptureInfo,
    CaptureSummary,
    HealthTable,
    SiteHealth,
    SiteInfo,
)
from limelight.views.stories import story
from limelight.writing.png import encode

LONGEST_TEXT = 400


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
        "sites": [site_facts(index, site) for index, site in enumerate(capture.sites)],
    }


def site_facts(index: int, site: Site) -> SiteInfo:
    kind: Any = site.kind
    return SiteInfo(
        index=index, name=site.name, layer=site.layer, kind=kind, batch=site.batch,
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


def site_health(index: int, seen: Summary) -> SiteHealth:
    figures: Any = {name: jsonable(getattr(seen, name)) for name in FIGURES}
    return SiteHealth(site=index, figures=figures, verdicts=seen.verdict.tolist())


def health_table(capture: Capture, rows: Sequence[SiteHealth]) -> HealthTable:
    """The figures of every site, layers down."""
    figures: Any = {name: [row.figures[name] for row in rows] for name in FIGURES}  # type: ignore[index]
    return HealthTable(
        layers=[site.layer for site in capture.sites],
        heads=max((site.heads for site in capture.sites), default=0),
        figures=figures,
        verdicts=[row.verdicts for row in rows],
    )


def numbers(capture: Capture, index: int, head: int) -> tuple[str, str]:
    """The layer and the head as the model counts them; the site's name where layers have several.

    A head that was taken out of its site says which it was.
    """
    site, layers = capture.sites[index], {site.layer for site in capture.sites}
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
