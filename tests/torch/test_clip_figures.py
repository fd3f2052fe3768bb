"""What brings a head to its limit: with a bias, under a softcap, beside padding; and what never."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import limelight as ll
from limelight.call import prepare
from limelight.torch import QKClip, SelfAttention, attention, inspect
from limelight.torch.clipping.figures import figures
from limelight.torch.clipping.followed import STEPS, Followed


def gamma(
    query: Tensor, key: Tensor, limit: float, text: Tensor | None = None, **rule: Any
) -> Tensor:
    """The factors of a call's heads."""
    seen = inspect(query, key, key, **rule)
    call = prepare(query, key, key, **rule)
    return -figures(call, seen.health.max_logit, text, limit)[2]


def logits(query: Tensor, key: Tensor, factor: Tensor, **rule: Any) -> Tensor:
    return inspect(query * factor[:, None, None], key, key, **rule).health.max_logit.amax((0, 2))


@given(
    seed=st.integers(0, 10**6),
    limit=st.floats(0.5, 50),
    spread=st.floats(0, 30),
    shift=st.floats(-20, 0),
    grown=st.floats(0.1, 20),
)
def test_no_logit_passes_the_limit_whatever_its_bias(
    seed: int, limit: float, spread: float, shift: float, grown: float
) -> None:
    torch.manual_seed(seed)
    query, key = grown * torch.randn(2, 3, 5, 7), torch.randn(2, 3, 4, 7)
    bias = shift - spread * torch.rand(2, 3, 5, 4)
    bias[0, 0, 1] = -math.inf
    factor = gamma(query, key, limit, bias=bias)
    assert ((factor > 0) & (factor <= 1)).all()
    before, after = (logits(query, key, each, bias=bias) for each in (factor**0, factor))
    assert (after <= limit * (1 + 1e-4)).all()
    assert torch.equal(factor == 1, before <= limit * 1.00001)


@given(
    seed=st.integers(0, 10**6),
    limit=st.floats(0.5, 50),
    cap=st.floats(1, 60),
    grown=st.floats(0.1, 5),
)
def test_a_capped_logit_comes_to_the_limit_at_once(
    seed: int, limit: float, cap: float, grown: float
) -> None:
    torch.manual_seed(seed)
    query, key = grown * torch.randn(2, 3, 5, 7), torch.randn(2, 3, 4, 7)
    sharp = (query @ key.mT).abs().amax() / math.sqrt(7) / cap
    query = query * min(1.0, 3.0 / float(sharp))  # beyond, the last bits of tanh decide
    before = logits(query, key, torch.ones(3), softcap=cap)
    factor = gamma(query, key, limit, softcap=cap)
    after = logits(query, key, factor, softcap=cap)
    over = before > limit * 1.00001
    torch.testing.assert_close(after[over], torch.full_like(after[over], limit), rtol=1e-3, atol=0)
    assert (factor[~over] == 1).all()


def test_a_cap_below_the_limit_needs_nothing() -> None:
    query = 1e4 * torch.ones(1, 1, 2, 4)
    assert gamma(query, query, 50.0, softcap=50.0).item() == 1.0
    assert gamma(query, query, 50.0, softcap=30.0).item() == 1.0


def test_a_flat_cap_is_left_in_a_few_steps() -> None:
    """Where tanh is 1 to the last bit, how far the logits went cannot be told at once."""
    layer, x = _grown(softcap=50.0, by=1e4), torch.randn(2, 9, 16)
    with warnings.catch_warnings(), QKClip(layer, 45.0) as clip:
        warnings.simplefilter("error")
        for _ in range(12):
            layer(x)
            clip.step()
    after = layer.inspect(x).health.max_logit.amax((0, 2))
    torch.testing.assert_close(after, torch.full_like(after, 45.0), rtol=1e-3, atol=0)


def test_a_softcap_and_a_bias_together() -> None:
    query, key = 9 * torch.randn(1, 2, 5, 7), torch.randn(1, 2, 4, 7)
    rule = {"softcap": 20.0, "bias": -3 * torch.rand(1, 2, 5, 4)}
    for _ in range(6):
        query = query * gamma(query, key, 4.0, **rule)[:, None, None]
    assert (logits(query, key, torch.ones(2), **rule) <= 4.0 * (1 + 1e-4)).all()


def _grown(by: float = 12.0, **options: Any) -> SelfAttention:
    torch.manual_seed(0)
    layer = SelfAttention(16, 4, **options)
    with torch.no_grad():
        layer.W_Q.weight.mul_(by)
        layer.W_K.weight.mul_(8)
    return layer


class Biased(SelfAttention):
    """With a bias on its logits."""

    bias: Tensor

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        query, key, value = self.project(x)
        return self._join(attention(query, key, value, bias=self.bias))


