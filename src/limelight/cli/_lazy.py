"""The group behind `limelight`: commands imported when used, errors as one line and exit code 2."""

from __future__ import annotations

import codecs
import difflib
import errno
import importlib
import os
import re
import sys
import unicodedata
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from limelight.errors import LimelightError
from limelight.writing.terminal import shown

FAILED, STOPPED = 2, 130
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
SIGNS = {
    "…": "...", "√": "sqrt ", "→": "->", "←": "<-", "±": "+/-", "≥": ">=", "≤": "<=", "∞": "inf",
    "²": "^2", "³": "^3", "✓": "ok", "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss",
    "Ä": "Ae", "Ö": "Oe", "Ü": "Ue",
} | dict(zip("–—≈│├╰▶’‘“”„✗⚠✂¿¡", "--~||`>''\"\"\"x!*?!", strict=True)) | dict(
    zip("−·×÷─■░▒▓█▉▊▋▌▍▎▏▁▂▃▄▅▆▇", "-*x/-#:+%####....1234567", strict=True)
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """What `limelight --help` says about a command without importing it."""

    summary: str
    panel: str


def plainly(params: list[Any]) -> list[Any]:
    """A flag takes no value, where typer would say <bool>; an argument is named as in the docs."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        if param.param_type_name == "argument" and param.metavar is None:
            param.metavar = param.name.upper()
    return params


def in_options(message: str, params: list[Any]) -> str:
    """What the library says of its arguments, as the command's options: size=0 as --size 0."""
    names = {param.name: max(param.opts, key=len) for param in params
             if param.param_type_name == "option"}  # fmt: skip

    def spoken(found: re.Match[str]) -> str:
        return f"{names[found[1]]} {found[2] or found[3] or repr('')}"

    given = rf"(?<![\w.-])({'|'.join(names)})=(?:'([^']*)'|(\S*[^\s:;,.)]))"
    return re.sub(given, spoken, message)


class PlainCommand(TyperCommand):
    """A command whose flags read as flags in --help, and whose errors speak of its options."""

    def get_params(self, ctx: Any) -> list[Any]:
        return plainly(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LimelightError as error:
            error.args = (in_options(str(error), self.params),)
            raise


class LazyGroup(TyperGroup):
    """Reads its commands from `table`: name to summary and help panel."""

    table: ClassVar[dict[str, Command]] = {}
    _listing = False

    def get_params(self, ctx: Any) -> list[Any]:
        return plainly(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        row = self.table.get(cmd_name)
        if row is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=row.summary, rich_help_panel=row.panel)
        return load(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.table and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.table, n=1)
            meant = f"did you mean {near[0]}?" if near else f"choose {', '.join(self.table)}"
            ctx.fail(f"there is no command {args[0]!r}: {meant}")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Any = None,
        prog_name: Any = None,
        complete_var: Any = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run; a domain error or a wrong option is one line on stderr and exit code 2."""
        others = (prog_name, complete_var, False, windows_expand_args)
        if not standalone_mode:
            return super().main(args, *others, **extra)
        if sys.stdout is None:
            fail("standard output is closed: there is nowhere to write to")
        lenient(sys.stdout)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = note
                result = super().main(args, *others, **extra)
            sys.stdout.flush()
        except LimelightError as error:
            fail(str(error))
        except (KeyboardInterrupt, typer.Abort):
            fail("stopped", STOPPED)
        except (BrokenPipeError, SystemExit) as error:
            broken = error if isinstance(error, BrokenPipeError) else error.__context__
            if not isinstance(broken, BrokenPipeError):  # rich and typer make it an exit of 1
                raise
            discard()  # `limelight … | head`: the reader has seen enough
            sys.exit(0)
        except OSError as error:
            if error.filename is not None:  # what the system has against a file that was named
                fail(f"{os.fsdecode(error.filename)}: {error.strerror}")
            if error.errno not in UNWRITABLE:
                raise
            discard()
            fail(f"cannot write: {(error.strerror or str(error)).lower()}")
        except Exception as error:
            if not hasattr(error, "format_message"):  # typer's own usage errors have it
                raise
            fail(usage(error))
        sys.exit(result if isinstance(result, int) else 0)


def load(name: str) -> Any:
    """A command's click object, from its module."""
    target = getattr(importlib.import_module(f"limelight.cli.{name}"), name)
    if not isinstance(target, typer.Typer):
        single = typer.Typer(
            add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown",
            context_settings={"help_option_names": ["-h", "--help"]},
        )  # fmt: skip
        single.command(name, cls=PlainCommand)(target)
        target = single
    command: Any = typer.main.get_command(target)
    command.name = name
    return command


def usage(error: Any) -> str:
    """What was wrong with the command line, and where its help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "limelight"
    message = _of_a_number(error) or " ".join(str(error.format_message()).split()).rstrip(".")
    return f"{message} (see {path} --help)"


def _of_a_number(error: Any) -> str:
    """What typer says of a number that an option does not take, as said everywhere else here."""
    if not hasattr(error.__cause__, "errors"):  # pydantic's, in which typer has what came
        return ""
    found, param = error.__cause__.errors()[0], error.param
    ends = found.get("ctx", {}).values()
    if found["type"] not in ("greater_than_equal", "less_than_equal", "int_parsing",
                             "float_parsing"):  # fmt: skip
        return ""
    whole = found["type"] == "int_parsing" or any(isinstance(end, int) for end in ends)
    span = "" if param.min is None else f" ≥ {param.min:g}"
    span = span if param.max is None else f" from {param.min:g} to {param.max:g}"
    given = found["input"] or repr("")
    return f"{max(param.opts, key=len)} {given}: give a {'whole ' if whole else ''}number{span}"


def note(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning of whatever library, as one line on stderr: where in the code it arose is ours."""
    typer.echo(shown(f"limelight: note: {' '.join(str(message).split())}"), err=True)


def fail(message: str, code: int = FAILED) -> None:
    """One line on stderr, and out."""
    typer.echo(shown(f"limelight: {' '.join(message.split())}"), err=True)
    sys.exit(code)


def lenient(stream: Any) -> None:
    """Have a stream write what its encoding lacks as near as it can, rather than fail."""
    if getattr(stream, "errors", "") in ("strict", "surrogateescape"):
        stream.reconfigure(errors="limelight")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, places = error.object, range(error.start, error.end)
    return "".join(_plain(text[at], text[at - 1 : at] + text[at + 1 : at + 2])
                   for at in places), error.end  # fmt: skip


def _plain(sign: str, beside: str) -> str:
    """What stands for a sign between two others. A dot between two factors is a product."""
    if sign == "·" and (len(beside) < 2 or any(near in " \n·░▒▓█" for near in beside)):
        return "."
    return SIGNS.get(sign) or _bare(sign)


def spelled(text: str, encoding: str) -> str:
    """The text as a lenient stream of that encoding writes it."""
    if encoding.startswith("utf"):
        return text
    return text.encode(encoding, "limelight").decode(encoding)


def _bare(sign: str) -> str:
    """A letter without its accent, where it has one."""
    letter = unicodedata.normalize("NFD", sign)[0]
    return letter if letter.isascii() else "?"


codecs.register_error("limelight", _nearest)


def discard() -> None:
    """Drop what is still to be written, so that Python does not fail on it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
