"""What a softcap's exponents and powers are made of on Hopper: the instructions, one by one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from limelight.engines.gpu import absent
from limelight.engines.hopper import OLDEST

lacking = absent(OLDEST)
pytestmark = pytest.mark.skipif(lacking is not None, reason=str(lacking))

SINGLE = np.float32
STEPS: dict[str, Any] = {
    "mul.f32": lambda x, y: x * y,
    "add.f32": lambda x, y: x + y,
    "sub.f32": lambda x, y: x - y,
    "neg.f32": lambda x: -x,
    "abs.f32": abs,
    "max.f32": max,
    "setp.lt.f32": lambda x, y: x < y,
    "mov.f32": lambda x: x,
    "fma.rn.f32": lambda x, y, z: SINGLE(np.float64(x) * np.float64(y) + np.float64(z)),
    "ex2.approx.ftz.f32": np.exp2,
    "rcp.approx.ftz.f32": lambda x: SINGLE(1.0) / x,
    "max.s32": max,
    "setp.le.s32": lambda x, y: x <= y,
    "vote.sync.all.pred": lambda p, _: p,
}


def run(asm: str, registers: dict[str, Any]) -> None:
    """PTX of one thread, its operands given and left by name."""
    lines = [line.strip() for line in re.split(r"[;{}]|(?<=:)", asm) if line.strip()]
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if line.startswith(".reg") or line.endswith(":"):
            continue
        if "bra" in line:
            condition, target = re.fullmatch(r"(?:@!(\w+) )?bra (\w+)", line).groups()  # type: ignore[union-attr]
            if condition is None or not registers[condition]:
                at = lines.index(f"{target}:")
            continue
        step, operands = line.split(" ", 1)
        to, *others = (name.strip() for name in operands.split(","))
        registers[to] = STEPS[step](*(
            registers[name] if name in registers else
            int(name, 0) if step.endswith(("s32", "pred")) else SINGLE(name) for name in others
        ))  # fmt: skip


def bent(
    numbers: Any, way: tuple[int, int], top: tuple[float, float], a: float, c: float, health: bool
) -> tuple[Any, Any]:
    """Exponents (with health) and powers that a thread's numbers become, by the way of two rows."""
    from limelight.engines.gpu.hopper_powers import _bent_asm, _bent_constraints, bend_of

    asm = getattr(_bent_asm, "fn", _bent_asm)(len(numbers), health)
    kinds = getattr(_bent_constraints, "fn", _bent_constraints)(len(numbers), health).split(",")
    bend = bend_of(a, c, softcap=20.0)
    count = len(numbers)
    rows = [i // 2 % 2 for i in range(count)]
    given = [
        [way[r] for r in rows], [SINGLE(top[r]) for r in rows], *([SINGLE(x)] * count for x in (
            a, c, bend.shift, bend.rest, bend.factor
        )), [SINGLE(top[r]) * SINGLE(bend.unit) for r in rows],
    ]  # fmt: skip
    results = 2 * count if health else count
    operands = [*[None] * results, *numbers, *(x for group in given for x in group)]
    assert len(operands) == len(kinds)
    assert kinds[results : results + count] == [str(i) for i in range(count)]
    registers = {f"${i}": x for i, x in enumerate(operands) if x is not None}
    registers |= {f"${i}": x for i, x in enumerate(numbers)}
    run(asm, registers)
    left = np.array([registers[f"${i}"] for i in range(results)], np.float64)
    return (left[:count], left[count:]) if health else (None, left)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("a", [1.1e-5, -0.0043, 0.03, 9e4])
@pytest.mark.parametrize("reach", [0.05, 0.49, 3.0])
def test_quick_tanh(reach: float, a: float, exact: bool) -> None:
    """Where a largest logit is told, to float32 rounding of itself; elsewhere to 3e-7 of 1."""
    from limelight.engines.gpu.hopper_powers import _quick_tanh_asm

    numbers = (np.linspace(-reach, reach, 64) / a).astype(SINGLE)
    registers = {f"${i}": x for i, x in enumerate(numbers)}
    registers[f"${2 * 64}"] = SINGLE(a)
    run(getattr(_quick_tanh_asm, "fn", _quick_tanh_asm)(64, exact), registers)
    found = np.array([registers[f"${i}"] for i in range(64)], np.float64)
    right = np.tanh(SINGLE(a) * numbers.astype(np.float64))
    near = 2.5e-7 * np.abs(right) if exact and reach < 0.5 else 3e-7
    assert (np.abs(found - right) < near).all()


BOUNDS = (0.25, 0.75, 9.0)


@pytest.mark.parametrize("health", [True, False])
@pytest.mark.parametrize("a", [1.1e-5, -0.0043, 0.03, 9e4])
@pytest.mark.parametrize("way", [0, 1, 2])
def test_every_way_is_tanh(way: int, a: float, health: bool) -> None:
    c, tops = 29.0, (2.5, -1.25)
    x = np.linspace(-BOUNDS[way], BOUNDS[way], 64)
    numbers = (np.random.default_rng(0).permutation(x) / a).astype(SINGLE)
    y, w = bent(list(numbers), (way, max(0, way - 1)), tops, a, c, health)
    rows = np.arange(64) // 2 % 2
    exact = c * np.tanh(SINGLE(a) * numbers.astype(np.float64)) - np.take(tops, rows)
    near = 5e-7 * c + 4e-7 * np.abs(exact).max()
    if health:
        assert np.abs(y - exact).max() < near
    assert np.abs(np.log2(w) - exact).max() < near


@pytest.mark.parametrize("way", [0, 1])
def test_what_is_far_below_weighs_nothing(way: int) -> None:
    """Cells that the polynomial was not made for: their exponents are low, and still numbers."""
    numbers = [SINGLE(-x / 0.0043) for x in (0.3, 0.8, 2.0, 10.0, 1e2, 3e3)] * 2
    y, w = bent(numbers, (way, way), (0.0, 0.0), 0.0043, 29.0, True)
    beyond = np.array([float(-x * 0.0043) for x in numbers]) > BOUNDS[way]
    assert np.isfinite(y).all()
    assert (y[beyond] < -29.0 * np.tanh(BOUNDS[way]) + 0.01).all()
    assert (w[np.array(numbers) < -2.0 / 0.0043] < 1e-7).all()


def test_which_rows_may_take_a_polynomial() -> None:
    """Cells below its range are e^-5 or e^-10 of the row's largest, and less."""
    from limelight.engines.gpu.hopper_powers import NEAR, WIDE, bend_of

    for softcap in (2.0, 20.0, 64.0):
        bend = bend_of(0.004, 1.44 * softcap, softcap)
        assert (bend.near_least + NEAR.value) * softcap == pytest.approx(5.0)
        assert (bend.wide_least + WIDE.value) * softcap == pytest.approx(10.0)
