"""Which weights QKClip scales, each once, wherever they stand; and which it refuses, and why."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from limelight.errors import ArgumentError
from limelight.torch import QKClip, SelfAttention, attention
from limelight.torch.clipping.projections import APART, NORM


def grown(by: float = 12.0, **options: Any) -> SelfAttention:
    torch.manual_seed(0)
    layer = SelfAttention(16, 4, **options)
    with torch.no_grad():
        layer.W_Q.weight.mul_(by)
        layer.W_K.weight.mul_(8)
    return layer


def largest(layer: SelfAttention, x: Tensor) -> Tensor:
    return layer.inspect(x).health.max_logit.amax((0, 2)).detach()


def full(like: Tensor, number: float) -> Tensor:
    return torch.full_like(like, number)


# Shared weights


@pytest.mark.parametrize("bias", [False, True])
def test_queries_and_keys_of_one_weight_are_scaled_once(bias: bool) -> None:
    layer, x = grown(bias=bias, causal=False), torch.randn(2, 9, 16)
    layer.W_K.weight = layer.W_Q.weight
    with QKClip(layer, 5.0) as clip:
        layer(x)
        assert len(clip.step()) == 4
    torch.testing.assert_close(largest(layer, x), full(torch.ones(4), 5.0))


@pytest.mark.parametrize("bias", [False, True])
def test_layers_of_one_weight_follow_the_one_that_asks_most(bias: bool) -> None:
    """And a bias of its own goes with the weight, so that queries keep their direction."""
    one, other = grown(bias=bias), grown(bias=bias)
    other.W_Q.weight, other.W_K.weight = one.W_Q.weight, one.W_K.weight
    if bias:
        with torch.no_grad():
            other.W_Q.bias.normal_()
    x, far = torch.randn(2, 9, 16), 2 * torch.randn(2, 9, 16)
    before = largest(one, x), largest(other, far)
    with QKClip(nn.ModuleList([one, other]), 5.0) as clip:
        one(x)
        other(far)
        assert len(clip.step()) == 8
    factor = torch.minimum(5.0 / before[0], 5.0 / before[1])
    torch.testing.assert_close(largest(one, x), before[0] * factor)
    torch.testing.assert_close(largest(other, far), before[1] * factor)


def test_a_projection_that_two_layers_share() -> None:
    one, other = grown(), grown()
    other.W_Q = one.W_Q
    x = torch.randn(2, 9, 16)
    with QKClip(nn.ModuleList([one, other]), 5.0) as clip:
        one(x)
        other(3 * x)
        clip.step()
    assert (largest(one, x) <= 5.0).all()
    torch.testing.assert_close(largest(other, 3 * x), full(torch.ones(4), 5.0))


# Frozen weights


@pytest.mark.parametrize("frozen", ["W_Q", "W_K"])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_the_side_that_trains_takes_the_whole_factor(frozen: str, key_heads: int) -> None:
    layer, x = grown(key_heads=key_heads, bias=True), torch.randn(2, 9, 16)
    still = getattr(layer, frozen).requires_grad_(False)
    weight = still.weight.clone(), still.bias.clone()
    with QKClip(layer, 5.0) as clip:
        layer(x)
        assert len(clip.step()) == 4
    after = largest(layer, x)
    assert torch.equal(still.weight, weight[0])
    assert torch.equal(still.bias, weight[1])
    assert (after <= 5.0 * (1 + 1e-5)).all()
    if frozen == "W_K" or key_heads == 4:
        torch.testing.assert_close(after, full(after, 5.0))


def test_a_model_that_is_frozen_whole_is_refused_and_may_freeze_later() -> None:
    layer, x = grown(), torch.randn(2, 9, 16)
    layer.requires_grad_(False)
    told = r"projections of SelfAttention's queries and keys are frozen .* all others .*Thaw"
    with QKClip(layer, 5.0) as clip:
        layer(x)
        with pytest.raises(ArgumentError, match=told):
            clip.step()
    layer.requires_grad_(True)
    with QKClip(layer, 5.0) as clip:
        layer(x)
        layer.W_Q.requires_grad_(False)
        clip.step()
        torch.testing.assert_close(largest(layer, x), full(torch.ones(4), 5.0))
        layer(100 * x)
        weight = layer.requires_grad_(False).W_K.weight.clone()
        with pytest.raises(ArgumentError, match=told):
            clip.step()
    assert torch.equal(layer.W_K.weight, weight)


def test_layers_that_are_frozen_stay_and_others_are_scaled() -> None:
    model, x = nn.Sequential(grown(), grown(), grown()), torch.randn(2, 9, 16)
    model[:2].requires_grad_(False)
    weights = [weight.clone() for weight in model[:2].parameters()]
    with QKClip(model, 1e-2) as clip:
        model(x)
        with pytest.warns(UserWarning, match="of 0's queries .* frozen .* with those of 1 more"):
            assert {one.site for one in clip.step()} == {"2"}
        model(x)
        clip.step()  # a second warning would be an error
    assert all(map(torch.equal, model[:2].parameters(), weights))


# torch's own layer


@pytest.mark.parametrize(
    "options",
    [{}, {"kdim": 12, "vdim": 10}, {"add_bias_kv": True}, {"kdim": 12, "add_bias_kv": True},
     {"bias": False}, {"add_zero_attn": True}],
)  # fmt: skip
def test_torch_s_own_layer_comes_to_the_limit_at_once(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, batch_first=True, **options)
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.normal_().mul_(1 if "out_proj" in name else 3)
    values = layer.out_proj.weight.detach().clone()
    x, y, value = (torch.randn(2, n, size)
                   for n, size in ((5, 16), (7, layer.kdim), (7, layer.vdim)))  # fmt: skip
    with QKClip(layer, 5.0, sdpa=True) as clip:
        layer(x, y, value, need_weights=False)
        assert len(clip.step()) == 2
        layer(x, y, value, need_weights=False)
        now = clip._largest["MultiheadAttention"][0]
    torch.testing.assert_close(now, full(now, 5.0))
    assert torch.equal(layer.out_proj.weight, values)


# Projections of one's own


class Own(nn.Module):
    """Attention by hand over whatever projects."""

    def __init__(self, **children: nn.Module) -> None:
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, x: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (-1, 4)).transpose(1, 2)

        if hasattr(self, "c_attn"):
            query, key, value = self.c_attn(x).chunk(3, dim=-1)
        else:
            query, key, value = self.q_proj(x), self.k_proj(x), x
        query, key, value = heads(query), heads(key), heads(value)
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        return attention(query, key, value[:, : key.shape[1]])


def linear(wide: int = 16, by: float = 40.0) -> nn.Linear:
    made = nn.Linear(16, wide)
    with torch.no_grad():
        made.weight.mul_(by)
    return made


def at_the_limit(model: nn.Module, limit: float = 1.0) -> Tensor:
    """The largest logits after a step on the same input, of a model that is its own site."""
    torch.manual_seed(1)
    x = torch.randn(2, 9, 16)
    with QKClip(model, limit) as clip, torch.no_grad():
        model(x)
        assert clip.step()
        model(x)
        (found,) = clip._largest.values()
        return found[0]


def test_key_heads_that_are_repeated_before_the_call() -> None:
    """The call has as many key heads as query heads, and the weight has fewer."""
    found = at_the_limit(Own(q_proj=linear(), k_proj=linear(8)))
    assert found.amax() <= 1.0 + 1e-5


def test_a_fused_linear() -> None:
    torch.testing.assert_close(at_the_limit(Own(c_attn=linear(48))), full(torch.ones(4), 1.0))


def refused(model: nn.Module, told: str) -> None:
    with QKClip(model, 1.0), pytest.raises(ArgumentError, match=told):
        model(torch.randn(2, 9, 16))


class Louder(nn.Linear):
    """A subclass with a forward of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).sin()


