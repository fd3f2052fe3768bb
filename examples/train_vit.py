"""A small vision transformer that reads handwritten digits of 8 × 8 pixels, in 2 × 2 patches.

python examples/train_vit.py            a laptop in minutes
python examples/train_vit.py --quick    half a minute
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import affine_grid, cross_entropy, grid_sample
from training import Stopwatch, asked, device, save, size_of, train
from transformer import ImageClassifier

FULL = {"side": 8, "patch": 2, "rim": 1, "classes": 10, "width": 64, "heads": 4, "layers": 4}
QUICK = {"side": 8, "patch": 2, "rim": 1, "classes": 10, "width": 48, "heads": 4, "layers": 2}


def build(size: dict[str, int]) -> ImageClassifier:
    return ImageClassifier(**size)


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images in [0, 1] and labels: 1,437 to learn from, the last 360 held out."""
    data = load_digits()
    images, labels = torch.tensor(data.images / 16.0).float(), torch.tensor(data.target).long()
    return images[:1437], labels[:1437], images[1437:], labels[1437:]


def jittered(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image turned, sized, slanted and shifted a little, as handwriting varies."""

    def draw(reach: float) -> Tensor:
        return (2 * torch.rand(len(images), generator=generator) - 1) * reach

    turn, slant, across, down = draw(0.25), draw(0.2), draw(0.25), draw(0.25)  # 0.25 is a pixel
    wide, tall = 1 + draw(0.15), 1 + draw(0.15)
    sideways = torch.stack([wide * turn.cos(), slant - turn.sin(), across], dim=1)
    upright = torch.stack([turn.sin(), tall * turn.cos(), down], dim=1)
    places = affine_grid(
        torch.stack([sideways, upright], dim=1), [len(images), 1, *images.shape[1:]],
        align_corners=False,
    )  # fmt: skip
    return grid_sample(images[:, None], places.to(images.device), align_corners=False)[:, 0]


@torch.no_grad()
def accuracy(model: ImageClassifier, images: Tensor, labels: Tensor) -> float:
    model.eval()
    return float((model(images).argmax(-1) == labels).float().mean())


def main() -> None:
    options = asked(__doc__, "vit", steps=(3000, 600), batch=(64, 64))
    torch.manual_seed(options.seed)
    on = device()
    images, labels, held_images, held_labels = (x.to(on) for x in digits())
    size = QUICK if options.quick else FULL
    model = build(size | {"dropout": 0.1}).to(on)
    print(f"{size_of(model)}, {len(images):,} images to learn from, on {on}")

    def loss_of(generator: torch.Generator) -> Tensor:
        rows = torch.randint(len(images), (options.batch,), generator=generator).to(on)
        logits = model(jittered(images[rows], generator))
        return cross_entropy(logits, labels[rows], label_smoothing=0.1)

    watch = Stopwatch()
    curve = train(model, loss_of, options, rate=1e-3)
    held_out = accuracy(model, held_images, held_labels)
    facts = {"size": size, "seed": options.seed, "steps": options.steps, "accuracy": held_out,
             "curve": curve}  # fmt: skip
    path = save(options.name, model, facts)
    print(f"{100 * held_out:.1f} % of the held-out digits read right after {options.steps} steps, "
          f"{watch}; saved {path.name}")  # fmt: skip


if __name__ == "__main__":
    main()
