"""Which modules of the watched models are running: a list, which hooks keep."""

from __future__ import annotations

from typing import Any

from torch import nn

from limelight.torch import bridge
from limelight.torch.bridge import SITE, Place
from limelight.torch.monitor.hooks import Hook

stack = bridge.running  # the innermost last


class Named:
    """Stands among the running modules for one of which its key is all that may be known."""

    def __init__(self, key: str) -> None:
        setattr(self, SITE, Place(key))


def hooks(module: nn.Module, *, wraps: bool) -> tuple[Hook, ...]:
    """Those that keep the list for a module; `wraps` if it is DDP's or torch.compile's wrapper."""
    if wraps:
        return ENTER_WRAPPER, LEAVE_WRAPPER
    return () if _is_leaf(module) else (ENTER, LEAVE)


class _Enter(Hook):
    before = True

    def __call__(self, module: nn.Module, *_: Any) -> None:
        stack.append(module)


class _Leave(Hook):
    """Also what it called: of a forward that raised torch.compile runs no hook."""

    def __call__(self, module: nn.Module, *_: Any) -> None:
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is module:
                del stack[place:]
                return


class _EnterWrapper(Hook):
    """torch.compile, which looks into the list, cannot meet its own wrapper there."""

    before = True

    def __call__(self, module: nn.Module, *_: Any) -> None:
        stack.append(Named(bridge.key_of(module)))


class _LeaveWrapper(Hook):
    def __call__(self, module: nn.Module, *_: Any) -> None:
        key = bridge.key_of(module)
        while any(bridge.key_of(other) == key for other in stack):
            stack.pop()


def _is_leaf(module: nn.Module) -> bool:
    """Torch's own layers without children call no attention."""
    return type(module).__module__.startswith("torch.nn") and not any(
        True for _ in module.children()
    )


ENTER, LEAVE, ENTER_WRAPPER, LEAVE_WRAPPER = _Enter(), _Leave(), _EnterWrapper(), _LeaveWrapper()
