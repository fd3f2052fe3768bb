"""CompactMask: a tensor to the model, a rule of a few numbers in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from limelight.masks import Mask


class CompactMask(Tensor):
    """Looks like bool [B, 1, Nq, Nk] and holds a rule; any operation on it gets the true cells.

    `rule` is a limelight mask over the first `keys` of the keys; the rest (the unused end of a
    static cache) is hidden from every query. None is a rule that hides nothing. With a float dtype
    it looks like eager's mask instead: 0 where a query may attend, the least float where not.
    """

    rule: Mask | None
    keys: int

    @staticmethod
    def __new__(
        cls, rule: Mask | None, keys: int, shape: tuple[int, int, int, int],
        dtype: torch.dtype = torch.bool, device: Any = "cpu",
    ) -> CompactMask:  # fmt: skip
        self: CompactMask = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=device
        )
        self.rule = rule
        self.keys = keys
        return self

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def cells(self, rows: slice = slice(None)) -> Tensor:
        """The true cells of some rows, or in full."""
        batch, _, nq, nk = self.shape
        at, keys = np.arange(nq)[rows], np.arange(self.keys)
        tile = None if self.rule is None else self.rule.allowed(nq, self.keys).tile(at, keys)
        cells = np.zeros((batch, 1, len(at), nk), np.bool_)
        cells[..., : self.keys] = True if tile is None else tile
        shown = torch.from_numpy(cells).to(self.device)
        if self.dtype == torch.bool:
            return shown
        return torch.zeros(shown.shape, dtype=self.dtype, device=self.device).masked_fill(
            ~shown, torch.finfo(self.dtype).min
        )

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        rule = "everything" if self.rule is None else self.rule.expression
        return f"CompactMask({rule} on {self.keys} keys, shape {tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:  # reentrant checkpointing: the same mask
            return args[0]
        if func is torch.ops.aten.slice.Tensor and args[1:2] == (2,):  # as Gemma 4 takes the last
            return args[0].cells(slice(*args[2:]))

        def filled(value: Any) -> Any:
            return value.cells() if isinstance(value, CompactMask) else value

        args, kwargs = torch.utils._pytree.tree_map(filled, (args, kwargs or {}))
        return func(*args, **kwargs)
