"""What to look at first: every head in one order, each with what was found of it in a sentence.

    wrong       rows that are not a number, or a logit that is infinite: the only cause for alarm
    a kind      heads that do what is known to be done, such as looking at the token before; the
                larger the share of the weight that does it, the earlier
    strong      heads of no known kind: those whose absence changes most first, where that was
                measured; else those with the largest weights elsewhere than on the first token
    at rest     heads that spread evenly, rest on separators, then on the first token: many, and by
                trade

Being saturated is no fault: a head that always looks at the token before is just that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limelight.capture import Capture, Site
from limelight.heads import KINDS, Heads, telling
from limelight.health import PEAKED, SATURATED, Summary
from limelight.live.effects import Effects
from limelight.views.facts import words
from limelight.views.schema import Finding
from limelight.writing.numbers import percent

AT_REST = ("uniform", "separator", "sink")
MEANING = {kind.name: kind.meaning for kind in KINDS}
HALF = 0.5  # share of all weight on one key from which a head is said to rest on it
EVEN = 0.95  # spread from which a head is said to look everywhere alike
FAINT = 0.005
TOLD = 8  # heads whose cell to look at first is told
CELLS = 1 << 22  # of a head, up to which the weight that each key gets is added up


def findings(
    capture: Capture,
    summaries: Sequence[Summary],
    found: Heads | None,
    batch: int = 0,
    effects: Effects | None = None,
) -> list[Finding]:
    """Every head of the capture, what to look at first first; `found` are its kinds.

    `effects` is what each head's absence does, where it was measured.
    """
    effect = _effects(capture, effects)
    every = [(site, head) for site, seen in enumerate(summaries) for head in range(len(seen.rows))]
    names = {place: _patterns(capture.sites[place[0]], found, *place) for place in every}
    every.sort(key=lambda place: (
        _rank(summaries[place[0]], found, names[place], effect, *place), place
    ))  # fmt: skip
    return [
        Finding(
            site=site, head=head, kinds=[words(kind) for kind in names[site, head]],
            wrong=_wrong(summaries[site], head),
            why=_explain(capture.sites[site], summaries[site], found, names[site, head], site,
                         head, batch),
            cell=_cell(capture, names[site, head], site, head, batch) if n < TOLD else None,
        )
        for n, (site, head) in enumerate(every)
    ]  # fmt: skip


def _patterns(site: Site, found: Heads | None, at: int, head: int) -> tuple[str, ...]:
    """The kinds of a head. A kind is a pattern over queries: one alone shows none."""
    return () if found is None or site.queries < 2 else found.kinds(at, head)


def _cell(
    capture: Capture, names: tuple[str, ...], at: int, head: int, batch: int
) -> tuple[int, int] | None:
    """The cell to look at first; of an even head no cell says anything."""
    site, kind = capture.sites[at], names[0] if names else None
    if kind == "uniform" or batch >= site.batch:
        return None
    return telling(site, head, kind=kind, batch=batch)


def _wrong(seen: Summary, head: int) -> bool:
    return bool(seen.not_a_number[head] or np.isposinf(seen.max_logit[head]))


def _effects(capture: Capture, effects: Effects | None) -> dict[tuple[int, int], float]:
    """How much the absence of each head changes, by site and head."""
    if effects is None:
        return {}
    change = np.abs(np.nan_to_num(effects.change))
    return {(at, head): float(change[site.layer, head]) for at, site in enumerate(capture.sites)
            for head in range(site.heads)
            if site.layer < change.shape[0] and head < change.shape[1]}  # fmt: skip


def _rank(
    seen: Summary, found: Heads | None, names: tuple[str, ...],
    effect: dict[tuple[int, int], float], site: int, head: int,
) -> tuple[int, float]:  # fmt: skip
    """The group of a head, and its place in the group: the lower the earlier."""
    if _wrong(seen, head):
        return 0, -float(seen.not_a_number[head]) / max(1, int(seen.rows[head]))
    active = [kind for kind in names if kind not in AT_REST]
    if active and found is not None:
        return 1, -float(found.scores[active[0]][site, head])
    if names and found is not None:
        return 3 + AT_REST.index(names[0]), -float(found.scores[names[0]][site, head])
    if effect:
        return 2, -effect.get((site, head), 0.0)
    resting = 0.0
    if found is not None and "sink" in found.scores:
        resting = float(np.nan_to_num(found.scores["sink"][site, head]))
    return 2, -float(np.nan_to_num(seen.max_prob[head])) * (1.0 - resting)


def _explain(
    site: Site, seen: Summary, found: Heads | None, names: tuple[str, ...], at: int, head: int,
    batch: int,
) -> str:  # fmt: skip
    """What was found of one head, in a sentence or two."""
    rows, lost = int(seen.rows[head]), int(seen.not_a_number[head])
    if lost:
        verb = "is" if lost == 1 else "are"
        return (f"{lost:,} of its {rows:,} rows {verb} not a number: a query or key that is NaN or "
                f"infinite reached the softmax, or a product of theirs is too large.")  # fmt: skip
    if _wrong(seen, head):
        return "A logit of it is infinite: a product of a query and a key is too large."
    if not seen.judged[head]:
        return "No row has two keys to choose between, so there is nothing to judge."
    if names and found is not None:
        said = [_does(kind, found, at, head) for kind in names]
        return f"It {' and '.join(said)}."
    share, peaked = float(seen.saturated[head]), float(seen.peaked[head])
    used, spread = float(seen.effective_keys[head]), float(seen.spread[head])
    if share >= FAINT:
        said_of = (f"{percent(share)} of its rows put {percent(SATURATED)} or more on one key; "
                   f"the largest logit is {float(seen.max_logit[head]):.1f}.")  # fmt: skip
    elif peaked >= FAINT:
        bounds = f"{percent(PEAKED)} to {percent(SATURATED)}"
        said_of = f"{percent(peaked)} of its rows put {bounds} on one key."
    elif spread >= EVEN:
        return f"It looks at all its keys nearly alike (spread {spread:.2f}), so each row averages."
    else:
        return f"Its rows use {used:,.1f} keys on average, and none rests on one alone."
    resting = _rests_on(site, head, min(batch, site.batch - 1))
    return f"{said_of} {resting or f'On average a row uses {used:,.1f} keys.'}"


def _does(kind: str, found: Heads, at: int, head: int) -> str:
    """What a head of that kind does, and how much of it."""
    score, chance = (float(table[kind][at, head]) for table in (found.scores, found.chance))
    if kind == "uniform":
        return f"{MEANING[kind]} (spread {score:.2f})"
    even = f"; evenly spread it would be {percent(chance)}" if chance >= FAINT else ""
    return (
        f"{MEANING.get(kind, f'is of the kind {kind}')} with {percent(score)} of its weight{even}"
    )


def _rests_on(site: Site, head: int, batch: int) -> str:
    """Where most of the weight goes, if that is one place."""
    if not 0 < site.queries * site.keys <= CELLS:
        return ""
    received = np.asarray(site.received(head=head, batch=batch), np.float64)
    share = received / max(received.sum(), np.finfo(np.float64).tiny)
    best = int(share.argmax())
    if not share[best] >= HALF:
        return ""
    where = "the first key" if best == 0 else f"key {best}"
    return (f"{percent(share[best])} of all its weight goes to {where} "
            f"(“{site.labels('key', batch)[best]}”).")  # fmt: skip