class Named(nn.Linear):
    """A subclass without one."""


class Wrapped(nn.Module):
    """Something around a projection, which shows its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()
        self.weight, self.bias = self.inner.weight, self.inner.bias

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found


class Lora(Wrapped):
    """As peft's layers are built."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = self.inner
        self.lora_A = nn.ModuleDict({"default": nn.Linear(16, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 16, bias=False)})


def _spectral() -> nn.Module:
    return torch.nn.utils.parametrizations.spectral_norm(linear())


def _weight_norm() -> nn.Module:
    return torch.nn.utils.parametrizations.weight_norm(linear())


def _old_weight_norm() -> nn.Module:
    with pytest.warns(FutureWarning, match="weight_norm"):
        return torch.nn.utils.weight_norm(linear())


def _old_spectral_norm() -> nn.Module:
    return torch.nn.utils.spectral_norm(linear())


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_spectral, r"Own\.q_proj\.weight is computed .*remove_parametrizations.*z_loss"),
        (_weight_norm, r"q_proj\.weight is computed"),
        (_old_weight_norm, r"q_proj\.weight is computed"),
        (_old_spectral_norm, r"q_proj\.weight is computed"),
        (lambda: Louder(16, 16), r"q_proj is a Louder with a forward of its own.*Use Linear"),
        (Wrapped, r"q_proj is a Wrapped.*nn\.Linear and .*Conv1D alone.*z_loss"),
        (Lora, r"q_proj has a LoRA adapter.*merge_and_unload.*z_loss"),
        (lambda: linear(32), r"q_proj has 32 outputs, which are not 4 heads of 4"),
    ],
)
def test_what_may_not_follow_its_weight_is_refused(
    make: Callable[[], nn.Module], told: str
) -> None:
    model = Own(q_proj=make(), k_proj=linear())
    if "32" in told:  # as models do that gate what the queries bring
        model.q_proj.register_forward_hook(lambda _, __, out: out[..., :16])
    refused(model, told)


