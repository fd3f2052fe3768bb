"""Frame: figures over named axes, as records, CSV, a pandas.DataFrame or an xarray.Dataset.

pandas and xarray are loaded when they are asked for; neither is needed for anything else.
"""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.writing.files import whole


@dataclass(frozen=True, eq=False)
class Frame:
    """Figures over axes: each array of `values` has all of them, in their order.

    beside   facts along one axis: {"layer": ("site", (0, 1, …))}
    there    which cells exist, over all axes; None for all
    """

    axes: dict[str, Sequence[Any]]
    values: dict[str, NDArray[Any]]
    beside: dict[str, tuple[str, Sequence[Any]]] = field(default_factory=dict)
    there: NDArray[np.bool_] | None = None

    def records(self) -> list[dict[str, Any]]:
        """One plain dict a cell that exists, with the names of its place first."""
        names, found = list(self.axes), []
        for at in itertools.product(*(range(len(labels)) for labels in self.axes.values())):
            if self.there is not None and not self.there[at]:
                continue
            place = dict(zip(names, at, strict=True))
            row = {}
            for name in names:
                row[name] = self.axes[name][place[name]]
                row |= {fact: along[place[axis]] for fact, (axis, along) in self.beside.items()
                        if axis == name}  # fmt: skip
            row |= {figure: table[at].item() for figure, table in self.values.items()}
            found.append(row)
        return found


class Tabular:
    """What has a frame: the forms that other programs read."""

    def frame(self) -> Frame:
        raise NotImplementedError

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """As CSV with a heading, a row a head: written to `path`, or given back without one.

        What is not a number is left empty.
        """
        records, text = self.frame().records(), io.StringIO()
        names = list(records[0]) if records else self._names()
        rows = csv.DictWriter(text, names, lineterminator="\n")
        rows.writeheader()
        rows.writerows(
            {name: "" if value != value else value for name, value in record.items()}
            for record in records
        )
        if path is None:
            return text.getvalue()
        with whole(path) as file:
            file.write(text.getvalue().encode())
        return None

    def to_pandas(self) -> Any:
        """As a pandas.DataFrame, a row a head."""
        frame = _package("pandas").DataFrame
        return frame(self.frame().records(), columns=self._names())

    def to_xarray(self) -> Any:
        """As an xarray.Dataset: each figure over its axes; NaN where there is no such head."""
        whole, xarray = self.frame(), _package("xarray")
        dims = tuple(whole.axes)
        values = {name: (dims, table) for name, table in whole.values.items()}
        coords = {name: list(labels) for name, labels in whole.axes.items()}
        facts = {name: (axis, list(along)) for name, (axis, along) in whole.beside.items()}
        return xarray.Dataset(values, {**coords, **facts})

    def _names(self) -> list[str]:
        whole = self.frame()
        places = [[axis, *(n for n, (of, _) in whole.beside.items() if of == axis)]
                  for axis in whole.axes]  # fmt: skip
        return [*itertools.chain(*places), *whole.values]


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ArgumentError(
            f"to_{name}() needs {name}: pip install {name}, or in limelight's checkout "
            f"pip install -e '.[tables]'. to_csv() needs nothing more"
        ) from None
