"""The hunt for models that silently get another mask than they meant.

Home-made models with attributes missing, masks of every type, and every class that Transformers
registers: each must equal eager, and each decoder is probed by changing its last token, which no
earlier position may notice. What cannot be known is an error.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from transformers import LlamaConfig, PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from limelight import hf
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.hf import attention as ours
from limelight.hf.attention import attention
from tests.hf.test_sweep import MODELS, arguments, logits, model_of

SIZE, HEADS, LENGTH = 24, 3, 7


class HomeConfig(PretrainedConfig):
    model_type = "home-made"
    num_attention_heads = HEADS


def eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if attention_mask is not None:
        scores = scores + attention_mask
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


class Attention(nn.Module):
    """One that says nothing about being causal."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.mix = nn.Linear(SIZE, 3 * SIZE)
        self.said: dict[str, Any] = {}

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        parts = self.mix(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager)
        mixed, _ = run(self, *parts, mask, **self.said)
        return x + mixed.flatten(-2)


class Home(PreTrainedModel):
    """Two layers; what it leaves to be guessed is set from outside."""

    config_class = HomeConfig
    _supports_attention_backend = True
    make_mask = staticmethod(create_causal_mask)
    asks = True  # whether it lets Transformers make its mask

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(31, SIZE)
        self.layers = nn.ModuleList(Attention(config) for _ in range(2))
        self.post_init()
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embed(input_ids)
        if self.asks:
            more = {"past_key_values": None} if self.make_mask is create_causal_mask else {}
            attention_mask = self.make_mask(
                config=self.config, inputs_embeds=x, attention_mask=attention_mask, **more
            )
        for layer in self.layers:
            x = layer(x, attention_mask)
        return x


class OnSdpa(Home):
    _supports_sdpa = True


class Encoder(Home):
    make_mask = staticmethod(create_bidirectional_mask)


def made(kind: type[Home], config: Any = None, *, home: str = "", **said: Any) -> Home:
    """A model whose classes come from a file of their own, or its attention from another."""
    torch.manual_seed(0)
    own = f"home_of_{kind.__name__}"
    if config is None:
        config = _from(own, HomeConfig)()
    model = _from(own, kind)(config).eval()
    for layer in model.layers:
        layer.said = said
        layer.__class__ = _from(home or own, Attention)
    return model


@cache
def _from(module: str, kind: Any) -> Any:
    return type(kind.__name__, (kind,), {"__module__": module})


def run(model: Home, implementation: str, ids: Tensor, mask: Tensor | None = None) -> Tensor:
    model.config._attn_implementation = implementation
    with torch.no_grad():
        return model(ids, mask)


def ids(last: int = 3) -> Tensor:
    drawn = torch.randint(5, 31, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    drawn[:, -1] = last
    return drawn


def padded(side: str) -> Tensor | None:
    real = torch.ones((2, LENGTH), dtype=torch.int64)
    if side != "none":
        real[0, slice(0, 2) if side == "left" else slice(-2, None)] = 0
    return None if side == "none" else real


@pytest.fixture(autouse=True)
def _registered() -> None:
    hf.register()


@pytest.mark.parametrize(
    ("side", "compiled"), [("none", False), ("left", False), ("right", False), ("none", True)]
)
@pytest.mark.parametrize("kind", [Home, OnSdpa, Encoder])
def test_modules_that_say_nothing(kind: type[Home], side: str, compiled: bool) -> None:
    """On sdpa's own word, or by a mask that is never left out."""
    model = made(kind)
    expected = run(model, "eager", ids(), padded(side))
    ours = torch.compile(model, backend="eager") if compiled else model
    found, other = (run(ours, "limelight", given, padded(side)) for given in (ids(), ids(4)))
    real = slice(None) if side == "none" else padded(side).bool()  # type: ignore[union-attr]
    torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=1e-4)
    noticed = (found - other)[1, :-1].abs().max() > 1e-3
    assert noticed == (kind is Encoder)


