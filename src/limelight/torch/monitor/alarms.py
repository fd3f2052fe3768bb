"""Alarms over the health of heads, with hysteresis: raised at one bound, cleared at another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from limelight.errors import ArgumentError
from limelight.journal import FIGURES


@dataclass(frozen=True)
class Alarm:
    """Raised when a head's figure is at or past `raise_at` for `patience` records in a row.

    It clears when the figure is back inside `clear_at`, which lies on the safe side of `raise_at`:
    a head that hovers around one bound does not ring at every record.

    >>> rule = Alarm("logit", "max_logit", raise_at=100.0, clear_at=80.0)
    >>> rule.past(120.0), rule.back(90.0), rule.back(79.0)
    (True, False, True)
    """

    name: str
    figure: str
    raise_at: float
    clear_at: float
    above: bool = True
    patience: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentError(f"Alarm({self.name!r}, …): its name must be a text")
        if self.figure not in FIGURES:
            raise ArgumentError(
                f"Alarm({self.name!r}) watches {self.figure!r}, which a record does "
                f"not have: choose {', '.join(FIGURES)}"
            )
        bounds = (self.raise_at, self.clear_at)
        if not all(isinstance(x, (int, float)) and math.isfinite(x) for x in bounds):
            raise ArgumentError(
                f"Alarm({self.name!r}): raise_at={self.raise_at!r} and clear_at={self.clear_at!r} "
                f"must be finite floats"
            )
        safe = self.clear_at <= self.raise_at if self.above else self.clear_at >= self.raise_at
        if not safe or type(self.patience) is not int or self.patience < 1:
            side = "at most" if self.above else "at least"
            raise ArgumentError(
                f"Alarm({self.name!r}): clear_at={self.clear_at} must be {side} "
                f"raise_at={self.raise_at}, and patience={self.patience!r} a number of records, "
                f"at least 1"
            )

    def past(self, value: float) -> bool:
        return value >= self.raise_at if self.above else value <= self.raise_at

    def back(self, value: float) -> bool:
        return value < self.clear_at if self.above else value > self.clear_at

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# A logit of 100 is where MuonClip (Kimi K2, 2025) steps in; runs that diverge pass it long before
# (Dehghani et al. 2023, Wortsman et al. 2023). Entropy collapse: Zhai et al. 2023.
DEFAULTS = (
    Alarm("logit", "max_logit", raise_at=100.0, clear_at=80.0),
    Alarm("collapse", "spread", raise_at=0.05, clear_at=0.10, above=False, patience=2),
    Alarm("one_hot", "saturated", raise_at=0.95, clear_at=0.85, patience=2),
    Alarm("not_a_number", "not_a_number", raise_at=1.0, clear_at=1.0),
)


class Alarms:
    """Which alarms are on, head by head, as records come in."""

    def __init__(self, rules: Sequence[Alarm] = DEFAULTS) -> None:
        given = isinstance(rules, Iterable)
        self.rules = tuple(rules) if given else ()
        if not given or not all(isinstance(rule, Alarm) for rule in self.rules):
            raise ArgumentError(
                f"alarms={rules!r}: give a list of limelight.torch.Alarm; an empty one is none"
            )
        self.on: set[tuple[str, str, int]] = set()  # (alarm, site, head)
        self._past: dict[tuple[str, str, int], int] = {}

    def update(self, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The alarm lines that follow from one record."""
        for site in record["sites"]:
            for rule in self.rules:
                for head, value in enumerate(site[rule.figure]):
                    event = None if value is None else self._judge(rule, site["name"], head, value)
                    if event is not None:
                        yield {
                            "kind": "alarm", "event": event, "step": record["step"],
                            "time": record["time"], "alarm": rule.name, "site": site["name"],
                            "layer": site["layer"], "head": head, "figure": rule.figure,
                            "value": value,
                            "bound": rule.raise_at if event == "raised" else rule.clear_at,
                        }  # fmt: skip

    def _judge(self, rule: Alarm, site: str, head: int, value: float) -> str | None:
        at = (rule.name, site, head)
        if at in self.on:
            if not rule.back(value):
                return None
            self.on.discard(at)
            self._past[at] = 0
            return "cleared"
        self._past[at] = self._past.get(at, 0) + 1 if rule.past(value) else 0
        if self._past[at] < rule.patience:
            return None
        self.on.add(at)
        return "raised"
