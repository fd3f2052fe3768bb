"""Alarms ring once, with hysteresis and patience."""

from __future__ import annotations

from typing import Any

import pytest

from limelight.errors import ArgumentError
from limelight.journal import FIGURES
from limelight.torch.monitor.alarms import DEFAULTS, Alarm, Alarms


def record(step: int, **figures: list[float | None]) -> dict[str, Any]:
    site = {"name": "a", "layer": 0, **{name: [None, None] for name in FIGURES}, **figures}
    return {"kind": "record", "step": step, "time": 0.0, "sites": [site]}


def events(rule: Alarm, values: list[float | None]) -> list[tuple[int, str]]:
    alarms, found = Alarms([rule]), []
    for step, value in enumerate(values):
        for line in alarms.update(record(step, **{rule.figure: [0.5, value]})):
            assert (line["head"], line["alarm"], line["value"]) == (1, rule.name, value)
            found.append((step, line["event"]))
    return found


def test_hysteresis() -> None:
    rule = Alarm("logit", "max_logit", raise_at=100, clear_at=80)
    assert events(rule, [50, 100, 99, 101, 81, 100, 79.9, 90, 100]) == [
        (1, "raised"),
        (6, "cleared"),
        (8, "raised"),
    ]


def test_below_and_patience() -> None:
    rule = Alarm("collapse", "spread", raise_at=0.1, clear_at=0.2, above=False, patience=2)
    # once is not enough, and the count starts again after a good record
    assert events(rule, [0.05, 0.15, 0.05, 0.05, 0.15, 0.2, 0.21, 0.05]) == [
        (3, "raised"),
        (6, "cleared"),
    ]


def test_what_is_not_a_number_changes_nothing() -> None:
    rule = Alarm("logit", "max_logit", raise_at=100, clear_at=80)
    assert events(rule, [None, 120, None, None, 10]) == [(1, "raised"), (4, "cleared")]


def test_defaults_are_sane() -> None:
    alarms = Alarms(DEFAULTS)
    healthy = {"max_logit": [5.0], "spread": [0.6], "saturated": [0.1], "not_a_number": [0]}
    assert not list(alarms.update(record(0, **healthy)))  # type: ignore[arg-type]
    ill = {"max_logit": [5e4], "spread": [0.0], "saturated": [1.0], "not_a_number": [3]}
    first = [line["alarm"] for line in alarms.update(record(1, **ill))]  # type: ignore[arg-type]
    second = [line["alarm"] for line in alarms.update(record(2, **ill))]  # type: ignore[arg-type]
    assert first == ["logit", "not_a_number"]
    assert second == ["collapse", "one_hot"]


def test_bad_rules() -> None:
    with pytest.raises(ArgumentError, match="choose max_logit"):
        Alarm("x", "nope", raise_at=1, clear_at=0)
    with pytest.raises(ArgumentError, match="at most"):
        Alarm("x", "max_logit", raise_at=1, clear_at=2)
    with pytest.raises(ArgumentError, match="at least"):
        Alarm("x", "spread", raise_at=0.2, clear_at=0.1, above=False)
    for bounds in ((float("inf"), 1.0), (1.0, float("nan")), ("9", 8.0)):
        with pytest.raises(ArgumentError, match="must be finite floats"):
            Alarm("x", "max_logit", *bounds)  # type: ignore[arg-type]
    for patience in (0, 1.5, "2"):
        with pytest.raises(ArgumentError, match=f"patience={patience!r} a number of records"):
            Alarm("x", "max_logit", 2.0, 1.0, patience=patience)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="its name must be a text"):
        Alarm(3, "max_logit", 2.0, 1.0)  # type: ignore[arg-type]
