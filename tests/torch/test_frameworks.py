"""Captures of models that other libraries build: the weights are those that they compute.

Slow, since importing these libraries is. timm imports torchvision for its transforms; where that is
missing, empty stand-ins let its models be built, which use none of it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from limelight.torch import capture
from tests.torch.test_any_model import compare

pytestmark = pytest.mark.slow


class _Named(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


class _Finder:
    def find_spec(self, name: str, *_: Any) -> Any:
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@contextmanager
def torchvision() -> Iterator[None]:
    if importlib.util.find_spec("torchvision") is not None:
        yield
        return
    finder: Any = _Finder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def timm() -> Any:
    if importlib.util.find_spec("timm") is None:
        pytest.skip(
            "timm is not installed: pip install --no-deps --target FOLDER timm, then "
            "PYTHONPATH=FOLDER (in the environment itself Transformers would want torchvision, too)"
        )
    with torchvision():
        return importlib.import_module("timm")


def test_a_vision_transformer_of_timm(timm: Any) -> None:
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3,
        num_classes=5,
    ).eval()  # fmt: skip
    image = torch.randn(2, 3, 32, 32)
    with torch.no_grad(), capture(model) as cap:
        found = model(image)
    own: list[torch.Tensor] = []
    for block in model.blocks:  # its plain path drops some of its weights: here they are
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_pre_hook(lambda _, given: own.append(given[0]))
    with torch.no_grad():
        torch.testing.assert_close(model(image), found, atol=1e-5, rtol=0)
    assert [site.name for site in cap] == ["blocks.0.attn", "blocks.1.attn"]
    for site, table in zip(cap, own, strict=True):
        compare(site, table)
        assert not site.only_weights
    with torch.no_grad(), capture(model) as plain:
        model(image)
    for site, table in zip(plain, own, strict=False):
        compare(site, table)
        assert site.only_weights


@pytest.mark.parametrize("padded", [True, False])
def test_a_unet_block_of_diffusers(padded: bool) -> None:
    if importlib.util.find_spec("diffusers") is None:
        pytest.skip("diffusers is not installed: pip install --no-deps diffusers")
    from diffusers.models.attention_processor import Attention, AttnProcessor
    from diffusers.models.unets.unet_2d_blocks import CrossAttnDownBlock2D

    torch.manual_seed(0)
    model = CrossAttnDownBlock2D(
        8, 16, 32, num_layers=1, num_attention_heads=2, cross_attention_dim=12, resnet_groups=4
    ).eval()
    given = (torch.randn(2, 8, 6, 6), torch.randn(2, 32))
    words = {"encoder_hidden_states": torch.randn(2, 7, 12)}
    if padded:
        words["encoder_attention_mask"] = (
            -10_000.0 * (torch.arange(7) >= torch.tensor([[7], [4]]))[:, None]
        )
    with torch.no_grad(), capture(model) as cap:
        found = model(*given, **words)[0]
    own: list[torch.Tensor] = []
    for module in model.modules():
        if isinstance(module, Attention):
            module.set_processor(AttnProcessor())
            scores = module.get_attention_scores

            def kept(*a: Any, scores: Any = scores) -> torch.Tensor:
                own.append(scores(*a))
                return own[-1]

            module.get_attention_scores = kept
    with torch.no_grad(), capture(model) as plain:
        torch.testing.assert_close(model(*given, **words)[0], found, atol=1e-4, rtol=0)
    names = [f"attentions.0.transformer_blocks.0.attn{i}" for i in (1, 2)]
    for seen, bare in ((cap, False), (plain, True)):
        assert [site.name for site in seen] == names
        assert [site.kind for site in seen] == ["self", "cross"]
        assert [(site.queries, site.keys) for site in seen] == [(36, 36), (36, 7)]
        for site, table in zip(seen, own, strict=True):
            compare(site, table.unflatten(0, (2, 2)))
            assert site.only_weights == bare
    if padded:
        assert np.array_equal(cap[1].weights(batch=1)[..., 4:], np.zeros((2, 36, 3)))
