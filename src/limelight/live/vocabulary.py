"""Vocabularies: a text as tokens and back, from a model's own table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from typing import Any, Protocol

from limelight.errors import ArgumentError, FileError
from limelight.intake import ANEW
from limelight.writing.pieces import BYTES, SPACE, SYMBOLS, joined_bytes, told

SPELLED = re.compile("<0x[0-9A-F]{2}>")  # a byte
CONTROL, USER, BYTE = 3, 4, 6  # of tokenizer.ggml.token_type

# Where a byte-level vocabulary may not merge across: over a text in which every letter is L, every
# number N, a blank " ", a line's end n, other white space s, and all else O (an apostrophe ').
_GPT2 = r" ?L+| ?N+| ?[O']+|[sn ]+(?![LNO'])|[sn ]+"
SPLITS = {
    "gpt-2": _GPT2,
    "default": _GPT2,
    "smollm": _GPT2.replace(" ?N+", "N").replace("[sn ]+(?![LNO'])", "[sn ]+(?![LO'])"),
    "llama-bpe": r"[O's ]?L+|N{1,3}| ?[O']+n*|[sn ]*n|[sn ]+(?![LNO'])|[sn ]+",
}
SEPARATORS = "\x1c\x1d\x1e\x1f"  # white space to Python, and to nobody else
SUFFIXES = ("'re", "'ve", "'ll", "'s", "'t", "'m", "'d")


class Vocabulary(Protocol):
    """What a model needs of one."""

    ends: frozenset[int]  # tokens after which a text is over

    def encode(self, text: str) -> list[int]: ...

    def continued(self, text: str) -> list[int]:
        """Those of a text that goes on, without what a whole one begins with."""
        ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def piece(self, token: int) -> str:
        """One token as a person reads it."""
        ...

    def tokens(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Those of a text as a person reads them, pieces of one character joined."""
        ...


class Characters:
    """A token a character."""

    ends: frozenset[int] = frozenset()

    def __init__(self, alphabet: str) -> None:
        self.alphabet = alphabet
        self._place = {symbol: i for i, symbol in enumerate(alphabet)}

    def encode(self, text: str) -> list[int]:
        unknown = sorted(set(text) - set(self.alphabet))
        if unknown:
            raise ArgumentError(
                f"this model has never seen {' '.join(map(repr, unknown[:8]))}: it reads "
                f"{''.join(self.alphabet).strip()!r}, blanks and line ends"
            )
        return [self._place[symbol] for symbol in text]

    continued = encode

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.alphabet[i] for i in ids)

    def piece(self, token: int) -> str:
        return self.alphabet[token]

    def tokens(self, ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.alphabet[i] for i in ids)


class _Pieces:
    """What the vocabularies in a GGUF share: the table, its special tokens, and bytes to text."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.pieces: list[str] = facts["tokenizer.ggml.tokens"]
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        kinds = facts.get("tokenizer.ggml.token_type", [1] * len(self.pieces))
        self.kinds: list[int] = kinds
        whole = [p for p, kind in zip(self.pieces, kinds, strict=True) if kind in (CONTROL, USER)]
        longest = sorted(filter(None, whole), key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest))})" if longest else "(?!)")
        ends = (facts.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot"))
        self.ends = frozenset(i for i in ends if i is not None)
        self._first: list[int] = []
        if facts.get("tokenizer.ggml.add_bos_token", self.begins):
            self._first = [facts["tokenizer.ggml.bos_token_id"]]
        if any(type(i) is not int or not 0 <= i < len(self.pieces)
               for i in (*self.ends, *self._first)):  # fmt: skip
            raise FileError(f"a token that it names is not in its table of tokens. {ANEW}")

    begins = False  # whether a text begins with a token of its own where the file is silent

    def encode(self, text: str) -> list[int]:
        return [*self._first, *self._tokens(text, begins=True)]

    def continued(self, text: str) -> list[int]:
        return list(self._tokens(text, begins=False))

    def _tokens(self, text: str, begins: bool) -> Iterator[int]:
        for i, part in enumerate(self._special.split(text)):
            if i % 2:
                yield self.ids[part]
            elif part:
                yield from self._plain(part, first=begins and i == 0)

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.bytes(int(i)) for i in ids).decode("utf-8", "replace")

    def piece(self, token: int) -> str:
        """Its text, the leading blank kept; part of a character as its bytes, <0xF0><0x9F>."""
        found = self.bytes(token)
        return told(found, found.decode("utf-8", "replace") or self.pieces[token])

    def tokens(self, ids: Sequence[int]) -> tuple[str, ...]:
        return joined_bytes([self.bytes(i) for i in ids], [self.piece(i) for i in ids])

    def bytes(self, token: int) -> bytes:
        raise NotImplementedError

    def _plain(self, text: str, first: bool) -> list[int]:
        raise NotImplementedError


class BytePairs(_Pieces):
    """GPT-2's kind: bytes, merged pair by pair in the order that training found."""

    def __init__(self, facts: dict[str, Any]) -> None:
        how = str(facts.get("tokenizer.ggml.pre", "default"))
        llama3 = how == "llama-bpe"
        self.begins = llama3 and "tokenizer.ggml.bos_token_id" in facts
        super().__init__(facts)
        if how not in SPLITS:
            raise FileError(
                f"the file cuts words the way of {how!r:.80}, which is not known here "
                f"({', '.join(SPLITS)} are): limelight.hf.load reads it through Transformers"
            )
        self._split = re.compile(SPLITS[how])
        self._any_case = self._whole = llama3  # 'S as 's; a word that is a token is that token
        merges = facts["tokenizer.ggml.merges"]
        self._ranks = {tuple(pair.split(" ", 1)): rank for rank, pair in enumerate(merges)}
        self._word = lru_cache(1 << 15)(self._merged)

    def bytes(self, token: int) -> bytes:
        piece = self.pieces[token]
        if self.kinds[token] in (CONTROL, USER):
            return piece.encode()
        return bytes(BYTES[symbol] for symbol in piece if symbol in BYTES)

    def _plain(self, text: str, first: bool) -> list[int]:
        return [token for word in self._words(text) for token in self._word(word)]

    def _words(self, text: str) -> Iterator[str]:
        shape, at = "".join(map(_shape, text)), 0
        while at < len(text):
            end = self._suffix(text, at) or self._split.match(shape, at).end()  # type: ignore[union-attr]
            yield text[at:end]
            at = end

    def _suffix(self, text: str, at: int) -> int:
        """Where 's, 're and their like end; 0 where none begins here."""
        if text[at] != "'":
            return 0
        here = text[at : at + 3].lower() if self._any_case else text[at : at + 3]
        return next((at + len(s) for s in SUFFIXES if here.startswith(s)), 0)

    def _merged(self, word: str) -> tuple[int, ...]:
        symbols = [SYMBOLS[byte] for byte in word.encode("utf-8", "replace")]
        if self._whole and (known := self.ids.get("".join(symbols))) is not None:
            return (known,)
        parts = joined(symbols, lambda left, right: self._ranks.get((left, right)))
        unknown = [part for part in parts if part not in self.ids]
        if unknown:
            raise FileError(
                f"the file's table of tokens has no {unknown[0]!r:.80} and is incomplete. {ANEW}"
            )
        return tuple(self.ids[part] for part in parts)


