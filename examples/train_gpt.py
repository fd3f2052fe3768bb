"""A small GPT that writes Shakespeare, character by character.

python examples/train_gpt.py --data tinyshakespeare.txt            a GPU in minutes
python examples/train_gpt.py --data tinyshakespeare.txt --quick    a laptop in minutes
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from text import Text, decode, encode, shakespeare
from torch.nn.functional import cross_entropy
from training import Stopwatch, device, save, size_of, train
from transformer import Decoder

FULL = {"width": 160, "heads": 5, "layers": 5, "length": 256}
QUICK = {"width": 96, "heads": 4, "layers": 3, "length": 128}


def build(size: dict[str, int]) -> Decoder:
    return Decoder(**size)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a text file")
    parser.add_argument("--name", default="gpt", help="of the checkpoint and the monitor's file")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smaller model, fewer steps")
    parser.add_argument("--journal", type=Path, default=None, help="where the monitor writes")
    options = parser.parse_args()
    steps = options.steps or (1500 if options.quick else 2000)
    batch = options.batch or (24 if options.quick else 64)

    torch.manual_seed(options.seed)
    text = Text.of(shakespeare(options.data))
    size = {"alphabet": len(text.alphabet), **(QUICK if options.quick else FULL)}
    on = device()
    model = build(size | {"dropout": 0.0 if options.quick else 0.2}).to(on)
    print(f"{size_of(model)}, {len(text.learn):,} characters to learn from, on {on}")

    def loss_of(generator: torch.Generator) -> torch.Tensor:
        given, wanted = text.batch(batch, size["length"], generator, on)
        return cross_entropy(model(given).flatten(0, 1), wanted.flatten())

    watch = Stopwatch()
    curve = train(
        model, loss_of, steps=steps, rate=2e-3, seed=options.seed, journal=options.journal
    )
    held_out = text.held_out_loss(model, size["length"], on)
    facts = {"size": size, "alphabet": text.alphabet, "seed": options.seed, "steps": steps,
             "batch": batch, "held_out": held_out, "curve": curve}  # fmt: skip
    path = save(options.name, model, facts)
    print(
        f"held-out loss {held_out:.3f} nats a character, {steps} steps, {watch}; saved {path.name}"
    )
    torch.manual_seed(options.seed)
    start = encode("ROMEO:\n", text.alphabet).long().to(on)
    print("\n" + decode(model.continue_text(start, 240), text.alphabet))


if __name__ == "__main__":
    main()
