"""Every engine offers what the protocol asks, under the same names and in the same order."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from limelight.engines import ENGINES, Engine, find, protocol
from limelight.engines.gpu import absent


def offered(module: Any, asked: type) -> None:
    for name, method in vars(asked).items():
        if name.startswith("_"):
            continue
        wanted = list(inspect.signature(method).parameters.values())[1:]  # less self
        own = inspect.signature(getattr(module, name)).parameters.values()
        have = [(each.name, each.kind, each.default) for each in own]
        assert have == [(each.name, each.kind, each.default) for each in wanted], (module, name)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_an_engine_offers_what_the_protocol_asks(engine: Engine) -> None:
    offered(engine.module, protocol.Runs)
    if engine.takes_tensors:
        pytest.importorskip("torch")
    if "cuda" in engine.devices and (lacking := absent(engine.module.OLDEST)):
        pytest.skip(lacking)
    offered(engine.looking, protocol.Looks)
    if engine.quick:
        offered(engine.module, protocol.RunsQuickly)
    if engine.pages:
        offered(engine.module, protocol.RunsPages)


@pytest.mark.parametrize(("name", "oldest"), [("triton", "3.4"), ("hopper", "3.6")])
def test_an_older_triton_is_named(name: str, oldest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(pytest.importorskip("triton"), "__version__", "3.2.0")
    said = f"it needs Triton {oldest} or later, and here is 3.2.0: pip install -U torch"
    assert find(name).module.missing() == said


def test_some_engine_has_a_quick_way() -> None:
    assert [engine.name for engine in ENGINES if engine.quick] == ["native"]


def test_there_is_an_engine_for_pages_on_every_device() -> None:
    assert [engine.devices for engine in ENGINES if engine.pages] == [("cpu",), ("cuda",)]
