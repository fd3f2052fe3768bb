"""The facts of a capture as plain data: what it is of, its sites, its texts, its picture."""

from __future__ import annotations

import base64
from dataclasses import fields
from typing import Any

from limelight.capture import Capture, Site
from limelight.health import Health, Summary
from limelight.pictures.png import encode

LONGEST_TEXT = 400


def summary(capture: Capture) -> dict[str, Any]:
    """What stands in a list of captures."""
    sites, source = capture.sites, capture.source
    text = _text(source.get("text"))
    return {
        "title": _text(source.get("title")),
        "model": _text(source.get("model")),
        "text": text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…",
        "layers": len({site.layer for site in sites}),
        "heads": max((site.heads for site in sites), default=0),
        "tokens": max((max(site.keys, site.queries) for site in sites), default=0),
        "image": capture.image is not None,
    }


def facts(capture: Capture, batch: int | None = None) -> dict[str, Any]:
    """Everything but the numbers; with `batch`, the texts of that entry alone and its picture."""
    grid = capture.grid
    data = {
        **summary(capture),
        "source": capture.source,
        "key_tokens": texts(capture, "key"),
        "query_tokens": texts(capture, "query"),
        "grid": None if grid is None else [grid.rows, grid.columns],
        "grid_start": 0 if grid is None else grid.start,
        "sites": [site_facts(index, site) for index, site in enumerate(capture.sites)],
    }
    if batch is None:
        return data
    for side in ("key_tokens", "query_tokens"):
        data[side] = data[side][batch : batch + 1]
    data["picture"] = None
    if capture.image is not None and batch < len(capture.image):
        encoded = base64.b64encode(encode(capture.image[batch])).decode()
        data["picture"] = f"data:image/png;base64,{encoded}"
    return data


def site_facts(index: int, site: Site) -> dict[str, Any]:
    return {
        "index": index, "name": site.name, "layer": site.layer, "kind": site.kind,
        "batch": site.batch, "heads": site.heads, "key_heads": site.key_heads,
        "queries": site.queries, "keys": site.keys, "head_size": int(site.query.shape[3]),
        "value_size": 0 if site.value is None else int(site.value.shape[3]),
        "scale": site.scale, "softcap": site.softcap, "sinks": site.sinks is not None,
        "bias": site.bias is not None,
        "mask": "everything" if site.mask is None else site.mask.expression,
    }  # fmt: skip


def health_of(site: Site, batch: int) -> Summary:
    """The health of one batch entry's heads; of the last one where the site has fewer entries."""
    seen, entry = site.health(), max(0, min(batch, site.batch - 1))
    own = (getattr(seen, field.name)[entry : entry + 1] for field in fields(seen))
    return Health(*own).summary()


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
