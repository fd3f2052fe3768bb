"""The experiments as pictures: where the runs end, and how they get there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limelight.learn.experiments import FIGURES, REMEDIES, SETTINGS, Remedies, Scaling
from limelight.learn.experiments.rescue import held_out as ends_of
from limelight.pictures.chart import Line, Panel, chart
from limelight.pictures.scene import Picture

BOUNDS = {"spread": (0.0, 1.0), "saturated": (0.0, 1.0)}
HIGHEST_LOSS = 3.6  # drawn; a run above lies on the edge
# Of the remedies: what is drawn over the steps, on which axis and within which bounds.
OVER_STEPS = {
    "largest": ("Largest logit of any head", "y", 1.0, 1e7),
    "entropy": ("Smallest mean entropy of any head, nats", "y", 1e-4, 5.0),
    "loss": ("Loss, nats a character", "", 1.5, HIGHEST_LOSS),
}


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


def rescued(results: Remedies, *, theme: str = "light") -> Picture:
    """Held-out loss at the end over the learning rate: each remedy beside nothing done."""
    rates = np.array(results.rates)

    def line(remedy: str, name: str) -> Line:
        return Line(name, rates, np.stack([ends_of(results.at(remedy, r)) for r in rates], axis=1))

    panels = [
        Panel(REMEDIES[remedy], (line(remedy, "with it"), line("none", REMEDIES["none"])),
              "learning rate", "x", 1.7, HIGHEST_LOSS, dots=True, ticks=results.rates)
        for remedy in results.remedies if remedy != "none"
    ]  # fmt: skip
    return chart([panels[:2], panels[2:]], title="Held-out loss at the end, nats a character",
                 below=_below(results, "dots are seeds, lines their mean; a loss above "
                              f"{HIGHEST_LOSS} lies on the edge"), theme=theme)  # fmt: skip


def over_steps(results: Remedies, figure: str, *, theme: str = "light") -> Picture:
    """One of `OVER_STEPS`: a panel a remedy, a line a learning rate."""
    title, log, low, high = OVER_STEPS[figure]
    panels = [
        Panel(REMEDIES[remedy], tuple(
            Line(f"{rate:g}", runs[0].steps.astype(np.float64),
                 np.stack([getattr(run, figure) for run in runs]))
            for rate in results.rates for runs in [results.at(remedy, rate)]
        ), "step", log, low, high)
        for remedy in results.remedies
    ]  # fmt: skip
    return chart([panels[:3], panels[3:]], title=f"{title}, by learning rate", theme=theme,
                 below=_below(results, "thin lines are seeds, thick ones their mean"))  # fmt: skip


def _over_sizes(
    results: Scaling, setting: str, scale: str, figure: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """d_k [sizes], and the figure [seeds, sizes]: at the first step, where it has steps."""
    values = [getattr(results.at(setting, scale, size), figure) for size in results.sizes]
    values = [value if value.ndim == 1 else value[:, 0] for value in values]
    return np.array(results.sizes, np.float64), np.stack(values, axis=1)


def _below(results: Scaling | Remedies, words: str) -> str:
    facts = results.facts
    return (f"{facts['layers']} layers of {facts['heads']} heads, {facts['steps']} steps, "
            f"{facts['seeds']} seeds: {words}")  # fmt: skip
