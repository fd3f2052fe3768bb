"""A small vision transformer that reads handwritten digits of 8 × 8 pixels, in 2 × 2 patches.

python examples/train_vit.py            two minutes on a laptop
python examples/train_vit.py --quick    half a minute
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy
from training import Stopwatch, device, save, size_of, train
from transformer import ImageClassifier

FULL = {"side": 8, "patch": 2, "classes": 10, "width": 96, "heads": 4, "layers": 4}
QUICK = {"side": 8, "patch": 2, "classes": 10, "width": 64, "heads": 4, "layers": 2}


def build(size: dict[str, int]) -> ImageClassifier:
    return ImageClassifier(**size)


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images in [0, 1] and labels: 1,437 to learn from, the last 360 held out."""
    data = load_digits()
    images, labels = torch.tensor(data.images / 16.0).float(), torch.tensor(data.target).long()
    return images[:1437], labels[:1437], images[1437:], labels[1437:]


@torch.no_grad()
def accuracy(model: ImageClassifier, images: Tensor, labels: Tensor) -> float:
    model.eval()
    return float((model(images).argmax(-1) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--name", default="vit", help="of the checkpoint and the monitor's file")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smaller model, fewer steps")
    parser.add_argument("--journal", type=Path, default=None, help="where the monitor writes")
    options = parser.parse_args()
    steps = options.steps or (600 if options.quick else 2000)

    torch.manual_seed(options.seed)
    on = device()
    images, labels, held_images, held_labels = (x.to(on) for x in digits())
    size = QUICK if options.quick else FULL
    model = build(size | {"dropout": 0.1}).to(on)
    print(f"{size_of(model)}, {len(images):,} images to learn from, on {on}")

    def loss_of(generator: torch.Generator) -> Tensor:
        rows = torch.randint(len(images), (128,), generator=generator)
        shift = torch.randint(-1, 2, (2,), generator=generator).tolist()
        moved = images[rows.to(on)].roll(
            shift, (1, 2)
        )  # a pixel each way, so that place matters less
        return cross_entropy(model(moved), labels[rows.to(on)])

    watch = Stopwatch()
    curve = train(
        model, loss_of, steps=steps, rate=1e-3, seed=options.seed, journal=options.journal
    )
    held_out = accuracy(model, held_images, held_labels)
    facts = {
        "size": size,
        "seed": options.seed,
        "steps": steps,
        "accuracy": held_out,
        "curve": curve,
    }
    path = save(options.name, model, facts)
    print(f"{100 * held_out:.1f} % of the held-out digits read right after {steps} steps, {watch}; "
          f"saved {path.name}")  # fmt: skip


if __name__ == "__main__":
    main()
