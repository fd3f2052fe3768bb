"""The statistics of a site's rows, in steps: a page that goes away ends them."""

from __future__ import annotations

import numpy as np

from limelight.capture import Site
from limelight.capture.site import Rows
from limelight.engines import choose
from limelight.studio.work import Cancel

WORK = 1 << 25  # cells between two looks at the page: some 50 ms on the native engine
ROWS = 64  # and at least so many rows, which engines take together


def measure(site: Site, cancel: Cancel) -> Site:
    """The site itself, its `statistics` at hand; Gone as soon as nobody waits for them.

    They are kept where the site keeps them, so that its heads, its health and its kinds share
    them. An interrupted pass leaves nothing behind.
    """
    if site.measured:
        return site
    call = site.call
    step = max(ROWS, WORK // max(1, call.batch * call.query_heads * call.keys))
    states = []
    for start in range(0, max(1, call.queries), step):
        cancel.check()
        part = call.some_rows(start, min(start + step, call.queries))
        states.append(choose(part).module.forward(part, health=True))
    names = ("logsumexp", "max_logit", "entropy")
    rows = Rows(*(np.concatenate([getattr(s, name) for s in states], axis=2) for name in names))
    vars(site)["statistics"] = rows  # as its cached property does
    return site
