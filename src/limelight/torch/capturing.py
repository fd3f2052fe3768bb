"""capture(): what a model's attention does while the context is open, as a Capture."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from limelight.arrays import as_array, index, is_integer
from limelight.capture import Capture, Grid, Site
from limelight.capture.bound import DEFAULT, Bound
from limelight.capture.site import as_texts
from limelight.errors import ArgumentError
from limelight.torch import bridge, flex
from limelight.torch.monitor import patch
from limelight.torch.recording import Names, Recorder
from limelight.torch.seeing import Seeing


@contextmanager
def capture(
    model: nn.Module,
    *,
    tokens: Sequence[Sequence[str]] = (),
    query_tokens: Sequence[Sequence[str]] = (),
    real: Any = None,
    image: Any = None,
    grid: Grid | None = None,
    source: dict[str, Any] | None = None,
    layers: int | Sequence[int] | None = None,
    values: bool = True,
    most_weights: int = DEFAULT,
) -> Iterator[Capture]:
    """Keep the queries and keys of every attention that `model` runs inside the context.

    tokens        a text for each position, one sequence for each batch entry; as people or
                  tokenizers spell them
    query_tokens  those of a decoder that looks at other positions than its own
    real          True where a position is no padding, [batch, length]; where it is not given,
                  nn.MultiheadAttention's key_padding_mask and the masks tell
    image, grid   uint8 [B, height, width, 3] and where its patches stand among the positions
    source        facts to keep with the capture, such as the text and the licence
    layers        which of the modules that attend, numbered in the order in which they first run
                  (negative ones from the end); None for all
    values        keep the values too
    most_weights  bytes that may be kept of weights from modules that compute them by hand

    Seen is whatever calls torch's scaled_dot_product_attention, nn.MultiheadAttention and what is
    built of it, flex_attention, and limelight's own functions and modules: these run on limelight
    meanwhile. Of a module that multiplies by hand and takes a softmax over the last of four axes
    (or of three, where it has an attribute such as `num_heads`), the weights are kept as they are,
    and cells show them without their arithmetic. A site bears the path of the module that called;
    a second call of the same module is a site of its own, `name#1`. The capture is filled when the
    context ends.

    >>> import torch
    >>> layer = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    >>> with torch.no_grad(), capture(model, tokens=["abc"]) as cap:
    ...     _ = model(torch.ones(1, 3, 8))
    >>> [site.name for site in cap]
    ['layers.0.self_attn', 'layers.1.self_attn']
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"a capture takes a torch module, and got {type(model).__name__}: weights that you "
            f"have yourself go to limelight.Site.from_weights"
        )
    wanted = _numbers(layers)
    names = Names(as_texts(tokens, "tokens"), as_texts(query_tokens, "query_tokens"), _flags(real))
    recorder = Recorder(patch.bare(model), wanted, values=values, bound=Bound(most_weights))
    result = Capture((), names.tokens, names.query_tokens, image, grid, source or {})
    with ExitStack() as opened:
        opened.callback(patch.Patch(model, sdpa=True, compiles=False).remove)
        _eager(model, opened)
        bridge.observers.append(recorder)
        opened.callback(bridge.observers.remove, recorder)
        opened.enter_context(Seeing(recorder))
        yield result
    object.__setattr__(result, "sites", _sites(recorder, wanted, names, type(model).__name__))


def _eager(model: nn.Module, opened: ExitStack) -> None:
    """Compiled code runs as it was written meanwhile: in a finished graph nothing is to be seen."""
    if "torch._dynamo" not in sys.modules:  # nothing can have been compiled
        return
    opened.enter_context(torch.compiler.set_stance("force_eager"))
    if flex.MODULE in sys.modules:  # its advice to compile would be about our doing
        opened.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    if any(m._compiled_call_impl is not None or hasattr(m, "_orig_mod") for m in model.modules()):
        warnings.warn(
            f"{type(patch.bare(model)).__name__} is compiled: inside the capture it runs eager, "
            f"since nothing can be seen in a compiled graph. Afterwards it is compiled as before",
            stacklevel=5,
        )


def _sites(
    recorder: Recorder, wanted: Sequence[int] | None, names: Names, model: str
) -> tuple[Site, ...]:
    if not recorder.order:
        raise ArgumentError(
            f"nothing was captured: run the model inside the context. If it did run, nothing in "
            f"{model} asked for attention in a way that can be seen: torch's "
            f"scaled_dot_product_attention, nn.MultiheadAttention, flex_attention, limelight's "
            f"functions, or a softmax over [batch, heads, queries, keys]; TorchScript hides them "
            f"all, and on meta there are no numbers to keep. Weights that you have yourself: "
            f"limelight.Site.from_weights"
        )
    where = f" among the modules of {model} that attend"
    chosen = None if wanted is None else {
        index(layer, len(recorder.order), "layer", where) for layer in wanted
    }  # fmt: skip
    sites = [s for s in recorder.sites if chosen is None or s.layer in chosen]
    found = tuple(replace(site, **names.of(site)) for site in sites)
    sizes = sorted({(s.batch, s.queries, s.keys) for s in found})
    there = f"no site has those: they are (batch, queries, keys) {', '.join(map(str, sizes[:6]))}"
    if (names.tokens or names.query_tokens) and not any(s.tokens or s.query_tokens for s in found):
        given = [len(entry) for entry in names.tokens or names.query_tokens]
        raise ArgumentError(
            f"tokens names {given} positions, and {there}. Give one sequence of texts for each "
            f"entry"
        )
    real = None if names.real is None else names.real.shape
    if real is not None and not any(real in ((b, nq), (b, nk)) for b, nq, nk in sizes):
        raise ArgumentError(f"real is of {real} positions, and {there}. Give [batch, length], True "
                            f"at text")  # fmt: skip
    return found


def _numbers(layers: int | Sequence[int] | None) -> list[int] | None:
    if layers is None:
        return None
    asked = list(layers) if isinstance(layers, Iterable) else [layers]
    for layer in asked:
        if not is_integer(layer):
            raise ArgumentError(f"layer {layer!r} is not a whole number: give layers=[0, 3], say, "
                                f"or None for all")  # fmt: skip
    return asked


def _flags(real: Any) -> Any:
    if real is None:
        return None
    flags = as_array(real)
    if flags.ndim != 2:
        raise ArgumentError(f"real has shape {flags.shape}: give [batch, length], True at text")
    return flags.astype(np.bool_)
