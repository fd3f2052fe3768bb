"""survey(): what every head of a model does over any number of texts, as a Survey.

Texts are read in chunks of 64, sorted by length within a chunk and run in padded batches; only sums
are kept of each. A chunk's batches do not depend on what was before it, so that a survey that goes
on after a stop, or is shared out over ranks, adds up the same numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limelight import __version__
from limelight.arrays import a_type, as_numpy, is_integer
from limelight.errors import ArgumentError
from limelight.heads import KINDS, Kind
from limelight.heads.kinds import known_kinds
from limelight.hf.attention import Asked
from limelight.hf.capturing import check_free, facts_of, recording
from limelight.hf.inputs import check_tokenizer
from limelight.hf.inputs import texts as labels
from limelight.hf.loading import lean
from limelight.hf.projections import inner
from limelight.hf.recorder import Recorder
from limelight.hf.summing import Batch, Ground, measure
from limelight.survey import Passage, Survey, passages
from limelight.survey.passages import CHARACTERS
from limelight.survey.tally import Measured, Tally, Text
from limelight.writing.files import as_path

TOKENS = 512  # of a text, unless told
CHUNK = 64  # texts that are sorted by length together
MOST_TOKENS = 16_384  # of one text: which cells its mask allows is held as a table
MOST_RECEIVED = 2 << 30  # bytes for what each token of the vocabulary is given
SAVED = 30.0  # seconds between two savings of an unfinished survey


def survey(
    model: Any,
    texts: Any,
    *,
    tokenizer: Any = None,
    tokens: int | None = None,
    batch: int = 8,
    characters: int = CHARACTERS,
    layers: Any = None,
    kinds: Iterable[str | Kind] = KINDS,
    checkpoint: str | os.PathLike[str] | None = None,
    saved: float = SAVED,
    source: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Survey:
    """Stream texts through a model, and keep what every head does as exact running figures.

        found = limelight.hf.survey(limelight.hf.load("smollm2"), "plays/")
        found.heads, found.health(), found.distances(11, 1)

    model       what limelight.hf.load gives; or a Transformers model, with tokenizer=
    texts       a list or an iterator of texts, or of lists of token ids; a file; a folder
    tokens      of each text at most: 512 unless told, or what the model reads; what is longer is
                cut, and counted
    batch       texts that go through the model together
    characters  paragraphs of a file are joined to passages of about so many
    layers      layer numbers, or None for all
    kinds       those that heads are judged by, by name, or of one's own
    checkpoint  a file that keeps an unfinished survey; a call with the same goes on from there
    saved       seconds between two savings of it
    source      facts to keep with the survey, such as where the texts are from
    progress    told how many texts are done

    Where torch.distributed is initialised, each rank takes its share, and all get the whole.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    check_tokenizer(tokenizer)
    facts = facts_of(model, source)
    model = inner(model)
    known = known_kinds(kinds)
    tokens = _check(model, tokens)
    batch = _count(batch, "batch", "of texts that go through the model together")
    check_free(model)
    runner = Runner(model, layers, known)
    rank, ranks = _ranks()
    stream = Stream(passages(texts, characters), tokenizer, tokens, model)
    settings = {
        "model": str(facts.get("model") or type(model).__name__), "tokens": tokens, "batch": batch,
        "kinds": [[kind.name, kind.threshold] for kind in known], "rank": [rank, ranks],
        "layers": None if layers is None else str(layers),
    }  # fmt: skip
    facts = {"model": settings["model"], "class": type(model).__name__,
             "made": f"limelight.hf.survey, limelight {__version__}", **facts}  # fmt: skip
    begun, tally = time.monotonic(), None
    held = None if checkpoint is None else Unfinished(as_path(checkpoint), settings)
    if held is not None and (kept := held.resume(stream)) is not None:
        tally = Tally(_with_targets(kept, known))
    done = stream.read
    with torch.no_grad(), recording(model, runner):
        while chunk := list(itertools.islice(stream, CHUNK)):
            mine = (stream.chunk - 1) % ranks == rank
            for some in _batches(chunk, batch) if mine else ():
                found = runner.run(some)
                if tally is None:
                    tally = Tally(runner.empty(known, facts))
                tally.add(some, found)
                done += len(some)
                if progress is not None:
                    progress(done)
            done = stream.read
            if held is not None and tally is not None and time.monotonic() - begun > saved:
                begun = time.monotonic()
                held.save(tally, stream)
    runner.warn_of_unseen(stacklevel=2)
    whole = _together(None if tally is None else tally.survey(), ranks)
    if held is not None:
        held.remove()
    return whole


