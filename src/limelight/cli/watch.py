"""limelight watch: the file of a training monitor, live in the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from limelight.cli._edge import JsonOption, console, print_json, table
from limelight.cli._looking import ForceOption, writable
from limelight.errors import ArgumentError
from limelight.journal.reading import AlarmLine, EndLine, Line, RecordLine, RunLine, Tail
from limelight.numbers import counted

BARS = "▁▂▃▄▅▆▇█"
MOST_BARS, LEAST_BARS = 16, 8  # of a site's past
HEADS_A_LINE = 16, 8  # where the terminal is narrow, and narrower
KINDS = (".png", ".svg", ".pdf")  # of files to draw to
PANELS = (
    ("max_logit", max, "largest logit"),
    ("entropy", min, "entropy of the narrowest head, nats"),
    ("spread", min, "spread of the narrowest head"),
    ("saturated", max, "saturated rows of the worst head"),
)


@dataclass
class Watched:
    """What a file says so far, line by line as it stands there."""

    tail: Tail
    header: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    active: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    end: dict[str, Any] | None = None

    @classmethod
    def open(cls, path: Path) -> Watched:
        run = cls(Tail(path))
        run.update()
        return run

    @property
    def path(self) -> Path:
        return self.tail.path

    def update(self) -> bool:
        """Read the lines that were added, or all of a file begun anew; True if there were any."""
        anew = self.tail.begun_anew()
        if anew:
            self.__dict__.update(Watched(self.tail).__dict__)
        lines = list(self.tail.lines())
        for line, text in lines:
            self._take(line, json.loads(text))
        return anew or bool(lines)

    def _take(self, line: Line, said: dict[str, Any]) -> None:
        match line:
            case RunLine():
                self.header, self.end = said, None
                self.active.clear()
            case RecordLine():
                self.records.append(said)
            case AlarmLine():
                self.alarms.append(said)
                at = (line.alarm, line.site, line.head)
                if line.event == "raised":
                    self.active[at] = said
                else:
                    self.active.pop(at, None)
            case EndLine():
                self.end = said


def watch(
    path: Annotated[Path, typer.Argument(help="The file that limelight.torch.Monitor writes.")],
    json: JsonOption = False,
    once: Annotated[bool, typer.Option("--once", help="Show the state and stop.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw the run to a .png, .svg or .pdf file and stop."),
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks at the file.")
    ] = 1.0,
    force: ForceOption = False,
) -> None:
    """Watch a training run's heads: logits, entropy, saturation and alarms."""
    run = Watched.open(path)
    if plot is not None:
        writable(plot, KINDS, force)
        draw(run, plot)
    if json:
        print_json(state(run))
    elif plot is not None:
        typer.echo(f"drew {counted(len(run.records), 'record')} to {plot}")
    elif once or run.end is not None or not console().is_terminal:
        console().print(view(run))
    else:
        with Live(view(run), console=console(), refresh_per_second=4) as live:
            while run.end is None:
                time.sleep(interval)
                if run.update():
                    live.update(view(run))


def state(run: Watched) -> dict[str, Any]:
    """The latest record with the alarms that are on."""
    return {
        "model": run.header.get("model"),
        "every": run.header.get("every"),
        "records": len(run.records),
        "latest": run.records[-1] if run.records else None,
        "alarms": list(run.active.values()),
        "ended": None if run.end is None else run.end["reason"],
    }


def view(run: Watched) -> Group:
    """What the terminal shows: a headline, the alarms that are on, one line a layer."""
    if not run.records:
        return Group(Text(f"{run.path.name}: waiting for the first record"))
    record = run.records[-1]
    return Group(_headline(run, record), *_alarms(run, record), _Layers(run, record))


