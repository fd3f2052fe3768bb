"""One loading of the model for all tests here; one thread each, since tests share the cores."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits

from limelight import live


@pytest.fixture(scope="package", autouse=True)
def _alone() -> Iterator[None]:
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="package")
def gpt() -> live.Model:
    return live.load("gpt")
