"""warm(): which kinds a model needs, each a call that runs; what is said where nothing can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from limelight.cli import app
from limelight.engines import find
from limelight.errors import EngineError
from limelight.torch import warming
from limelight.torch.warming import Kind, kinds_of, run, warm

SMALL = Kind(size=8, heads=4, key_heads=2, queries=5, keys=7, mask="causal", dtype="float32",
             batch=3)  # fmt: skip
here = any(find(name).missing() is None for name in warming.GPU)


def test_what_a_model_asks_for() -> None:
    assert [(k.health, k.gradients) for k in kinds_of(SMALL, training=False)] == [
        (False, False), (True, False)
    ]  # fmt: skip
    assert [k.gradients for k in kinds_of(SMALL, training=True)] == [False, False, True]
    drops = replace(SMALL, dropout=0.1)
    assert [k.dropout for k in kinds_of(drops, training=True)] == [0.0, 0.0, 0.1]


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("kind", kinds_of(replace(SMALL, dropout=0.1), training=True))
def test_each_kind_is_a_call(
    kind: Kind, softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from limelight.torch import functional

    asked: list[dict[str, Any]] = []
    for name in ("attention", "inspect"):
        real = getattr(functional, name)

        def told(*arrays: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            asked.append({"name": name, "shape": tuple(arrays[0].shape), **options})
            return real(*arrays, **options)

        monkeypatch.setattr(functional, name, told)
    run(Kind(**{**vars(kind), "softcap": softcap, "sinks": True}), device="cpu")
    (call,) = asked
    assert call["name"] == ("inspect" if kind.health else "attention")
    assert call["shape"] == (3, 4, 5, 8)
    assert call["softcap"] == softcap
    assert call["dropout"] == kind.dropout
    assert call["mask"].expression == "Causal()"
    assert call["sinks"].shape == (4,)


def test_all_of_them_with_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        warming, "find", lambda name: type("Engine", (), {"missing": lambda _: None})()
    )
    monkeypatch.setattr(warming, "_apart", lambda kind: 2.5)
    seen: list[tuple[int, int]] = []
    kinds = kinds_of(SMALL, training=True)
    taken = warm(kinds, progress=lambda done, count: seen.append((done, count)))
    assert list(taken) == kinds
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_kind_that_cannot_be_compiled_says_why() -> None:
    with pytest.raises(EngineError, match=r"could not be compiled: .*speckled"):
        warming._apart(Kind(**{**vars(SMALL), "mask": "speckled"}))


@pytest.mark.skipif(here, reason="here something can be warmed")
def test_nothing_to_warm() -> None:
    with pytest.raises(EngineError, match=r"no GPU engine can run here\. hopper: .*; triton: "):
        warm([SMALL])
    said = CliRunner().invoke(app, ["warm"])
    assert said.exit_code != 0
    assert "nothing to warm" in said.output
