"""Captures of any module: the weights are the framework's own, and nothing stays patched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as imported_early

import limelight as ll
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError
from limelight.torch import Monitor, bridge, capture
from limelight.torch.rules import Rules

SIZE, HEADS, BATCH, LENGTH = 21, 3, 2, 7
PADDING = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [5]])  # torch's sense: True is padding


class Attention(nn.Module):
    """Attention as people write it: `how` says by which function."""

    def __init__(self, how: str = "functional", causal: bool = True) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.how, self.causal = how, causal
        self.own: torch.Tensor | None = None  # the weights, by the formula

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        parts = self.qkv(x).unflatten(-1, (3, HEADS, SIZE // HEADS)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        logits = query @ key.mT / math.sqrt(SIZE // HEADS)
        if self.causal:
            logits = logits.masked_fill(torch.ones(logits.shape[-2:]).triu(1).bool(), -torch.inf)
        if mask is not None:
            logits = (
                logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
            )
        self.own = torch.exp(logits - logits.logsumexp(-1, keepdim=True)).detach()
        if self.how == "softmax":
            mixed = F.softmax(logits, dim=-1) @ value
        elif self.how == "flattened":
            mixed = (logits.flatten(0, 1).softmax(2) @ value.flatten(0, 1)).unflatten(
                0, (-1, HEADS)
            )
        else:
            function = imported_early if self.how == "early" else F.scaled_dot_product_attention
            mixed = function(query, key, value, attn_mask=mask, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class GPT(nn.Module):
    def __init__(self, *hows: str, causal: bool = True) -> None:
        super().__init__()
        self.h = nn.ModuleList(Attention(how, causal) for how in hows)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        for block in self.h:
            x = x + block(x, mask)
        return x


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(5)
    return 2.0 * torch.randn(BATCH, LENGTH, SIZE)


def weights(site: Site) -> np.ndarray:
    return np.stack([site.weights(batch=b) for b in range(site.batch)])


def compare(site: Site, own: torch.Tensor, padding: torch.Tensor | None = None) -> None:
    """The site's weights are these, and a query that is padding is no row."""
    found, want = weights(site), own.detach().float().numpy()
    if padding is not None:
        np.testing.assert_array_equal(site.real_queries, ~padding.numpy())
        want = np.where(padding.numpy()[:, None, :, None], 0.0, want)
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-6)


def untouched(model: nn.Module) -> bool:
    """Whether neither torch nor the model shows that a capture was there."""
    return (
        F.scaled_dot_product_attention is imported_early
        and F.multi_head_attention_forward.__module__ == "torch.nn.functional"
        and not bridge.observers
        and torch._C._len_torch_function_stack() == 0
        and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        and not any("limelight_site" in vars(m) for m in model.modules())
    )


