"""A small decoder that has read the Python standard library, character by character.

python examples/train_code.py            a GPU in minutes
python examples/train_code.py --quick    a laptop in minutes
"""

from __future__ import annotations

import torch
from text import Text, decode, encode, standard_library
from torch.nn.functional import cross_entropy
from training import Stopwatch, asked, device, save, size_of, train
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
    options = asked(__doc__, "code", steps=(3000, 1500), batch=(128, 24))
    torch.manual_seed(options.seed)
    text = Text.of(standard_library(note=print), ALPHABET)
    size = {"alphabet": len(ALPHABET), **(QUICK if options.quick else FULL)}
    on = device()
    model = build(size).to(on)
    print(f"{size_of(model)}, {len(text.learn):,} characters to learn from, on {on}")

    def loss_of(generator: torch.Generator) -> torch.Tensor:
        given, wanted = text.batch(options.batch, size["length"], generator, on)
        return cross_entropy(model(given).flatten(0, 1), wanted.flatten())

    watch = Stopwatch()
    curve = train(model, loss_of, options, rate=2e-3)
    held_out = text.held_out_loss(model, size["length"], on)
    facts = {"size": size, "seed": options.seed, "steps": options.steps, "batch": options.batch,
             "held_out": held_out, "curve": curve}  # fmt: skip
    path = save(options.name, model, facts)
    print(f"held-out loss {held_out:.3f} nats a character after {options.steps} steps, {watch}; "
          f"saved {path.name}\n")  # fmt: skip
    for start in COMPLETIONS:
        print(f"{start}⟦{complete(model, start)}⟧\n")


if __name__ == "__main__":
    main()
