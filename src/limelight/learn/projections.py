"""SelfAttention: from the rows of X to the output, through learned projections, in NumPy.

    Q = X·W_Q      what each token looks for            [N, M]·[M, Hq·D]
    K = X·W_K      what each token can be found by      [N, M]·[M, Hk·D]
    V = X·W_V      what each token hands over           [N, M]·[M, Hk·Dv]
    output = attention(Q, K, V)·W_O                     [N, Hq·Dv]·[Hq·Dv, M]

N tokens of model size M; Hq query heads share Hk key heads. The columns of a projection are its
heads side by side. torch.nn.Linear keeps its weight transposed: pass `linear.weight.T` here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import dtype_name, is_integer, is_torch, jsonable
from limelight.attention import Inspection, attention, inspect
from limelight.call import as_float
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.worked.cell import Cell
from limelight.worked.trace import Trace, trace
from limelight.writing.numbers import counted, vector

NAMES = ("w_q", "w_k", "w_v", "w_o")


@dataclass(frozen=True, eq=False, repr=False)
class SelfAttention:
    """Learned W_Q, W_K, W_V and, if given, W_O; called on X it returns the output.

    Options of `attention` (mask, bias, scale, softcap, sinks, engine) go with the call. Without
    W_O the heads' outputs stand side by side, [..., N, Hq·Dv].

    >>> layer = SelfAttention.from_seed(6, heads=2, seed=3)
    >>> layer
    SelfAttention(model size 6, 2 heads of size 3, with W_O)
    >>> layer(np.ones((4, 6))).shape
    (4, 6)
    """

    w_q: Any  # [M, Hq·D]
    w_k: Any  # [M, Hk·D]
    w_v: Any  # [M, Hk·Dv]
    w_o: Any = None  # [Hq·Dv, M]
    heads: int = 1
    key_heads: int | None = None

    def __post_init__(self) -> None:
        for name in ("heads", "key_heads"):
            count = getattr(self, name)
            if count is not None:
                _check_count(name, count)
        if self.key_heads is None:
            object.__setattr__(self, "key_heads", self.heads)
        for name in NAMES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _matrix(getattr(self, name), name))
        self._check_sizes()

    @classmethod
    def from_seed(
        cls,
        model_size: int,
        *,
        heads: int = 1,
        key_heads: int | None = None,
        head_size: int | None = None,
        value_size: int | None = None,
        output: bool = True,
        seed: int = 0,
    ) -> SelfAttention:
        """Random projections that keep the variance: entries of variance 1/(rows of the matrix).

        With X of unit variance, queries and keys then have unit variance too, which is what 1/√D
        is made for. `head_size` is model_size / heads unless given, `value_size` is `head_size`.
        """
        key_heads = heads if key_heads is None else key_heads
        for name, count in (("model_size", model_size), ("heads", heads), ("key_heads", key_heads)):
            _check_count(name, count)
        if head_size is None:
            if model_size % heads:
                raise ArgumentError(
                    f"a model size of {model_size} does not divide into {heads} heads: choose "
                    f"heads that divide it, or give head_size=…"
                )
            head_size = model_size // heads
        value_size = head_size if value_size is None else value_size
        _check_count("head_size", head_size)
        _check_count("value_size", value_size)
        rng = np.random.default_rng(seed)
        shapes = [
            (model_size, heads * head_size),
            (model_size, key_heads * head_size),
            (model_size, key_heads * value_size),
            (heads * value_size, model_size),
        ]
        w_q, w_k, w_v, w_o = (rng.standard_normal(s) / math.sqrt(s[0]) for s in shapes)
        return cls(w_q, w_k, w_v, w_o if output else None, heads=heads, key_heads=key_heads)

    @property
    def model_size(self) -> int:
        return int(self.w_q.shape[0])

    @property
    def head_size(self) -> int:
        return int(self.w_q.shape[1]) // self.heads

    @property
    def value_size(self) -> int:
        return int(self.w_v.shape[1]) // _given(self.key_heads)

    def project(self, x: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """X to query [..., Hq, N, D], key [..., Hk, N, D] and value [..., Hk, N, Dv]."""
        return self._project(self._tokens(x))

    def __call__(self, x: Any, **options: Any) -> NDArray[Any]:
        """X [..., N, M] to the output: [..., N, M'] with M' the columns of W_O."""
        mixed: NDArray[Any] = attention(*self.project(x), **options)
        return self._output(mixed)

    def inspect(self, x: Any, **options: Any) -> Inspection:
        """The output, and the health of every row of every head, from one pass."""
        seen = inspect(*self.project(x), **options)
        return Inspection(self._output(seen.output), seen.health)

    def trace(
        self, x: Any, *, tokens: Sequence[str] | None = None, **options: Any
    ) -> SelfAttentionTrace:
        """Every step from X to the output; `tokens` names the rows of X."""
        rows = self._tokens(x)
        inner = trace(*self._project(rows), tokens=tokens, **options)
        return SelfAttentionTrace(self, rows, inner)

    def __repr__(self) -> str:
        shared = "" if self.key_heads == self.heads else f" on {self.key_heads} key heads"
        values = "" if self.value_size == self.head_size else f", values of size {self.value_size}"
        last = "without W_O" if self.w_o is None else "with W_O"
        return (
            f"SelfAttention(model size {self.model_size}, {counted(self.heads, 'head')} of size "
            f"{self.head_size}{shared}{values}, {last})"
        )

    def _tokens(self, x: Any) -> NDArray[Any]:
        """X as an array, checked."""
        rows = _numpy(x, "X")
        if rows.ndim < 2 or rows.shape[-1] != self.model_size:
            raise ShapeError(
                f"X has shape {rows.shape}: this layer takes [..., tokens, {self.model_size}], one "
                f"row of {self.model_size} numbers for each token"
            )
        return rows

    def _project(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        key_heads = _given(self.key_heads)
        return (
            _split(rows @ self._like(rows, "w_q"), self.heads),
            _split(rows @ self._like(rows, "w_k"), key_heads),
            _split(rows @ self._like(rows, "w_v"), key_heads),
        )

    def _output(self, mixed: NDArray[Any]) -> NDArray[Any]:
        """[..., Hq, N, Dv] to the heads side by side, [..., N, Hq·Dv], and through W_O."""
        joined = _join(mixed)
        return joined if self.w_o is None else joined @ self._like(joined, "w_o")

    def _like(self, rows: NDArray[Any], name: str) -> NDArray[Any]:
        """A projection in the dtype of what it meets: X decides the precision."""
        matrix: NDArray[Any] = getattr(self, name)
        return matrix.astype(rows.dtype, copy=False)

    def _check_sizes(self) -> None:
        heads, key_heads = self.heads, _given(self.key_heads)
        if heads % key_heads:
            raise ShapeError(
                f"{heads} heads cannot share {key_heads} key heads: heads must be a "
                f"multiple of key_heads"
            )
        given = {name: getattr(self, name) for name in NAMES}
        shapes = {name: matrix.shape for name, matrix in given.items() if matrix is not None}
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        if len({shapes[name][0] for name in NAMES[:3]}) > 1:
            raise ShapeError(
                f"W_Q, W_K and W_V read the same X, so they need equally many rows, one for each "
                f"number of a token ({listing})"
            )
        for name, count in (("w_q", heads), ("w_k", key_heads), ("w_v", key_heads)):
            if shapes[name][1] == 0 or shapes[name][1] % count:
                raise ShapeError(
                    f"the {shapes[name][1]} columns of {name} do not divide into {count} heads "
                    f"({listing})"
                )
        query_size, key_size = shapes["w_q"][1] // heads, shapes["w_k"][1] // key_heads
        if query_size != key_size:
            raise ShapeError(
                f"queries of size {query_size} have no dot product with keys of size {key_size}: "
                f"the columns of w_q / heads and of w_k / key_heads must be equal ({listing}, "
                f"heads {heads}, key_heads {key_heads})"
            )
        joined = heads * (shapes["w_v"][1] // key_heads)
        if self.w_o is not None and shapes["w_o"][0] != joined:
            raise ShapeError(
                f"W_O has {shapes['w_o'][0]} rows, but {counted(heads, 'head')} of value size "
                f"{joined // heads} side by side have {joined} columns ({listing})"
            )


@dataclass(frozen=True, eq=False, repr=False)
class SelfAttentionTrace:
    """Every step from X to the output of a SelfAttention, in float64.

    What happens between the projections and W_O is `attention`, a `limelight.worked.trace.Trace`.

    >>> layer = SelfAttention([[1, 0], [0, 1]], [[1, 0], [0, 1]], [[2, 0], [0, 2]])
    >>> layer.trace([[1, 0], [1, 1]], tokens=["a", "b"]).weights.round(4)
    array([[[0.5   , 0.5   ],
            [0.3302, 0.6698]]])
    """

    layer: SelfAttention
    x: NDArray[Any]  # [..., N, M]
    attention: Trace

    @property
    def tokens(self) -> tuple[str, ...] | None:
        return None if self.attention.tokens is None else self.attention.tokens[0]

    @property
    def query(self) -> Any:
        """X·W_Q, [..., Hq, N, D]."""
        return self.attention.query

    @property
    def key(self) -> Any:
        """X·W_K, [..., Hk, N, D]."""
        return self.attention.key

    @property
    def value(self) -> Any:
        """X·W_V, [..., Hk, N, Dv]."""
        return self.attention.value

    @property
    def weights(self) -> Any:
        """[..., Hq, N, N]."""
        return self.attention.weights

    @property
    def mixed(self) -> Any:
        """The heads' outputs side by side, [..., N, Hq·Dv]."""
        return _join(self.attention.output)

    @property
    def output(self) -> Any:
        """[..., N, M'] through W_O; without one, the same as mixed."""
        return self.layer._output(self.attention.output)

    def cell(self, row: int, column: int, *, head: int = 0, batch: int = 0) -> Cell:
        """One weight with all that goes into it."""
        return self.attention.cell(row, column, head=head, batch=batch)

    def to_dict(self) -> dict[str, Any]:
        """X, the projections, every step between, and the output, JSON-safe."""
        layer = self.layer
        weights = {name: getattr(layer, name) for name in NAMES}
        return {
            **{name: None if w is None else jsonable(w) for name, w in weights.items()},
            "heads": layer.heads,
            "key_heads": layer.key_heads,
            "x": jsonable(self.x),
            **self.attention.to_dict(),
            "mixed": jsonable(self.mixed),
            "output": jsonable(self.output),
        }

    def __repr__(self) -> str:
        if self.x.ndim > 2:
            return f"Trace of {self.layer!r} on X {self.x.shape}\n{self.attention!r}"
        names = (
            [repr(token) for token in self.tokens]
            if self.tokens
            else [f"token {i}" for i in range(len(self.x))]
        )
        width = max([len(name) for name in names[:8]], default=0)
        blocks = [self._rows("X", self.x, names, width)]
        for letter, array in (("Q", self.query), ("K", self.key), ("V", self.value)):
            first = " (head 0)" if array.shape[-3] > 1 else ""
            blocks.append(self._rows(f"{letter} = X·W_{letter}{first}", array[0], names, width))
        blocks.append(self.attention.text())
        last = "output = heads side by side" + ("" if self.layer.w_o is None else " · W_O")
        blocks.append(self._rows(last, self.output, names, width))
        return "\n\n".join([repr(self.layer), *blocks])

    @staticmethod
    def _rows(title: str, rows: Any, names: list[str], width: int, most: int = 8) -> str:
        lines = [
            f"  {name:<{width}}  {vector(row)}"
            for name, row in list(zip(names, rows, strict=True))[:most]
        ]
        more = [f"  … and {len(names) - most} more"] if len(names) > most else []
        return "\n".join([title, *lines, *more])

    def _repr_html_(self) -> str:
        return self.attention._repr_html_()


def _split(array: NDArray[Any], heads: int) -> NDArray[Any]:
    """[..., N, H·D] to [..., H, N, D]."""
    return np.moveaxis(array.reshape((*array.shape[:-1], heads, array.shape[-1] // heads)), -2, -3)


def _join(array: NDArray[Any]) -> NDArray[Any]:
    """[..., H, N, D] to [..., N, H·D]."""
    moved = np.moveaxis(array, -3, -2)
    return moved.reshape((*moved.shape[:-2], moved.shape[-2] * moved.shape[-1]))


def _matrix(array: Any, name: str) -> NDArray[Any]:
    found = _numpy(array, name)
    if found.ndim != 2 or found.shape[0] == 0:
        raise ShapeError(
            f"{name} has shape {found.shape}: a projection is a matrix, one row for each number "
            f"that comes in and one column for each that goes out"
        )
    return found


def _numpy(array: Any, name: str) -> NDArray[Any]:
    if is_torch(array):
        raise DtypeError(
            f"{name} is a torch tensor ({dtype_name(array)}): SelfAttention is NumPy's; pass "
            f"{name}.numpy(), or use the modules of limelight.torch"
        )
    found: NDArray[Any] = as_float(array, name)
    return found


def _given(count: int | None) -> int:
    assert count is not None  # __post_init__ fills it
    return count


def _check_count(name: str, count: Any) -> None:
    if not is_integer(count) or count < 1:
        raise ArgumentError(f"{name}={count!r}: give a whole number ≥ 1")
