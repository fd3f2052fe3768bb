"""capture(): what a model attends to while the context is open, as a Capture."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from limelight import __version__
from limelight.arrays import as_numpy
from limelight.capture import Capture, Site
from limelight.capture.bound import DEFAULT, Bound
from limelight.capture.brought import lengths
from limelight.errors import ArgumentError
from limelight.hf.attention import RECORDER
from limelight.hf.inputs import (
    Inputs,
    check_tokenizer,
    named_patches,
    patch_grid,
    picture,
    place_grid,
    texts,
)
from limelight.hf.projections import inner, projections
from limelight.hf.recorder import Recorder
from limelight.hf.registration import NAME, register
from limelight.hf.series import Series
from limelight.hf.weighing import Weigher, Weights

DTYPES = {None: None, "float16": np.float16, "float32": np.float32}


@contextmanager
def capture(
    model: Any,
    layers: Any = None,
    values: bool = False,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    dtype: str | None = None,
    source: dict[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
    most_weights: int = DEFAULT,
) -> Iterator[Capture]:
    """Keep the queries and keys of every attention that the model runs inside the context.

        with limelight.hf.capture(model, tokenizer=tokenizer) as cap:
            model(**tokenizer(text, return_tensors="pt"))
        cap[11].cell(2, 1, head=1)

    layers     layer numbers (negative ones from the end), or None for all
    values     keep the values too
    tokenizer  names the tokens; without one they go by their ids
    processor  an image processor, to give the image its colours back
    dtype      "float16" halves the memory and rounds; None keeps what the model computes with
               (bfloat16, which NumPy lacks, as float32)
    source     facts to keep with the capture, such as the text and the licence
    progress   called with the site's name after each attention
    most_weights  bytes that may be kept of the weights of a model that computes attention by itself

    The model runs on limelight meanwhile, and afterwards on what it ran on before. Memory is O(n) a
    head: no n×n table is made. generate() inside the context gives one square a site, as one pass
    over the finished text would. A context holds one run: a later one replaces it, with a warning
    unless it repeats the same text. The capture is filled when the context ends.

    A model that computes its attention by itself (GPT-J, Bloom, DeBERTa, Longformer, …) runs as it
    is and hands out its weights, n×n of them: its sites hold weights only, and more of them than
    `most_weights` is an error before it runs.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    processor = processor or getattr(model, "processor", None)
    check_tokenizer(tokenizer)
    facts = facts_of(model, source)
    model = inner(model)
    check_free(model)
    if dtype not in DTYPES:
        raise ArgumentError(
            f"dtype={dtype!r}: a capture keeps float16, float32 or, with None, what the model "
            f"computes with"
        )
    recorder: Recorder | Weigher
    if model._can_set_attn_implementation():
        recorder = Recorder(model, layers, values=values, dtype=DTYPES[dtype], progress=progress)
    elif values:
        raise ArgumentError(
            f"values=True: {type(model).__name__} computes its attention by itself and hands out "
            f"its weights alone. Capture it without values"
        )
    else:
        recorder = Weigher(model, layers, bound=Bound(most_weights), progress=progress)
    result = Capture(())
    with recording(model, recorder):
        yield result
    for name, part in vars(_finish(recorder, tokenizer, processor, facts)).items():
        object.__setattr__(result, name, part)


def facts_of(model: Any, source: Any) -> dict[str, Any]:
    """What is known of a model, and what the caller says beside it."""
    if source is not None and not isinstance(source, Mapping):
        raise ArgumentError(f"source={source!r}: give facts by their names, as {{'text': '…'}}")
    return {**getattr(model, "source", {}), **(source or {})}


@contextmanager
def recording(model: PreTrainedModel, recorder: Recorder | Weigher) -> Iterator[None]:
    """The model on limelight, the recorder in its attention; afterwards as it was before."""
    before = _implementations(model)
    register()
    try:
        if isinstance(recorder, Recorder):
            model.set_attn_implementation(NAME)
        else:  # asked for weights, a module on sdpa may take a mask that was made for sdpa
            for config, _ in before:
                config._attn_implementation_internal = "eager"
        recorder.attach()
        yield
    finally:
        recorder.detach()
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def check_free(model: Any) -> None:
    """Refuse what is no Transformers model, and one that is being captured."""
    if not isinstance(model, PreTrainedModel):
        raise ArgumentError(
            f"a capture takes a Transformers model, and got {type(model).__name__}: any other "
            f"module goes to limelight.torch.capture(model)"
        )
    if any(m in m.__dict__[RECORDER].names for m in model.modules() if RECORDER in m.__dict__):
        raise ArgumentError(
            f"this {type(model).__name__} is being captured already: close that capture before you "
            f"open another one of the same model"
        )


