"""Hooks that come and go with a monitor, and that no copy of the model keeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.utils.hooks import RemovableHandle


class Hook:
    """Is called at the forward of every module that it was put on: once, however often it was put.

    before   when the forward begins; else when it is over, also if it raised
    named    it is told the forward's named arguments too

    It has one number among a module's hooks for as long as the process lives, and so enters itself
    there: torch.compile guards on the numbers of hooks that run after an exception too, and
    register_forward_hook draws a new one each time, with which no graph of before is run again.
    Each hook is a class of its own: torch.compile counts the variants of a __call__ up to a limit,
    and one that all share would come to it.
    """

    before = named = False

    def __init__(self) -> None:
        self._number = RemovableHandle(OrderedDict()).id
        self._put: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # how often

    def __call__(self, module: nn.Module, *given: Any) -> None:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A copy of a module, or one loaded from a file, is another, which nobody watches.

        There stands what takes anything and does nothing, and what a process without limelight has.
        """
        return getattr, (nullcontext(), "__exit__")

    def put(self, module: nn.Module) -> None:
        self._put[module] = self._put.get(module, 0) + 1
        for table, entry in self._tables(module):
            table[self._number] = entry

    def take(self, module: nn.Module) -> bool:
        """Undo one put(); whether it was the last."""
        left = self._put.pop(module) - 1
        if left:
            self._put[module] = left
            return False
        for table, _ in self._tables(module):
            table.pop(self._number, None)
        return True

    def _tables(self, module: nn.Module) -> list[tuple[dict[int, Any], Any]]:
        tables: list[tuple[dict[int, Any], Any]]
        if not self.before:
            return [(module._forward_hooks, self), (module._forward_hooks_always_called, True)]
        tables = [(module._forward_pre_hooks, self)]
        return [*tables, (module._forward_pre_hooks_with_kwargs, True)] if self.named else tables
