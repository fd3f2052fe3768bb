"""Captures of limelight's own modules: what they computed, and nothing of the run is left."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import limelight
from limelight.capture import Grid
from limelight.errors import ArgumentError
from limelight.torch import Cache, SelfAttention, capture
from tests.torch.models import Language, batch

LETTERS = "abcdefghijk"


def model() -> Language:
    torch.manual_seed(3)
    return Language(layers=3)


def test_sites_are_what_the_modules_computed() -> None:
    net, x = model(), batch(0, size=2, length=11)
    with capture(net, tokens=[LETTERS, LETTERS.upper()], source={"model": "Language"}) as cap:
        net(x)
    assert [site.name for site in cap] == [f"blocks.{i}.attention" for i in range(3)]
    assert [site.layer for site in cap] == [0, 1, 2]
    assert cap[0].labels("query", 1) == tuple(LETTERS.upper())
    assert cap.source == {"model": "Language"}
    for site, block in zip(cap, net.blocks, strict=True):
        mixed = limelight.attention(
            site.query, site.key, site.value, mask=site.mask, scale=site.scale
        )
        joined = torch.from_numpy(mixed).transpose(1, 2).flatten(2) @ block.attention.W_O.weight.T
        seen: list[torch.Tensor] = []
        hook = block.attention.register_forward_hook(lambda *a, seen=seen: seen.append(a[2]))
        net(x)
        hook.remove()
        torch.testing.assert_close(joined, seen[0], atol=2e-6, rtol=0)


def test_a_sharing_module_with_window_sinks_and_softcap() -> None:
    torch.manual_seed(0)
    layer = SelfAttention(
        12, heads=6, key_heads=2, head_size=5, window=3, softcap=9.0, sinks=True, scale=0.3
    )
    nn.init.normal_(layer.sinks)
    x = torch.randn(7, 12)
    with capture(layer) as cap:
        out = layer(x)
    site = cap[0]
    assert (site.heads, site.key_heads, site.batch) == (6, 2, 1)
    mixed = limelight.attention(site.query, site.key, site.value, mask=site.mask, scale=site.scale,
                                softcap=site.softcap, sinks=site.sinks)  # fmt: skip
    torch.testing.assert_close(layer._join(torch.from_numpy(mixed[0])), out, atol=2e-6, rtol=0)
    with torch.no_grad():
        layer.sinks.zero_()
    assert np.abs(site.sinks).min() > 0, "the capture must not share memory with the model"


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (5, 5), (2, 3, 5, 5)], ids=str)
def test_a_mask_that_is_a_tensor(shape: tuple[int, ...], causal: bool) -> None:
    torch.manual_seed(0)
    layer, x = SelfAttention(12, 3, causal=causal), torch.randn(2, 5, 12)
    cells = torch.rand(shape) < 0.6
    cells[..., 0] = True
    for mask in (cells, limelight.Window(3, 1) & cells, ~(limelight.Prefix(1) | cells)):
        with capture(layer, real=np.ones((2, 5))) as cap, torch.no_grad():
            out = layer(x, mask=mask)
        site = cap[0]
        assert site.mask is not None
        mixed = np.stack(
            [[site.weights(head=h, batch=b) @ site.value[b, h] for h in range(3)] for b in range(2)]
        )
        torch.testing.assert_close(
            layer._join(torch.from_numpy(mixed).float()), out, atol=2e-6, rtol=0
        )
    kept = site.mask.dense(5, 5).copy()
    cells.logical_not_()
    assert np.array_equal(site.mask.dense(5, 5), kept), (
        "the capture must not share memory with the mask"
    )


def test_chosen_layers_without_values_and_an_image() -> None:
    net, x = model(), batch(0, size=1, length=5)
    image = np.zeros((1, 4, 4, 3), np.uint8)
    with capture(net, layers=[-1, 0], values=False, image=image, grid=Grid(2, 2, 1)) as cap:
        net(x)
    assert [site.layer for site in cap] == [0, 2]
    assert cap[0].value is None
    assert cap.image is image
    assert cap.grid == Grid(2, 2, 1)


def test_every_run_is_a_site_of_its_own_and_the_hooks_are_gone() -> None:
    net = model()
    with capture(net) as cap:
        net(batch(0, length=11))
        net(batch(1, size=1, length=5))
    names = [f"blocks.{i}.attention" for i in range(3)]
    assert [site.name for site in cap] == names + [f"{name}#1" for name in names]
    assert [site.layer for site in cap] == [0, 1, 2] * 2
    assert (cap[names[0]].queries, cap[f"{names[0]}#1"].queries) == (11, 5)
    with pytest.raises(ArgumentError, match=f"layer 0 has 2 sites: .* {names[0]}, {names[0]}#1"):
        cap[0]
    net(batch(2, length=7))
    assert len(cap) == 6
    assert not any(module._forward_hooks for module in net.modules())


def test_mistakes_are_told() -> None:
    net, x = model(), batch(0, size=1, length=5)
    beyond = r"there is no layer 3 among the modules of Language that attend: there are 3, numbered"
    with pytest.raises(ArgumentError, match=beyond), capture(net, layers=[3]):
        net(x)
    with (
        pytest.raises(ArgumentError, match="layer 'first' is not a whole number"),
        capture(net, layers=["first"]),
    ):  # type: ignore[list-item]
        pass
    with (
        pytest.raises(ArgumentError, match=r"nothing was captured: run the model inside.*Language"),
        capture(net),
    ):
        pass
    unfit = r"tokens names \[4\] positions, and no site has those: .* \(1, 5, 5\)"
    with pytest.raises(ArgumentError, match=unfit), capture(net, tokens=["abcd"]):
        net(x)
    unfit = r"real is of \(5, 1\) positions, and no site has those: .* \(1, 5, 5\)"
    with pytest.raises(ArgumentError, match=unfit), capture(net, real=np.ones((5, 1))):
        net(x)
    with pytest.raises(ArgumentError, match="takes a torch module, and got int"), capture(3):  # type: ignore[arg-type]
        pass
    with (
        pytest.raises(ArgumentError, match=r"real has shape \(5,\): give \[batch, length\]"),
        capture(net, real=np.ones(5)),
    ):
        pass


def test_a_cache_gives_each_step_its_keys() -> None:
    torch.manual_seed(0)
    layer, cache, x = SelfAttention(8, heads=2), Cache(), torch.randn(1, 4, 8)
    with torch.no_grad(), capture(layer) as cap:
        layer(x[:, :3], cache=cache)
        layer(x[:, 3:], cache=cache)
    with torch.no_grad(), capture(layer) as whole:
        layer(x)
    step = cap["SelfAttention#1"]
    assert (step.queries, step.keys) == (1, 4)
    np.testing.assert_allclose(step.weights()[:, 0], whole[0].weights()[:, 3], atol=1e-6)


def test_the_model_s_own_error_comes_through() -> None:
    net = model()
    with pytest.raises(IndexError), capture(net):
        net(torch.full((1, 3), 99))


def test_the_name_stays_a_function() -> None:
    import limelight.torch.capturing

    assert callable(limelight.torch.capture)
    assert callable(limelight.torch.capture)


def test_tokens_are_shown_as_people_read_them() -> None:
    model = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True).eval()
    with torch.no_grad(), capture(model, tokens=[["The", "Ġcat", "Ċ"]]) as cap:
        model(torch.ones(1, 3, 8))
    assert cap.tokens == cap[0].tokens == (("The", " cat", "\n"),)


@pytest.mark.parametrize("kind", ["limelight", "torch"])
def test_what_w_o_writes_of_the_values_is_kept_with_them(kind: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(2, 5, 12)
    ours = SelfAttention(12, heads=4, key_heads=2)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad(), capture(ours if kind == "limelight" else theirs) as found:
        ours(x) if kind == "limelight" else theirs(x, x, x, need_weights=False)
    weight = (ours.W_O if kind == "limelight" else theirs.out_proj).weight.detach().double()
    (site,) = found
    assert site.value is not None
    for head in range(site.heads):
        size = site.value.shape[3]
        value = torch.from_numpy(site.value[:, head * site.key_heads // site.heads]).double()
        written = (value @ weight[:, head * size : (head + 1) * size].T).norm(dim=-1)
        np.testing.assert_allclose(site.brought[:, head], written, rtol=1e-5)
    assert site.writes
