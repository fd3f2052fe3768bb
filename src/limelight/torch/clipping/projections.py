"""Where a module's projections of queries and keys stand.

They are known by their names: one projection each (limelight's own, Llama's kind, BERT's kind,
T5's), or one for all (GPT-2's, Phi-3's, torch's nn.MultiheadAttention). What is not known, or would
not do what was asked, is refused with the reason.
"""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from limelight.arrays import a_type
from limelight.errors import ArgumentError
from limelight.torch.clipping.weights import Heads, Projections, Side, Slice

APART = (("W_Q", "W_K"), ("q_proj", "k_proj"), ("query", "key"), ("q", "k"), ("q_lin", "k_lin"),
         ("to_q", "to_k"), ("query_proj", "key_proj"), ("linear_q", "linear_k"))  # fmt: skip
FUSED = "c_attn"  # queries, keys, values; with q_attn beside it, keys and values
PHI = ("Phi3Attention", "Phi4MultimodalAttention")  # others' qkv_proj is in another order
LORA = ("base_layer", "lora_A", "lora_B")

SIDES = r"(q|k|qk|query|key)"
KINDS = r"(l2|layer|rms)?_?(norm|ln|clip)"
NORM = re.compile(rf"{SIDES}_?{KINDS}|{KINDS}_?{SIDES}")
BOUND = "clip_qkv"  # OLMo's: queries and keys are clamped to it

OTHERWISE = "limelight.torch.losses.z_loss holds logits down in any layer"


def find(site: str, module: nn.Module, heads: Heads) -> Projections:
    """The projections of a module that calls attention with so many heads."""
    _refuse_bounded(site, module)
    return Projections(site, *_named(site, module, heads))


def _named(site: str, module: nn.Module, heads: Heads) -> tuple[Side, Side]:
    if isinstance(module, nn.MultiheadAttention):
        return _torch(site, module, heads)
    for pair in APART:
        query, key = (getattr(module, name, None) for name in pair)
        if isinstance(query, nn.Module) and isinstance(key, nn.Module):
            return _apart(f"{site}.{pair[0]}", query, f"{site}.{pair[1]}", key, heads)
    fused, query = getattr(module, FUSED, None), getattr(module, "q_attn", None)
    if isinstance(fused, nn.Module):
        if getattr(module, "multi_query", None) is False:  # GPTBigCode's, which then interleaves
            raise ArgumentError(
                f"{site}.{FUSED} makes queries, keys and values head by head (multi_query=False), "
                f"and QKClip knows them one after the other. {OTHERWISE}"
            )
        return _fused(f"{site}.{FUSED}", fused, f"{site}.q_attn", query, heads)
    if type(module).__name__ in PHI and type(module).__module__.startswith("transformers."):
        one = module.get_submodule("qkv_proj")
        return _fused(f"{site}.qkv_proj", one, "", None, heads)
    there = [child for child, _ in module.named_children()] or ["none"]
    raise ArgumentError(
        f"{site} ({type(module).__name__}) has no projections of queries and keys that QKClip "
        f"knows: it looks for {', '.join(f'{q} and {k}' for q, k in APART)}, {FUSED} and "
        f"in_proj_weight, and found {', '.join(there)}. Name them so; or else {OTHERWISE}"
    )


def _refuse_bounded(site: str, module: nn.Module) -> None:
    """What is normalised or clamped after the projections does not follow them."""
    norms = [
        name for name, child in module.named_children()
        if NORM.fullmatch(name) and not isinstance(child, nn.Identity)
    ]  # fmt: skip
    if norms:
        raise ArgumentError(
            f"{site} normalises its queries and keys after their projections "
            f"({', '.join(norms)}): to scale the projections would change nothing, and its "
            f"logits are bounded by the norms' own weights. {OTHERWISE}"
        )
    bound = getattr(module, BOUND, getattr(getattr(module, "config", None), BOUND, None))
    if bound is not None:
        raise ArgumentError(
            f"{site} clamps its queries and keys to ±{bound} after their projections ({BOUND}): "
            f"they do not follow when the projections are scaled. {OTHERWISE}"
        )


