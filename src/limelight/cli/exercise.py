"""limelight exercise: attention by hand in a terminal, and for machines as JSON."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from limelight.cli._edge import JsonOption, console, indented, print_json, show, table
from limelight.cli._looking import ForceOption, writable
from limelight.errors import ArgumentError
from limelight.writing.files import write_whole

if TYPE_CHECKING:
    from rich.console import Console

    from limelight.learn.exercises import Exercise, Feedback, Progress

MARKS = {"right": "[green]✓[/]", "rounding": "[yellow]≈[/]", "mistake": "[red]✗[/]",
         "wrong": "[red]✗[/]", "unreadable": "[yellow]?[/]"}  # fmt: skip


def exercise(
    level: Annotated[
        list[int] | None,
        typer.Option(
            help="From 1 to 5; 0 is the worked example. Of a sheet it can be repeated.",
            show_default="1; of a sheet all",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Which exercise of the level, or which sheet.", show_default="a new one"),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            help="Begin at raw, scaled, weights, output, key, value or why.", show_default="raw"
        ),
    ] = None,
    quiz: Annotated[
        bool, typer.Option("--quiz", help="Questions on what is often misread instead.")
    ] = False,
    check: Annotated[
        list[str] | None,
        typer.Option(help="Check an answer to a known --seed, as raw=5,2,-1; can be repeated."),
    ] = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="Give the solution and the arithmetic.")
    ] = False,
    sheet: Annotated[
        bool, typer.Option("--sheet", help="Exercises for paper with a page of answers instead.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(help="How many exercises a sheet has.", show_default="12")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the sheet to this .html file.", show_default="its seed"
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Compute an attention by hand and have every step checked.

    Seven steps: the dot products (raw), the scaled scores, the weights, the output; then which key
    has the largest weight, which value contributes most to the output, and why. At the prompt,
    'hint' helps, 'show' gives the step's solution, 'quit' stops; the same level and seed bring the
    same exercise back.

    --sheet writes a page to print: tables to fill in, and the answers on a page of their own.
    """
    from limelight.learn.exercises import Progress, generate

    single = {"--step": step, "--check": check}
    paper = {"--count": count, "--output": output}
    if quiz:
        chosen = {"--level": level, "--seed": seed, **single, "--sheet": sheet or None, **paper}
        _left_out("--quiz asks the same questions always", chosen)
        _quiz(answers, json)
        return
    if sheet:
        _left_out("--sheet is for paper", {**single, "--answers": answers or None})
        _sheet(level or None, seed, count, output, force, json)
        return
    _left_out("a single exercise is asked here, not on a --sheet", paper)
    if level and len(level) > 1:
        raise ArgumentError("several --level are for --sheet: one exercise has one")
    of = level[0] if level else 1
    if check and seed is None and of > 0:
        raise ArgumentError("--check needs --seed, or it would judge a new exercise by old answers")
    if check and step is not None:
        raise ArgumentError("--check names its steps itself, as raw=5,2,-1: leave out --step")
    seed = _drawn() if seed is None else seed
    task = generate(of, seed)
    progress = Progress.at(task, step or "raw")
    if check:
        _check(task, check, json)
    elif json:
        print_json(task.to_dict(answers=answers))
    elif answers:
        out = console(markup=True)
        _present(out, task)
        _solution(out, task)
    else:
        _ask(console(markup=True), progress)


def _left_out(why: str, options: Mapping[str, object]) -> None:
    """Refuse what was given and would do nothing."""
    idle = [name for name, given in options.items() if given is not None and given != []]
    if idle:
        raise ArgumentError(f"{why}: leave out {', '.join(idle)}")


def _sheet(
    levels: list[int] | None,
    seed: int | None,
    count: int | None,
    output: Path | None,
    force: bool,
    json: bool,
) -> None:
    """Exercises for paper, in a file; or the same with all answers as JSON."""
    from limelight.learn.exercises import LEVELS, sheet

    made = sheet(
        _drawn() if seed is None else seed,
        12 if count is None else count,
        [level for level in LEVELS if level] if levels is None else levels,
    )
    if json and output is None:
        print_json(made.to_dict())
        return
    target = output or Path(f"sheet-{made.seed}.html")
    writable(target, (".html", ".htm"), force)
    write_whole(target, lambda file: file.write(made.to_html().encode()))
    which = ", ".join(map(str, made.levels))
    if json:
        print_json({"file": str(target), **made.to_dict()})
    else:
        typer.echo(f"{target}: {len(made.exercises)} exercises, seed {made.seed}, level {which}")
        typer.echo("Print it from a browser; the answers begin on a page of their own.")


def _drawn() -> int:
    """A seed that nobody chose, short enough to type."""
    return random.SystemRandom().randrange(1, 10_000)


def _check(task: Exercise, given: list[str], json: bool) -> None:
    """Feedback on answers from the command line."""
    from limelight.learn.exercises import check

    pairs = [text.partition("=") for text in given]
    for text, (_, sign, _answer) in zip(given, pairs, strict=True):
        if not sign:
            raise ArgumentError(f"--check {text!r}: write the step and the answer, as raw=5,2,-1")
    found = [check(task, name.strip(), answer) for name, _, answer in pairs]
    if json:
        print_json({"exercise": task.to_dict(), "feedback": [item.to_dict() for item in found]})
        return
    out = console(markup=True)
    _present(out, task)
    for feedback in found:
        _say(out, feedback, f"{feedback.step}: ")