def _implementations(model: PreTrainedModel) -> list[tuple[Any, Any]]:
    """Every config in the model with the attention it runs on now."""
    configs: dict[int, Any] = {}
    waiting = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    while waiting:
        config = waiting.pop()
        if id(config) not in configs:
            configs[id(config)] = config
            parts = (getattr(config, key, None) for key in getattr(config, "sub_configs", {}))
            waiting += [part for part in parts if part is not None]
    return [(config, config._attn_implementation_internal) for config in configs.values()]


def _finish(
    recorder: Recorder | Weigher, tokenizer: Any, processor: Any, facts: dict[str, Any]
) -> Capture:
    if not recorder.series:
        what = "was run" if recorder.inputs.ids or recorder.inputs.pixels is not None else "ran"
        raise ArgumentError(
            f"nothing was captured: no attention of {type(recorder.model).__name__} {what} through "
            f"Transformers' attention interface. Run the model inside the context; if it did run, "
            f"limelight.torch.capture(model) sees what calls torch's attention"
        )
    if any(series.replaced for series in recorder.series.values()):
        warnings.warn(
            "the model ran more than once inside the capture: only the last run is kept. Open one "
            "capture for each run",
            stacklevel=4,
        )
    if isinstance(recorder, Recorder):
        recorder.warn_of_unseen(stacklevel=4)
    config, inputs = recorder.model.config, recorder.inputs
    parts: list[Series | Weights] = [*recorder.series.values()]
    sites = tuple(
        part.site({**_labels(part, inputs, tokenizer), **_real(part, inputs)}) for part in parts
    )
    sites = _writing(sites, recorder.model)
    grid = image = None
    if inputs.pixels is not None:
        grid = place_grid(patch_grid(config, inputs.pixels), sites)
        image = picture(inputs.pixels, processor)
        sites = tuple(named_patches(site, grid) for site in sites)
    cross = [site for site in sites if site.kind == "cross"]
    name = PurePath(str(getattr(config, "_name_or_path", "") or "")).name
    source = {
        "model": name or type(recorder.model).__name__, "class": type(recorder.model).__name__,
        "made": f"limelight.hf.capture, limelight {__version__}", **facts,
    }  # fmt: skip
    tokens = cross[0].tokens if cross else next((s.tokens for s in sites if s.tokens), ())
    queries = cross[0].query_tokens if cross else ()
    return Capture(sites, tokens, queries, image, grid, source)


def _writing(sites: tuple[Site, ...], model: PreTrainedModel) -> tuple[Site, ...]:
    """With the lengths of what W_O makes of the values, where these are kept and W_O is known."""
    if not any(site.value is not None for site in sites):
        return sites
    try:
        known = projections(model)
    except ArgumentError:  # of another make, or two attentions to a layer
        return sites
    made = []
    for site in sites:
        found = known.get(site.layer)
        if found is not None and site.value is not None and found.heads == site.heads:
            out = found.out(site.value.shape[3])
            if out is not None:
                site = replace(site, written=lengths(site.value, site.heads, as_numpy(out)))
        made.append(site)
    return tuple(made)


def _labels(series: Series | Weights, inputs: Inputs, tokenizer: Any) -> dict[str, Any]:
    """Names for the keys and queries of a site, where its model part was called with ids."""
    batch, nq, nk = series.batch, series.queries, series.keys
    if series.kind == "cross":
        keys = inputs.find_encoder(batch, nk)
        queries = inputs.received_by(series.name, batch, nq)
    else:
        keys = inputs.received_by(series.name, batch, nk)
        queries = None if keys is None else keys[:, nk - nq :]
    return {
        "tokens": () if keys is None else texts(keys, tokenizer),
        "query_tokens": () if queries is None else texts(queries, tokenizer),
    }


def _real(series: Series | Weights, inputs: Inputs) -> dict[str, Any]:
    """Which keys and queries of a site are no padding, by the masks that the model was given."""
    batch, nq, nk = series.batch, series.queries, series.keys
    if series.kind == "cross":
        queries = inputs.real(series.name, batch, nq)
        keys = inputs.real(series.name, batch, nk, "encoder_attention_mask")
        return {
            "real_keys": None if keys is NotImplemented else keys,
            "real_queries": None if queries is NotImplemented else queries,
        }
    keys = inputs.real(series.name, batch, nk)
    return {"real_keys": series.begun() if keys is NotImplemented else keys}