def induction(
    model: Any,
    *,
    texts: int = 16,
    length: int = 50,
    seed: int = 0,
    kinds: Iterable[str | Kind] = KINDS,
    progress: Callable[[int, int], None] | None = None,
) -> Survey:
    """A survey of random tokens that come twice: nothing to understand, only to remember.

    Such texts tell induction heads from all others (Olsson et al., 2022): in the second half every
    token stands where its like stood before, and nothing but that can be gone by. `length` tokens
    are drawn for each text, no special ones and none twice, and put twice in a row behind the token
    that the model begins texts with, where it has one.
    """
    bare = inner(model)
    _check(bare, None)
    texts = _count(texts, "texts", "of random texts")
    length = _count(length, "length", "of tokens that a text has twice")
    seed = _count(seed, "seed", "that says which tokens are drawn", least=0)
    tokenizer = getattr(model, "tokenizer", None)
    special = set(getattr(tokenizer, "all_special_ids", ()))
    size = int(bare.config.get_text_config().vocab_size)
    plain = np.array(
        [i for i in range(min(size, len(tokenizer or range(size)))) if i not in special]
    )
    if not 2 <= length <= len(plain):
        raise ArgumentError(
            f"length={length}: from 2 to {len(plain):,} tokens are drawn, each once"
        )
    draw, first = np.random.default_rng(seed), getattr(tokenizer, "bos_token_id", None)
    begin = [] if first is None else [int(first)]
    halves = (draw.choice(plain, length, replace=False).tolist() for _ in range(texts))
    return survey(
        model, [[*begin, *half, *half] for half in halves], kinds=kinds,
        source={"texts": f"{texts} × {length} random tokens, twice"},
        progress=None if progress is None else lambda done: progress(done, texts),
    )  # fmt: skip


class Runner(Recorder):
    """Stands in a model's attention as a capture does, and keeps sums alone."""

    def __init__(self, model: PreTrainedModel, layers: Any, kinds: Sequence[Kind]) -> None:
        super().__init__(model, layers, values=False, dtype=None, progress=None)
        self.kinds = kinds
        self._batch: Batch | None = None
        self._sites: dict[tuple[str, int], tuple[int, Measured]] = {}
        self._grounds: list[tuple[Any, Any, Ground]] = []

    def run(self, texts: Sequence[Text]) -> list[Measured]:
        """What every site does on some texts, in the order in which they ran."""
        self._batch, self._sites, self._grounds = Batch(texts, self.kinds), {}, []
        ids = np.zeros((len(texts), self._batch.length), np.int64)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text.ids)] = text.ids
        device = self.model.device
        real = torch.from_numpy(self._batch.real.astype(np.int64))
        given = {"input_ids": torch.from_numpy(ids).to(device), "attention_mask": real.to(device)}
        self.model(**given, **lean(self.model))
        if not self._sites:
            raise ArgumentError(
                f"no attention of {type(self.model).__name__} was seen: it does not go through "
                f"Transformers' attention interface. limelight.torch.capture(model) keeps a text "
                f"of what calls torch's attention"
            )
        return [measured for _, measured in self._sites.values()]

    def empty(self, kinds: tuple[Kind, ...], facts: dict[str, Any]) -> Survey:
        """A survey of nothing, of the sites that the last run went through."""
        names = tuple(name if turn == 0 else f"{name}#{turn}" for name, turn in self._sites)
        layers = tuple(layer for layer, _ in self._sites.values())
        heads = tuple(len(seen.max_logit) for _, seen in self._sites.values())
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        room = vocabulary * len(heads) * max(heads) * 8
        if room > MOST_RECEIVED:
            raise ArgumentError(
                f"what each of {vocabulary:,} tokens is given by {sum(heads):,} heads may take "
                f"{room / 2**30:,.1f} GiB, and {MOST_RECEIVED / 2**30:g} are the most: survey some "
                f"layers at a time, with layers=[…]"
            )
        return Survey.empty(names, layers, heads, kinds, facts)

    def keep(
        self, at: tuple[str, int], layer: int, module: nn.Module, asked: Asked, seen: Any
    ) -> None:
        assert self._batch is not None
        n = self._batch.length
        if asked.query.shape[2] != n or asked.key.shape[2] != n:
            raise ArgumentError(
                f"{at[0]} has {asked.query.shape[2]} queries and {asked.key.shape[2]} keys for a "
                f"text of {n} tokens: a survey takes models that read a text in one pass. "
                f"limelight.hf.capture(model) keeps a text of such a one"
            )
        ground = self._ground(asked.rule["mask"], asked.rule["bias"], asked.query.device)
        self._sites[at] = layer, measure(self._batch, ground, asked, seen.health)

    def _ground(self, mask: Any, bias: Tensor | None, device: torch.device) -> Ground:
        """Worked out once for all layers that share the mask."""
        hides = bias if bias is not None and bool(torch.isneginf(bias).any()) else None
        for known, other, ground in self._grounds:
            if known is mask and other is hides:
                return ground
        assert self._batch is not None
        made = Ground(self._batch, mask, hides, device)
        self._grounds.append((mask, hides, made))
        return made


