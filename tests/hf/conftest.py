"""Small models on two cores: one thread each is faster than sharing; nothing may go online."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch

from limelight import hf


@pytest.fixture(scope="package", autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    hf.register()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="package")
def smollm2() -> hf.Loaded:
    pytest.importorskip("gguf")
    return _installed("smollm2")


@pytest.fixture(scope="package")
def minilm() -> hf.Loaded:
    return _installed("minilm")


def _installed(name: str) -> hf.Loaded:
    from limelight.hf.places import BUILTIN

    if not _there(BUILTIN[name].module):
        pytest.skip(f"not installed here: {BUILTIN[name].install}")
    return hf.load(name)


def _there(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None
