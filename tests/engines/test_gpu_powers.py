"""The polynomials that a softcap's tanh is made of on Hopper, in float32 as the kernel takes them."""

from __future__ import annotations

import numpy as np
import pytest

from limelight.engines.gpu import absent
from limelight.engines.hopper import OLDEST

lacking = absent(OLDEST)
pytestmark = pytest.mark.skipif(lacking is not None, reason=str(lacking))


@pytest.mark.parametrize("a", [3.1e-4, -0.0043, 0.03, 2.9e3])
@pytest.mark.parametrize("c", [0.02, 30.0, 92.0])
def test_completed_squares_are_tanh(a: float, c: float) -> None:
    from limelight.engines.gpu.hopper_powers import NEAR, WIDE, bend_of

    bend = bend_of(a, c, softcap=20.0)
    numbers = {name: np.float32(number) for name, number in bend._asdict().items()}
    for name, number in numbers.items():
        assert name.endswith("least") or np.finfo(np.float32).tiny < abs(number) < 1e36
    for name, bound in (("near", NEAR.value), ("wide", WIDE.value)):
        x = (np.linspace(-bound, bound, 4001) / a).astype(np.float32)
        t = x * x + numbers[f"{name}_shift"]
        if name == "near":
            u = t * t + numbers["near_rest"]
        else:
            u = t * t + numbers["wide_square"]
            u = u * u + (t * numbers["wide_slope"] + numbers["wide_rest"])
        y = (u * x) * numbers[f"{name}_factor"]
        assert np.abs(y / c - np.tanh(a * x.astype(np.float64))).max() < 4e-7
        unit = numbers[f"{name}_unit"] * numbers[f"{name}_factor"]
        assert unit == pytest.approx(-1.0, abs=1e-6)


def test_what_is_beyond_a_polynomial_weighs_nothing() -> None:
    """Where a row may take one, cells below its range are at least e^-5 and e^-10 of the largest."""
    from limelight.engines.gpu.hopper_powers import NEAR, WIDE, bend_of

    for softcap in (2.0, 20.0, 64.0):
        bend = bend_of(0.004, 1.44 * softcap, softcap)
        for least, bound, depth in (
            (bend.near_least, NEAR.value, 5.0), (bend.wide_least, WIDE.value, 10.0)
        ):  # fmt: skip
            assert (least + bound) * softcap == pytest.approx(depth)
