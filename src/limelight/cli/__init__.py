"""The command line: one line here and one file beside this one for each command.

A command lives in `limelight/cli/<name>.py` as a function of the same name (or a `typer.Typer` of
that name, for a command with commands of its own). The first line of its docstring stands here
too, so that `limelight --help` imports none of them; the tests hold the two together.
"""

from __future__ import annotations

from typing import Annotated

import typer

from limelight.cli._lazy import Command, LazyGroup

LEARN, LOOK, RUN = "Learn the operation", "Look into a model", "This installation"

LazyGroup.table = {
    "demo": Command(
        "See what there is: the worked example, a head of a real model, a training run's health.",
        LEARN,
    ),
    "score": Command("Work one attention through, step by step, with every number.", LEARN),
    "saturate": Command("See what d_k does to a softmax, and what scaling does about it.", LEARN),
    "exercise": Command("Compute an attention by hand and have every step checked.", LEARN),
    "lessons": Command(
        "Write the lessons as one HTML file, or as static pages, that run by themselves.", LEARN
    ),
    "experiment": Command(
        "See whether 1/√d_k matters, or what saves a run whose attention dies, in trained models.",
        LEARN,
    ),
    "mask": Command("Draw a mask: which keys each query may attend to.", LEARN),
    "studio": Command(
        "Open the studio: learn attention by touching it, then read a real model.", LOOK
    ),
    "inspect": Command(
        "Show what a model's heads do on a text or an image: their health and what they look at.",
        LOOK,
    ),
    "heatmap": Command(
        "Draw a head's weights from a capture, whole or in part, at any length.", LOOK
    ),
    "heads": Command(
        "Find heads of known kinds: previous token, induction, sink, brackets and more.", LOOK
    ),
    "compare": Command(
        "Compare two captures: which heads changed how much between two prompts or two models.",
        LOOK,
    ),
    "survey": Command(
        "Survey a model's heads over any number of texts: exact figures, kinds, patterns; in a "
        "file.",
        LOOK,
    ),
    "effects": Command(
        "Switch every head of a model off in turn, and show what that does to its answer.", LOOK
    ),
    "report": Command(
        "Write a capture or a survey as one HTML file: health, heads, maps, without a network.",
        LOOK,
    ),
    "captures": Command(
        "List the captures that come along: models, texts, licences, and how each was made.", LOOK
    ),
    "watch": Command("Watch a training run's heads: logits, entropy, saturation and alarms.", LOOK),
    "engines": Command("List the engines, and why one is missing on this machine.", RUN),
    "warm": Command("Compile the GPU kernels that a model will need, before it runs.", RUN),
}

FIRST = """\
Scaled dot-product attention with the lights on. Begin with one of these:

  limelight demo                        what there is, in ten seconds
  limelight studio                      learn it by touching it, in the browser
  limelight score                       one attention, every number of it
  limelight inspect bert                what the heads of a real model do
  limelight report llama -o llama.html  a model's heads as one file to send

All of them: limelight --help. Completion: limelight --install-completion."""

app = typer.Typer(
    cls=LazyGroup,
    name="limelight",
    help="Scaled dot-product attention with the lights on.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from limelight import __version__

        typer.echo(f"limelight {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(FIRST)
    else:
        from limelight.engines.native import check_isa

        check_isa()


def main() -> None:
    """The `limelight` entry point."""
    app(prog_name="limelight")
