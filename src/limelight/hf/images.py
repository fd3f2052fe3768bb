"""Images for vision models: opened safely, prepared as the model's own files say."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limelight.arrays import a_type
from limelight.errors import ArgumentError, FileError


@dataclass(frozen=True)
class PlainImages:
    """For a vision model that comes without a processor: resized to its size, values in 0..1."""

    height: int
    width: int
    channels: int
    image_mean: tuple[float, ...] = (0.0,)
    image_std: tuple[float, ...] = (1.0,)

    def __call__(self, images: Any, return_tensors: str = "pt") -> dict[str, torch.Tensor]:
        image = images.convert("L" if self.channels == 1 else "RGB")
        image = image.resize((self.width, self.height))
        pixels = np.asarray(image, np.float32).reshape(self.height, self.width, self.channels) / 255
        return {"pixel_values": torch.from_numpy(np.moveaxis(pixels, -1, 0)[None].copy())}


def image_processor(folder: Path, config: Any) -> Any:
    """What prepares images for the model, or None where it takes none."""
    if (folder / "preprocessor_config.json").is_file():
        from transformers import AutoImageProcessor

        kind: Any = AutoImageProcessor
        return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    size = getattr(config, "image_size", None)
    if size is None or getattr(config, "patch_size", None) is None:
        return None
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return PlainImages(height, width, getattr(config, "num_channels", 3))


def open_image(image: Any) -> Any:
    """A PIL image in colours, from a file's path or from any PIL image."""
    if importlib.util.find_spec("PIL") is None:
        raise FileError("opening images needs the pillow package: pip install pillow")
    from PIL import Image

    if isinstance(image, Image.Image):
        return image.convert("RGB")
    if not isinstance(image, (str, os.PathLike)):
        raise ArgumentError(
            f"the image is {a_type(image)}: give a file's path or a PIL image, as "
            f"PIL.Image.fromarray makes one of an array"
        )
    path = Path(image)
    if not os.path.isfile(path):
        raise FileError(f"{path}: there is no such file: give the path of an image")
    try:
        with Image.open(path) as opened:
            return opened.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise FileError(
            f"{path}: not an image that can be read ({error}): save it as PNG or JPEG"
        ) from None