def test_a_bias_that_is_computed_is_refused() -> None:
    class Half(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 2

    key = linear()
    torch.nn.utils.parametrize.register_parametrization(key, "bias", Half())
    refused(Own(q_proj=linear(), k_proj=key), r"k_proj\.bias is computed")


def test_a_subclass_that_changes_nothing_is_taken() -> None:
    query = Named(16, 16)
    query.load_state_dict(linear().state_dict())
    found = at_the_limit(Own(q_proj=query, k_proj=linear()))
    torch.testing.assert_close(found, full(found, 1.0))


def test_accelerate_s_hooks_are_no_forward_of_ones_own() -> None:
    hooks = pytest.importorskip("accelerate.hooks")
    query = hooks.add_hook_to_module(linear(), hooks.ModelHook())
    found = at_the_limit(Own(q_proj=query, k_proj=linear()))
    torch.testing.assert_close(found, full(found, 1.0))


# Normalised and bounded queries


@pytest.mark.parametrize("name", ["q_norm", "k_layernorm", "qk_norm", "norm_k", "q_layer_norm",
                                  "q_l2_clip", "query_layernorm", "key_ln"])  # fmt: skip
def test_a_norm_is_refused_unless_it_does_nothing(name: str) -> None:
    made = Own(q_proj=linear(), k_proj=linear(), **{name: nn.LayerNorm(4)})
    refused(made, rf"normalises its queries .*{name}.*z_loss")
    at_the_limit(Own(q_proj=linear(), k_proj=linear(), **{name: nn.Identity()}))


@pytest.mark.parametrize("name", ["q_a_layernorm", "attn_sub_norm", "v_norm", "groupnorm", "norm"])
def test_other_norms_are_none_of_queries_and_keys(name: str) -> None:
    at_the_limit(Own(q_proj=linear(), k_proj=linear(), **{name: nn.LayerNorm(4)}))


def test_clamped_queries_are_refused() -> None:
    made = Own(q_proj=linear(), k_proj=linear())
    made.config = type("Config", (), {"clip_qkv": 8.0})()  # type: ignore[assignment]
    refused(made, r"clamps its queries and keys to ±8\.0 .*\(clip_qkv\).*z_loss")
    made.config.clip_qkv = None  # type: ignore[union-attr]
    at_the_limit(made)


def _attentions() -> dict[str, ast.ClassDef]:
    """Every class of the Transformers that is installed, which calls an attention interface."""
    transformers = pytest.importorskip("transformers")
    found = {}
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        source = path.read_text()
        if "attention_interface" in source:
            found |= {
                f"{path.parent.name}.{node.name}": node
                for node in ast.parse(source).body
                if isinstance(node, ast.ClassDef) and "attention_interface" in ast.unparse(node)
            }
    return found


@pytest.mark.slow
def test_every_norm_of_transformers_is_known() -> None:
    """What stands on the way from a projection that is known to the attention, in any model."""
    seen, unknown = set(), {}
    for name, node in _attentions().items():
        calls = [call for assign in ast.walk(node) if isinstance(assign, ast.Assign)
                 for call in ast.walk(assign.value) if isinstance(call, ast.Call)
                 if re.search(r"quer|key|\b[qk]\b|[qk]_", ast.unparse(assign.targets[0]))]  # fmt: skip
        own = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)
               and ast.unparse(call.func.value) == "self"}  # fmt: skip
        others = {each for each in own if re.search("norm|clip|_ln|clamp", each)}
        clamped = "clamp" in {getattr(call.func, "attr", "") for call in calls}
        if not any(own.issuperset(pair) for pair in APART):
            continue
        seen |= {each for each in others if NORM.fullmatch(each)}
        missed = {each for each in others if not NORM.fullmatch(each)}
        if missed or (clamped and "clip_qkv" not in ast.unparse(node) and not others):
            unknown[name] = missed
    assert {"q_norm", "k_norm", "qk_norm", "q_layer_norm", "query_layernorm", "q_l2_clip"} <= seen
    assert unknown == {}


