"""docs/experiment.md: the tables, figures and numbers of the scaling experiment, from its JSON."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from limelight.learn.experiments import SETTINGS, Runs, Scaling, ends, figures, scaling
from limelight.pictures import Picture
from making.pages import DOCS, Page


def make() -> list[Path]:
    return filled().write()


def filled() -> Page:
    results = scaling()
    page = Page(DOCS / "experiment.md")
    for name in ("steps", "seeds", "width", "layers", "heads", "length", "batch"):
        page.numbers[name] = str(results.facts[name])
    page.numbers["runs"] = str(len(results.runs) * results.facts["seeds"])
    _tables(page, results)
    _numbers(page, results)
    page.picture("held-out", lambda theme: figures.held_out(results, theme=theme))
    page.picture("start", lambda theme: figures.start(results, theme=theme))
    for size in (64, 256):
        page.picture(f"curves-{size}", partial(_curves, results, size))
    return page


def _curves(results: Scaling, size: int, theme: str) -> Picture:
    return figures.curves(results, size, theme=theme)


def _tables(page: Page, results: Scaling) -> None:
    rows = [
        [setting, str(size), *(ends(results.at(setting, scale, size).held_out)
                               for scale in results.scales), _best(results, setting, size)]
        for setting in results.settings for size in results.sizes
    ]  # fmt: skip
    page.table("held-out-table", ["setting", "d_k", *results.scales, "lowest"], rows)
    rows = [
        [setting, str(size), *(_start(results.at(setting, scale, size))
                               for scale in results.scales)]
        for setting in results.settings if setting != "unit-sgd" for size in results.sizes
    ]  # fmt: skip
    page.table("start-table", ["setting", "d_k", *results.scales], rows)


def _best(results: Scaling, setting: str, size: int) -> str:
    """The scale with the lowest loss, if all its seeds are below all those of the next."""
    runs = [results.at(setting, scale, size) for scale in results.scales]
    first, second, *_ = sorted(runs, key=lambda run: float(run.held_out.mean()))
    return first.scale if first.held_out.max() < second.held_out.min() else "seeds overlap"


def _start(run: Runs) -> str:
    return f"{100 * run.saturated[:, 0].mean():.0f} %, {run.score_gradient[:, 0].mean():.2g}"


def _numbers(page: Page, results: Scaling) -> None:
    """For sentences: gaps to 1/√d_k in nats, and figures at the first and last steps."""
    small, large = results.sizes[0], results.sizes[-1]

    def held(setting: str, scale: str, size: int) -> float:
        return float(results.at(setting, scale, size).held_out.mean())

    for setting in SETTINGS:
        for size in results.sizes:
            gap = held(setting, "none", size) - held(setting, "1/√d_k", size)
            page.numbers[f"gap-{setting}-{size}"] = f"{gap:+.2f}".replace("-", "−")
    worse = [held(s, "1/d_k", d) - held(s, "1/√d_k", d) for s in SETTINGS for d in results.sizes]
    page.numbers["over-least"], page.numbers["over-most"] = f"{min(worse):.2f}", f"{max(worse):.2f}"
    for name, scale in (("none", "none"), ("root", "1/√d_k")):
        for size in (small, large):
            run = results.at("unit", scale, size)
            page.numbers[f"saturated-{name}-{size}"] = f"{100 * run.saturated[:, 0].mean():.0f} %"
            page.numbers[f"gradient-{name}-{size}"] = f"{run.score_gradient[:, 0].mean():.2g}"
    ratio = [results.at("unit", "none", size).score_gradient[:, 0].mean()
             / results.at("unit", "1/√d_k", size).score_gradient[:, 0].mean()
             for size in (small, large)]  # fmt: skip
    for size, one in zip((small, large), ratio, strict=True):
        page.numbers[f"ratio-{size}"] = f"{one:.1f}"
        page.numbers[f"through-{size}"] = f"{one / size**0.5:.2f}"
    page.numbers["root-small"], page.numbers["root-large"] = f"{small**0.5:g}", f"{large**0.5:g}"
    last = results.at("small", "none", large)
    page.numbers["small-none-start"] = f"{100 * last.saturated[:, 0].mean():.0f} %"
    page.numbers["small-none-end"] = f"{100 * last.saturated[:, -1].mean():.0f} %"
    for name, setting in (("unit", "unit"), ("sgd", "unit-sgd")):
        run = results.at(setting, "none", large)
        page.numbers[f"end-saturated-{name}"] = f"{100 * run.saturated[:, -1].mean():.0f} %"
    flat = results.at("unit-sgd", "1/d_k", large)
    page.numbers["flat"] = f"{flat.spread[:, -1].mean():.2f}"
    scatter = max(float(run.held_out.max() - run.held_out.min()) for run in results.runs
                  if run.scale == "1/√d_k")  # fmt: skip
    page.numbers["scatter"] = f"{scatter:.2f}"
