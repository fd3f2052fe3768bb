"""What a monitor or a capture does to a model: a place for each module, and torch's functions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from inspect import BoundArguments, signature
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from limelight.errors import LimelightError
from limelight.torch import autograd, bridge, sdpa
from limelight.torch.bridge import MARK, SITE, Place
from limelight.torch.monitor.hooks import Hook
from limelight.torch.monitor.running import Named, hooks, stack

_patches: list[Patch] = []
# A module keeps its place as long as it lives: of one patched again the graphs say the same.
_places: WeakKeyDictionary[nn.Module, Place] = WeakKeyDictionary()
_numbers = count()
_begun: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # how often a model's forward was


class Patch:
    """Gives every module of a model its place, and knows its path by it; undone by remove().

    Hooks keep track of which module is running; TorchScript takes none, and its calls are those of
    the module around it. With `sdpa`, calls of torch.nn.functional's scaled_dot_product_attention
    that the model makes become limelight's, or with `beside` stay torch's, and limelight's runs
    beside them where someone listens; in a compiled graph they become limelight's. And
    nn.MultiheadAttention and nn.TransformerEncoder leave their fast path, on which they do not call
    it. nn.MultiheadAttention asked for its weights does not call it either; then the same attention
    runs once more, without them, in the steps that are seen. `compiles` is whether the model may
    run compiled meanwhile.
    """

    def __init__(
        self, model: nn.Module, *, sdpa: bool, beside: bool = False, compiles: bool = True
    ) -> None:
        self.sdpa, self.beside, self.compiles = sdpa, beside, compiles
        self._paths: dict[str, str] = {}  # by the key of a place
        self._placed: list[nn.Module] = []
        self._hooks: list[tuple[Hook, nn.Module]] = []
        inner = bare(model)
        self._root = type(inner).__name__
        self.modules: dict[str, nn.Module] = {}  # by the path that people know
        self._outer = dict.fromkeys((model, inner))
        self._seen = self._forwards()
        try:
            for path, module in inner.named_modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    name = plain(path) or self._root
                    self.modules[name] = module
                    self._place(module, name)
            if model is not inner:
                self._place(model, "")
            if sdpa and compiles:
                torch.compiler.allow_in_graph(_whole)
        except BaseException:
            self._unplace()
            raise
        if compiles and not any(patch.compiles for patch in _patches):
            _guard_hooks()
        if sdpa and not any(patch.sdpa for patch in _patches):
            _stand_in()
        _patches.append(self)
        bridge.listening = True

    def named(self, site: str) -> str | None:
        """What the model calls a site: its module's path, and after it the name that a call has
        given itself; None if it is another's.

        It is empty where the model was running, and which module, nobody knows.
        """
        path, name = self.path(site), site.partition(" ")[2]
        if path is None or not name:
            return path
        return name if path in ("", self._root) else f"{path}.{name}"

    def path(self, site: str) -> str | None:
        """The path of the module whose call a site is, whatever the call names itself."""
        return self._paths.get(site.partition(" ")[0])

    def ran(self) -> bool:
        """Whether the model's forward began since this was last asked; the compiled one's, if it
        was the compiled one that was given.
        """
        before, self._seen = self._seen, self._forwards()
        return self._seen > before

    def between(self) -> None:
        """No forward is under way: one that an interrupt ended (Ctrl+C), after which no hook runs,
        has left its modules among those that run.
        """
        left = [place for place, m in enumerate(stack) if bridge.key_of(m) in self._paths]
        del stack[min(left, default=len(stack)) :]

    def remove(self) -> None:
        if self not in _patches:
            return
        _patches.remove(self)
        self._unplace()
        if self.sdpa and not any(patch.sdpa for patch in _patches):
            _stand_back()
        if self.compiles and not any(patch.compiles for patch in _patches):
            torch._dynamo.config.skip_nnmodule_hook_guards = _unguarded
        if not _patches:
            stack.clear()
            bridge.listening = False

    def _place(self, module: nn.Module, path: str) -> None:
        if module not in _places:
            _places[module] = Place(f"{MARK}{next(_numbers)}")
        module.__dict__[SITE] = _places[module]
        self._paths[_places[module].key] = path
        self._placed.append(module)
        for hook in (*hooks(module, wraps=not path), *((BEGIN,) if module in self._outer else ())):
            self._hooks.append((hook, module))
            hook.put(module)

    def _unplace(self) -> None:
        for module in self._placed:
            if not any(_places[module].key in patch._paths for patch in _patches):
                module.__dict__.pop(SITE, None)
        for hook, module in self._hooks:
            hook.take(module)
        self._placed, self._hooks = [], []

    def _forwards(self) -> int:
        return sum(_begun.get(module, 0) for module in self._outer)


def plain(path: str) -> str:
    """A module's path without what torch.compile and checkpointing put into it."""
    return path.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")


