"""HealthTables: the health of every head of a model, layers down and heads across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.capture.site import Site
from limelight.errors import ArgumentError
from limelight.health import PEAKED, SATURATED, Summary, written
from limelight.writing.frames import Frame, Tabular
from limelight.writing.numbers import counted, formatted
from limelight.writing.tables import columns, lit

Table = NDArray[np.float64]
FIGURES = tuple(field.name for field in fields(Summary))
SHOWN = ("max_prob", "entropy", "saturated")
TITLES = {
    "rows": "rows", "judged": "rows with a verdict", "not_a_number": "rows that are not a number",
    "max_logit": "largest logit", "max_prob": "largest weight (mean)", "gradient": "p·(1−p) (mean)",
    "entropy": "entropy in nats (mean)", "spread": "spread (mean)",
    "effective_keys": "keys used, e^entropy (mean)", "peaked": "share of peaked rows",
    "saturated": "share of saturated rows",
}  # fmt: skip
FORMATS = {"max_logit": ".1f", "effective_keys": ",.1f", "peaked": ".0%", "saturated": ".0%",
           "rows": ",.0f", "judged": ",.0f", "not_a_number": ",.0f"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class HealthTables(Tabular):
    """Every figure as a table [sites, heads]; NaN where a site has fewer heads than the widest.

    `tables["entropy"]` is one table, `tables.verdict` the words, `tables.sites` the row names,
    `tables.layers` their layers. Figures are means over the rows that can be judged; `max_logit` is
    the largest over all rows (see limelight.health). `to_pandas()`, `to_xarray()` and `to_csv()`
    hand them on.
    """

    sites: tuple[str, ...]
    layers: tuple[int, ...]
    summaries: tuple[Summary, ...]

    @classmethod
    def of(cls, sites: Sequence[Site]) -> HealthTables:
        return cls(
            tuple(site.name for site in sites),
            tuple(site.layer for site in sites),
            tuple(site.health().summary() for site in sites),
        )

    @property
    def figures(self) -> tuple[str, ...]:
        return FIGURES

    def __getitem__(self, figure: str) -> Table:
        """One figure, [sites, heads]."""
        check_figure(figure)
        return _table([getattr(summary, figure) for summary in self.summaries], np.nan)

    @property
    def verdict(self) -> NDArray[np.str_]:
        """'saturated', 'peaked', 'healthy' or '' for each head, [sites, heads]."""
        return _table([summary.verdict for summary in self.summaries], "")

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: the sites, and each one's heads with every figure."""
        return {
            "figures": list(FIGURES),
            "sites": [
                {"site": name, "layer": layer, "heads": summary.to_dict()}
                for name, layer, summary in zip(
                    self.sites, self.layers, self.summaries, strict=True
                )
            ],
        }

    def frame(self) -> Frame:
        """Every figure and the verdict, by site and head."""
        words = self.verdict
        heads = [len(summary.rows) for summary in self.summaries]
        return Frame(
            {"site": self.sites, "head": range(words.shape[1])},
            {**{figure: self[figure] for figure in FIGURES}, "verdict": words},
            {"layer": ("site", self.layers)},
            np.arange(words.shape[1]) < np.array(heads, np.intp)[:, None],
        )

    def text(self, figure: str) -> str:
        """One figure as a table of text, layers down, heads across."""
        table, words = self[figure], self.verdict
        if figure != "max_prob":  # the verdict is about the largest weight: marks belong there
            words = np.full_like(words, "")
        cells = [[cell(figure, table[r, h], words[r, h]) for h in range(table.shape[1])]
                 for r in range(table.shape[0])]  # fmt: skip
        names = self.names()
        heading = ["", *(str(h) for h in range(table.shape[1]))]
        lines = [heading, *([name, *row] for name, row in zip(names, cells, strict=True))]
        return "\n".join([TITLES[figure], *columns(lines)])

    def __repr__(self) -> str:
        sites, heads = len(self.sites), max((len(s.rows) for s in self.summaries), default=0)
        words = self.verdict
        counts = ", ".join(f"{int((words == word).sum())} {word}"
                           for word in ("healthy", "peaked", "saturated"))  # fmt: skip
        title = f"Health of {counted(sites, 'site')} × {counted(heads, 'head')}: {counts}"
        note = f"! saturated (mean largest weight ≥ {SATURATED:g})   ~ peaked (≥ {PEAKED:g})"
        tables = [self.text(figure) for figure in SHOWN]
        return "\n\n".join([title, *tables, note])

    def _repr_html_(self) -> str:
        return "".join(self._html(figure) for figure in SHOWN)

    def names(self) -> list[str]:
        """Layer numbers, or whole names where a layer has several sites."""
        plain = [str(layer) for layer in self.layers]
        return plain if len(set(plain)) == len(plain) else list(self.sites)

    def _html(self, figure: str) -> str:
        table, words = self[figure], self.verdict
        with np.errstate(invalid="ignore"):
            top = np.nanmax(np.abs(table)) if np.isfinite(table).any() else 1.0
        heading = "".join(f"<th>{h}</th>" for h in range(table.shape[1]))
        rows = []
        for r, name in enumerate(self.names()):
            cells = "".join(
                lit(cell(figure, table[r, h], ""), _shade(table[r, h], top), str(words[r, h]))
                for h in range(table.shape[1])
            )
            rows.append(f"<tr><th style='text-align:left'>{escape(name)}</th>{cells}</tr>")
        return (f"<table><caption>{escape(TITLES[figure])}</caption><thead><tr><th></th>{heading}"
                f"</tr></thead><tbody>{''.join(rows)}</tbody></table>")  # fmt: skip


def _table(rows: list[NDArray[Any]], fill: Any) -> NDArray[Any]:
    heads = max((len(row) for row in rows), default=0)
    dtype = "<U9" if isinstance(fill, str) else np.float64
    table = np.full((len(rows), heads), fill, dtype)
    for at, row in enumerate(rows):
        table[at, : len(row)] = row
    return table


def check_figure(figure: str) -> None:
    if figure not in FIGURES:
        raise ArgumentError(f"there is no figure {figure!r}: choose {', '.join(FIGURES)}")


def cell(figure: str, value: float, verdict: str = "") -> str:
    """One number of a table as text, marked by its head's verdict."""
    if np.isnan(value):
        return "–"
    mark = {"saturated": "!", "peaked": "~"}.get(verdict, "")
    if figure == "max_prob":
        return mark + written(value)
    return mark + formatted(value, FORMATS.get(figure, ".2f"))


def _shade(value: float, top: float) -> float:
    return float(min(1.0, abs(value) / top)) if np.isfinite(value) and top > 0 else 0.0
