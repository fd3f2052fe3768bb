"""One loading of each model for all tests here; one thread each, since tests share the cores."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Iterator
from typing import Any

import pytest

from limelight import live


@pytest.fixture(scope="package", autouse=True)
def _alone() -> Iterator[None]:
    limits = pytest.importorskip("threadpoolctl").threadpool_limits
    with limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="package")
def gpt() -> live.Model:
    return live.load("gpt")


@pytest.fixture(scope="package")
def smollm2() -> live.Model:
    pytest.importorskip("gguf")
    if why := live.missing("smollm2"):
        pytest.skip(why)
    return live.load("smollm2")


@pytest.fixture(scope="package")
def theirs(smollm2: live.Model) -> Any:
    """The same file through Transformers, in float32."""
    pytest.importorskip("torch")
    from limelight import hf

    hf.quiet()
    return hf.load("smollm2")
