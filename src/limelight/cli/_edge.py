"""What every command shares: JSON out, tables out, numbers in."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable
from typing import Annotated, Any, TextIO, cast

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import measure_renderables
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from limelight.cli._lazy import spelled
from limelight.errors import ArgumentError
from limelight.writing.numbers import parse
from limelight.writing.terminal import HIDDEN, shown

INDENT = 3  # of tables
LEAST_BAR = 4  # characters for 1

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


class _Tidy:
    """A stream without the blanks with which tables fill up their lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE) if "\n" in text else text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    @property
    def encoding(self) -> str:
        """What rich goes by when it draws rules: plain dashes where there is no Unicode."""
        return _encoding(self._stream)

    def isatty(self) -> bool:
        return False


def _encoding(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


class Terminal(Console):
    """A console on which no text acts: whatever a file says is shown, not obeyed."""

    def render_str(self, text: str, **how: Any) -> Text:
        """What the encoding lacks is replaced before it is measured: tables stay straight."""
        return super().render_str(spelled(text, self.encoding), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else shown(text), style, control)


def console(markup: bool = False, stderr: bool = False) -> Console:
    """Where people's output goes: the terminal's width and colours, or plain text in a pipe.

    `markup` reads [bold] and the like: for commands that print no text of a file, or escape it.
    """
    if stderr or sys.stdout.isatty():
        return Terminal(highlight=False, markup=markup, stderr=stderr)
    return Terminal(highlight=False, markup=markup, file=cast(TextIO, _Tidy(sys.stdout)))


def coloured(out: Console) -> bool:
    """Whether blocks of colour reach the reader: not in a pipe, in ASCII, or under NO_COLOR."""
    blocks = spelled("▀", out.encoding) == "▀"
    return out.color_system is not None and not out.no_color and blocks


def narrow(out: Console) -> bool:
    """Whether tables are set closer: a terminal usually has 80 columns or more."""
    return out.width < 80


def headline(out: Console, title: Any, facts: str) -> None:
    """What is shown, in bold, and how large it is."""
    out.print(Text.assemble((str(title), "bold"), f"  {facts}"))


def table(*headings: str) -> Table:
    """An empty table in the house look: no frame, one rule under the headings."""
    view = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for heading in headings:
        view.add_column(heading)
    return view


def show(out: Console, view: Table) -> None:
    """Print a table, set in a little, with a line of air under it; stacked where it is too wide."""
    if narrow(out):
        view.padding = (0, 0, 0, 1)
    view.columns = [column for column in view.columns if column.header or any(column.cells)]
    fitting = view if _squeeze(out, view) else _stacked(view)
    out.print(Padding(fitting, (0, 0, 1, INDENT), expand=False))


def _squeeze(out: Console, view: Table) -> bool:
    """Narrow the widest columns, to their longest words at most; whether the table then fits.

    rich by itself cuts words, and numbers with them.
    """
    free = out.options.update(width=10_000)
    spans = [measure_renderables(out, free, [column.header, *column.cells])
             for column in view.columns]  # fmt: skip
    widths = [span.maximum for span in spans]
    room = out.width - INDENT - (out.measure(view, options=free).maximum - sum(widths))
    over = sum(widths) - room
    for _ in range(over):
        loose = [at for at, column in enumerate(view.columns)
                 if not column.no_wrap and widths[at] > spans[at].minimum]  # fmt: skip
        if not loose:
            return False
        widths[max(loose, key=widths.__getitem__)] -= 1
    for column, width in zip(view.columns, widths, strict=True):
        column.width = width if over > 0 else column.width
    return True


def _stacked(view: Table) -> Table:
    """The same cells below each other, each beside its heading."""
    stack = Table.grid(padding=(0, 0, 0, 2), pad_edge=False)
    stack.add_column(style="dim", max_width=14)
    for at, cells in enumerate(zip(*(column.cells for column in view.columns), strict=True)):
        if at:
            stack.add_row("", "")
        for column, cell in zip(view.columns, cells, strict=True):
            if cell:
                stack.add_row(str(column.header).replace("\n", " "), cell)
    return stack


def indented(out: Console, text: str, by: int) -> None:
    """Print a paragraph, wrapped under its own beginning."""
    out.print(Padding(text, (0, 0, 0, by), expand=False))


def right(view: Table, *columns: int) -> Table:
    """The same table with those columns flush right, for numbers."""
    for column in columns:
        view.columns[column].justify = "right"
    return view


def whole(view: Table, *columns: int) -> Table:
    """The same table with those columns never broken or cut: the others give way."""
    for column in columns:
        view.columns[column].no_wrap = True
    return view


def bar_room(out: Console, most: int, *columns: Iterable[str]) -> int:
    """How long a bar for 1 may be in a table beside columns of these texts: `most`, or what fits.

    Where several tables are to be compared, one answer serves them all. Too little room is none.
    """
    gap = 2 if narrow(out) else 3
    taken = sum(max(map(len, texts), default=0) + gap for texts in columns)
    room = min(most, out.width - INDENT - taken)
    return room if room >= LEAST_BAR else 0


def bar(share: float, width: int = 20) -> str:
    """A share of 1 as a bar, to an eighth of a character; readable without colour.

    >>> bar(0.5, 4), bar(0.01, 4), bar(0.0, 4), bar(0.5, 0)
    ('██', '▏', '', '')
    """
    if not 0 < share <= 1 or not width:
        return ""
    eighths = max(1, round(share * width * 8))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def column(values: Iterable[float]) -> list[str]:
    """Numbers for one column: all whole, or all to six digits so that the points line up."""
    from limelight.writing.numbers import number

    numbers = [float(value) for value in values]
    if all(math.isfinite(x) and x == round(x) for x in numbers):
        return [number(x) for x in numbers]
    written = [number(x) for x in numbers]
    return [f"{text}.000000" if text.lstrip("−").isdigit() else text for text in written]


def print_json(data: Any) -> None:
    """Strict JSON on stdout: what is not a finite number becomes null."""
    data = json_safe(data)
    text = _written(data, "")
    try:
        text.encode(_encoding(sys.stdout))
    except UnicodeEncodeError:  # no replacing in what a machine reads: JSON has escapes
        text = _written(data, "", escaped=True)
    typer.echo(HIDDEN.sub(lambda found: json.dumps(found.group())[1:-1], text))


def _written(data: Any, margin: str, escaped: bool = False) -> str:
    """Indented, but a list of plain numbers stays on one line."""
    inner = margin + "  "
    if isinstance(data, dict) and data:
        items = (f"{inner}{json.dumps(key)}: {_written(item, inner, escaped)}"
                 for key, item in data.items())  # fmt: skip
        return "{\n" + ",\n".join(items) + f"\n{margin}}}"
    if isinstance(data, list) and any(isinstance(item, (dict, list)) for item in data):
        lines = (inner + _written(item, inner, escaped) for item in data)
        return "[\n" + ",\n".join(lines) + f"\n{margin}]"
    return json.dumps(data, ensure_ascii=escaped, allow_nan=False)


def json_safe(data: Any) -> Any:
    """Arrays and NumPy numbers to lists and numbers; NaN and infinities to None."""
    if isinstance(data, dict):
        return {str(key): json_safe(item) for key, item in data.items()}
    if hasattr(data, "tolist"):
        return json_safe(data.tolist())
    if isinstance(data, (list, tuple)):
        return [json_safe(item) for item in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


def number(text: str, name: str) -> float:
    """One finite number; a typographic minus and a fraction such as 1/2 are understood."""
    text = text.strip()
    value = parse(text)
    if math.isinf(value) and text[-1].isdigit():
        raise ArgumentError(f"{name}: {text[:80]!r} is too large: numbers here have 64 bits")
    if not math.isfinite(value):
        raise ArgumentError(f"{name}: {text[:80]!r} is not a number")
    return value


def vector(text: str, name: str) -> list[float]:
    """'2,1' or '2 1' or '[2, 1]' to [2.0, 1.0]."""
    parts = text.strip().strip("[]()").replace(",", " ").split()
    if not parts:
        raise ArgumentError(f"{name}: no numbers in {text!r}: write them as 2,1")
    return [number(part, name) for part in parts]


def matrix(text: str, name: str) -> list[list[float]]:
    """'2,1;1,0' (or JSON lists) to [[2.0, 1.0], [1.0, 0.0]]; every row as long as the first."""
    text = text.strip()
    if text.startswith("[["):
        text = text[1:-1].replace("],", "];") if text.endswith("]]") else text
    rows = [vector(row, name) for row in text.strip().strip(";").split(";")]
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        counts = ", ".join(str(len(row)) for row in rows)
        raise ArgumentError(
            f"{name}: the rows have {counts} numbers: separate rows by ';' and numbers by ',', "
            f"each row with as many as the others"
        )
    return rows
