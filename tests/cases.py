"""The table of attentions that every engine is tested on, and how an error is judged.

Sizes are odd or prime, so that a swapped axis fails. Inputs are rounded to the dtype first; the
judge is the float64 reference; the error allowed is twice that of the same formula computed plainly
in that precision (three times for gradients), plus its rounding floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import limelight as ll
from limelight import reference
from limelight.call import Call, prepare
from limelight.engines import ENGINES, find

HERE = [row.name for row in ENGINES if "cpu" in row.devices and row.missing() is None]
FLOOR = 6  # units in the last place of the largest magnitude: processors sum in other orders


@dataclass(frozen=True)
class Case:
    """One attention: sizes and options. Options may be functions of the random generator."""

    name: str
    batch: tuple[int, ...] = (2,)
    heads: int = 3
    key_heads: int | None = None
    nq: int = 37
    nk: int = 53
    d: int = 17
    dv: int = 11
    mask: Any = None
    bias: tuple[int, ...] | None = None
    hidden_bias: float = 0.0  # the share of the bias that is −inf
    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    spread: float = 1.0  # standard deviation of the queries

    def arrays(self, dtype: Any = np.float64, seed: int = 0) -> tuple[list[Any], dict[str, Any]]:
        rng = np.random.default_rng(seed)
        hk = self.heads if self.key_heads is None else self.key_heads
        query = self.spread * rng.normal(size=(*self.batch, self.heads, self.nq, self.d))
        key = rng.normal(size=(*self.batch, hk, self.nk, self.d))
        value = rng.normal(size=(*self.batch, hk, self.nk, self.dv))
        options: dict[str, Any] = {"scale": self.scale, "softcap": self.softcap}
        options["mask"] = self.mask(rng) if callable(self.mask) else self.mask
        if self.bias is not None:
            bias = rng.normal(size=self.bias)
            bias[rng.random(self.bias) < self.hidden_bias] = -np.inf
            options["bias"] = bias.astype(dtype)
        if self.sinks:
            options["sinks"] = rng.normal(size=self.heads).astype(dtype)
        return [x.astype(dtype) for x in (query, key, value)], options

    def call(self, dtype: Any = np.float64, seed: int = 0) -> Call:
        arrays, options = self.arrays(dtype, seed)
        return prepare(*arrays, **options)

    def __str__(self) -> str:
        return self.name


def widest(engine: str) -> Any:
    """The type with the most digits that an engine takes."""
    return np.dtype(find(engine).dtypes[0])


def _random(density: float) -> Any:
    return lambda rng: rng.random((2, 3, 37, 53)) < density


CASES = [
    Case("plain"),
    Case("one-token", batch=(1,), heads=1, nq=1, nk=1, d=1, dv=1),
    Case("no-batch-axis", batch=(), heads=2),
    Case("two-batch-axes", batch=(2, 3), nq=5, nk=7),
    Case("grouped", heads=6, key_heads=2),
    Case("one-key-head", heads=5, key_heads=1),
    Case("d64", nq=67, nk=131, d=64, dv=64, heads=2),
    Case("d128-causal", nq=67, nk=67, d=128, dv=128, heads=2, mask=ll.Causal()),
    Case("d96-d80", nq=19, nk=45, d=96, dv=80),
    Case("long-keys", batch=(1,), heads=1, nq=3, nk=1103, d=16, dv=16),
    Case("decode", batch=(2,), heads=4, key_heads=2, nq=1, nk=1031, d=64, dv=64, mask=ll.Causal()),
    Case("decode-softcap", batch=(1,), heads=4, nq=2, nk=13, d=64, dv=64, softcap=1.5, spread=3.0),
    Case("decode-even", batch=(1,), heads=2, nq=3, nk=13, d=64, dv=64, scale=0.0),
    Case("causal", mask=ll.Causal()),
    Case("causal-square", nq=53, nk=53, mask=ll.Causal()),
    Case("causal-top-left", mask=ll.Causal(align="top-left")),
    Case("causal-more-queries", nq=53, nk=37, mask=ll.Causal()),
    Case("window", nq=53, nk=53, mask=ll.Window(7, 3)),
    Case("window-causal", nq=301, nk=301, d=8, dv=8, mask=ll.Causal() & ll.Window(50, None)),
    Case("lengths", mask=ll.Lengths([53, 11])),
    Case("lengths-zero", mask=ll.Lengths([0, 11], queries=[37, 20])),
    Case("documents", nq=53, mask=lambda rng: ll.Documents(np.sort(rng.integers(0, 5, 53)))),
    Case("documents-scattered", nq=53, mask=lambda rng: ll.Documents(rng.integers(0, 5, 53))),
    Case("documents-causal", nq=53, mask=ll.Documents([0] * 20 + [1] * 33) & ll.Causal()),
    Case("prefix", nq=53, mask=ll.Causal() | ll.Prefix(9)),
    Case("inverse-window", nq=53, mask=~ll.Window(5, 5)),
    Case("array", mask=_random(0.5)),
    Case("array-thin", mask=_random(0.02)),  # many rows without a key
    Case("array-keys", mask=lambda rng: rng.random((2, 1, 1, 53)) < 0.5),
    Case("array-causal", mask=lambda rng: ll.Causal() & (rng.random((37, 53)) < 0.7)),
    Case("bias", bias=(2, 3, 37, 53)),
    Case("bias-heads", bias=(3, 1, 53)),
    Case("bias-rows", bias=(37, 1), mask=ll.Causal()),
    Case("bias-hides", bias=(1, 3, 37, 53), hidden_bias=0.9, mask=ll.Causal()),
    Case("softcap", softcap=2.5, spread=4.0),
    Case("sinks", sinks=True),
    Case("sinks-masked", sinks=True, mask=_random(0.05)),
    Case("unscaled", scale=1.0),
    Case("negative-scale", scale=-0.3),
    Case("even", scale=0.0, mask=ll.Causal() & ll.Lengths([53, 0])),
    Case("large-logits", spread=1e4),
    Case("everything", heads=6, key_heads=3, bias=(6, 37, 53), hidden_bias=0.2, softcap=4.0,
         sinks=True, scale=0.4, mask=ll.Causal() & ll.Lengths([53, 29])),
]  # fmt: skip


def plainly(call: Call, wide: Any) -> Any:
    """The same formula with every step rounded to one precision: what an error is measured by."""
    with np.errstate(all="ignore"):
        query, key, value = (np.asarray(x).astype(wide) for x in (call.query, call.key, call.value))
        key, value = (np.repeat(x, call.group, axis=1) for x in (key, value))
        s = (query @ key.swapaxes(-1, -2)).astype(wide) * wide(call.scale)
        if call.softcap is not None:
            s = wide(call.softcap) * np.tanh(s / wide(call.softcap))
        if call.bias is not None:
            s = s + call.bias.astype(wide)
        allowed = reference.steps(call).allowed
        s = np.where(allowed, s, wide(-np.inf))
        top = s.max(axis=-1, keepdims=True, initial=-np.inf)
        sinks = np.full(call.query_heads, -np.inf) if call.sinks is None else call.sinks
        sinks = sinks.astype(wide)[:, None, None]
        top = np.maximum(top, sinks)
        top = np.where(np.isneginf(top), wide(0), top)
        p = np.exp(s - top)
        total = p.sum(axis=-1, keepdims=True) + np.exp(sinks - top)
        return (p / np.where(total == 0, wide(1), total)).astype(wide) @ value


def assert_close(
    got: Any, exact: Any, plain: Any, dtype: Any, factor: float = 2.0, what: str = ""
) -> None:
    """Error ≤ factor × the plain formula's, plus the rounding floor, for mean and max."""
    got, exact, plain = (np.asarray(x, np.float64) for x in (got, exact, plain))
    assert got.shape == exact.shape, f"{what}: shape {got.shape}, not {exact.shape}"
    assert np.array_equal(np.isnan(got), np.isnan(exact)), f"{what}: NaN in other places"
    infinite = np.isinf(exact)
    assert np.array_equal(got[infinite], exact[infinite]), f"{what}: infinities differ"
    seen = np.isfinite(exact)
    if not seen.any():
        return
    error, allowed = np.abs(got[seen] - exact[seen]), np.abs(plain[seen] - exact[seen])
    floor = FLOOR * eps(dtype) * max(1.0, float(np.abs(exact[seen]).max()))
    for name, figure in (("max", np.max), ("mean", np.mean)):
        bound = factor * figure(allowed) + floor
        assert figure(error) <= bound, f"{what}: {name} error {figure(error):.3g} > {bound:.3g}"


def eps(dtype: Any) -> float:
    return 2.0**-7 if np.dtype(dtype).name == "bfloat16" else float(np.finfo(dtype).eps)
