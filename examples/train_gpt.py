"""A small GPT that writes Shakespeare, character by character.

python examples/train_gpt.py --data tinyshakespeare.txt            a GPU in minutes
python examples/train_gpt.py --data tinyshakespeare.txt --quick    a laptop in minutes
"""

from __future__ import annotations

import torch
from text import Text, decode, encode, shakespeare
from torch.nn.functional import cross_entropy
from training import Stopwatch, asked, device, save, size_of, train
from transformer import Decoder

FULL = {"width": 160, "heads": 5, "layers": 5, "length": 256}
QUICK = {"width": 96, "heads": 4, "layers": 3, "length": 128}


def build(size: dict[str, int]) -> Decoder:
    return Decoder(**size)


def main() -> None:
    options = asked(__doc__, "gpt", steps=(2000, 1500), batch=(64, 24), data="a text file")
    torch.manual_seed(options.seed)
    text = Text.of(shakespeare(options.data))
    size = {"alphabet": len(text.alphabet), **(QUICK if options.quick else FULL)}
    on = device()
    model = build(size | {"dropout": 0.0 if options.quick else 0.2}).to(on)
    print(f"{size_of(model)}, {len(text.learn):,} characters to learn from, on {on}")

    def loss_of(generator: torch.Generator) -> torch.Tensor:
        given, wanted = text.batch(options.batch, size["length"], generator, on)
        return cross_entropy(model(given).flatten(0, 1), wanted.flatten())

    watch = Stopwatch()
    curve = train(model, loss_of, options, rate=2e-3)
    held_out = text.held_out_loss(model, size["length"], on)
    facts = {"size": size, "alphabet": text.alphabet, "seed": options.seed, "steps": options.steps,
             "batch": options.batch, "held_out": held_out, "curve": curve}  # fmt: skip
    path = save(options.name, model, facts)
    print(f"held-out loss {held_out:.3f} nats a character after {options.steps} steps, {watch}; "
          f"saved {path.name}")  # fmt: skip
    torch.manual_seed(options.seed)
    start = encode("ROMEO:\n", text.alphabet).long().to(on)
    print("\n" + decode(model.continue_text(start, 240), text.alphabet))


if __name__ == "__main__":
    main()
