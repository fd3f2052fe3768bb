"""Texts for the character models: Shakespeare's plays, and the Python standard library."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Text:
    """A text as numbers, cut into what is learned from and what is held out."""

    alphabet: str
    learn: Tensor
    held_out: Tensor

    @classmethod
    def of(cls, text: str, alphabet: str | None = None) -> Text:
        """The last tenth is held out; what is not in the alphabet is dropped."""
        alphabet = "".join(sorted(set(text))) if alphabet is None else alphabet
        symbols = encode(text, alphabet)
        cut = int(0.9 * len(symbols))
        return cls(alphabet, symbols[:cut], symbols[cut:])

    def batch(
        self, size: int, length: int, generator: torch.Generator, device: str
    ) -> tuple[Tensor, Tensor]:
        """Random stretches [size, length] and the same one symbol on."""
        starts = torch.randint(len(self.learn) - length, (size,), generator=generator)
        rows = self.learn[starts[:, None] + torch.arange(length + 1)].long().to(device)
        return rows[:, :-1], rows[:, 1:]

    @torch.no_grad()
    def held_out_loss(self, model: nn.Module, length: int, device: str, rows: int = 256) -> float:
        """Nats a character over stretches that cover the held-out text evenly."""
        model.eval()
        starts = torch.linspace(0, len(self.held_out) - length - 1, rows).long()
        cut = self.held_out[starts[:, None] + torch.arange(length + 1)].long().to(device)
        losses = [
            nn.functional.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())
            for part in cut.split(32)
        ]
        return float(torch.stack(losses).mean())


def encode(text: str, alphabet: str) -> Tensor:
    place = {symbol: i for i, symbol in enumerate(alphabet)}
    return torch.tensor([place[c] for c in text if c in place], dtype=torch.uint8)


def decode(symbols: Tensor, alphabet: str) -> str:
    return "".join(alphabet[int(i)] for i in symbols)


def shakespeare(path: Path) -> str:
    """The text of a file, or the end of the program in one line where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        sys.exit(f"there is no file {path}: give --data any plain text, such as the tiny "
                 f"Shakespeare corpus (see docs/systems/gpt.md)")  # fmt: skip
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"cannot read {path} as UTF-8 text: {error}")


def standard_library(most: int = 8_000_000, note: Callable[[str], None] = lambda _: None) -> str:
    """The source of the modules at the top of the standard library, in order of their names."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py"))
    files = [f for f in files if not {"site-packages", "test", "tests", "idlelib"} & set(f.parts)]
    text, size = [], 0
    for file in files:
        source = file.read_text(encoding="utf-8", errors="ignore")
        text.append(source)
        size += len(source)
        if size > most:
            break
    note(f"{len(text)} files, {size:,} characters")
    return "\n".join(text)