def _apart(
    query_name: str, query: nn.Module, key_name: str, key: nn.Module, heads: Heads
) -> tuple[Side, Side]:
    wide, narrow = _outputs(query_name, query), _outputs(key_name, key)
    # A model may pad its heads with zeros (Moonshine), or repeat key heads before it calls.
    size = wide // heads.queries
    if wide % heads.queries or not 0 < size <= heads.size:
        raise _unfit(query_name, wide, f"{heads.queries} heads of {heads.size}")
    if narrow % size or not narrow or heads.keys % (narrow // size):
        raise _unfit(key_name, narrow, f"{heads.keys} heads of {size}")
    return _side(query, heads.queries, size), _side(key, narrow // size, size)


def _fused(
    name: str, fused: nn.Module, query_name: str, query: Any, heads: Heads
) -> tuple[Side, Side]:
    """Queries, keys and values one after the other in one weight, or keys and values."""
    cross, outputs, size = isinstance(query, nn.Module), _outputs(name, fused), heads.size
    width, narrow = heads.queries * size, heads.keys * size
    wanted = 2 * narrow if cross else width + 2 * narrow
    if outputs != wanted:
        what = "keys and values" if cross else "queries, keys and values"
        count = f"{heads.queries}, {heads.keys} and {heads.keys}"
        if cross or heads.keys == heads.queries:
            count = str(heads.keys)
        raise _unfit(name, outputs, f"{what} of {count} heads of {size}, {wanted}")
    if not cross:
        return (_side(fused, heads.queries, size),
                _side(fused, heads.keys, size, start=width))  # fmt: skip
    if _outputs(query_name, query) != width:
        raise _unfit(query_name, _outputs(query_name, query), f"{heads.queries} heads of {size}")
    return _side(query, heads.queries, size), _side(fused, heads.keys, size)


def _torch(site: str, module: nn.MultiheadAttention, heads: Heads) -> tuple[Side, Side]:
    """torch's own: one weight or three, one bias for all, and a key that is learned (bias_k)."""
    _refuse_computed(site, module, nn.MultiheadAttention, ("in_proj_weight", "q_proj_weight",
                     "k_proj_weight", "in_proj_bias", "bias_k"))  # fmt: skip
    width = module.embed_dim

    def side(weight: str, start: int) -> list[Slice]:
        parts = [("in_proj_weight", 0, start), (weight, 0, 0), ("in_proj_bias", 0, start)]
        return [Slice(module, *part) for part in parts if getattr(module, part[0]) is not None]

    keys = side("k_proj_weight", width)
    if module.bias_k is not None:
        keys.append(Slice(module, "bias_k", 2, 0))
    size = width // heads.queries
    return (Side(tuple(side("q_proj_weight", 0)), heads.queries, size),
            Side(tuple(keys), heads.queries, size))  # fmt: skip


def _side(linear: nn.Module, heads: int, size: int, start: int = 0) -> Side:
    parts = [Slice(linear, "weight", _axis(linear), start)]
    if linear.bias is not None:
        parts.append(Slice(linear, "bias", 0, start))
    return Side(tuple(parts), heads, size)


def _axis(linear: nn.Module) -> int:
    """That of the outputs: Transformers' Conv1D keeps them last."""
    return 0 if isinstance(linear, nn.Linear) else 1


def _outputs(name: str, linear: Any) -> int:
    """How many a projection has; an error where its weight alone does not make them."""
    if all(hasattr(linear, part) for part in LORA):
        raise ArgumentError(
            f"{name} has a LoRA adapter, which adds to what its weight gives: to scale the weight "
            f"would leave the adapter's share as it is. Merge it (merge_and_unload) and train the "
            f"weight itself; or else {OTHERWISE}"
        )
    kinds = type(linear).__mro__
    kind = next((kind for kind in kinds if kind is nn.Linear or _is_conv(kind)), None)
    if kind is None:
        raise ArgumentError(
            f"{name} is {a_type(linear)}, and QKClip knows of nn.Linear and Transformers' "
            f"Conv1D alone that their outputs follow their weight. Project with one of them; or "
            f"else {OTHERWISE}"
        )
    _refuse_computed(name, linear, kind, ("weight", "bias"))
    return int(linear.weight.shape[_axis(linear)])


def _refuse_computed(name: str, owner: Any, kind: Any, weights: tuple[str, ...]) -> None:
    """A forward of its own, or a weight that is made of others, may undo what is done to it."""
    # accelerate puts its own forward around the one that the class has
    forward = owner.__dict__.get("_old_forward", owner.forward)
    if getattr(forward, "__func__", None) is not kind.forward:
        if any(hasattr(getattr(owner, weight), "device_mesh") for weight in weights):
            raise ArgumentError(
                f"{name} is spread over ranks by tensor parallelism, each of which attends with "
                f"some of the heads, and QKClip takes maxima over ranks that hold the same. "
                f"{OTHERWISE}"
            )
        raise ArgumentError(
            f"{name} is {a_type(owner)} with a forward of its own, and QKClip cannot know "
            f"that its outputs follow its weight. Use {kind.__name__} as it is; or else {OTHERWISE}"
        )
    for weight in weights:
        if getattr(owner, weight) is not None and owner._parameters.get(weight) is None:
            raise ArgumentError(
                f"{name}.{weight} is computed from other weights (weight_norm, spectral_norm or "
                f"another parametrization), and what is done to it is undone by the next pass. "
                f"Remove that from the projections of queries and keys "
                f"(torch.nn.utils.parametrize.remove_parametrizations); or else {OTHERWISE}"
            )


def _is_conv(kind: type) -> bool:
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")


def _unfit(name: str, outputs: int, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{name} has {outputs} outputs, which are not {wanted}: QKClip cannot tell which of them "
        f"belong to which head. {OTHERWISE}"
    )
