"""The GPU's tests where there is no GPU: the Hopper engine's, its compiled kernels carried out.

    python -m pytest -p tests.ptx.plugin tests/gpu -k hopper [--late products,loads,stores] [--turns 7]

With `--without wgmma.wait_group` the kernels lack what they should not: that tests notice it. Triton
adopts one chip for a process, so these have processes of their own. What needs the chip itself, its
streams and graphs or its memory, is skipped and says so.
"""

from __future__ import annotations

import pytest
import torch

from limelight.engines import hopper
from tests.ptx import launching
from tests.ptx.pace import ORDERS, WORK, Pace

LEFT_OUT = {
    "test_memory_is_linear": "too large to be carried out",
    "test_more_heads_than_a_grid_is_high": "too large to be carried out",
    "test_more_than_two_to": "too large to be carried out",
    "test_the_host_does_not_wait": "a GPU's own waits are counted",
    "test_small_calls_in_one_launch": "small calls are the portable kernels'",
}


def _needed(*given: object, **named: object) -> None:
    pytest.skip("it asks for CUDA itself")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before the tests' own files ask which engines are here; the module is only read elsewhere."""
    launching.adopt()
    hopper.missing = lambda: None
    torch.cuda._lazy_init = torch.cuda.Stream = torch.cuda.CUDAGraph = _needed
    torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--late", default="", help=f"what is done late, of {', '.join(WORK)}")
    parser.addoption("--turns", default=ORDERS[0], help=f"{', '.join(ORDERS)} or a seed")
    parser.addoption("--without", default="", help="PTX that is left out of the kernels")


def pytest_configure(config: pytest.Config) -> None:
    late, turns = config.getoption("--late"), config.getoption("--turns")
    launching.without = config.getoption("--without")
    launching.pace = Pace(
        tuple(late.split(",")) if late else (), int(turns) if turns.isdigit() else turns
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name, reason in LEFT_OUT.items():
            if item.name.startswith(name):
                item.add_marker(pytest.mark.skip(reason=reason))
