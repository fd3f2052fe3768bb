"""Every system on limelight, forward and backward, with eager as the judge."""

from __future__ import annotations

import pytest
import torch

from limelight import hf
from tests.hf import systems

SIDES = ("none", "left", "right")
CASES = [
    (name, side) for name in systems.NAMES for side in SIDES
    if side == "none" or systems.find(name).kind not in ("vision", "speech")
]  # fmt: skip


@pytest.fixture(autouse=True)
def _registered() -> None:
    hf.register()


def gradients(model, implementation: str, name: str, side: str, given: dict) -> dict:
    """Each parameter's gradient of a loss that weighs every real output differently."""
    model.zero_grad()
    output = systems.real_positions(name, side, systems.run(model, implementation, given))
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * weight).sum().backward()
    return {
        key: parameter.grad.clone()
        for key, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest difference, in units of the largest number."""
    found, truth = found.detach().double(), truth.detach()
    return float((found - truth).abs().max() / truth.abs().max().clamp_min(1e-30))


@pytest.mark.parametrize(("name", "side"), CASES)
def test_forward_and_backward_in_float64(name: str, side: str) -> None:
    model, given = systems.build(name), systems.inputs(name, side)
    truth = systems.real_positions(name, side, systems.run(model, "eager", given))
    found = systems.real_positions(name, side, systems.run(model, "limelight", given))
    rounding = systems.find(name).rounding
    assert distance(found, truth) < rounding
    expected = gradients(model, "eager", name, side, given)
    measured = gradients(model, "limelight", name, side, given)
    assert expected.keys() == measured.keys()
    largest = max(float(g.abs().max()) for g in expected.values())
    for key, gradient in expected.items():
        assert float((measured[key] - gradient).abs().max()) < rounding * largest, key


@pytest.mark.parametrize("name", systems.NAMES)
def test_float32_is_as_good_as_eager(name: str) -> None:
    """Error against float64 at most twice eager's own, plus a few roundings of the output."""
    side = "left" if (name, "left") in CASES else "none"
    truth = systems.run(systems.build(name), "eager", systems.inputs(name, side))
    truth = systems.real_positions(name, side, truth)
    model = systems.build(name, torch.float32)
    given = systems.inputs(name, side, torch.float32)
    errors = {}
    for implementation in ("eager", "limelight"):
        found = systems.real_positions(name, side, systems.run(model, implementation, given))
        errors[implementation] = distance(found, truth)
    assert errors["limelight"] <= 2 * errors["eager"] + 8 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt-oss"])
def test_bfloat16_is_as_good_as_eager(name: str) -> None:
    model = systems.build(name, torch.bfloat16)
    given = systems.inputs(name, "left", torch.bfloat16)
    wide = systems.build(name)
    wide.load_state_dict({key: value.double() for key, value in model.state_dict().items()})
    truth = systems.real_positions(name, "left", systems.run(wide, "eager", given))
    errors = {
        implementation: distance(
            systems.real_positions(name, "left", systems.run(model, implementation, given)), truth
        )
        for implementation in ("eager", "limelight")
    }
    assert errors["limelight"] <= 2 * errors["eager"] + 8 * torch.finfo(torch.bfloat16).eps


def test_a_model_s_own_dropout() -> None:
    model = systems.build("llama")
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.3
    model.set_attn_implementation("limelight")
    given = systems.inputs("llama")
    plain = model.eval()(**given).logits
    torch.manual_seed(5)
    first, second = (model.train()(**given).logits for _ in range(2))
    torch.manual_seed(5)
    again = model(**given).logits
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, plain)
    first.sum().backward()