def test_another_ones_config_tells_nothing() -> None:
    """Transformers leaves out the mask that sdpa would make; a model without sdpa must say more."""
    import transformers.models.llama.modeling_llama  # noqa: F401 (a family that runs on sdpa)

    config = LlamaConfig(hidden_size=SIZE, num_attention_heads=HEADS)
    expected = run(made(OnSdpa, config), "eager", ids())
    torch.testing.assert_close(run(made(OnSdpa, config), "limelight", ids()), expected)
    with pytest.raises(ArgumentError, match=r"Attention asks for attention without a mask, and "
                       r"nothing says .*an attribute is_causal"):  # fmt: skip
        run(made(Home, config), "limelight", ids())


@pytest.mark.parametrize("causal", [True, False])
def test_what_the_module_or_the_call_says(causal: bool) -> None:
    for model in (made(Home, home="nowhere", is_causal=causal), made(Home, home="nowhere")):
        model.asks = False  # no mask comes
        for layer in model.layers:
            if not layer.said:
                layer.is_causal = causal
        found, other = (run(model, "limelight", given) for given in (ids(), ids(4)))
        mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1) if causal else None
        torch.testing.assert_close(found, run(model, "eager", ids(), mask))
        assert ((found - other)[1, :-1].abs().max() > 1e-3) != causal


def test_one_query_needs_no_word() -> None:
    model = made(Home, home="nowhere")
    model.asks = False
    torch.testing.assert_close(
        run(model, "limelight", ids()[:, :1]), run(model, "eager", ids()[:, :1])
    )


SHOWN = torch.ones(LENGTH, LENGTH).tril().bool().expand(2, 1, -1, -1)
ADDED = torch.zeros(SHOWN.shape).masked_fill(~SHOWN, -torch.inf)


@pytest.mark.parametrize("mask", [
    SHOWN, ADDED, ADDED.double(), ADDED.bfloat16(), ADDED.clamp_min(torch.finfo().min),
    causal_upper_left(LENGTH, LENGTH), causal_lower_right(LENGTH, LENGTH), nn.Parameter(ADDED),
], ids=["bool", "float", "double", "bfloat16", "least", "upper", "lower", "parameter"])  # fmt: skip
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_masks_of_every_type(mask: Tensor, compiled: bool) -> None:
    query, key, value = torch.randn((3, 2, HEADS, LENGTH, 8)).unbind()
    module, expected = Attention(HomeConfig()), eager(nn.Module(), query, key, value, ADDED)[0]
    for seen in (mask, mask.detach()) if type(mask) is nn.Parameter else (mask,):
        call = torch.compile(attention, backend="eager") if compiled else attention
        found = call(module, query, key, value, seen)[0]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class Meant(Tensor):
    """A subclass that gives torch's functions another meaning."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(("mask", "error", "message"), [
    (SHOWN.long(), DtypeError, r"attention_mask of \(2, 1, 7, 7\) has dtype torch.int64.*\.bool\(\)"),
    (SHOWN.int(), DtypeError, "has dtype torch.int32"),
    (SHOWN.to(torch.uint8), DtypeError, "has dtype torch.uint8"),
    (ADDED.as_subclass(Meant), DtypeError, "bias is a Meant: attention takes plain tensors"),
    (SHOWN.as_subclass(Meant), DtypeError, "mask is a Meant: attention takes plain tensors"),
    (causal_upper_left(LENGTH, 9), ShapeError, "for 7 queries and 9 keys, and there are 7 and 7"),
], ids=["int64", "int32", "uint8", "subclass", "boolean subclass", "size"])  # fmt: skip
def test_masks_that_are_refused(mask: Tensor, error: type[Exception], message: str) -> None:
    query = torch.randn((2, HEADS, LENGTH, 8))
    with pytest.raises(error, match=message):
        attention(Attention(HomeConfig()), query, query, query, mask)


def test_an_integer_mask_of_four_axes_through_a_model() -> None:
    with pytest.raises(DtypeError, match=r"has dtype torch.int64"):
        run(made(OnSdpa), "limelight", ids(), SHOWN.long())
    torch.testing.assert_close(
        run(made(OnSdpa), "limelight", ids(), SHOWN), run(made(OnSdpa), "eager", ids(), ADDED)
    )


def test_a_part_of_a_model_that_runs_on_eager_alone() -> None:
    """Gemma 4's ears work on their mask as eager has it, whatever the rest of the model can."""
    if not hasattr(transformers, "Gemma4AudioConfig"):
        pytest.skip("this Transformers has no Gemma 4 with ears")
    torch.manual_seed(0)
    config = transformers.Gemma4AudioConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, output_proj_dims=24,
        subsampling_conv_channels=[8, 4], attention_chunk_size=4, attention_context_left=5,
        attention_context_right=0, conv_kernel_size=3,
    )  # fmt: skip
    model = transformers.AutoModel.from_config(config).eval()
    sounds, real = torch.randn(2, 40, 8), torch.ones((2, 40), dtype=torch.bool)
    real[0, -12:] = False
    found = []
    for implementation in ("eager", "limelight"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            found.append(model(sounds, real).last_hidden_state)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)