def bare(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's and DDP's wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


torch_attention = nn.functional.scaled_dot_product_attention
torch_multi_head = nn.functional.multi_head_attention_forward
_arguments = signature(torch_multi_head)
_fast = True  # whether torch's fast path was on when limelight's functions took their place
_unguarded = True  # whether compiled graphs ran whatever a module's hooks, as torch has it


def _guard_hooks() -> None:
    """Or of two models of the same classes one may run the other's graph, without its hooks."""
    global _unguarded
    config = torch._dynamo.config
    _unguarded, config.skip_nnmodule_hook_guards = config.skip_nnmodule_hook_guards, False


def _stand_in() -> None:
    global _fast
    nn.functional.scaled_dot_product_attention = _attention
    nn.functional.multi_head_attention_forward = multi_head
    _fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)


def _stand_back() -> None:
    nn.functional.scaled_dot_product_attention = torch_attention
    nn.functional.multi_head_attention_forward = torch_multi_head
    torch.backends.mha.set_fastpath_enabled(_fast)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    where = bridge.site()
    if torch.compiler.is_compiling():
        ours = bool(where)
    else:
        seeing = [patch for patch in _patches if patch.sdpa and patch.path(where) is not None]
        ours = any(not patch.beside for patch in seeing)
        if seeing and not ours and bridge.watched():
            _beside(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    run = sdpa.scaled_dot_product_attention if ours else torch_attention
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    return run(*given, scale=scale, enable_gqa=enable_gqa)


def _beside(
    query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None,
    enable_gqa: bool,
) -> None:  # fmt: skip
    """The same on limelight, for its health: that of the weights before dropout.

    What it cannot do torch's may, and goes on unseen.
    """
    try:
        with torch.no_grad():
            sdpa.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa
            )
    except (LimelightError, NotImplementedError) as error:
        warnings.warn(f"an attention is not seen: {error}", stacklevel=3)


class _MultiHead:
    """What stands for multi_head_attention_forward.

    torch.compile looks into no function that it finds under that name of torch's; into an object it
    does.
    """

    __name__ = torch_multi_head.__name__

    def __init__(self) -> None:
        self._under_way = False
        self.text: torch.Tensor | None = None  # what the call that is under way says of its rows

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._under_way:  # a mode such as torch.device's was asked by torch's, and hands it on
            return torch_multi_head(*given, **named)
        asked = named.get("need_weights", True)
        if torch.compiler.is_compiling():
            return _whole(bridge.site(), asked and bool(bridge.observers), *given, **named)
        return self.run(asked and bridge.watched(), *given, **named)

    def run(self, seen: bool, *given: Any, **named: Any) -> Any:
        """Torch's own; limelight beside it where weights were asked for and someone listens."""
        self._under_way = True
        try:
            if bridge.watched():
                self.text = text_of(*given, **named)
            beside = _without_weights(*given, **named) if seen else None
            output, weights = torch_multi_head(*given, **named)
        finally:
            self._under_way, self.text = False, None
        if beside is not None and torch.compiler.is_compiling():
            # Or the graph would leave out what nothing needs.
            output = torch.where(beside.new_zeros((), dtype=torch.bool), beside, output)
        return output, weights


multi_head = _MultiHead()


def _whole(key: str, seen: bool, *given: Any, **named: Any) -> Any:
    """What goes into a compiled graph as it is, and is gone through when the hooks are over."""
    stack.append(Named(key))
    try:
        return multi_head.run(seen, *given, **named)
    finally:
        stack.pop()


def _without_weights(*given: Any, **named: Any) -> torch.Tensor | None:
    """The same on limelight, None where nobody asked for weights.

    Without dropout: health is that of the weights before it, and nothing is drawn.
    """
    asked = arguments_of(*given, **named)
    if not asked.arguments["need_weights"]:
        return None
    asked.arguments.update(need_weights=False, training=False)
    with torch.no_grad():
        output: torch.Tensor = torch_multi_head(*asked.args, **asked.kwargs)[0]
    return output


def arguments_of(*given: Any, **named: Any) -> BoundArguments:
    """What multi_head_attention_forward was called with."""
    asked = _arguments.bind(*given, **named)
    asked.apply_defaults()
    return asked


def attends_to_itself(asked: Mapping[str, Any]) -> bool:
    """Whether the queries of a multi_head_attention_forward are its keys too."""
    query, key = asked["query"], asked["key"]
    return bool(query.shape == key.shape and query.data_ptr() == key.data_ptr())


def text_of(*given: Any, **named: Any) -> torch.Tensor | None:
    """Bool [batch, queries], False for padding; None where the call says nothing of its queries,
    or nothing that could be read now, as in a graph that is being made.
    """
    asked = arguments_of(*given, **named).arguments
    padding = asked["key_padding_mask"]
    if padding is None or not autograd.ordinary(padding, asked["query"], asked["key"]):
        return None
    if not attends_to_itself(asked):
        return None
    text: torch.Tensor = ~padding if padding.dtype == torch.bool else padding > -torch.inf
    return text if text.ndim == 2 else text[None]


class _Begin(Hook):
    before = True

    def __call__(self, module: nn.Module, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            _begun[module] = _begun.get(module, 0) + 1


BEGIN = _Begin()
