"""Colours that read the same to everybody: even steps, one direction of lightness."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from limelight.errors import ArgumentError
from limelight.views.palette import (
    THEME,
    THEMES,
    Scale,
    css,
    from_oklab,
    ink_on,
    nice,
    ramp,
    rgb,
    theme_of,
    to_oklab,
)

RAMPS = list(itertools.product(THEMES, ("warm", "cool")))
# What dichromats see, in linear light (Viénot, Brettel, Mollon 1999; tritan after Brettel 1997).
BLIND = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    "tritan": [[1, 0.14461, -0.14461], [0, 0.85924, 0.14076], [0, 0.85924, 0.14076]],
}


@pytest.mark.parametrize(("theme", "tone"), RAMPS)
def test_equal_steps_look_equal(theme: str, tone: str) -> None:
    path = to_oklab(ramp(theme, tone))[::15]  # coarse enough that rounding to bytes does not show
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert steps.max() / steps.min() < 1.15


@pytest.mark.parametrize(("theme", "tone"), RAMPS)
@pytest.mark.parametrize("eyes", [None, *BLIND])
def test_lightness_goes_one_way_for_every_eye(theme: str, tone: str, eyes: str | None) -> None:
    colours = ramp(theme, tone).astype(np.float64) / 255
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    if eyes is not None:
        linear = np.clip(linear @ np.array(BLIND[eyes]).T, 0, 1)
    light = np.cbrt(linear @ (0.2126, 0.7152, 0.0722))[::5]
    step = np.diff(light) * (-1 if theme == "light" else 1)
    assert (step > 0).all()
    assert abs(light[-1] - light[0]) > 0.5


def test_ramps_start_on_the_surface_and_hidden_is_neither() -> None:
    for theme in THEMES:
        look = THEME[theme]
        zero = to_oklab(ramp(theme)[0])
        assert np.linalg.norm(zero - to_oklab(np.array(rgb(look.surface)))) < 0.03
        assert np.linalg.norm(zero - to_oklab(np.array(rgb(look.hidden)))) > 0.07
        assert (ramp(theme)[0] == ramp(theme, "cool")[0]).all()


def test_words_can_be_read_on_every_colour() -> None:
    for theme, tone in RAMPS:
        for colour in ramp(theme, tone)[::8]:
            assert contrast(css(colour), ink_on(colour)) >= 4.2, css(colour)
    for look in THEME.values():
        for ink in (look.ink, look.soft):
            assert contrast(look.surface, ink) >= 4.5


def contrast(a: str, b: str) -> float:
    def luminance(text: str) -> float:
        s = np.array(rgb(text)) / 255
        return float(np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)
                     @ (0.2126, 0.7152, 0.0722))  # fmt: skip

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_there_and_back() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (500, 3))
    np.testing.assert_array_equal(from_oklab(to_oklab(colours)), colours)


def test_scales() -> None:
    weights = np.array([[0.0, 0.25], [1.0, np.nan]])
    fit = Scale.of(weights)
    assert (fit.low, fit.high, fit.ticks()) == (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_array_equal(fit.share(weights), weights)
    colours = fit.paint(weights, "light")
    assert css(colours[0, 0]) == css(ramp("light")[0])
    assert css(colours[1, 0]) == css(ramp("light")[-1])
    assert css(colours[1, 1]) == THEME["light"].hidden

    logarithmic = Scale.of([3e-5, 0.02, 1.0], "log")
    assert logarithmic.low == pytest.approx(1e-5)
    assert logarithmic.ticks() == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0])
    np.testing.assert_allclose(
        logarithmic.share([0.0, 1e-5, 1e-3, 1.0]), [0, 0, 0.4, 1], atol=1e-12
    )
    assert Scale.of([1e-30, 1.0], "log").low == pytest.approx(1e-6)  # six decades at most

    signed = Scale.of([-2.0, 1.0])
    assert (signed.low, signed.high) == (-2.0, 2.0)
    assert css(signed.paint(-2.0, "dark")) == css(ramp("dark", "cool")[-1])
    assert css(signed.paint(0.0, "dark")) == css(ramp("dark")[0])


def test_scales_of_nothing_much() -> None:
    assert Scale.of([np.nan]).high == 1.0
    assert Scale.of([0.0, 0.0]).share(0.0) == 0.0
    assert Scale.of([np.inf, 0.5]).high == 0.5
    assert Scale.of([0.0], "log").low == pytest.approx(0.1)
    assert math.isclose(Scale.of([0.5, 0.5], "log").low, 0.1)


def test_a_scale_too_short_for_arithmetic_is_none() -> None:
    scale = Scale.of([0.0, 1.0], high=5e-324)
    assert (scale.low, scale.high) == (0.0, 1.0)
    assert Scale.of([0.0, 1.0], high=1e-290).share([0.0, 1e300]).tolist() == [0.0, 1.0]


def test_round_ticks() -> None:
    assert nice(0, 1000, 5) == [0, 200, 400, 600, 800, 1000]
    assert nice(-0.3, 0.3, 4) == [-0.2, 0.0, 0.2]
    assert nice(10001, 10257, 4) == [10100, 10200]


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ArgumentError, match="theme='blue': choose light or dark"):
        theme_of("blue")
    with pytest.raises(ArgumentError, match="scale='sqrt': choose linear or log"):
        Scale.of([1.0], "sqrt")
    with pytest.raises(ArgumentError, match="no place for negative numbers: use linear"):
        Scale.of([-1.0, 1.0], "log")
    with pytest.raises(ArgumentError, match="from 0 to 1: it must rise from a number above 0"):
        Scale.of([1.0], "log", low=0.0)
