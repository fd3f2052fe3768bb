"""A module's W_O, which joins what its heads found."""

from __future__ import annotations

from torch import Tensor, nn

OUT = ("W_O", "out_proj", "o_proj")


def by_heads(weight: Tensor, heads: int, size: int) -> Tensor | None:
    """W_O, [width, heads · size], as [heads, size, width]; None where it is of another shape."""
    if weight.ndim != 2 or weight.shape[1] != heads * size or not weight.is_floating_point():
        return None
    return weight.detach().T.reshape(heads, size, -1)


def out(module: nn.Module, heads: int, size: int) -> Tensor | None:
    """The W_O of a module that calls attention, by heads: [heads, size, width]; None for none."""
    known = (getattr(module, name, None) for name in OUT)
    found = next((one for one in known if isinstance(one, nn.Linear)), None)
    return None if found is None else by_heads(found.weight, heads, size)
