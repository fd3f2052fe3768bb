"""load(): a model ready to be looked into, from safe formats only.

Weights come from safetensors or GGUF; a pickle is never loaded, code that comes with a model is
never run, and nothing is downloaded.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)

from limelight.arrays import a_type, is_integer
from limelight.capture import Capture
from limelight.errors import ArgumentError, FileError
from limelight.hf.capturing import capture
from limelight.hf.fence import check_folder, check_size, no_pickles
from limelight.hf.images import image_processor, open_image
from limelight.hf.places import Place, check_readable, place_of
from limelight.hf.registration import NAME, register
from limelight.live.gguf import Gguf

SAFE = {"local_files_only": True, "trust_remote_code": False}
VOCABULARIES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
KEPT_TEXT = 2_000  # characters of the input that go into a capture's source


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model with what turns texts and images into its inputs."""

    model: PreTrainedModel
    tokenizer: Any = None
    processor: Any = None
    source: dict[str, Any] = field(default_factory=dict)

    def inputs(
        self, text: str | None = None, image: Any = None, *, tokens: int | None = None
    ) -> Any:
        """The model's arguments for a text, or for an image (a file, or a PIL image).

        `tokens` cuts a text to so many tokens; a text longer than the model reads is an error.
        """
        if (text is None) == (image is None):
            raise ArgumentError("give a text or an image, and not both")
        if image is not None:
            if self.processor is None:
                raise ArgumentError(f"{self.name} takes no images: give it a text")
            return self.processor(images=open_image(image), return_tensors="pt")
        if not isinstance(text, str):
            raise ArgumentError(f"the text is {a_type(text)}: give one string")
        if tokens is not None and (not is_integer(tokens) or tokens < 1):
            raise ArgumentError(f"tokens={tokens!r}: give the number of tokens to keep, at least 1")
        if self.tokenizer is None:
            raise ArgumentError(f"{self.name} has no tokenizer: give it an image")
        found = self.tokenizer(text, return_tensors="pt", verbose=False)
        if tokens is not None:
            found = {key: value[:, :tokens] for key, value in found.items()}
        length = int(found["input_ids"].shape[1])
        most = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if not length:
            raise ArgumentError("the text is empty: give it at least one word")
        if most is not None and length > most:
            raise ArgumentError(f"the text has {length:,} tokens, and {self.name} reads up to "
                                f"{most:,}: cut it with tokens={most}")  # fmt: skip
        return found

    def capture(
        self,
        text: str | None = None,
        image: Any = None,
        *,
        layers: Any = None,
        values: bool = False,
        tokens: int | None = None,
        generate: int = 0,
        dtype: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Capture:
        """Run the model on a text or an image, and keep what its heads attend to.

        `generate` lets it write so many tokens more (greedily); the capture holds them too, but for
        the last, which nothing has looked at yet.
        """
        if not is_integer(generate) or generate < 0:
            raise ArgumentError(f"generate={generate!r}: give the number of tokens to write, or 0")
        given = self.inputs(text, image, tokens=tokens)
        facts = {} if text is None else {"text": text[:KEPT_TEXT]}
        model = self.model
        if model.config.is_encoder_decoder:
            generate = generate or 16
        elif generate and not model.can_generate():
            raise ArgumentError(f"{self.name} does not generate text: leave generate at 0")
        with (
            torch.no_grad(),
            capture(self, layers, values, dtype=dtype, source=facts, progress=progress) as found,
        ):
            if generate:
                generated: Any = model.generate
                generated(**given, max_new_tokens=generate, do_sample=False, num_beams=1)
            else:
                model(**given, **lean(model))
        return found

    @property
    def name(self) -> str:
        return str(self.source.get("model", type(self.model).__name__))

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.model.parameters())
        return f"Loaded({self.name}: {type(self.model).__name__}, {count / 1e6:,.1f}M parameters)"


def load(name: str | os.PathLike[str], *, dtype: Any = torch.float32, device: Any = None) -> Loaded:
    """A model from a local folder, a GGUF file, the hub's cache, or a built-in name.

    Built-in names are packages: "smollm2" (a language model) and "minilm" (a text encoder). The
    model comes in eval mode and on limelight.

        loaded = limelight.hf.load("smollm2")
        loaded.capture("The curious cat watched the bird")[11].cell(2, 1, head=1)
    """
    place = place_of(name)
    check_readable(place)
    if place.gguf is None:
        check_folder(place.folder)
    else:
        with Gguf(place.folder / place.gguf):
            pass  # every length in its header was checked, which gguf trusts
    try:
        with no_pickles(name), _one_reading(place):
            model = _model(place, dtype)
            tokenizer = _tokenizer(place)
        processor = image_processor(place.folder, model.config)
    except FileError:
        raise
    except Exception as error:  # whatever the libraries raise at a file that is not right
        lines = [line for line in str(error).splitlines() if line.strip()]
        why = lines[0].strip() if lines else type(error).__name__
        raise FileError(
            f"{name}: the model cannot be loaded: {why}. If Transformers loads it, save it "
            f"anew with save_pretrained"
        ) from error
    register()
    if model._can_set_attn_implementation():
        model.set_attn_implementation(NAME)
    model = model.to(device) if device is not None else model
    return Loaded(model.eval(), tokenizer, processor, dict(place.facts))


def _model(place: Place, dtype: Any) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(place.folder, **place.arguments, **SAFE)
    named = (getattr(transformers, name, None) for name in config.architectures or ())
    known = [kind for kind in named if isinstance(kind, type) and issubclass(kind, PreTrainedModel)]
    plain = AutoModel if place.gguf is None else AutoModelForCausalLM
    kind: Any = known[0] if known else plain
    with torch.device("meta"):
        check_size((kind._from_config if known else kind.from_config)(config), place.folder)
    model: PreTrainedModel = kind.from_pretrained(
        place.folder, config=config, dtype=dtype, use_safetensors=True, **place.arguments, **SAFE
    )
    if place.gguf is not None:
        _forget_quantization(model)
    return model


def _forget_quantization(model: Any) -> None:
    """A GGUF's weights are plain numbers once loaded; the mark forbids .float() and saving."""
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _tokenizer(place: Place) -> Any:
    if place.gguf is None and not any((place.folder / name).is_file() for name in VOCABULARIES):
        return None
    tokenizer = AutoTokenizer.from_pretrained(place.folder, **place.arguments, **SAFE)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def lean(model: PreTrainedModel) -> dict[str, Any]:
    """A single pass needs no cache and only the last position's logits: at 8k tokens, 2 GB less.

    The position as a tensor: of a number, 1, Gemma 4 would leave the other queries out in layers.
    """
    accepted = inspect.signature(model.forward).parameters
    lean = {"use_cache": False, "logits_to_keep": torch.tensor([-1])}
    return {name: value for name, value in lean.items() if name in accepted}


@contextmanager
def _one_reading(place: Place) -> Iterator[None]:
    """Read a GGUF's header once, and not for the config, the weights and the tokenizer each.

    Transformers also builds the table of tensor names anew for every module of the model; together
    that was two thirds of the time it takes to load SmolLM2.
    """
    if place.gguf is None:
        yield
        return
    gguf: Any = importlib.import_module("gguf")
    reader, names = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = cache(reader), cache(names)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = reader, names
