"""limelight exercise: attention by hand in a terminal, and for machines as JSON."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from limelight.cli._edge import JsonOption, console, indented, print_json, show, table
from limelight.cli._looking import ForceOption, writable
from limelight.errors import ArgumentError
from limelight.texts import known, speaker, translated
from limelight.writing.files import whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from limelight.learn.exercises import Exercise, Feedback, Progress

MARKS = {"right": "[green]✓[/]", "rounding": "[yellow]≈[/]", "mistake": "[red]✗[/]",
         "wrong": "[red]✗[/]", "unreadable": "[yellow]?[/]"}  # fmt: skip
# What a person reads in the JSON.
SPOKEN = ("question", "options", "hints", "working", "says", "instead", "text", "summary")


@dataclass(frozen=True)
class Voice:
    """Says messages in a language: plain, or on a console with <b> as bold."""

    language: str

    @cached_property
    def say(self) -> Callable[..., str]:
        return speaker(self.language)

    def marked(self, message: str, *gaps: object) -> str:
        return self.say(message, *gaps).replace("<b>", "[bold]").replace("</b>", "[/]")

    def command(self, options: str) -> str:
        """The command that goes on in the same language."""
        spoken = "" if self.language == "en" else f" --language {self.language}"
        return f"limelight exercise {options}{spoken}"

    def json(self, data: Any) -> None:
        print_json(translated(data, self.language, SPOKEN))


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
    language: Annotated[str, typer.Option(help="Of what is asked and said: en, de or es.")] = "en",
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

    voice = Voice(known(language))
    single = {"--step": step, "--check": check}
    paper = {"--count": count, "--output": output, "--force": force or None}
    if quiz:
        chosen = {"--level": level, "--seed": seed, **single, "--sheet": sheet or None, **paper}
        _left_out("--quiz asks the same questions always", chosen)
        _quiz(voice, answers, json)
        return
    if sheet:
        _left_out("--sheet is for paper", {**single, "--answers": answers or None})
        _sheet(voice, level or None, seed, count, output, force, json)
        return
    _left_out("a single exercise is asked here, not on a --sheet", paper)
    if level and len(level) > 1:
        raise ArgumentError("several --level are for --sheet: one exercise has one")
    of = level[0] if level else 1
    if check and seed is None and of > 0:
        raise ArgumentError("--check needs --seed, or it would judge a new exercise by old answers")
    if check and step is not None:
        raise ArgumentError("--check names its steps itself, as raw=5,2,-1: leave out --step")
    if answers or json:
        _left_out("all steps are given at once", {"--step": step})
    seed = _drawn() if seed is None else seed
    task = generate(of, seed)
    progress = Progress.at(task, step or "raw")
    if check:
        _check(voice, task, check, answers, json)
    elif json:
        voice.json(task.to_dict(answers=answers))
    elif answers:
        out = console(markup=True)
        _present(out, voice, task)
        _solution(out, voice, task)
    else:
        _ask(console(markup=True), voice, progress)


def _left_out(why: str, options: Mapping[str, object]) -> None:
    """Refuse what was given and would do nothing."""
    idle = [name for name, given in options.items() if given is not None and given != []]
    if idle:
        raise ArgumentError(f"{why}: leave out {', '.join(idle)}")


def _sheet(
    voice: Voice,
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
        language=voice.language,
    )
    if json and output is None:
        voice.json(made.to_dict())
        return
    target = output or Path(f"sheet-{made.seed}.html")
    writable(target, (".html", ".htm"), force)
    with whole(target) as file:
        file.write(made.to_html().encode())
    if json:
        voice.json({"file": str(target), **made.to_dict()})
        return
    which = ", ".join(map(str, made.levels))
    if len(made.exercises) == 1:
        facts = voice.say("{1}: 1 exercise, seed {2}, level {3}", target, made.seed, which)
    else:
        facts = voice.say("{1}: {2} exercises, seed {3}, level {4}",
                          target, len(made.exercises), made.seed, which)  # fmt: skip
    typer.echo(facts)
    typer.echo(voice.say("Print it from a browser; the answers begin on a page of their own."))


def _drawn() -> int:
    """A seed that nobody chose, short enough to type."""
    return random.SystemRandom().randrange(1, 10_000)


def _check(voice: Voice, task: Exercise, given: list[str], answers: bool, json: bool) -> None:
    """Feedback on answers from the command line; and the solution, where it is asked for."""
    from limelight.learn.exercises import check

    pairs = [text.partition("=") for text in given]
    for text, (_, sign, _answer) in zip(given, pairs, strict=True):
        if not sign:
            raise ArgumentError(f"--check {text!r}: write the step and the answer, as raw=5,2,-1")
    found = [check(task, name.strip(), answer) for name, _, answer in pairs]
    if json:
        told = [item.to_dict() for item in found]
        voice.json({"exercise": task.to_dict(answers=answers), "feedback": told})
        return
    out = console(markup=True)
    _present(out, voice, task)
    for feedback in found:
        _say(out, voice, feedback, f"{feedback.step}: ")
    if answers:
        _solution(out, voice, task)


def _ask(out: Console, voice: Voice, progress: Progress) -> None:
    """The dialogue. Only right answers and 'show' move on; nothing typed can lose what is done."""
    from limelight.learn.exercises import STEPS

    task = progress.exercise
    _present(out, voice, task)
    how = voice.marked("Type your answer, or <b>hint</b>, <b>show</b>, <b>quit</b>.")
    out.print(f"{how}\n")
    asked, hints = "", 0
    while (step := progress.step) is not None:
        if step != asked:
            asked, hints = step, 0
            place = voice.say("{1} of {2}", progress.done + 1, len(STEPS))
            form = f" {voice.say('Type its number.')}" if step in ("key", "value") else ""
            out.print(f"[bold]{place}[/]  {voice.say(task.question(step))}{form}")
            if step == "why":
                _options(out, voice, task.options(step))
        line = _read(out, f"{step}> ")
        word = "quit" if line is None else line.strip().lower()
        if word in ("quit", "exit", "q"):
            _stop(out, voice, progress)
            return
        if word in ("hint", "h", "help", "?"):
            helps = task.hints(step)
            indented(out, f"{escape(voice.say(helps[min(hints, len(helps) - 1)]))}\n", 2)
            hints += 1
            progress = progress.hint()
        elif word in ("show", "s"):
            for row in task.working(step):
                indented(out, escape(voice.say(row)), 2)
            out.print()
            progress = progress.show()
        elif word:
            progress = progress.answer(line)
            if progress.feedback is not None:
                _say(out, voice, progress.feedback)
    _finish(out, voice, progress)


def _options(out: Console, voice: Voice, texts: Sequence[str]) -> None:
    from limelight.learn.exercises.check import LETTERS

    for letter, text in zip(LETTERS, texts, strict=False):
        indented(out, f"{letter}  {escape(voice.say(text))}", 3)


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


def _say(out: Console, voice: Voice, feedback: Feedback, before: str = "") -> None:
    says = escape(voice.say(feedback.says))
    indented(out, f"{MARKS[feedback.verdict]} {before}{says}", 2)
    if feedback.instead:
        indented(out, escape(voice.say(feedback.instead)), 4)
    out.print()


def _present(out: Console, voice: Voice, task: Exercise) -> None:
    from limelight.learn.exercises import LEVELS
    from limelight.writing.numbers import vector

    say, level = voice.say, LEVELS[task.level]
    head = "<b>Level {1}, exercise {2}</b>: {3}"
    out.print(voice.marked(head, task.level, task.seed, say(level.summary)), end="\n\n")
    out.print(f"   {say('query = {1}', vector(task.query))}", markup=False)
    hidden = [] if all(task.allowed) else [""]
    view = table("", say("key"), say("value"), *hidden)
    for j, (key, value) in enumerate(zip(task.keys, task.values, strict=True)):
        note = [] if task.allowed[j] else [say("hidden: it comes after the query")]
        view.add_row(str(j), vector(key), vector(value), *note)
    show(out, view)


def _solution(out: Console, voice: Voice, task: Exercise) -> None:
    from limelight.learn.exercises import STEPS

    for step in STEPS:
        out.print(f"[bold]{step}[/]")
        for row in task.working(step):
            indented(out, escape(voice.say(row)), 2)


def _stop(out: Console, voice: Voice, progress: Progress) -> None:
    task = progress.exercise
    again = voice.command(f"--level {task.level} --seed {task.seed} --step {progress.step}")
    out.print(voice.say("Stopped. Go on where you were with:"))
    out.print(f"  {again}", soft_wrap=True)  # to be copied whole


def _finish(out: Console, voice: Voice, progress: Progress) -> None:
    from limelight.learn.exercises import LEVELS, STEPS

    task, asked = progress.exercise, STEPS[progress.begun :]
    alone = [name for name in asked if name not in progress.shown | progress.hinted]
    first = sum(progress.tries[STEPS.index(name)] == 1 for name in alone)
    hinted = len(progress.hinted - progress.shown)
    figures = (len(alone), len(asked), first)
    if progress.shown == set(asked):
        done = voice.marked("<b>Seen through</b>: every step was shown. Now one of your own:")
    elif hinted:
        told = "<b>Done</b>: {1} of {2} steps on your own, {3} at once; {4} with a hint."
        done = voice.marked(told, *figures, hinted)
    else:
        done = voice.marked("<b>Done</b>: {1} of {2} steps on your own, {3} at once.", *figures)
    out.print(done)
    # There is one exercise of level 0.
    if task.level == 0 or (len(alone) == len(STEPS) == first and task.level < max(LEVELS)):
        summary = voice.say(LEVELS[task.level + 1].summary)
        command = voice.command(f"--level {task.level + 1}")
        out.print(voice.say("The next level: {1} ({2})", command, summary))
    else:
        command = voice.command(f"--level {task.level}")
        out.print(voice.say("Another of this level: {1}", command))


def _quiz(voice: Voice, answers: bool, json: bool) -> None:
    """The questions one by one; wrong choices say why, and the question is asked again."""
    from limelight.learn.exercises import QUIZ

    if json:
        voice.json([question.to_dict(answers=answers) for question in QUIZ])
        return
    out = console(markup=True)
    at_once, say = 0, voice.say
    for number, question in enumerate(QUIZ, start=1):
        place = say("{1} of {2}", number, len(QUIZ))
        out.print(f"[bold]{place}[/]  {say(question.text)}")
        _options(out, voice, [option.text for option in question.options])
        tries = 0
        while not answers:
            line = _read(out, f"{say('a, b or c')}> ")
            if line is None or line.strip().lower() in ("quit", "q", "exit"):
                told = "Stopped after {1} of {2}, {3} right at once."
                out.print(say(told, number - 1, len(QUIZ), at_once))
                return
            choice = "abc".find(line.strip().lower()) if len(line.strip()) == 1 else -1
            if choice < 0:
                out.print(f"  [yellow]?[/] {say('Type a, b or c; or quit.')}\n")
                continue
            tries += 1
            right, says = question.check(choice)
            indented(out, f"{MARKS['right' if right else 'wrong']} {say(says)}\n", 2)
            if right:
                at_once += tries == 1
                break
        if answers:
            why = say(question.options[question.right].says)
            indented(out, f"{'abc'[question.right]}: {why}\n", 2)
    if not answers:
        out.print(voice.marked("<b>Done</b>: {1} of {2} right at once.", at_once, len(QUIZ)))
