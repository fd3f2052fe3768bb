"""telling(): the one cell of a head to look at first."""

from __future__ import annotations

import numpy as np

from limelight.capture import Site
from limelight.heads.kinds import pairs, targets
from limelight.heads.places import MOST_PAIRS

CELLS = 1 << 22  # of a head, up to which every row's largest weight is looked for


def telling(
    site: Site, head: int, *, kind: str | None = None, batch: int = 0
) -> tuple[int, int] | None:
    """The cell that shows best what a head does: (row, column), None where no cell stands out.

    Of a head of a known `kind`, the strongest of the cells that make it one; of another, the
    strongest of all. Rows with few keys to choose from tell little, and so does a look at the first
    key or at the own token, unless the kind is just that: the choice weighs them so.

    >>> import limelight as ll
    >>> cap = ll.captures()["bert"]
    >>> row, column = telling(cap[0], 2, kind="previous")
    >>> row - column
    1
    """
    one = site.one(head, batch)
    call, seen = one.call, one.statistics
    keys = np.asarray(one.health().keys[0, 0])
    cells = targets(one, 0, kind) if kind is not None else None
    if cells is not None:
        rows, columns = (side[:MOST_PAIRS] for side in cells)
        weights, _ = pairs(call, seen.logsumexp[0, 0], rows, columns)
        worth = weights
    elif one.queries * one.keys <= CELLS and one.keys:
        best = one.top(k=1, head=0)
        rows, columns, weights = np.arange(one.queries), best.columns[:, 0], best.weights[:, 0]
        own = columns == rows + one.keys - one.queries
        worth = np.where(own | (columns <= 0), 0.25, 1.0) * weights
    else:
        return None
    worth = np.nan_to_num(worth) * np.log2(np.maximum(keys[rows], 1))
    if not worth.size or worth.max() <= 0:
        return None
    at = int(worth.argmax())
    return int(rows[at]), int(columns[at])
