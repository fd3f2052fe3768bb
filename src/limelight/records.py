"""Frozen dataclasses that are cheap to make."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def lean(cls: Class) -> Class:
    """A frozen dataclass without field factories, its constructor three times as fast.

    A frozen dataclass sets each field through object.__setattr__, 0.1 µs each: a small attention
    makes four records, and spent as long on that as on its dot products. This constructor writes
    into the instance's own dictionary; the instance is frozen all the same.

    >>> from dataclasses import dataclass
    >>> @lean
    ... @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point(1.0)
    Point(x=1.0, y=0.0)
    """
    plain = all(f.init and not f.kw_only and f.default_factory is MISSING for f in fields(cls))
    if not plain or hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__name__} does more than take its fields: dataclass must make it")
    given = {field.name: field.default for field in fields(cls)}
    arguments = [f"{n}" if d is MISSING else f"{n}=given[{n!r}]" for n, d in given.items()]
    lines = ["own = self.__dict__", *(f"own[{name!r}] = {name}" for name in given)]
    made: dict[str, Any] = {"given": given}
    exec(f"def __init__(self, {', '.join(arguments)}):\n " + "\n ".join(lines), made)
    cls.__init__ = wraps(cls.__init__)(made["__init__"])  # type: ignore[misc]
    return cls