def test_a_gpt_by_every_way_of_calling(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = GPT("functional", "early", "softmax", "functional").eval()
    want = model(x)
    with capture(model, tokens=["abcdefg"] * BATCH) as cap:
        found = model(x)
    assert [site.name for site in cap] == [f"h.{i}" for i in range(4)]
    torch.testing.assert_close(found, want, atol=1e-5, rtol=0)
    for site, block in zip(cap, model.h, strict=True):
        compare(site, block.own)
        assert site.labels() == tuple("abcdefg")
        assert site.only_weights == (block.how == "softmax")
        assert site.mask == (None if site.only_weights else ll.Causal())
    found.sum().backward()
    assert model.h[0].qkv.weight.grad.isfinite().all()
    assert untouched(model)


@pytest.mark.parametrize("form", ["flags", "cells", "added"])
def test_padding_is_read_from_the_mask(x: torch.Tensor, form: str) -> None:
    torch.manual_seed(0)
    model = GPT("functional", "softmax", causal=False).eval()
    mask = ~PADDING[:, None, None, :]
    if form == "cells":
        mask = mask & torch.ones(LENGTH, LENGTH).tril().bool()
    if form == "added":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    with torch.no_grad(), capture(model) as cap:
        model(x, mask)
    rule = "Causal() & Lengths([7, 5])" if form == "cells" else "Lengths([7, 5])"
    assert cap[0].mask.expression == rule
    assert cap[0].bias is None
    for site, block in zip(cap, model.h, strict=True):
        compare(site, block.own, PADDING)
    everything = torch.ones(BATCH, LENGTH)
    with torch.no_grad(), capture(model, real=everything) as cap:
        model(x, mask)
    compare(cap[0], model.h[0].own)


def test_a_flag_for_each_key_is_padding_in_a_single_text_too(x: torch.Tensor) -> None:
    model = GPT("functional", causal=False).eval()
    with torch.no_grad(), capture(model) as cap:
        model(x[1:], ~PADDING[1:, None, None, :])
    assert cap[0].mask.expression == "Lengths(5)"
    compare(cap[0], model.h[0].own, PADDING[1:])


def test_a_mask_that_every_entry_shares_hides_no_row(x: torch.Tensor) -> None:
    model = GPT("functional", causal=False).eval()
    strict = torch.ones(LENGTH, LENGTH).tril(-1).bool()
    strict[0, 0] = True
    with torch.no_grad(), capture(model) as cap:
        model(x, strict)
    assert cap[0].real_queries is None
    compare(cap[0], model.h[0].own)


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_multihead_attention(x: torch.Tensor, need_weights: bool, grad: bool, padded: bool) -> None:
    """Eval mode without gradients is its fused path."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(SIZE, HEADS, batch_first=True).eval()
    padding = PADDING if padded else None
    want, own = model(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    with torch.set_grad_enabled(grad), capture(model) as cap:
        found, said = model(x, x, x, key_padding_mask=padding, need_weights=need_weights)
    assert [(site.name, site.kind) for site in cap] == [("MultiheadAttention", "self")]
    torch.testing.assert_close(found, want, atol=1e-5, rtol=0)
    if need_weights:
        torch.testing.assert_close(said, own.mean(1))
    compare(cap[0], own, padding)
    assert untouched(model)


def test_other_keys_are_cross_attention_and_equal_memory_is_not(x: torch.Tensor) -> None:
    model = nn.MultiheadAttention(SIZE, HEADS, add_bias_kv=True).eval()
    other = torch.randn(LENGTH, BATCH, SIZE)
    query = x.transpose(0, 1)
    with torch.no_grad(), capture(model) as cap:
        model(query, other, other)
        model(query, query, other)  # as detectors do: values without positions
    assert [site.kind for site in cap] == ["cross", "self"]
    assert cap.sites[0].keys == LENGTH + 1  # with the key that the module adds
    own = model(query, other, other, average_attn_weights=False)[1]
    compare(cap.sites[0], own)


def own_weights(model: nn.Module, *given: Any, **named: Any) -> list[torch.Tensor]:
    """What every nn.MultiheadAttention in a model gives, asked for its weights."""
    found: list[torch.Tensor] = []

    def ask(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    hooks = []
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            hooks.append(module.register_forward_pre_hook(ask, with_kwargs=True))
            hooks.append(module.register_forward_hook(lambda *a: found.append(a[2][1])))
    model(*given, **named)  # with gradients: not on the fused path
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("padded", [True, False])
def test_transformer_encoder_on_its_fused_path(x: torch.Tensor, padded: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(SIZE - 1, 4, 32, batch_first=True)  # an even number of heads
    model = nn.TransformerEncoder(layer, 2).eval()
    x, padding = x[..., 1:], PADDING if padded else None
    with torch.no_grad():
        want = model(x, src_key_padding_mask=padding)
        with capture(model) as cap:
            found = model(x, src_key_padding_mask=padding)
    assert [site.name for site in cap] == ["layers.0.self_attn", "layers.1.self_attn"]
    real = ~PADDING if padded else torch.ones(BATCH, LENGTH).bool()
    torch.testing.assert_close(found[real], want[real], atol=1e-5, rtol=0)
    own = own_weights(model, x, src_key_padding_mask=padding)
    for site, table in zip(cap, own, strict=True):
        compare(site, table, padding)
    assert untouched(model)


def test_transformer_decoder(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(SIZE, HEADS, 32, batch_first=True), 2)
    model.eval()
    memory = torch.randn(BATCH, 11, SIZE)
    hidden = torch.arange(11) >= torch.tensor([[11], [4]])
    causal = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    given = (x, memory, causal)
    named = {"tgt_is_causal": True, "memory_key_padding_mask": hidden}
    names = {"tokens": [[f"m{i}" for i in range(11)]] * BATCH, "query_tokens": ["abcdefg"] * BATCH}
    with torch.no_grad(), capture(model, **names) as cap:
        model(*given, **named)
    assert [site.name for site in cap] == [
        f"layers.{i}.{part}" for i in range(2) for part in ("self_attn", "multihead_attn")
    ]
    assert [site.kind for site in cap] == ["self", "cross"] * 2
    own = own_weights(model, *given, **named)
    for site, table in zip(cap, own, strict=True):
        compare(site, table)
        assert site.labels("query") == tuple("abcdefg")
    assert cap[0].mask == ll.Causal()
    assert cap[1].mask.expression == "Lengths([11, 4])"
    assert (~cap[1].real_keys).sum() == 7
    assert cap[1].labels("key")[10] == "m10"


def score_mods() -> dict[str, Any]:
    slope = torch.tensor([0.5, 0.25, 0.125])
    return {
        "none": None,
        "alibi": lambda score, b, h, q, k: score - slope[h] * (q - k),
        "softcap": lambda score, b, h, q, k: 3.0 * torch.tanh(score / 3.0),
        "squared": lambda score, b, h, q, k: score * score.abs(),
    }


@pytest.mark.parametrize("name", ["none", "alibi", "softcap", "squared"])
def test_flex_attention(name: str) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

    torch.manual_seed(0)
    ids, mod = torch.tensor([0] * 60 + [1] * 73), score_mods()[name]

    def packed(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (ids[q] == ids[k])

    blocks = create_block_mask(packed, None, None, 133, 133, device="cpu", BLOCK_SIZE=32)

    class Flex(nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return flex_attention(query, key, key, mod, blocks, enable_gqa=True)

    query, key = torch.randn(2, 3, 133, 8), torch.randn(2, 1, 133, 8)
    net = Flex()
    with torch.no_grad(), capture(net) as cap:
        found = net(query, key)
    logits = query @ key.mT / math.sqrt(8)
    if mod is not None:
        where = torch.meshgrid(*map(torch.arange, logits.shape), indexing="ij")
        logits = mod(logits, *where)
    shown = create_mask(packed, None, None, 133, 133, device="cpu")
    own = logits.masked_fill(~shown, -torch.inf).softmax(-1)
    compare(cap[0], own)
    torch.testing.assert_close(found, own @ key, atol=1e-5, rtol=0)
    assert cap[0].only_weights == (name == "squared")
    if name != "squared":
        assert cap[0].mask.expression.startswith("Causal() & Documents(")
    assert cap[0].softcap == (3.0 if name == "softcap" else None)


def test_flex_attention_in_half_precision_and_its_bound() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    class Flex(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.mod = score_mods()[name]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return flex_attention(x, x, x, self.mod)

    x = torch.randn(1, 3, 37, 16).bfloat16()
    for name in ("alibi", "softcap"):
        net = Flex(name)
        with torch.no_grad(), capture(net) as cap:
            found = net(x)
        assert found.dtype == torch.bfloat16
        where = torch.meshgrid(*map(torch.arange, (1, 3, 37, 37)), indexing="ij")
        own = net.mod(x.float() @ x.float().mT / 4.0, *where).softmax(-1)
        np.testing.assert_allclose(weights(cap[0]), own.numpy(), atol=2e-2)
    for name in ("alibi", "squared"):
        net = Flex(name)
        with (
            pytest.raises(ArgumentError, match=r"weights of Flex take 16\.4 kB"),
            capture(net, most_weights=10_000),
        ):
            net(x)


def test_under_autocast(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = GPT("functional").eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        with capture(model) as cap:
            found = model(x)
        want = model(x)
    torch.testing.assert_close(found, want, atol=0.1, rtol=0)
    kept = torch.from_numpy(cap[0].query)
    assert torch.equal(kept, kept.bfloat16().float())  # the numbers that were multiplied
    np.testing.assert_allclose(cap[0].weights().sum(-1), 1.0, atol=1e-5)


def test_a_compiled_model_runs_eager_and_says_so(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = GPT("functional", "early").eval()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        want = compiled(x)
        with (
            pytest.warns(UserWarning, match="GPT is compiled: inside the capture it runs eager"),
            capture(compiled) as cap,
        ):
            found = compiled(x)
        assert [site.name for site in cap] == ["h.0", "h.1"]
        torch.testing.assert_close(found, want, atol=1e-5, rtol=0)
        compare(cap[1], model.h[1].own)
        compiled(x)
    assert len(cap) == 2


def test_an_error_inside_leaves_nothing_behind(x: torch.Tensor) -> None:
    model = GPT("functional", "softmax")
    with pytest.raises(RuntimeError), capture(model):
        model(x[..., 1:])
    assert untouched(model)

    def stop() -> None:
        with capture(model):
            model(x)
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        stop()
    assert untouched(model)


def test_what_runs_beside_the_model_is_not_its_attention(x: torch.Tensor) -> None:
    first, second = GPT("functional", "softmax"), GPT("functional", "softmax")
    with torch.no_grad(), capture(first) as one, capture(second) as two:
        first(x)
        second(x + 1)
        imported_early(*(x[:, None],) * 3)
        x[:, None].softmax(-1)
    assert [len(one), len(two)] == [2, 2]
    compare(one[0], first.h[0].own)
    compare(two[1], second.h[1].own)


def test_a_monitor_at_the_same_time_counts_once(x: torch.Tensor) -> None:
    model = nn.Sequential(GPT("functional"), GPT("early"))
    heads = nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
    model.add_module("2", _Itself(heads))
    with Monitor(model, every=1, sdpa=True) as monitor, capture(model) as cap:
        model(x)
        record = monitor.step()
    assert [site.name for site in cap] == ["0.h.0", "1.h.0", "2.inner"]
    assert record is not None
    assert {site["name"]: site["rows"] for site in record["sites"]} == dict.fromkeys(
        ("0.h.0", "1.h.0", "2.inner"), BATCH * LENGTH
    )
    assert untouched(model)


class _Itself(nn.Module):
    def __init__(self, inner: nn.MultiheadAttention) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x)[0]


def test_heads_and_batch_in_one_axis(x: torch.Tensor) -> None:
    model = GPT("flattened").eval()
    with (
        pytest.raises(ArgumentError, match=r"nothing was captured: .* softmax"),
        torch.no_grad(),
        capture(model),
    ):
        model(x)
    model.h[0].num_heads = HEADS
    with torch.no_grad(), capture(model) as cap:
        model(x)
    compare(cap[0], model.h[0].own)


def test_layers_from_the_end_and_without_values(x: torch.Tensor) -> None:
    model = GPT("functional", "softmax", "early")
    with torch.no_grad(), capture(model, layers=-1, values=False) as cap:
        model(x)
    assert [(site.name, site.layer, site.value) for site in cap] == [("h.2", 2, None)]


def test_the_bound_on_weights_is_said_before_it_is_passed(x: torch.Tensor) -> None:
    model, each = GPT("softmax", "softmax").eval(), 4 * BATCH * HEADS * LENGTH**2
    with (
        pytest.raises(
            ArgumentError,
            match=r"weights of h\.1 take 1\.18 kB, all n×n of them, and 1\.18 kB are kept already: "
            r"more than the 1\.18 kB .* most_weights",
        ),
        torch.no_grad(),
        capture(model, most_weights=each),
    ):
        model(x)
    with torch.no_grad(), capture(model, most_weights=each, layers=[1]) as cap:
        model(x)
    assert [site.name for site in cap] == ["h.1"]
    with (
        pytest.raises(ArgumentError, match="most_weights='much': give a number of bytes"),
        capture(model, most_weights="much"),
    ):  # type: ignore[arg-type]
        pass


def test_weights_alone_go_through_a_file_and_show_no_arithmetic(
    x: torch.Tensor, tmp_path: Any
) -> None:
    model = GPT("softmax").eval()
    with torch.no_grad(), capture(model) as cap:
        model(x)
    cap.save(tmp_path / "weights.safetensors")
    site = Capture.open(tmp_path / "weights.safetensors")[0]
    compare(site, model.h[0].own)
    cell = site.cell(3, 1, head=2, batch=1)
    own = float(model.h[0].own[1, 2, 3, 1])
    assert cell.weight == pytest.approx(own, abs=1e-6)
    assert [name for name, _ in cell.lines()] == ["weight"]
    assert "as it was given" in repr(cell)
    assert "weights only" in repr(site)


def test_a_shared_mask_is_read_once(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    from limelight.torch import rules

    read: list[Any] = []
    plain = rules._mask
    monkeypatch.setattr(rules, "_mask", lambda *given: read.append(given) or plain(*given))
    model = GPT("functional", "early", "functional", causal=False)
    mask = torch.rand(BATCH, 1, LENGTH, LENGTH) < 0.5
    mask[..., 0] = True
    with torch.no_grad(), capture(model) as cap:
        model(x, mask)
        mask.logical_not_()
        mask[..., 0] = True
        model(x, mask)
    assert len(read) == 2
    assert not np.array_equal(cap.sites[0].mask.dense(LENGTH, LENGTH),
                              cap.sites[3].mask.dense(LENGTH, LENGTH))  # fmt: skip
    assert Rules().read(ll.masks.allowed.Allowed(3, 3), None) == (None, None, None)