def _headline(run: Watched, record: dict[str, Any]) -> Text:
    known = ("kind", "step", "time", "ranks", "sites")
    numbers = [f"{k} {v:.5g}" for k, v in record.items() if k not in known and _is_number(v)]
    ranks = [f"{record['ranks']} ranks"] if record.get("ranks", 1) > 1 else []
    text = Text(f"{run.header.get('model', 'model')}  step {record['step']:,}", style="bold")
    text.append("".join(f"  {part}" for part in (*numbers, *ranks)), style="not bold")
    if run.end is None:
        age = max(0.0, time.time() - record["time"])
        text.append(f"  {_age(age)} ago", style="not bold dim")
    else:
        style = "green" if run.end["reason"] == "closed" else "red"
        text.append(f"  ended: {run.end['reason']}", style=f"not bold {style}")
    return text


def _age(seconds: float) -> str:
    """A time as people say it, in its two largest units.

    >>> _age(7), _age(150), _age(11_700), _age(31_578_117)
    ('7 s', '2 min', '3 h 15 min', '365 days 11 h')
    """
    minutes, hours, days = (int(seconds) // unit for unit in (60, 3600, 86400))
    if days:
        return f"{counted(days, 'day')} {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def _alarms(run: Watched, record: dict[str, Any], most: int = 8) -> list[Text]:
    rows = [Text(_alarm(a, record), style="red") for a in list(run.active.values())[-most:]]
    hidden = len(run.active) - len(rows)
    more = Text(f"  and {counted(hidden, 'more alarm')}", style="red")
    return rows + ([more] if hidden else [])


def _alarm(alarm: dict[str, Any], record: dict[str, Any]) -> str:
    """What the figure is in this record, and what it was when the alarm rang."""
    layers = [site["layer"] for site in record["sites"]]
    several = layers.count(alarm["layer"]) > 1
    where = alarm["site"] if several else f"layer {alarm['layer']}"
    figure = alarm["figure"].replace("_", " ")
    rang, step = f"{alarm['value']:.4g}", f"step {alarm['step']:,}"
    now = [site[alarm["figure"]][alarm["head"]] for site in record["sites"]
           if site["name"] == alarm["site"] and alarm["step"] < record["step"]]  # fmt: skip
    if now and now[0] is not None:
        told = f"{figure} {now[0]:.4g} ({rang} when it rang, at {step})"
    else:
        told = f"{figure} {rang} at {step}, when it rang"
    return f"⚠ {alarm['alarm']}: {where}, head {alarm['head']}: {told}"


class _Layers:
    """One line a layer, in the width there is."""

    def __init__(self, run: Watched, record: dict[str, Any]) -> None:
        self.run, self.record = run, record

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        def width(view: Table) -> int:
            return console.measure(view, options=options.update(width=10_000)).maximum

        names = [site["name"] for site in self.record["sites"]]
        wide = _layers(self.run, self.record, names, MOST_BARS)
        if width(wide) <= options.max_width:
            yield wide
            return
        for heads in HEADS_A_LINE:
            bare = _layers(self.run, self.record, [""] * len(names), 0, heads)
            room = options.max_width - width(bare) + len("site") + len("so far")
            short = _shortened(names, room - LEAST_BARS)
            bars = min(MOST_BARS, room - max(map(len, [*short, "site"])))
            if bars >= LEAST_BARS:
                break
        yield _layers(self.run, self.record, short, max(1, bars), heads)


def _shortened(names: list[str], room: int) -> list[str]:
    """Names of sites, without what all of them begin with, and then end with, to fit into `room`.

    >>> _shortened(["blocks.0.attention", "blocks.1.attention"], 12)
    ['…0.attention', '…1.attention']
    """
    parts = [name.split(".") for name in names]
    start = _shared(parts)
    ends = [part[start:] for part in parts]
    stop = _shared([end[::-1] for end in ends])
    before, after = "…" if start else "", "…" if stop else ""
    tails = [before + ".".join(end) for end in ends]
    middles = [before + ".".join(end[: len(end) - stop]) + after for end in ends]
    fits = (form for form in (names, tails) if max(map(len, form)) <= room)
    return next(fits, middles)


def _shared(lists: list[list[str]]) -> int:
    """How many items all lists begin with, leaving each at least one."""
    alike = [len(set(items)) == 1 for items in zip(*lists, strict=False)]
    return min(len(list(takewhile(bool, alike))), len(alike) - 1)


def _layers(
    run: Watched, record: dict[str, Any], names: list[str], bars: int, heads: int | None = None
) -> Table:
    """The table with these names and so many bars; with `heads` a line, all of it set closer."""
    headings = ("layer", "site", "spread a head", "max logit", "entropy", "spread", "saturated",
                "max logit so far")  # fmt: skip
    if heads:
        headings = ("layer", "site", "spread\na head", "max\nlogit", "entropy", "spread",
                    "saturated", "max\nlogit\nso far")  # fmt: skip
    shown = table(*headings)
    if heads:
        shown.padding = (0, 0, 0, 1)
    for column in shown.columns:
        column.no_wrap = True
    for column in shown.columns[3:7]:
        column.justify = "right"
    on = {(site, head) for _, site, head in run.active}
    for name, site in zip(names, record["sites"], strict=True):
        strip = Text()
        for head, spread in enumerate(site["spread"]):
            if heads and head and head % heads == 0:
                strip.append("\n")
            glyph = "·" if spread is None else BARS[min(7, int(8 * spread))]
            strip.append(glyph, style="red" if (site["name"], head) in on else "cyan")
        shown.add_row(
            str(site["layer"]), name, strip, _show(site["max_logit"], max, ".2f"),
            _show(site["entropy"], _mean, ".3f"), _show(site["spread"], _mean, ".3f"),
            _show(site["saturated"], max, ".0%"), _trend(run, site["name"], bars),
        )  # fmt: skip
    return shown


def _trend(run: Watched, name: str, most: int) -> str:
    """The site's largest logit over the last records as a row of bars, the newest last."""
    latest = run.records[-most:] if most else []
    past = [
        _worst(site["max_logit"], max)
        for record in latest for site in record["sites"] if site["name"] == name
    ]  # fmt: skip
    values = [x for x in past if x is not None]
    if not values:
        return ""
    low, high = min(values), max(values)
    step = (high - low) / 7.999 or 1.0
    return "".join(" " if x is None else BARS[int((x - low) / step)] for x in past)


def draw(run: Watched, target: Path) -> None:
    """The run as four panels, one line a layer, alarms as marks on the axis."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise ArgumentError(
            "--plot draws with matplotlib, which is not installed: pip install matplotlib"
        ) from None
    if not run.records:
        raise ArgumentError(f"{run.path} has no records yet: there is nothing to draw")
    names = list(dict.fromkeys(s["name"] for r in run.records for s in r["sites"]))
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    colours = plt.get_cmap("viridis")
    for axis, (key, pick, title) in zip(axes.flat, PANELS, strict=True):
        for i, name in enumerate(names):
            points = [
                (record["step"], _worst(site[key], pick))
                for record in run.records for site in record["sites"] if site["name"] == name
            ]  # fmt: skip
            axis.plot(
                [step for step, _ in points], [float("nan") if y is None else y for _, y in points],
                color=colours(0.85 * i / max(1, len(names) - 1)), linewidth=1.2, label=name,
            )  # fmt: skip
        steps = [a["step"] for a in run.alarms if a["figure"] == key and a["event"] == "raised"]
        if steps:
            axis.plot(steps, [0.0] * len(steps), "v", color="crimson", markersize=5, clip_on=False,
                      transform=axis.get_xaxis_transform(), label="alarm")  # fmt: skip
        axis.set_title(title, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    for axis in axes[1]:
        axis.set_xlabel("step")
    if len(names) <= 12:
        axes[0, 0].legend(fontsize=8, frameon=False)
    layers = "1 layer" if len(names) == 1 else f"{len(names)} layers, first (dark) to last (bright)"
    figure.suptitle(f"{run.header.get('model', 'model')}, {run.path.name}: {layers}", fontsize=11)
    try:
        figure.savefig(target, dpi=150)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArgumentError(f"cannot draw to {target}: {why}") from None
    finally:
        plt.close(figure)


def _worst(values: list[float | None], pick: Any) -> float | None:
    numbers = [x for x in values if x is not None]
    return pick(numbers) if numbers else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _show(values: list[float | None], pick: Any, how: str) -> str:
    value = _worst(values, pick)
    return "–" if value is None else format(value, how)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
