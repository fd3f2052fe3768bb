"""The scaling experiment as pictures: where each setting ends, and how it gets there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limelight.learn.experiments import FIGURES, SETTINGS, Scaling
from limelight.pictures.chart import Line, Panel, chart
from limelight.pictures.scene import Picture

BOUNDS = {"spread": (0.0, 1.0), "saturated": (0.0, 1.0)}


def held_out(results: Scaling, *, theme: str = "light") -> Picture:
    """Held-out loss at the end over d_k, a panel a setting."""
    every = np.concatenate([run.held_out for run in results.runs])
    panels = [
        Panel(
            SETTINGS[setting],
            tuple(
                Line(scale, *_over_sizes(results, setting, scale, "held_out"))
                for scale in results.scales
            ),
            "d_k", "x", float(every.min()) - 0.03, float(every.max()) + 0.03, dots=True,
            ticks=tuple(float(size) for size in results.sizes),
        )
        for setting in results.settings
    ]  # fmt: skip
    return chart([panels], title="Held-out loss at the end, nats a character", theme=theme,
                 below=_below(results, "dots are seeds, lines their mean"))  # fmt: skip


def start(results: Scaling, *, theme: str = "light") -> Picture:
    """What the first step sees: saturation and the gradient through the scores, over d_k."""
    rows = []
    for figure in ("saturated", "score_gradient"):
        low, high = BOUNDS.get(figure, (None, None))
        rows.append([
            Panel(
                f"{FIGURES[figure]}: {setting}",
                tuple(Line(scale, *_over_sizes(results, setting, scale, figure))
                      for scale in results.scales),
                "d_k", "x" if figure == "saturated" else "xy", low, high, dots=True,
                ticks=tuple(float(size) for size in results.sizes),
            )
            for setting in results.settings
        ])  # fmt: skip
    return chart(rows, title="Before anything is learned",
                 below=_below(results, "the first step; dots are seeds, lines their mean"),
                 theme=theme)  # fmt: skip


def curves(results: Scaling, d_k: int, *, theme: str = "light") -> Picture:
    """Every figure over the steps at one d_k: figures down, settings across."""
    rows = []
    for figure, words in FIGURES.items():
        low, high = BOUNDS.get(figure, (None, None))
        rows.append([
            Panel(
                f"{words}: {setting}",
                tuple(Line(scale, run.steps.astype(np.float64), getattr(run, figure))
                      for scale in results.scales
                      for run in [results.at(setting, scale, d_k)]),
                "step", "y" if figure == "score_gradient" else "", low, high,
            )
            for setting in results.settings
        ])  # fmt: skip
    return chart(rows, title=f"Training with d_k = {d_k}",
                 below=_below(results, "thin lines are seeds, thick ones their mean"),
                 theme=theme)  # fmt: skip


def _over_sizes(
    results: Scaling, setting: str, scale: str, figure: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """d_k [sizes], and the figure [seeds, sizes]: at the first step, where it has steps."""
    values = [getattr(results.at(setting, scale, size), figure) for size in results.sizes]
    values = [value if value.ndim == 1 else value[:, 0] for value in values]
    return np.array(results.sizes, np.float64), np.stack(values, axis=1)


def _below(results: Scaling, words: str) -> str:
    facts = results.facts
    return (f"{facts['layers']} layers of {facts['heads']} heads, {facts['steps']} steps, "
            f"{facts['seeds']} seeds: {words}")  # fmt: skip