# Transformers


def _configs() -> dict[str, Callable[[], Any]]:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 31}
    wide = {**sizes, "intermediate_size": 32}
    two = {"d_model": 24, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
           "vocab_size": 31, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
           "decoder_start_token_id": 1, "dropout": 0.0}  # fmt: skip
    gpt2 = {"n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 31, "n_positions": 32,
            "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "bos_token_id": 1,
            "eos_token_id": 2}  # fmt: skip
    dry = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return {
        "llama": lambda: transformers.LlamaConfig(**wide, num_key_value_heads=2),
        "bert": lambda: transformers.BertConfig(**wide, **dry),
        "gpt2": lambda: transformers.GPT2Config(**gpt2),
        "gpt2-cross": lambda: transformers.GPT2Config(**gpt2, add_cross_attention=True),
        "bigcode": lambda: transformers.GPTBigCodeConfig(**gpt2, multi_query=True),
        "phi3": lambda: transformers.Phi3Config(
            **wide, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2
        ),
        "t5": lambda: transformers.T5Config(
            d_model=24, d_kv=6, d_ff=32, num_layers=2, num_heads=4, vocab_size=31, dropout_rate=0.0
        ),
        "opt": lambda: transformers.OPTConfig(
            hidden_size=24, num_hidden_layers=2, num_attention_heads=4, vocab_size=31, ffn_dim=32,
            word_embed_proj_dim=24, dropout=0.0,
        ),
        "whisper": lambda: transformers.WhisperConfig(
            **two, num_mel_bins=8, max_source_positions=16, max_target_positions=16
        ),
        "gemma2": lambda: transformers.Gemma2Config(
            **wide, num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=6,
            attn_logit_softcapping=20.0,
        ),
        "internvl": lambda: transformers.InternVLVisionConfig(
            hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
            image_size=[8, 8], patch_size=[2, 2],
        ),
        "llama4": lambda: transformers.Llama4TextConfig(
            **wide, num_key_value_heads=2, head_dim=6, intermediate_size_mlp=32,
            num_local_experts=2, pad_token_id=0,
        ),
        "olmo": lambda: transformers.OlmoConfig(
            **wide, clip_qkv=0.5, pad_token_id=0, eos_token_id=2
        ),
    }  # fmt: skip


