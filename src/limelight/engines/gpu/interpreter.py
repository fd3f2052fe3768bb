"""Triton's interpreter beside a NumPy that no longer turns arrays of one element into integers."""

from __future__ import annotations

from typing import Any


def adapt() -> None:
    """Let a scalar of the interpreter, an array of one element, bound a loop."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor
    if getattr(original, "adapted", False):
        return

    def patched(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    patched.adapted = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patched