class SentencePieces(_Pieces):
    """Llama 1 and 2's kind: characters, joined where the score is best; unknown ones as bytes."""

    begins = True

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(facts)
        self._scores: list[float] = facts["tokenizer.ggml.scores"]
        bytes_ = (p for p, kind in zip(self.pieces, self.kinds, strict=True) if kind == BYTE)
        sound = len(self._scores) == len(self.pieces) and all(map(SPELLED.fullmatch, bytes_))
        if not sound or not all(isinstance(score, (int, float)) for score in self._scores):
            raise FileError(f"its table of tokens is incomplete. {ANEW}")
        self._prefix = bool(facts.get("tokenizer.ggml.add_space_prefix", True))

    def bytes(self, token: int) -> bytes:
        piece = self.pieces[token]
        if self.kinds[token] == BYTE:
            return bytes([int(piece[3:5], 16)])
        return piece.replace(SPACE, " ").encode()

    def _plain(self, text: str, first: bool) -> list[int]:
        text = (" " + text if first and self._prefix else text).replace(" ", SPACE)
        return [token for part in joined(text, self._rank) for token in self._known(part)]

    def _rank(self, left: str, right: str) -> float | None:
        token = self.ids.get(left + right)
        return None if token is None else -self._scores[token]

    def _known(self, part: str) -> Sequence[int]:
        if part in self.ids:
            return (self.ids[part],)
        return [self._byte[byte] for byte in part.encode("utf-8", "replace")]

    @cached_property
    def _byte(self) -> list[int]:
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        if any(name not in self.ids for name in names):
            raise ArgumentError("the text has characters that this model's vocabulary lacks: leave "
                                "out what is not plain letters, digits and marks")  # fmt: skip
        return [self.ids[name] for name in names]


KINDS: dict[Any, type[BytePairs] | type[SentencePieces]] = {
    "gpt2": BytePairs,
    "llama": SentencePieces,
}


def of(facts: dict[str, Any]) -> BytePairs | SentencePieces:
    """The vocabulary that a GGUF's facts describe."""
    kind = facts.get("tokenizer.ggml.model")
    if kind not in KINDS or "tokenizer.ggml.tokens" not in facts:
        raise FileError(
            f"its vocabulary is of the kind {kind!r:.80}, and {' and '.join(KINDS)} are read here: "
            f"limelight.hf.load reads others through Transformers"
        )
    return KINDS[kind](facts)


def joined(symbols: Iterable[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Neighbours joined, always those of the lowest rank and of these the first, while any has one.

    Pairs wait in a heap, and the places left are linked: a word of n symbols takes n·log n steps,
    where looking for the lowest anew after each took n².

    >>> joined("abab", lambda left, right: {"ab": 0, "aba": 1}.get(left + right))
    ['ab', 'ab']
    """
    parts: list[str | None] = list(symbols)
    count = len(parts)
    before, after = list(range(-1, count - 1)), list(range(1, count + 1))
    waiting: list[tuple[float, int, str, str]] = []

    def offer(at: int) -> None:
        if at < 0 or after[at] >= count:
            return
        left, right = parts[at], parts[after[at]]
        assert left is not None
        assert right is not None
        found = rank(left, right)
        if found is not None:
            heappush(waiting, (found, at, left, right))

    for at in range(count - 1):
        offer(at)
    while waiting:
        _, at, left, right = heappop(waiting)
        beside = after[at]
        if parts[at] != left or beside >= count or parts[beside] != right:
            continue  # one of them was joined to another meanwhile
        parts[at], parts[beside], after[at] = left + right, None, after[beside]
        if after[at] < count:
            before[after[at]] = at
        offer(before[at])
        offer(at)
    return [part for part in parts if part is not None]


def _shape(symbol: str) -> str:
    if symbol in " '":
        return symbol
    if symbol.isspace() and symbol not in SEPARATORS:
        return "n" if symbol in "\r\n" else "s"
    kind = unicodedata.category(symbol)[0]
    return kind if kind in "LN" else "O"
