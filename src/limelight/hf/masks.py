"""Masks on their way from Transformers to limelight: as rules, not as n×n booleans.

Transformers describes a mask by a function of (batch, head, query, key) and asks the registered
mask function to make a tensor of it. `mask` recognises the functions that Transformers itself
builds (causal, windows, chunks, padding, packed documents and their combinations) and returns a
`CompactMask`: to the model a boolean tensor [B, 1, Nq, Nk], in memory a rule of a few numbers. A
model that only passes it on never holds the n×n cells; one that slices it or computes with it gets
the true cells at that moment. A function that is not recognised is evaluated a few rows at a time.

While torch.compile or torch.export trace, nothing may depend on what a tensor holds: then the mask
is the same boolean tensor that `sdpa` gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers import masking_utils as theirs
from transformers.utils.import_utils import is_tracing

from limelight.arrays import as_numpy
from limelight.hf.compact import CompactMask
from limelight.masks import Both, Causal, Documents, Either, Explicit, Lengths, Mask, Prefix, Window
from limelight.masks.measured import compress

Rule = Callable[..., Any]
CELLS = 1 << 24  # looked at together where an unknown function must be evaluated


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Rule = theirs.causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    dtype: torch.dtype = torch.float32,
    device: Any = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """What Transformers calls for `attn_implementation="limelight"`; its arguments are theirs.

    Returns None exactly where the attention function alone can tell what was meant: everything
    visible, or plain causal from the first position on (see `only_eager`).
    """
    if isinstance(attention_mask, CompactMask):  # made beforehand, as generate() does
        return attention_mask
    config = type(kwargs.get("config"))
    part = config.__module__, config.__name__
    eager = only_eager(*part)
    # A compiled decoding step takes the mask from outside its graph: that must be a plain tensor.
    compiled_step = q_length == 1 and not allow_is_causal_skip and not allow_is_bidirectional_skip
    # Families on eager alone may add to the mask (DeepSeek V4, what it shows of blocks of keys);
    # others' modules may not say what None means.
    if eager or (q_length > 1 and not learned_sdpa(*part)):
        allow_is_causal_skip = allow_is_bidirectional_skip = False
    if getattr(kwargs.get("config"), "num_kv_shared_layers", 0):
        # Gemma 4 leaves out queries that nobody asks for: those left are not at the first key.
        allow_is_causal_skip = False
    if compiled_step or is_tracing(attention_mask) or is_tracing(q_offset):
        make = theirs.eager_mask if eager else theirs.sdpa_mask
        return make(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
            local_size=local_size, allow_is_causal_skip=allow_is_causal_skip,
            allow_is_bidirectional_skip=allow_is_bidirectional_skip, use_vmap=use_vmap,
            dtype=dtype, device=device,
        )  # fmt: skip
    view = View(batch_size, q_length, kv_length, int(q_offset), int(kv_offset), device)
    padding = theirs.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    rule, keys = view.rule(mask_function, padding)
    if rule is None and keys == kv_length:
        plain = allow_is_bidirectional_skip or (allow_is_causal_skip and q_length == 1)
    else:
        # The attention function's own causal rule starts at the first key. Flags for more keys
        # are a static cache's, or wrong: it can tell only if it gets the mask.
        plain = allow_is_causal_skip and rule == Causal() and keys == q_length > 1
        plain = plain and (attention_mask is None or attention_mask.shape[-1] <= keys)
    if plain:
        return None
    shape = (batch_size, 1, q_length, kv_length)
    return CompactMask(rule, keys, shape, dtype if eager else torch.bool, device)


def only_eager(module: str, config: str = "") -> bool:
    """Whether a family of Transformers, named by the module of a class in it, never learned sdpa.

    Of a family whose parts have configs of their own, the parts with this one (Gemma 4's ears).

    Without a mask, sdpa takes a module's `is_causal` to heart and eager does not. Families that run
    on eager alone have that attribute wrong in places (the cross attention of nllb-moe says
    causal), so there a missing mask hides nothing, and a causal mask is never left out. Parts of
    them may add the mask to their logits themselves, so it must look like eager's, additive.
    """
    return module.startswith(THEIRS) and learned_sdpa(module, config) is False


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def learned_sdpa(module: str, config: str = "") -> bool | None:
    """Whether the models in a module, or else in the package around it, run on sdpa; None for none.

    All of them: a model beside one that does not has nobody's word for its masks. Families of
    Transformers are taken whole, or the part of one that has a config of that name.
    """
    found = FAMILIES.get((module, config))
    if found is None:
        modeling = module.replace(".configuration_", ".modeling_")
        models = _models()
        beside = [model for model in models if model.__module__ == modeling]
        package = modeling.rpartition(".")[0] + "."
        if not beside and package != "." and not package.startswith("transformers."):
            beside = [model for model in models if model.__module__.startswith(package)]
        some: Callable[..., bool] = all
        if module.startswith(THEIRS):
            some = any
            beside = [m for m in beside if _config_of(m) == config] or beside
        found = some(model._supports_sdpa for model in beside) if beside else None
        if found is not None:
            FAMILIES[module, config] = found
    return found


THEIRS = "transformers.models."
FAMILIES: dict[tuple[str, str], bool] = {}


def _config_of(model: type[PreTrainedModel]) -> str:
    return str(getattr(model.config_class, "__name__", ""))


def _models() -> list[type[PreTrainedModel]]:
    """Every class of models that is loaded."""
    found = list(PreTrainedModel.__subclasses__())
    for model in found:
        found += model.__subclasses__()
    return found


@dataclass(frozen=True)
class View:
    """The part of the whole sequence that one call looks at, and the rules in its terms.

    Query i stands at position i + q_offset, key j at position j + k_offset.
    """

    batch: int
    nq: int
    nk: int
    q_offset: int
    k_offset: int
    device: Any = "cpu"

    def rule(self, function: Rule, padding: Tensor | None) -> tuple[Mask | None, int]:
        """The mask of this view and how many keys it is about; None hides nothing.

        Keys after the last query, which a causal rule hides from all, are left out: the unused end
        of a static cache.
        """
        last = self.q_offset - self.k_offset + self.nq
        view = self
        if 0 < last < self.nk and _is_causal(function):
            view = replace(self, nk=last)
        try:
            rule = view._known(function)
        except NotImplementedError:
            rule = view._evaluate(function)
        if padding is not None:
            rule = _both(rule, view._padding(padding))
        return rule, view.nk

    def _known(self, function: Rule) -> Mask | None:
        """The rule of a function that Transformers built; NotImplementedError for any other."""
        parts = _closure(function)
        match KINDS.get(getattr(function, "__code__", None)):
            case "everything":
                return None
            case "causal":
                return self._window(None, 0)
            case "window":
                return self._window(parts["sliding_window"] - 1, None)
            case "band":
                return self._window(parts["sliding_window"], parts["sliding_window"])
            case "chunks":
                start = as_numpy(parts["left_padding"])[:, None]
                places = (np.arange(n) + at - start for n, at in self._axes)
                queries, keys = (place // parts["chunk_size"] for place in places)
                return Documents(keys, queries)
            case "packed":
                return self._documents(parts["packed_sequence_mask"])
            case "blocks":
                return self._documents(parts["block_sequence_ids"], several=True)
            case "padding":
                return self._padding(parts["padding_mask"])
            case "and":
                if _is_causal(function) and _is_shut(function):
                    return Lengths(0)
                rule = None
                for part in parts["mask_functions"]:
                    rule = _both(rule, self._known(part))
                return rule
            case "or":
                rules = [self._known(part) for part in parts["mask_functions"]]
                whole = [rule for rule in rules if rule is not None]
                if len(whole) < len(rules):
                    return None
                rule = whole[0]
                for other in whole[1:]:
                    rule = Either(rule, other)
                return rule
        raise NotImplementedError

    @property
    def _axes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.nq, self.q_offset), (self.nk, self.k_offset)

    def _window(self, left: int | None, right: int | None) -> Mask | None:
        """A band about the positions' own diagonal, where limelight's windows can say it."""
        diagonal = self.q_offset - self.k_offset
        if left is not None and left < 0:
            raise NotImplementedError
        if diagonal == self.nk - self.nq:
            if self.nq == 1 and (left is None or left >= self.nk - 1):
                return None  # the newest query sees all that came before
            return Causal() if (left, right) == (None, 0) else Window(left, right)
        if diagonal == 0:
            return Window(left, right, align="top-left")
        raise NotImplementedError

    def _documents(self, ids: Tensor, several: bool = False) -> Mask:
        table = as_numpy(ids)
        queries, keys = (table[:, at : at + n] for n, at in self._axes)
        if queries.shape[1] != self.nq or keys.shape[1] != self.nk:
            raise NotImplementedError
        if several:  # negative ids belong to no block, not even to one of their own
            queries, keys = np.where(queries < 0, -1, queries), np.where(keys < 0, -2, keys)
        return Documents(keys, queries)

    def _padding(self, flags: Tensor) -> Mask | None:
        """Which keys are real: a few lengths where padding stands at the ends, as it should."""
        real = as_numpy(flags[:, self.k_offset : self.k_offset + self.nk]).astype(np.bool_)
        if real.shape[1] != self.nk:
            raise NotImplementedError
        if real.all():
            return None
        some = real.any(axis=1)
        first = np.where(some, real.argmax(axis=1), 0)
        last = np.where(some, self.nk - real[:, ::-1].argmax(axis=1), 0)
        if (real.sum(axis=1) != last - first).any():
            return Explicit(real[:, None, None, :])
        left = ~Prefix(first) if first.any() else None
        right = Lengths(last) if (last < self.nk).any() else None
        return _both(left, right)

    def _evaluate(self, function: Rule) -> Mask | None:
        """An unknown rule's cells, a few rows at a time; kept as intervals if that is smaller."""
        step = max(1, CELLS // max(1, self.batch * self.nk))
        rows = []
        for start in range(0, self.nq, step):
            count = min(step, self.nq - start)
            cells = theirs.sdpa_mask(
                self.batch, count, self.nk, self.q_offset + start, self.k_offset, function,
                allow_is_causal_skip=False, use_vmap=True, device=self.device,
            )  # fmt: skip
            rows.append(as_numpy(cells))
        return compress(np.concatenate(rows, axis=2))


def _kinds() -> dict[Any, str]:
    """The code of every function that Transformers builds masks of, and what it means here.

    Functions built by the same factory share one code object, and what they close over are their
    parameters. Code that changes in another version is not found here, and then evaluated.
    """
    causal, ids = theirs.causal_mask_function, torch.zeros((1, 1), dtype=torch.int64)
    samples: dict[str, tuple[str, tuple[Any, ...] | None]] = {
        "everything": ("bidirectional_mask_function", None),
        "causal": ("causal_mask_function", None),
        "window": ("sliding_window_overlay", (1,)),
        "band": ("sliding_window_bidirectional_overlay", (1,)),
        "chunks": ("chunked_overlay", (1, ids[0])),
        "packed": ("packed_sequence_mask_function", (ids,)),
        "blocks": ("blockwise_overlay", (ids,)),
        "padding": ("padding_mask_function", (ids,)),
        "and": ("and_masks", (causal,)),
        "or": ("or_masks", (causal,)),
    }
    found: dict[Any, str] = {}
    for kind, (name, parameters) in samples.items():
        function = getattr(theirs, name, None)  # not every 5.x has every one
        if function is not None:
            made = function if parameters is None else function(*parameters)
            found[made.__code__] = kind
    return found


KINDS = _kinds()


def _closure(function: Rule) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return dict(zip(names, (cell.cell_contents for cell in cells), strict=True))


def _is_causal(function: Rule) -> bool:
    """Whether the rule hides every key after its query."""
    kind = KINDS.get(getattr(function, "__code__", None))
    if kind == "and":
        return any(_is_causal(part) for part in _closure(function)["mask_functions"])
    return kind == "causal"


def _is_shut(function: Rule) -> bool:
    """Whether the rule has a window of no keys, as configs write that say no window at all.

    With a causal rule it hides everything; such a mask is made and then used by no layer.
    """
    kind, parts = KINDS.get(getattr(function, "__code__", None)), _closure(function)
    if kind == "and":
        return any(_is_shut(part) for part in parts["mask_functions"])
    return kind == "window" and parts["sliding_window"] < 1


def _both(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, Window) and isinstance(second, Window) and first.align == second.align:
        left, right = (_least(getattr(first, s), getattr(second, s)) for s in ("left", "right"))
        return Window(left, right, first.align)
    return Both(first, second)


def _least(a: int | None, b: int | None) -> int | None:
    return min((n for n in (a, b) if n is not None), default=None)