def _model(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    configs = _configs()
    import transformers

    from limelight.hf import register

    register()
    torch.manual_seed(0)
    config, named = configs[kind](), {"attn_implementation": "limelight"}
    if kind == "internvl":
        from transformers.models.internvl import InternVLVisionModel

        model = InternVLVisionModel._from_config(config, **named)
    else:
        model = transformers.AutoModel.from_config(config, **named)
    tokens = {"input_ids": torch.randint(3, 31, (2, 9))}
    given: dict[str, Any] = {
        "t5": {**tokens, "decoder_input_ids": torch.randint(3, 31, (2, 5))},
        "whisper": {"input_features": torch.randn(2, 8, 32),
                    "decoder_input_ids": torch.randint(3, 31, (2, 5))},
        "gpt2-cross": {**tokens, "encoder_hidden_states": torch.randn(2, 5, 24)},
        "internvl": {"pixel_values": torch.randn(2, 3, 8, 8)},
    }.get(kind, tokens)  # fmt: skip
    quiet = {} if kind in ("bert", "internvl") else {"use_cache": False}
    return model.train(), {**given, **quiet}


@pytest.mark.parametrize(
    "kind", ["llama", "bert", "gpt2", "gpt2-cross", "bigcode", "phi3", "t5", "opt", "whisper",
             "gemma2", "internvl"],
)  # fmt: skip
def test_the_same_input_stays_at_the_limit(kind: str) -> None:
    """Each attention, run again on what it was given before the step."""
    model, given = _model(kind)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if re.search(r"q_proj|k_proj|query|key|c_attn|q_attn|qkv_proj|\.[qk]\.", name):
                weight.mul_(12 if kind == "gemma2" else 30)
            if "relative_attention_bias" in name:
                weight.normal_()
    inputs: dict[str, Any] = {}
    limit = 3.0
    with QKClip(model, limit) as clip, torch.no_grad():
        sites = {
            name: module for name, module in model.named_modules()
            if any(hasattr(module, part) for pair in (*APART, ("c_attn", "qkv_proj")) for part in pair)
        }  # fmt: skip
        hooks = [
            module.register_forward_pre_hook(
                lambda _, args, named, name=name: inputs.update({name: (args, named)}),
                with_kwargs=True,
            )
            for name, module in sites.items()
        ]
        model(**given)
        for hook in hooks:
            hook.remove()
        before = {name: float(found[0].max()) for name, found in clip._largest.items()}
        assert clip.step()
        for name, (args, named) in inputs.items():
            sites[name](*args, **named)
        after = {name: float(found[0].max()) for name, found in clip._largest.items()}
    assert set(before) == set(after) == set(inputs)
    for name in before:
        assert after[name] <= limit * (1 + 1e-4), name
        assert after[name] >= 0.8 * min(limit, before[name]), name  # and no more than needed


def test_values_of_a_cross_attention_stay() -> None:
    model, given = _model("gpt2-cross")
    cross = model.h[0].crossattention  # type: ignore[index, union-attr]
    with torch.no_grad():
        cross.q_attn.weight.mul_(100)
    before = [each.weight.detach().clone() for each in (cross.c_attn, cross.q_attn)]
    with QKClip(model, 0.1) as clip, torch.no_grad():
        model(**given)
        clip.step()
    changed = (cross.c_attn.weight != before[0]).any(0)
    assert changed[:24].all()
    assert not changed[24:].any()
    assert not torch.equal(cross.q_attn.weight, before[1])


def test_a_fused_weight_of_few_key_heads_leaves_the_values() -> None:
    model, given = _model("phi3")
    fused = model.layers[0].self_attn.qkv_proj.weight  # type: ignore[index, union-attr]
    with torch.no_grad():
        fused.mul_(30)
    before = fused.detach().clone()
    with QKClip(model, 0.1) as clip, torch.no_grad():
        model(**given)
        done = clip.step()
    assert [one.head for one in done if one.site.startswith("layers.0.")] == [0, 1, 2, 3]
    changed = (fused != before).any(1)  # of 4 query, 2 key and 2 value heads of 6
    assert changed[:36].all()
    assert not changed[36:].any()


def test_a_fused_weight_in_an_unknown_order_is_refused() -> None:
    """MiniMax's and CodeGen's qkv_proj are each in another order than Phi-3's."""

    class Phi3Attention(SelfAttention):
        def __init__(self) -> None:
            super().__init__(16, 4)
            self.qkv_proj = nn.Linear(16, 48)
            del self.W_Q, self.W_K

        def forward(self, x: Tensor, **_: Any) -> Tensor:
            parts = self.qkv_proj(x).unflatten(-1, (4, 3, 4)).permute(3, 0, 2, 1, 4)
            return attention(*parts)

    layer = Phi3Attention()
    with QKClip(layer, 0.1), pytest.raises(ArgumentError, match=r"that QKClip knows.*qkv_proj"):
        layer(torch.randn(2, 5, 16))


def test_a_fused_weight_head_by_head_is_refused() -> None:
    transformers = pytest.importorskip("transformers")
    from limelight.hf import register

    register()
    config = transformers.GPTBigCodeConfig(n_embd=24, n_layer=1, n_head=4, vocab_size=31,
                                           n_positions=32, multi_query=False)  # fmt: skip
    model = transformers.AutoModel.from_config(config, attn_implementation="limelight").train()
    with QKClip(model, 2.0), pytest.raises(ArgumentError, match=r"c_attn .* head by head"):
        model(torch.randint(31, (2, 9)))


def test_a_fused_weight_of_another_size_is_refused() -> None:
    model, given = _model("gpt2-cross")
    cross = model.h[0].crossattention  # type: ignore[index, union-attr]
    query = cross.q_attn
    del cross.q_attn
    cross.__dict__["q_attn"] = query.forward  # queries that come from no module that is known
    told = r"crossattention\.c_attn has 48 outputs, which are not queries, .* 4 heads of 6, 72"
    with QKClip(model, 0.1), pytest.raises(ArgumentError, match=told):
        model(**given)


@pytest.mark.parametrize(("kind", "told"), [("llama4", "normalises .*qk_norm"),
                                            ("olmo", "clamps .*clip_qkv")])  # fmt: skip
def test_what_is_bounded_after_its_projections_is_refused(kind: str, told: str) -> None:
    model, given = _model(kind)
    with QKClip(model), pytest.raises(ArgumentError, match=told):
        model(**given)
