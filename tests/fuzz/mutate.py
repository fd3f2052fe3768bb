"""A seeded mutator: the same seed gives the same files, on every machine."""

from __future__ import annotations

import contextlib
import json
import random
import re
from typing import Any

from tests.fuzz import corpus

EXTREMES = (
    "0", "-1", "1", "255", "65536", "2147483647", "2147483648", "-9223372036854775809", "1000000000000000",
    "9007199254740993", "1e308", "-1e308", "1e999", "NaN", "Infinity", "0.5", "null", "true", "[]", "{}", '""',
    '"x"', '"\\ud800"', '"[/x]\\u001b[2J\\u202e"', "[[[[[[[[]]]]]]]]",
)  # fmt: skip
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
TEXT = re.compile(rb'"[^"\\]{0,40}"')


def mutated(ending: str, seed: bytes, rng: random.Random) -> bytes:
    """One to four changes; of a capture often in what it says, so that more than its frame is tried."""
    if ending.endswith(".safetensors") and rng.random() < 0.6:
        with contextlib.suppress(
            KeyError, ValueError, RecursionError
        ):  # of a file that says nothing
            return _described(seed, rng)
    data = bytearray(seed)
    for _ in range(rng.randint(1, 4)):
        text = not ending.endswith((".gguf", ".safetensors"))
        rng.choice(_OF_TEXT if text else _OF_BYTES)(data, rng)
    return bytes(data)


def _described(seed: bytes, rng: random.Random) -> bytes:
    table, meaning, data = corpus.parts(seed)
    for _ in range(rng.randint(1, 3)):
        _replace(rng.choice((table, meaning, meaning)), rng)
    if rng.random() < 0.3:
        data = data[: rng.randint(0, len(data))] + rng.randbytes(rng.randint(0, 64))
    return corpus.packed(table, meaning, data)


def _replace(tree: Any, rng: random.Random) -> None:
    """Some value somewhere in the tree becomes another's, an extreme, or nothing."""
    while isinstance(tree, (dict, list)) and tree:
        key: Any = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        inner = tree[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.2:
            match rng.randrange(4):
                case 0:
                    del tree[key]
                case 1:
                    tree[key] = tree[rng.choice(list(tree)) if isinstance(tree, dict) else 0]
                case _:
                    tree[key] = json.loads(rng.choice(EXTREMES))
            return
        tree = inner


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randint(0, len(data)) :]


def _drop(data: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.randint(1, 64)]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.randbytes(rng.randint(1, 32))


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(data))
    piece = data[at : at + rng.randint(1, 256)]
    data[at:at] = piece * rng.randint(1, 8)


def _word(data: bytearray, rng: random.Random) -> None:
    """Eight bytes become a size that no file has."""
    at = rng.randrange(max(1, len(data) - 8))
    data[at : at + 8] = rng.choice((0, 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)).to_bytes(
        8, "little"
    )


def _value(data: bytearray, rng: random.Random) -> None:
    found = [*NUMBER.finditer(bytes(data)), *TEXT.finditer(bytes(data))]
    if found:
        start, stop = rng.choice(found).span()
        data[start:stop] = rng.choice(EXTREMES).encode()


_OF_BYTES = (_flip, _flip, _cut, _drop, _insert, _repeat, _word, _word)
_OF_TEXT = (_flip, _cut, _drop, _insert, _repeat, _value, _value, _value, _value)
