"""limelight watch: the file of a training monitor, live in the terminal."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Container, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from msgspec import to_builtins
from rich.console import Console, ConsoleOptions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from limelight.cli._edge import JsonOption, console, print_json, table
from limelight.cli._looking import ForceOption, writable
from limelight.errors import ArgumentError, FileError
from limelight.intake import from_json
from limelight.journal.reading import AlarmLine, RecordLine
from limelight.journal.run import LOW_IS_WORSE, Run
from limelight.journal.shipped import find
from limelight.writing.numbers import counted, formatted

BARS = "▁▂▃▄▅▆▇█"
MOST_BARS, LEAST_BARS = 16, 8  # of a site's past
HEADS_A_LINE = 16, 8  # where the terminal is narrow, and narrower
COLUMNS = {
    "layer": "layer", "site": "site", "heads": "spread\na head", "max logit": "max\nlogit",
    "entropy": "entropy", "spread": "spread", "saturated": "saturated",
    "so far": "max\nlogit\nso far",
}  # fmt: skip
NUMBERS = ("max logit", "entropy", "spread", "saturated")
GIVE_WAY = ("spread", "so far", "entropy", "layer", "heads")  # to narrow terminals, in turn
MOST_LETTERS, LEAST_LETTERS = 8, 3  # of a word in a site's name that is cut
LEAST_NAME = 6
UNSEEN = ("no attention was seen: a monitor sees modules of limelight.torch, and with sdpa=True "
          "torch's scaled_dot_product_attention")  # fmt: skip
KINDS = (".png", ".svg", ".pdf")  # of files to draw to
PANELS = {
    "max_logit": "largest logit",
    "entropy": "entropy of the narrowest head, nats",
    "spread": "spread of the narrowest head",
    "saturated": "saturated rows of the most saturated head",
}


def watch(
    path: Annotated[
        str,
        typer.Argument(
            help="The file that limelight.torch.Monitor writes, or a run that comes along: "
            "gpt-nothing-done, gpt-qkclip, gpt-z-loss, gpt-entropy-floor, gpt-qk-norm."
        ),
    ],
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
    if os.path.isdir(path):
        raise FileError(f"{path} is a folder: name the file in it that the monitor writes")
    run = Run.open(find(path))
    if plot is not None:
        writable(plot, KINDS, force)
        draw(run, plot)
    if json:
        print_json(state(run))
    elif plot is not None:
        typer.echo(f"drew {counted(run.records, 'record')} to {plot}")
    elif once or run.ended is not None or not console().is_terminal:
        console().print(view(run))
    else:
        with Live(view(run), console=console(), refresh_per_second=4) as live:
            while run.ended is None:
                time.sleep(interval)
                if run.read_on():
                    live.update(view(run))


def state(run: Run) -> dict[str, Any]:
    """The latest record with the alarms that are on."""
    return {
        "model": run.model or None,
        "every": run.every,
        "records": run.records,
        "latest": _said(run) if run.latest else None,
        "alarms": to_builtins(run.on),
        "clips": to_builtins(run.clips),
        "ended": run.ended,
    }


def _said(run: Run) -> dict[str, Any]:
    """The latest record as it stands in the file, with what its writer added."""
    try:
        said: dict[str, Any] = from_json(run.said.decode())
    except ValueError:  # what was added is beyond use: what a record must have is not
        said = to_builtins(run.latest) if run.latest is not None else {}
    return said


def view(run: Run) -> Group:
    """What the terminal shows: a headline, the alarms that are on, one line a layer."""
    if run.latest is None:
        return Group(Text(f"{run.tail.path.name}: waiting for the first record"))
    said = (*_alarms(run, run.latest), *_clips(run))
    shown = _Layers(run, run.latest) if run.latest.sites else Text(UNSEEN)
    return Group(_headline(run, run.latest), *said, shown)


def _headline(run: Run, record: RecordLine) -> Text:
    said = _said(run)
    known = ("kind", "step", "time", "ranks", "sites")
    numbers = [f"{k} {formatted(v, '.5g')}" for k, v in said.items()
               if k not in known and _is_number(v)]  # fmt: skip
    count = said.get("ranks", 1)
    ranks = [f"{count} ranks"] if _is_number(count) and count > 1 else []
    text = Text(f"{run.model or 'model'}  step {record.step:,}", style="bold")
    text.append("".join(f"  {part}" for part in (*numbers, *ranks)), style="not bold")
    if run.ended is None:
        age = max(0.0, time.time() - record.time)
        text.append(f"  {_age(age)} ago", style="not bold dim")
    else:
        style = "green" if run.ended == "closed" else "red"
        text.append(f"  ended: {run.ended}", style=f"not bold {style}")
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


def _alarms(run: Run, record: RecordLine, most: int = 8) -> list[Text]:
    rows = [Text(_alarm(alarm, record), style="red") for alarm in run.on[-most:]]
    hidden = len(run.on) - len(rows)
    more = Text(f"  and {counted(hidden, 'more alarm')}", style="red")
    return rows + ([more] if hidden else [])


def _clips(run: Run, most: int = 3) -> list[Text]:
    """How often QKClip has scaled heads back, and what it did last."""
    if not run.clips:
        return []
    last = run.clips[-1]
    text = Text(
        f"✂ QKClip at {last.limit:g}: {counted(run.clipped, 'step')} with heads scaled back, "
        f"last step {last.step:,}:",
        style="yellow",
    )
    worst = sorted(last.heads, key=lambda head: -head.max_logit)
    for head in worst[:most]:
        site = run.sites.get(head.site)
        where = head.site if site is None else f"layer {site.layer}"
        to = head.max_logit * head.factor
        text.append(f" {where} head {head.head} {head.max_logit:.4g} → {to:.4g},")
    more = f" and {counted(len(worst) - most, 'more head')}" if len(worst) > most else ""
    text.right_crop(1)
    return [text.append(more)]


def _alarm(alarm: AlarmLine, record: RecordLine) -> str:
    """What the figure is in this record, and what it was when the alarm rang."""
    several = [site.layer for site in record.sites].count(alarm.layer) > 1
    where = alarm.site if several else f"layer {alarm.layer}"
    figure = alarm.figure.replace("_", " ")
    rang, step = formatted(alarm.value, ".4g"), f"step {alarm.step:,}"
    now = [getattr(site, alarm.figure)[alarm.head] for site in record.sites
           if site.name == alarm.site and alarm.step < record.step
           and alarm.head < site.heads]  # fmt: skip
    if now and now[0] is not None:
        told = f"{figure} {formatted(now[0], '.4g')} ({rang} when it rang, at {step})"
    else:
        told = f"{figure} {rang} at {step}, when it rang"
    return f"⚠ {alarm.alarm}: {where}, head {alarm.head}: {told}"


class _Layers:
    """One line a layer, in the width there is."""

    def __init__(self, run: Run, record: RecordLine) -> None:
        self.run, self.record = run, record

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        def width(view: Table) -> int:
            return console.measure(view, options=options.update(width=10_000)).maximum

        names = [site.name for site in self.record.sites]
        wide = _layers(self.run, self.record, names, MOST_BARS)
        if width(wide) <= options.max_width:
            yield wide
            return
        for gone, heads in itertools.product(range(len(GIVE_WAY) + 1), HEADS_A_LINE):
            without = GIVE_WAY[:gone]
            least, heading = (0, 0) if "so far" in without else (LEAST_BARS, len("so far"))
            bare = _layers(self.run, self.record, [""] * len(names), 0, heads, without)
            room = options.max_width - width(bare) + len("site") + heading
            short = _shortened(names, room - least)
            bars = min(MOST_BARS, room - max(map(len, [*short, "site"])))
            if bars >= least:
                break
        else:
            room = max(LEAST_NAME, room)
            short = [name if len(name) <= room else f"…{name[1 - room :]}" for name in short]
        yield _layers(self.run, self.record, short, max(1, bars), heads, without)


def _shortened(names: list[str], room: int) -> list[str]:
    """Names of sites, ever shorter until they fit into `room`; all of them still told apart.

    >>> _shortened(["blocks.0.attention", "blocks.1.attention"], 12)
    ['…0.attention', '…1.attention']
    >>> _shortened(["encoder.block.0.SelfAttention", "decoder.block.0.EncDecAttention"], 20)
    ['encoder…SelfAtte', 'decoder…EncDecAt']
    """
    forms = [names]
    for form in _forms(names):
        if len(set(form)) == len(set(names)):
            forms.append(form)
        if max(map(len, forms[-1]), default=0) <= room:
            break
    return forms[-1]


def _forms(names: list[str]) -> Iterator[list[str]]:
    """Without what all begin with, then end with, then have in one place; then with cut words."""
    yield names
    parts = [name.split(".") for name in names]
    start = _shared(parts)
    stop = _shared([part[start:][::-1] for part in parts])
    yield [_dotted(part, range(start)) for part in parts]
    ends = [{*range(start), *range(len(part) - stop, len(part))} for part in parts]
    middles = [_dotted(part, end) for part, end in zip(parts, ends, strict=True)]
    yield middles
    if len(names) > 1 and len(set(map(len, parts))) == 1:
        alike = {at for at, words in enumerate(zip(*parts, strict=True)) if len(set(words)) == 1}
        middles = [_dotted(part, alike) for part in parts]
        yield middles
    for letters in range(MOST_LETTERS, LEAST_LETTERS - 1, -1):
        yield [re.sub(rf"([^\W\d_]{{{letters}}})[^\W\d_]+", r"\1", name) for name in middles]


def _dotted(parts: list[str], hidden: Container[int]) -> str:
    """The parts with dots between, and an ellipsis for each run of hidden ones."""
    marked = ["…" if at in hidden else part for at, part in enumerate(parts)]
    return re.sub(r"\.?…(\.…)*\.?", "…", ".".join(marked))


def _shared(lists: list[list[str]]) -> int:
    """How many items all lists begin with, leaving each at least one."""
    alike = [len(set(items)) == 1 for items in zip(*lists, strict=False)]
    return min(len(list(takewhile(bool, alike))), len(alike) - 1)


def _layers(
    run: Run, record: RecordLine, names: list[str], bars: int, heads: int | None = None,
    without: Container[str] = (),
) -> Table:  # fmt: skip
    """The table with these names and so many bars; with `heads` a line, all of it set closer."""
    kept = [name for name in COLUMNS if name not in without]
    shown = table(*(COLUMNS[name] if heads else COLUMNS[name].replace("\n", " ") for name in kept))
    if heads:
        shown.padding = (0, 0, 0, 1)
    for name, column in zip(kept, shown.columns, strict=True):
        column.no_wrap = True
        column.justify = "right" if name in NUMBERS else "left"
    on = {(alarm.site, alarm.head) for alarm in run.on}
    for name, site in zip(names, record.sites, strict=True):
        strip = Text()
        for head, spread in enumerate(site.spread):
            if heads and head and head % heads == 0:
                strip.append("\n")
            glyph = "·" if spread is None else BARS[min(7, int(8 * min(1, max(0, spread))))]
            strip.append(glyph, style="red" if (site.name, head) in on else "cyan")
        cells: dict[str, Text | str] = {
            "layer": str(site.layer), "site": name, "heads": strip,
            "max logit": _show(site.max_logit, max, ".2f"),
            "entropy": _show(site.entropy, _mean, ".3f"),
            "spread": _show(site.spread, _mean, ".3f"),
            "saturated": _show(site.saturated, max, ".0%"),
            "so far": _trend(run, site.name, bars),
        }  # fmt: skip
        shown.add_row(*(cells[name] for name in kept))
    return shown


def _trend(run: Run, name: str, most: int) -> str:
    """The site's largest logit over the last records as a row of bars, the newest last."""
    site = run.sites.get(name)
    if site is None or not most:
        return ""
    past = run.last("max_logit", most)[:, site.first : site.first + site.heads]
    told = np.fmax.reduce(past, axis=1, initial=-np.inf)
    known = told[np.isfinite(told)]
    if not known.size:
        return ""
    low, high = float(known.min()), float(known.max())
    step = (high - low) / 7.999 or 1.0
    places = (min(7, int((float(x) - low) / step)) if np.isfinite(x) else None for x in told)
    return "".join(" " if place is None else BARS[place] for place in places)


