"""docs/remedies.md: tables, figures and numbers of the experiment of remedies, from its JSON."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from limelight.learn.experiments import REMEDIES, Remedies, Rescue, ends, figures, remedies
from limelight.learn.experiments.rescue import held_out
from limelight.pictures import Picture
from making.pages import DOCS, Page


def make() -> list[Path]:
    return filled().write()


def filled() -> Page:
    results = remedies()
    page = Page(DOCS / "remedies.md")
    for name in ("steps", "seeds", "width", "layers", "heads", "length", "batch", "records"):
        page.numbers[name] = str(results.facts[name])
    page.numbers["runs"] = str(len(results.runs))
    _tables(page, results)
    _numbers(page, results)
    page.picture("held-out", lambda theme: figures.rescued(results, theme=theme))
    for figure in figures.OVER_STEPS:
        page.picture(figure, partial(_over_steps, results, figure))
    return page


def _over_steps(results: Remedies, figure: str, theme: str) -> Picture:
    return figures.over_steps(results, figure, theme=theme)


def _tables(page: Page, results: Remedies) -> None:
    rows = [
        [REMEDIES[remedy], *(_end(results.at(remedy, rate)) for rate in results.rates)]
        for remedy in results.remedies
    ]
    page.table("ends-table", ["", *(f"rate {rate:g}" for rate in results.rates)], rows)
    rows = [
        [f"{rate:g}", REMEDIES[remedy], *_fate(results.at(remedy, rate))]
        for rate in results.rates[1:] for remedy in results.remedies
    ]  # fmt: skip
    heading = ["rate", "", "died", "first at step", "records with a dead head", "largest logit",
               "lowest", "smallest entropy", "heads scaled back"]  # fmt: skip
    page.table("fates-table", heading, rows)


def _end(runs: tuple[Rescue, ...]) -> str:
    died = sum(bool(run.died) for run in runs)
    return ends(held_out(runs), 2) + (f", **{died} died**" if died else "")


def _fate(runs: tuple[Rescue, ...]) -> list[str]:
    """How many died, and the worst of all seeds."""
    died = [run for run in runs if run.died]
    clipped = np.mean([run.clipped for run in runs])
    return [
        f"{len(died)} of {len(runs)}",
        _between([run.since for run in runs if run.since is not None]),
        _between([run.dead for run in runs]),
        _logit(max(run.most or np.inf for run in runs)),
        _logit(min(run.lowest for run in runs)),
        f"{min(run.least for run in runs):.2g}",
        f"{clipped:,.0f}" if clipped else "–",
    ]


def _between(numbers: list[int]) -> str:
    low, high = (min(numbers), max(numbers)) if numbers else (0, 0)
    return "–" if not numbers else str(low) if low == high else f"{low} to {high}"


def _logit(x: float) -> str:
    return f"{x:,.0f}".replace("-", "−")


def _numbers(page: Page, results: Remedies) -> None:
    """For sentences: means of the held-out loss, and the runs that are told one by one."""
    said = page.numbers
    for remedy in results.remedies:
        for rate in results.rates:
            runs = results.at(remedy, rate)
            said[f"end-{remedy}-{rate:.0e}"] = f"{np.mean(held_out(runs)):.2f}"
            said[f"died-{remedy}-{rate:.0e}"] = str(sum(bool(run.died) for run in runs))
        said[f"died-{remedy}"] = str(sum(bool(run.died) for run in results.runs
                                         if run.remedy == remedy))  # fmt: skip
    said["high"] = str(sum(run.rate > results.rates[0] for run in results.runs
                           if run.remedy == "none"))  # fmt: skip
    # QKClip did nothing at the lowest rate: the same runs once more
    none, clip = (results.at(remedy, results.rates[0]) for remedy in ("none", "clip"))
    said["clipped-lowest"] = str(sum(run.clipped for run in clip))
    said["again"] = f"{np.abs(held_out(none) - held_out(clip)).max():.2f}"
    said["slow"], said["fast"] = f"{held_out(none).max():.2f}", f"{held_out(none).min():.2f}"
    for remedy in ("floor", "norm"):
        said[f"slow-{remedy}"] = f"{held_out(results.at(remedy, results.rates[0])).max():.2f}"
    heads = results.facts["steps"] * results.facts["layers"] * results.facts["heads"]
    shares = [run.clipped / heads for run in results.runs if run.clipped]
    said["clipped-least"], said["clipped-most"] = (
        f"{100 * share:.0f} %" for share in (min(shares), max(shares))
    )
    small = next(run for run in results.at("clip", 0.01) if run.died)
    said["small-least"], said["small-most"] = f"{small.least:.3f}", f"{small.most:.0f}"
    blind = next(run for run in results.at("clip", 0.03) if run.died)
    said["blind-below"], said["blind-dead"] = str(blind.below), str(blind.dead)
    said["blind-lowest"], said["blind-least"] = _logit(blind.lowest), f"{blind.least:.2g}"
    turned = max(results.at("clip", 0.1), key=lambda run: run.most or 0)
    said["turned-most"], said["turned-before"] = (
        _logit(turned.most or 0),
        _logit(turned.before or 0),
    )
    said["record-steps"] = str(results.facts["steps"] // results.facts["records"])
    for remedy in ("clip", "z_loss"):
        runs = results.at(remedy, 0.1)
        said[f"dead-{remedy}"] = _between([run.dead for run in runs])
        said[f"last-{remedy}"] = f"{max(run.largest[-1] for run in runs):.0f}"
    said["z-first"] = _between([run.since or 0 for run in results.at("z_loss", 0.1)])
    said["z-lowest"] = _logit(min(run.lowest for run in results.runs if run.remedy == "z_loss"))
    said["norm-most"] = _logit(max(run.most or 0 for run in results.runs if run.remedy == "norm"))
    said["norm-least"] = f"{min(run.least for run in results.runs if run.remedy == 'norm'):.3f}"
    said["floor-worst"] = f"{held_out(results.at('floor', 0.1)).max():.1f}"
    said["pull"] = f"{1e-2 * 0.5 * results.facts['layers']:.2f}"