def test_a_bias_at_the_limit_is_left_alone_and_said_once() -> None:
    torch.manual_seed(0)
    layer, x = Biased(16, 2), torch.randn(2, 5, 16)
    layer.bias = torch.tensor([30.0, 1.0])[:, None, None] * torch.eye(5)
    with torch.no_grad():
        layer.W_Q.weight.mul_(40)
    weight = layer.W_Q.weight.detach().clone()
    with QKClip(layer, 5.0) as clip:
        layer(x)
        with pytest.warns(UserWarning, match=r"Biased: a bias .* head 0 .*limit of 5 .*higher"):
            done = clip.step()
        assert [one.head for one in done] == [1]
        layer(x)
        assert clip.step() == []  # and no second warning, which would be an error
    assert torch.equal(layer.W_Q.weight[:8], weight[:8])
    assert not torch.equal(layer.W_Q.weight[8:], weight[8:])


def test_a_bias_that_only_masks_is_none() -> None:
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True), torch.randn(2, 5, 16)
    with torch.no_grad():
        layer.in_proj_weight.mul_(9)
    mask = torch.full((5, 5), -math.inf).triu(1)
    with QKClip(layer, 1.5, sdpa=True) as clip:
        for _ in range(2):
            layer(x, x, x, attn_mask=mask, need_weights=False)
            done = clip.step()
            mask = mask.clamp_min(torch.finfo(torch.float32).min)  # as Transformers writes it
        assert not done


@pytest.mark.parametrize("hidden", [math.nan, 1e4, 50.0])
def test_a_bias_where_the_mask_hides_is_none(hidden: float) -> None:
    query, key = 30 * torch.randn(2, 3, 5, 7), torch.randn(2, 3, 4, 7)
    bias = torch.randn(1, 3, 5, 4)
    mask = torch.rand(2, 1, 5, 4) < 0.7
    mask[..., 0], mask[..., 3] = True, False
    spoilt = torch.where(torch.arange(4) == 3, hidden, bias)
    expected = gamma(query, key, 5.0, bias=bias.masked_fill(~mask.any(0), -math.inf), mask=mask)
    assert (expected < 1).any()
    assert torch.equal(gamma(query, key, 5.0, bias=spoilt, mask=mask), expected)


def test_a_slope_that_rises_beyond_the_diagonal_alone() -> None:
    """ALiBi as j - i: no key that a row sees has a bias above 0."""
    query, key = 10 * torch.randn(1, 2, 64, 8), torch.randn(1, 2, 64, 8)
    place = torch.arange(64)
    rule = {"bias": 0.5 * (place - place[:, None]).float()[None, None], "mask": ll.Causal()}
    factor = gamma(query, key, 20.0, **rule)
    assert (factor > 0).all()
    after = logits(query, key, factor, **rule)
    assert (after <= 20.0 * (1 + 1e-4)).all()


def test_padding_is_no_row() -> None:
    """The rows that attention_mask calls padding, as the Monitor leaves them out."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = _grown(by=1.0, causal=False)

        def forward(self, x: Tensor, attention_mask: Tensor) -> Any:
            return self.attention(x, mask=attention_mask[:, None, None, :].bool())

    model, x = Model(), torch.randn(2, 6, 16)
    text = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]])
    x[text == 0] *= 100
    with QKClip(model, 1e-3) as clip:
        model(x, attention_mask=text)
        found = torch.tensor([one.max_logit for one in clip.step()])
    seen = inspect(*_grown(by=1.0).project(x), mask=text[:, None, None, :].bool()).health
    rows = seen.max_logit.masked_fill(text[:, None] == 0, -math.inf)
    torch.testing.assert_close(found, rows.amax((0, 2)).detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits_come_below_the_limit_and_stay(dtype: torch.dtype) -> None:
    """Their rounding would leave a head a little above it for ever."""
    for seed in range(6):
        torch.manual_seed(seed)
        layer, x = SelfAttention(64, 4), torch.randn(2, 32, 64)
        with torch.no_grad():
            layer.W_Q.weight.mul_(20)
            layer.W_K.weight.mul_(20)
        layer, x = layer.to(dtype), x.to(dtype)
        with QKClip(layer, 10.0) as clip:
            for _ in range(3):
                layer(x)
                before = [weight.clone() for weight in layer.parameters()]
                done = clip.step()
                same = all(map(torch.equal, layer.parameters(), before))
                assert same == (not done)
            assert not done


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_every_float_type(dtype: torch.dtype) -> None:
    """Weights of 16 bits are rounded once, so that a head stays at the limit on the whole."""
    layer, x = _grown().to(dtype), torch.randn(4, 31, 16, dtype=dtype)
    with QKClip(layer, 5.0) as clip:
        layer(x)
        assert len(clip.step()) == 4
    after = layer.inspect(x).health.max_logit.amax((0, 2)).double()
    near = 1e-6 if dtype == torch.float64 else 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(after, torch.full_like(after, 5.0), rtol=near, atol=0)


class Normalised(nn.Module):
    """Queries are normalised by a function, which no name tells."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (4, 4)).transpose(1, 2)

        query, key = (
            nn.functional.normalize(heads(linear(x)), dim=-1)
            for linear in (self.q_proj, self.k_proj)
        )
        return attention(query, key, heads(x), scale=20.0)