def _ask(out: Console, progress: Progress) -> None:
    """The dialogue. Only right answers and 'show' move on; nothing typed can lose what is done."""
    from limelight.learn.exercises import STEPS

    task = progress.exercise
    _present(out, task)
    out.print("Type your answer, or [bold]hint[/], [bold]show[/], [bold]quit[/].\n")
    asked, hints = "", 0
    while (step := progress.step) is not None:
        if step != asked:
            asked, hints = step, 0
            form = " Type its number." if step in ("key", "value") else ""
            out.print(f"[bold]{progress.done + 1} of {len(STEPS)}[/]  {task.question(step)}{form}")
            if step == "why":
                _options(out, task.options(step))
        line = _read(out, f"{step}> ")
        word = "quit" if line is None else line.strip().lower()
        if word in ("quit", "exit", "q"):
            _stop(out, progress)
            return
        if word in ("hint", "h", "help", "?"):
            known = task.hints(step)
            indented(out, f"{known[min(hints, len(known) - 1)]}\n", 2)
            hints += 1
            progress = progress.hint()
        elif word in ("show", "s"):
            for row in task.working(step):
                indented(out, escape(row), 2)
            out.print()
            progress = progress.show()
        elif word:
            progress = progress.answer(line)
            if progress.feedback is not None:
                _say(out, progress.feedback)
    _finish(out, progress)


def _options(out: Console, texts: Sequence[str]) -> None:
    from limelight.learn.exercises.typed import LETTERS

    for letter, text in zip(LETTERS, texts, strict=False):
        indented(out, f"{letter}  {escape(text)}", 3)


def _read(out: Console, prompt: str) -> str | None:
    """One line; None at the end of input. Echoed where it does not come from a keyboard."""
    try:
        line = out.input(prompt, markup=False)
    except (EOFError, KeyboardInterrupt):
        out.print()
        return None
    except UnicodeDecodeError:
        return "(not text)"
    if not sys.stdin.isatty():
        out.print(line, markup=False)
    return line


def _say(out: Console, feedback: Feedback, before: str = "") -> None:
    indented(out, f"{MARKS[feedback.verdict]} {before}{escape(feedback.says)}", 2)
    if feedback.instead:
        indented(out, escape(feedback.instead), 4)
    out.print()


def _present(out: Console, task: Exercise) -> None:
    from limelight.learn.exercises import LEVELS
    from limelight.writing.numbers import vector

    out.print(f"[bold]Level {task.level}, exercise {task.seed}[/]: {LEVELS[task.level].summary}\n")
    out.print(f"   query = {vector(task.query)}", markup=False)
    hidden = [] if all(task.allowed) else [""]
    view = table("", "key", "value", *hidden)
    for j, (key, value) in enumerate(zip(task.keys, task.values, strict=True)):
        note = [] if task.allowed[j] else ["hidden: it comes after the query"]
        view.add_row(str(j), vector(key), vector(value), *note)
    show(out, view)


def _solution(out: Console, task: Exercise) -> None:
    from limelight.learn.exercises import STEPS

    for step in STEPS:
        out.print(f"[bold]{step}[/]")
        for row in task.working(step):
            indented(out, escape(row), 2)


def _stop(out: Console, progress: Progress) -> None:
    task = progress.exercise
    out.print(
        f"Stopped. Go on where you were with:\n  limelight exercise --level {task.level} "
        f"--seed {task.seed} --step {progress.step}"
    )


def _finish(out: Console, progress: Progress) -> None:
    from limelight.learn.exercises import LEVELS, STEPS

    task, asked = progress.exercise, STEPS[progress.begun :]
    alone = [name for name in asked if name not in progress.shown | progress.hinted]
    first = sum(progress.tries[STEPS.index(name)] == 1 for name in alone)
    hinted = len(progress.hinted - progress.shown)
    helped = f"; {hinted} with a hint" if hinted else ""
    if progress.shown == set(asked):
        out.print("[bold]Seen through[/]: every step was shown. Now one of your own:")
    else:
        out.print(
            f"[bold]Done[/]: {len(alone)} of {len(asked)} steps on your own, "
            f"{first} at once{helped}."
        )
    # There is one exercise of level 0.
    if task.level == 0 or (len(alone) == len(STEPS) == first and task.level < max(LEVELS)):
        more = f"--level {task.level + 1}"
        out.print(f"The next level: limelight exercise {more} ({LEVELS[task.level + 1].summary})")
    else:
        out.print(f"Another of this level: limelight exercise --level {task.level}")


def _quiz(answers: bool, json: bool) -> None:
    """The questions one by one; wrong choices say why, and the question is asked again."""
    from limelight.learn.exercises import QUIZ

    if json:
        print_json([question.to_dict(answers=answers) for question in QUIZ])
        return
    out = console(markup=True)
    at_once = 0
    for number, question in enumerate(QUIZ, start=1):
        out.print(f"[bold]{number} of {len(QUIZ)}[/]  {question.text}")
        _options(out, [option.text for option in question.options])
        tries = 0
        while not answers:
            line = _read(out, "a, b or c> ")
            if line is None or line.strip().lower() in ("quit", "q", "exit"):
                out.print(f"Stopped after {number - 1} of {len(QUIZ)}, {at_once} right at once.")
                return
            choice = "abc".find(line.strip().lower()) if len(line.strip()) == 1 else -1
            if choice < 0:
                out.print("  [yellow]?[/] Type a, b or c; or quit.\n")
                continue
            tries += 1
            right, says = question.check(choice)
            indented(out, f"{MARKS['right' if right else 'wrong']} {says}\n", 2)
            if right:
                at_once += tries == 1
                break
        if answers:
            indented(out, f"{'abc'[question.right]}: {question.options[question.right].says}\n", 2)
    if not answers:
        out.print(f"[bold]Done[/]: {at_once} of {len(QUIZ)} right at once.")