def test_a_cross_attention_that_says_nothing_is_not_causal() -> None:
    """Mllama's, which runs without a mask where no cross_attention_mask is given."""
    if not hasattr(transformers, "MllamaForCausalLM"):
        pytest.skip("this Transformers has no Mllama")
    torch.manual_seed(0)
    config = transformers.MllamaTextConfig(
        vocab_size=31, hidden_size=SIZE, num_hidden_layers=2, num_attention_heads=HEADS,
        num_key_value_heads=1, intermediate_size=20, cross_attention_layers=[1], pad_token_id=0,
        bos_token_id=1, eos_token_id=2, initializer_range=0.4, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.MllamaForCausalLM(config).eval()
    for name, part in model.named_parameters():
        if "gate" in name:  # zero in a new model: nothing of the picture would come through
            nn.init.ones_(part)
    seen, found = torch.randn(2, 9, SIZE), []
    for implementation in ("eager", "limelight"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            found.append(model(ids(), cross_attention_states=seen).logits)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)


def slanted(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    slant: Tensor | None = None, sliding_window: int | None = None, **more: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """An eager attention that reads a keyword of its own."""
    mask = 0.0 if attention_mask is None else attention_mask
    mask = mask if slant is None else mask + slant
    return eager(module, query, key, value, mask, **more)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_keyword_that_eager_reads_is_not_passed_over(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "eager_attention_forward", slanted, raising=False)
    monkeypatch.setattr(ours, "READ", {})
    plain, said = made(OnSdpa), {"sliding_window": 3, "slant": None, "stranger": torch.ones(1)}
    forward = torch.compile(plain, fullgraph=True, backend="eager") if compiled else plain
    for layer in plain.layers:
        layer.said = said
    plain.config._attn_implementation = "limelight"
    torch.testing.assert_close(forward(ids()), run(made(OnSdpa), "eager", ids()))
    model = made(OnSdpa, slant=torch.randn(LENGTH))
    with pytest.raises(ArgumentError, match=r"gives its attention slant=….*on attn_impl.*eager"):
        run(model, "limelight", ids())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name"), [row for row in MODELS if row.values[0] != "vision"])
def test_no_registered_class_sees_other_tokens_than_on_eager(kind: str, name: str) -> None:
    """Without padding, where a mask may be left out: how far each position notices the last token."""
    model, given = model_of(kind, name), arguments(kind)
    if not model._can_set_attn_implementation():
        pytest.skip("computes its attention by itself")
    del given["attention_mask"]
    last = "decoder_input_ids" if kind == "translation" else "input_ids"
    changed = given[last].clone()
    changed[:, -1] = changed[:, -1] % 50 + 5
    noticed = {}
    for implementation in ("eager", "limelight"):
        try:
            runs = [
                logits(model, implementation, {**given, last: x}) for x in (given[last], changed)
            ]
        except Exception as error:
            if implementation == "eager":
                pytest.skip(f"takes other inputs: {type(error).__name__}")
            raise
        noticed[implementation] = (runs[0] - runs[1]).abs().amax(-1)
    scale = float(noticed["eager"].max())
    assert float((noticed["eager"] - noticed["limelight"]).abs().max()) <= 1e-4 * max(1.0, scale)