class Stream(Iterator[Text]):
    """Texts as the model reads them, one by one; knows how many, and a digest of all so far."""

    def __init__(self, source: Iterator[Passage], tokenizer: Any, most: int,
                 model: PreTrainedModel) -> None:  # fmt: skip
        self._source, self._tokenizer, self._most = source, tokenizer, most
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        self._texts: dict[int, str] = {}
        self.read, self.chain = 0, ""

    @property
    def chunk(self) -> int:
        """How many chunks have begun."""
        return -(-self.read // CHUNK)

    def __next__(self) -> Text:
        while True:
            passage = next(self._source)
            ids = self._ids(passage.name, passage.text)
            if len(ids):
                break
        cut = len(ids) > self._most
        ids = ids[: self._most]
        self.read += 1
        self.chain = hashlib.blake2b(
            self.chain.encode() + ids.tobytes(), digest_size=16
        ).hexdigest()
        fresh = np.setdiff1d(ids, np.fromiter(self._texts, np.int64, len(self._texts)))
        if len(fresh):
            self._texts |= zip(fresh.tolist(), labels(fresh[None], self._tokenizer)[0], strict=True)
        return Text(passage.name, ids, tuple(self._texts[i] for i in ids.tolist()), cut)

    def _ids(self, name: str, given: Any) -> Any:
        if isinstance(given, str):
            if self._tokenizer is None:
                raise ArgumentError("a text needs a tokenizer: give what limelight.hf.load "
                                    "returns, tokenizer=…, or lists of token ids")  # fmt: skip
            found = self._tokenizer(
                given, truncation=True, max_length=self._most + 1, verbose=False
            )
            return np.asarray(found["input_ids"], np.int64)
        try:
            ids = np.asarray(as_numpy(given))
        except (TypeError, ValueError, OverflowError):
            ids = np.array(None)
        one = ids.ndim == 1 or (ids.ndim == 2 and len(ids) == 1)  # as a tokenizer gives them
        if not one or (ids.size and ids.dtype.kind not in "iu"):
            raise ArgumentError(f"{name} is {a_type(given)}: a survey reads texts, or "
                                f"lists of token ids, which are whole numbers")  # fmt: skip
        ids = ids.reshape(-1)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._vocabulary:
            raise ArgumentError(f"{name} has token ids from {ids.min()} to {ids.max()}, and the "
                                f"model knows those from 0 to {self._vocabulary - 1}: take "
                                f"those of its own tokenizer")  # fmt: skip
        return ids.astype(np.int64)


class Unfinished:
    """A survey on its way, in a file: what was read, and with which settings."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        rank, ranks = settings["rank"]
        self.path = path if ranks == 1 else path.with_name(f"{path.name}.{rank}")
        self._settings = json.dumps(settings, sort_keys=True)

    def resume(self, stream: Stream) -> Survey | None:
        """The survey so far, the stream moved on behind it; None where nothing was begun."""
        if not os.path.exists(self.path):
            return None
        found = Survey.open(self.path)
        held = found.source.get("unfinished")
        if not isinstance(held, dict) or held.get("settings") != self._settings:
            raise ArgumentError(
                f"{self.path} is of a survey with other settings: give the same model, texts and "
                f"options, or remove the file to begin anew"
            )
        read = held.get("texts")
        if type(read) is not int or read < 0:
            raise ArgumentError(
                f"{self.path} does not say how many texts it has read: remove it to begin anew"
            )
        for _ in itertools.islice(stream, read):
            pass
        if stream.chain != held.get("chain"):
            raise ArgumentError(f"{self.path} was begun on other texts than these: give the same, "
                                f"or remove the file to begin anew")  # fmt: skip
        source = {key: value for key, value in found.source.items() if key != "unfinished"}
        return replace(found, source=source)

    def save(self, tally: Tally, stream: Stream) -> None:
        facts = {"settings": self._settings, "texts": stream.read, "chain": stream.chain}
        tally.survey(unfinished=facts).save(self.path)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self.path.unlink()


def _batches(chunk: list[Text], most: int) -> Iterator[list[Text]]:
    """Texts of like length together."""
    order = sorted(chunk, key=lambda text: len(text.ids))
    for start in range(0, len(order), most):
        yield order[start : start + most]


def _count(given: Any, name: str, meaning: str, least: int = 1) -> int:
    """A whole number from `least` on; `meaning` says of what."""
    if not is_integer(given) or given < least:
        raise ArgumentError(f"{name}={given!r}: give a whole number ≥ {least}, {meaning}")
    return int(given)


def _check(model: Any, tokens: int | None) -> int:
    """How many tokens of a text are read; what cannot be surveyed is an error."""
    if not isinstance(model, PreTrainedModel):
        raise ArgumentError(
            f"a survey takes a Transformers model, and got {type(model).__name__}: give what "
            f"limelight.hf.load or from_pretrained returns; of any other module "
            f"limelight.torch.capture(model) keeps a text"
        )
    if model.config.is_encoder_decoder:
        raise ArgumentError(
            f"{type(model).__name__} has an encoder and a decoder: a survey takes models that read "
            f"a text in one pass. Its encoder alone, model.get_encoder(), can be surveyed"
        )
    if not model._can_set_attn_implementation():
        raise ArgumentError(
            f"{type(model).__name__} computes its attention by itself and hands out its weights "
            f"alone: limelight.hf.capture keeps those of a text"
        )
    if not hasattr(model.config.get_text_config(), "vocab_size"):
        raise ArgumentError(
            f"{type(model).__name__} reads no tokens: a survey is of texts. limelight.hf.capture "
            f"keeps what it does on an image"
        )
    reads = getattr(model.config.get_text_config(), "max_position_embeddings", None) or MOST_TOKENS
    most = min(reads, MOST_TOKENS)
    tokens = min(TOKENS, most) if tokens is None else tokens
    if not is_integer(tokens) or not 1 <= tokens <= most:
        raise ArgumentError(f"tokens={tokens!r}: a survey of {type(model).__name__} reads from 1 "
                            f"to {most:,} tokens of a text")  # fmt: skip
    return int(tokens)


def _with_targets(found: Survey, kinds: tuple[Kind, ...]) -> Survey:
    """A survey from a file with the kinds as they were given, functions and all."""
    return replace(found, known=kinds)


def _ranks() -> tuple[int, int]:
    """Which of how many processes this is."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if there else (0, 1)


def _together(found: Survey | None, ranks: int) -> Survey:
    """The shares of all ranks as one, on each of them."""
    shares: list[Survey | None] = [found]
    if ranks > 1:
        plain = None if found is None else replace(found, known=_without_targets(found.known))
        shares = [None] * ranks
        torch.distributed.all_gather_object(shares, plain)
    whole = [share for share in shares if share is not None]
    if not whole:
        raise ArgumentError("there is no text to survey: give at least one that is not empty")
    merged = whole[0].merge(*whole[1:])
    return merged if found is None else replace(merged, known=found.known)


def _without_targets(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Kinds without functions, which do not travel."""
    return tuple(replace(kind, targets=None) for kind in kinds)