def draw(run: Run, target: Path) -> None:
    """The run as four panels, one line a layer, alarms as marks on the axis."""
    from limelight.pictures.chart import Line, Panel, chart

    if not run.records:
        raise ArgumentError(f"{run.tail.path} has no records yet: there is nothing to draw")
    if not run.heads:
        raise ArgumentError(f"{run.tail.path}: there is nothing to draw, as {UNSEEN}")
    panels = []
    for figure, title in PANELS.items():
        seen = run.view(figure, run.records)
        steps = np.array(seen.steps, np.float64)
        back = np.flatnonzero(np.diff(steps) <= 0) + 1  # resumed from a step before: a line breaks
        steps, values = np.insert(steps, back, steps[back]), np.insert(seen.values, back, np.nan, 1)
        worse = np.fmin if figure in LOW_IS_WORSE else np.fmax
        lines = tuple(
            Line(site.name, steps,
                 worse.reduce(values[site.first : site.first + site.heads], axis=0)[None])
            for site in run.sites.values() if site.heads
        )  # fmt: skip
        rang = tuple(float(event.step) for event in run.events
                     if event.figure == figure and event.event == "raised")  # fmt: skip
        panels.append(Panel(title, lines, "step", marks=rang))
    layers = counted(len(run.sites), "layer")
    chart([panels[:2], panels[2:]], title=f"{run.model or 'model'}, {run.tail.path.name}",
          below=f"{layers}, first (pale) to last (dark)" if len(run.sites) > 3 else layers,
          ).save(target)  # fmt: skip


def _worst(values: list[float | None], pick: Any) -> float | None:
    numbers = [x for x in values if x is not None]
    return pick(numbers) if numbers else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _show(values: list[float | None], pick: Any, how: str) -> str:
    value = _worst(values, pick)
    return "–" if value is None else formatted(value, how)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
