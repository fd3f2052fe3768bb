"""A small decoder that has read the Python standard library, character by character.

python examples/train_code.py            a GPU in minutes
python examples/train_code.py --quick    a laptop in minutes
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from text import Text, decode, encode, standard_library
from torch.nn.functional import cross_entropy
from training import Stopwatch, device, save, size_of, train
from transformer import Decoder

ALPHABET = "\n" + "".join(chr(i) for i in range(32, 127))
FULL = {"width": 160, "heads": 5, "layers": 5, "length": 256}
QUICK = {"width": 96, "heads": 4, "layers": 3, "length": 128}
COMPLETIONS = (
    "    def __init__(self, name):\n        self.name = ",
    "print(len(items[0]",
    "for i in range(",
    "        return self",
    "import os\nimport sy",
    "class Error(Exception):\n    def __init__(self, ",
)


def build(size: dict[str, int]) -> Decoder:
    return Decoder(**size)


def complete(model: Decoder, start: str, more: int = 24) -> str:
    """The likeliest characters after `start`, up to the end of its line."""
    on = next(model.parameters()).device
    symbols = encode(start, ALPHABET).long().to(on)
    text = decode(model.continue_text(symbols, more, temperature=0.0), ALPHABET)
    return text[len(start) :].split("\n")[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--name", default="code", help="of the checkpoint and the monitor's file")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smaller model, fewer steps")
    parser.add_argument("--journal", type=Path, default=None, help="where the monitor writes")
    options = parser.parse_args()
    steps = options.steps or (1500 if options.quick else 3000)
    batch = options.batch or (24 if options.quick else 128)

    torch.manual_seed(options.seed)
    text = Text.of(standard_library(note=print), ALPHABET)
    size = {"alphabet": len(ALPHABET), **(QUICK if options.quick else FULL)}
    on = device()
    model = build(size).to(on)
    print(f"{size_of(model)}, {len(text.learn):,} characters to learn from, on {on}")

    def loss_of(generator: torch.Generator) -> torch.Tensor:
        given, wanted = text.batch(batch, size["length"], generator, on)
        return cross_entropy(model(given).flatten(0, 1), wanted.flatten())

    watch = Stopwatch()
    curve = train(
        model, loss_of, steps=steps, rate=2e-3, seed=options.seed, journal=options.journal
    )
    held_out = text.held_out_loss(model, size["length"], on)
    facts = {"size": size, "seed": options.seed, "steps": steps, "batch": batch,
             "held_out": held_out, "curve": curve}  # fmt: skip
    path = save(options.name, model, facts)
    print(
        f"held-out loss {held_out:.3f} nats a character, {steps} steps, {watch}: {path.name}\n"
    )
    for start in COMPLETIONS:
        print(f"{start}⟦{complete(model, start)}⟧\n")


if __name__ == "__main__":
    main()
