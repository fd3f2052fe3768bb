"""Fence: a model folder is checked before any library opens it, and no pickle gets past.

A folder's files can name others, and what a library does with those depends on how they end. So
every name that leads to weights must be a safetensors file beside the config, the sizes in the
config must be those of a model, and while a model is loaded `torch.load` is shut.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from limelight.errors import FileError
from limelight.hf.places import SAFE
from limelight.intake import ANEW, NUMBERS_A_BYTE, from_json, read_bounded

CONFIG_BYTES, INDEX_BYTES = 4 << 20, 64 << 20
MOST_LAYERS = 4_096  # of any kind, and blocks, stages, experts and heads
COUNTED = re.compile(r"layer|depth|block|stage|expert|head", re.IGNORECASE)
LARGEST = 1 << 40  # no size in a config is as large
ENDING, INDEX = ".safetensors", ".safetensors.index.json"
SMALL = 1 << 24  # numbers that need no weights

_loading = threading.RLock()  # the fence is the process's: one model is loaded at a time


def check_folder(folder: Path) -> None:
    """Refuse a folder whose config or index leads to a pickle, or to no model at all."""
    config = _json(folder / "config.json", CONFIG_BYTES)
    named = config.get("transformers_weights")
    if named is not None and not (_beside(named) and named.endswith((ENDING, INDEX))):
        raise _pickle(folder / "config.json", named)
    if (folder / "adapter_config.json").exists():
        raise FileError(f"{folder}: holds an adapter, and its base can be anything: merge it into "
                        f"the model, and save that with save_pretrained")  # fmt: skip
    _check_sizes(folder / "config.json", config)
    for index in sorted(folder.glob("*.index.json")):
        shards = _json(index, INDEX_BYTES).get("weight_map")
        if not isinstance(shards, dict):
            raise FileError(f"{index}: not an index of weights, for it has no weight_map. {ANEW}")
        for shard in dict.fromkeys(shards.values()):
            if index.name.endswith(INDEX) and not (_beside(shard) and shard.endswith(ENDING)):
                raise _pickle(index, shard)


def check_size(model: Any, folder: Path) -> None:
    """Refuse a model, built without memory, that is far larger than the weights it would get."""
    held = sum(file.stat().st_size for file in folder.iterdir()
               if file.suffix in (ENDING, ".gguf"))  # fmt: skip
    wanted = sum(part.numel() for part in (*model.parameters(), *model.buffers()))
    if wanted > NUMBERS_A_BYTE * held + SMALL:
        raise FileError(f"{folder}: its config describes {wanted:,} numbers, and its weights are "
                        f"{held:,} bytes: bring both from one and the same place")  # fmt: skip


@contextmanager
def no_pickles(name: object) -> Iterator[None]:
    """torch.load is an error inside, for whatever works on it; other threads keep it."""
    with _loading:
        opened = torch.load
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

        def load(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() in others:
                return opened(*arguments, **options)
            raise FileError(f"{name}: loading it would open a pickle, and limelight never does: "
                            f"they can run code. {SAFE}")  # fmt: skip

        torch.load = load
        try:
            yield
        finally:
            torch.load = opened


def _json(path: Path, most: int) -> dict[str, Any]:
    try:
        found = from_json(read_bounded(path, most).decode())
    except FileError:
        raise
    except ValueError as error:  # also of the encoding
        raise FileError(f"{path}: cannot be read: {error}. {ANEW}") from None
    if not isinstance(found, dict):
        raise FileError(f"{path}: cannot be read: it holds no table. {ANEW}")
    return found


def _check_sizes(path: Path, found: Any, name: str = "") -> None:
    if isinstance(found, dict):
        for key, value in found.items():
            _check_sizes(path, value, key)
    elif isinstance(found, list):
        if len(found) > MOST_LAYERS and COUNTED.search(name):
            raise FileError(f"{path}: {name[:80]} has {len(found):,} entries, as no model has. "
                            f"{ANEW}")  # fmt: skip
        for value in found:
            _check_sizes(path, value, name)
    elif type(found) is int:
        most = MOST_LAYERS if COUNTED.search(name) and "dim" not in name else LARGEST
        if abs(found) > most and "size" not in name:
            raise FileError(f"{path}: {name[:80]} is {found:,}, and no model has as many. {ANEW}")


def _beside(name: Any) -> bool:
    """Whether it is a file's plain name: no other folder's."""
    return isinstance(name, str) and name == Path(name).name and not name.startswith(".")


def _pickle(where: Path, named: Any) -> FileError:
    return FileError(f"{where}: names {str(named)[:80]!r} as weights, and limelight opens "
                     f"safetensors files beside it alone: others can run code. {SAFE}")  # fmt: skip
