"""Compiled, autocast, trained: a model on limelight behaves as on sdpa."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from limelight import hf
from tests.hf import systems
from tests.marks import later


@pytest.mark.parametrize(("name", "side"), [
    ("llama", "left"), ("bert", "none"),
    later("llama", "none"), later("bert", "left"), later("gemma2", "none"), later("gemma2", "left"),
])  # fmt: skip
def test_one_graph_without_a_break(name: str, side: str) -> None:
    model, given = systems.build(name, torch.float32), systems.inputs(name, side)
    model.set_attn_implementation("limelight")
    with torch.no_grad():
        expected = model(**given).logits
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        found = compiled(**given).logits
    real = systems.real_positions(name, side, found)
    truth = systems.real_positions(name, side, expected)
    torch.testing.assert_close(real, truth, rtol=1e-4, atol=1e-4)


def test_autocast_as_on_sdpa() -> None:
    model, given = systems.build("llama", torch.float32), systems.inputs("llama", "left")
    truth = systems.real_positions("llama", "left", systems.run(model, "eager", given))
    errors = {}
    for implementation in ("sdpa", "limelight"):
        with torch.autocast("cpu", torch.bfloat16):
            found = systems.run(model, implementation, given)
        found = systems.real_positions("llama", "left", found)
        errors[implementation] = float((found - truth).abs().max().detach())
    assert errors["limelight"] <= 2 * errors["sdpa"]


def losses(implementation: str, steps: int = 12) -> list[float]:
    model = systems.build("llama", torch.float32).train()
    model.set_attn_implementation(implementation)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = systems.inputs("llama")["input_ids"]
    found = []
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def test_training_follows_the_same_curve() -> None:
    expected = losses("sdpa")
    assert expected[-1] < 0.9 * expected[0]
    assert losses("limelight") == pytest.approx(expected, rel=1e-5)


def test_capture_of_a_compiled_model() -> None:
    """What is captured is the model's own code: a compiled one runs it outside of the graph."""
    model, given = systems.build("llama", torch.float32), systems.inputs("llama")
    model.set_attn_implementation("limelight")
    torch._dynamo.reset()
    compiled: Any = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(**given)
        with hf.capture(model) as found:
            compiled(**given)
        compiled(**given)
        with hf.capture(compiled) as again:
            compiled(**given)
    assert len(found) == 2
    assert [site.name for site in again] == [site.name for site in found]
    assert again.source["model"] == "LlamaForCausalLM"
    assert hf.survey(compiled, [[1, 2, 3]]).sites == hf.survey(model, [[1, 2, 3]]).sites
