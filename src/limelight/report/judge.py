"""Which heads to look at first, and a sentence on why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limelight.capture import Capture, Site
from limelight.health import PEAKED, SATURATED, Summary

SINK = 0.5  # share of all weight on the first key from which a head is said to rest on it
EVEN = 0.95  # spread from which a head is said to look everywhere alike
FAINT = 0.005


@dataclass(frozen=True)
class Finding:
    """One head's place in the order of concern, 0 the worst."""

    site: int
    head: int
    concern: float
    verdict: str
    why: str


def worst_first(
    capture: Capture, summaries: tuple[Summary, ...], most: int | None, batch: int = 0
) -> list[Finding]:
    """Every head, or the `most` of them with the greatest concern, each with its sentence.

    Concern: rows that are not a number come first, then the share of saturated rows, then of
    peaked ones, then the mean largest weight.
    """
    order = sorted(
        ((concern(seen, head), site, head)
         for site, seen in enumerate(summaries) for head in range(len(seen.rows))),
        key=lambda entry: (-entry[0], entry[1], entry[2]),
    )  # fmt: skip
    return [
        Finding(site, head, value, str(summaries[site].verdict[head]),
                explain(capture.sites[site], summaries[site], head, batch))
        for value, site, head in order[:most]
    ]  # fmt: skip


def concern(seen: Summary, head: int) -> float:
    """A number whose order is the order of concern."""
    lost = float(seen.not_a_number[head]) / max(1, int(seen.rows[head]))
    shares = [float(np.nan_to_num(part[head]))
              for part in (seen.saturated, seen.peaked, seen.max_prob)]  # fmt: skip
    return 100.0 * (lost > 0) + lost + shares[0] + 1e-3 * shares[1] + 1e-6 * shares[2]


def explain(site: Site, seen: Summary, head: int, batch: int = 0) -> str:
    """What the figures of one head say, in a sentence or two."""
    rows, lost = int(seen.rows[head]), int(seen.not_a_number[head])
    if lost:
        return (f"{lost:,} of its {rows:,} rows are not a number: a query or key that is NaN or "
                f"infinite reached the softmax.")  # fmt: skip
    if not seen.judged[head]:
        return "No row has two keys to choose between, so there is nothing to judge."
    share, peaked = float(seen.saturated[head]), float(seen.peaked[head])
    used, spread = float(seen.effective_keys[head]), float(seen.spread[head])
    if share >= FAINT:
        most = _percent(SATURATED)
        said = (f"{_percent(share)} of its rows put {most} or more on one key, where the softmax "
                f"hardly moves any more (mean p·(1−p) {float(seen.gradient[head]):.3f}); "
                f"the largest logit is {float(seen.max_logit[head]):.1f}.")  # fmt: skip
    elif peaked >= FAINT:
        bounds = f"{_percent(PEAKED)} to {_percent(SATURATED)}"
        said = f"{_percent(peaked)} of its rows put {bounds} on one key."
    elif spread >= EVEN:
        return f"It looks at all its keys nearly alike (spread {spread:.2f}), so each row averages."
    else:
        return f"Its rows use {used:,.1f} keys on average, and none rests on one alone."
    resting = _rests_on(site, head, min(batch, site.batch - 1))
    return f"{said} {resting}" if resting else f"{said} On average a row uses {used:,.1f} keys."


def _rests_on(site: Site, head: int, batch: int) -> str:
    """Where most of the weight goes, if that is one place."""
    if not site.queries or not site.keys:
        return ""
    received = np.asarray(site.received(head=head, batch=batch), np.float64)
    share = received / max(received.sum(), np.finfo(np.float64).tiny)
    best = int(share.argmax())
    if not share[best] >= SINK:
        return ""
    where = "the first key" if best == 0 else f"key {best}"
    where = f"{where} (“{site.labels('key', batch)[best]}”)"
    kind = ", an attention sink" if best == 0 and site.queries > 1 else ""
    return f"{_percent(share[best])} of all its weight goes to {where}{kind}."


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