def test_what_does_not_follow_its_projections_is_found_out() -> None:
    torch.manual_seed(0)
    model, x = Normalised(), torch.randn(2, 9, 16)
    with QKClip(model, 5.0) as clip:
        for _ in range(STEPS):
            model(x)
            assert clip.step()
        scaled = model.q_proj.weight.detach().clone()
        model(x)
        with pytest.warns(UserWarning, match=(
            r"Normalised does not follow .*head 0 .* back to 5 in 3 steps running.* still is 1\d\."
            r".*normalised or clamped.*z_loss"
        )):  # fmt: skip
            assert clip.step() == []
        for _ in range(3):
            model(x)
            assert clip.step() == []
    assert torch.equal(model.q_proj.weight, scaled)


def left(reach: list[float], factors: list[float], sizes: list[float]) -> bool:
    """Whether a head of such figures is left alone at the last step."""
    sizes = sizes.copy()
    fake = SimpleNamespace(site="x", queries=SimpleNamespace(heads=1), least=lambda: 1.0,
                           sizes=lambda: [sizes.pop(0)])  # fmt: skip
    site = Followed(fake)  # type: ignore[arg-type]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for now, factor in zip(reach, factors, strict=True):
            assert not said
            (found,) = site.factors(1.0, [[now], [now], [-factor]])
            site.scaled()
    assert bool(said) == (found != factors[-1])
    return bool(said)


def test_three_steps_running_and_no_fewer() -> None:
    stays, third, falls = [9.0] * 4, [1 / 9] * 4, [9.0, 3.0, 1.0]
    assert left(stays, third, falls)
    assert left([9.0, 8.2, 7.5, 6.9], third, falls)  # a tenth less each time
    assert not left(stays[:3], third[:3], falls)
    assert not left(stays, [0.5, 0.7, 0.5, 0.5], falls)
    assert not left([9.0, 9.0, 5.0, 9.0], third, [*falls, 0.3])
    assert not left([9.0, 9.0, math.inf, 9.0], third, [*falls, 0.3])
    assert not left([9.0, 9.0, 9.0, math.inf], third, [*falls, 0.3])
    assert not left(stays, third, [9.0, 9.0, 3.0, 1.0])  # weights that grow as fast
    assert not left(stays, third, [9.0, 3.0, 2.1, 1.0])
    assert not left(stays, [1.0] * 4, [])


def test_weights_that_grow_as_fast_as_they_are_scaled_do_follow() -> None:
    """An optimizer at far too large a rate: that is what QKClip is for."""
    layer, x = _grown(), torch.randn(2, 9, 16)
    with QKClip(layer, 5.0) as clip:
        for _ in range(8):
            layer(x)
            with torch.no_grad():
                layer.W_Q.weight.mul_(20)
            assert len(clip.step()) == 4


def test_activations_that_grow_as_fast_as_weights_are_scaled_do_follow() -> None:
    layer, x, clipped = _grown(), torch.randn(2, 9, 16), 0
    with QKClip(layer, 5.0) as clip, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(16):
            with torch.no_grad():
                layer(1.4**step * x)
            clipped += len(clip.step()) == 4
    assert clipped >= 11
    assert len(said) == 1


def test_what_follows_nothing_is_tried_again_for_logits_never_seen_alone() -> None:
    sizes = [3.0**-step for step in range(40)]
    fake = SimpleNamespace(site="x", queries=SimpleNamespace(heads=1), least=lambda: 1.0,
                           sizes=lambda: [sizes.pop(0)])  # fmt: skip
    site = Followed(fake)  # type: ignore[arg-type]

    def tried(*reach: float) -> list[bool]:
        found = []
        for now in reach:
            found += site.factors(1.0, [[now], [now], [-0.1]])
            site.scaled()
        return [factor < 1 for factor in found]

    assert tried(9, 9, 9) == [True] * 3
    with pytest.warns(UserWarning, match="does not follow"):
        assert tried(9) == [False]
    assert tried(9, 14, 9, 9, 9, 9, 9) == [False, *[True] * 4, False, False]  # and said once
    assert tried(14, 20, 22) == [False, False, True]


def test_a_step_without_the_site_is_no_step_of_it() -> None:
    """LayerDrop: a site that is seen now and then is judged by the steps in which it was."""
    torch.manual_seed(0)
    model, x = Normalised(), torch.randn(2, 9, 16)
    with QKClip(model, 5.0) as clip:
        for _ in range(STEPS):
            model(x)
            assert clip.step()
            assert clip.step() == []
        model(x)
        with pytest.warns(UserWarning, match="does not follow"):
            clip.step()
