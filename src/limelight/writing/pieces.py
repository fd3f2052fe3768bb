"""Tokens as a person reads them: byte-level spellings undone, pieces of one character joined.

A byte-level vocabulary cuts where it likes, also inside a character. Such pieces bear the whole
character and which part of it they are: 🙂[1/3], 🙂[2/3], 🙂[3/3]. One that stands alone is told by
its bytes: <0xF0><0x9F>.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

SPACE = "▁"  # how SentencePiece writes one
MOST = 8  # pieces of one character, or of two that a piece lies across
_NAMED_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_symbols() -> list[str]:
    """GPT-2's spelling: printable bytes as themselves, the others from U+0100 on."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in shown else next(hidden)) for byte in range(256)]


SYMBOLS = _byte_symbols()
BYTES = {symbol: byte for byte, symbol in enumerate(SYMBOLS)}
BLANK, BREAK = SYMBOLS[32], SYMBOLS[10]  # Ġ and Ċ


def readable(tokens: Sequence[str]) -> tuple[str, ...]:
    """A text's tokens as a vocabulary spells them, as a person reads them; others as they are.

    >>> readable(["The", "Ġcurious", "Ġcat", "Ċ"])
    ('The', ' curious', ' cat', '\\n')
    >>> readable(["▁na", "ï", "ve", "<0xE2>", "<0x82>", "<0xAC>"])
    (' na', 'ï', 've', '€[1/3]', '€[2/3]', '€[3/3]')
    """
    spelled = tuple(map(str, tokens))
    if any(BLANK in token or BREAK in token for token in spelled):
        return joined_bytes([spelled_bytes(token) for token in spelled], spelled)
    if any(SPACE in token or _NAMED_BYTE.fullmatch(token) for token in spelled):
        return joined_bytes([_sentence_piece(token) for token in spelled], spelled)
    return spelled


def joined_bytes(parts: Sequence[bytes], spelled: Sequence[str]) -> tuple[str, ...]:
    """The text of each token, by its bytes; where they are none, as it is spelled."""

    def read(start: int, stop: int) -> str | None:
        try:
            return b"".join(parts[start:stop]).decode()
        except UnicodeDecodeError:
            return None

    return joined(read, [told(part, token) for part, token in zip(parts, spelled, strict=True)])


def told(part: bytes, spelled: str) -> str:
    """A token as it is spelled; part of a character by its bytes.

    >>> told(b"\\xe2\\x82", "âĤ"), told(b" cat", "Ġcat")
    ('<0xE2><0x82>', 'Ġcat')
    """
    try:
        part.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in part)
    return spelled


def joined(read: Callable[[int, int], str | None], spelled: Sequence[str]) -> tuple[str, ...]:
    """The text of each token; `read` gives that of some together, None where it is broken."""
    found: list[str] = []
    while len(found) < len(spelled):
        at = len(found)
        text = read(at, at + 1)
        if text is not None:
            found.append(text or spelled[at])
            continue
        for stop in range(at + 2, min(at + MOST, len(spelled)) + 1):
            text = read(at, stop)
            if text is not None:
                count = stop - at
                found += [f"{text}[{n}/{count}]" for n in range(1, count + 1)]
                break
        else:
            found.append(spelled[at])
    return tuple(found)


def spelled_bytes(token: str) -> bytes:
    """Those of a token as a byte-level vocabulary spells it.

    Special tokens have signs that are no bytes: they stand for themselves.
    """
    if all(symbol in BYTES for symbol in token):
        return bytes(BYTES[symbol] for symbol in token)
    return token.encode("utf-8", "replace")


def _sentence_piece(token: str) -> bytes:
    byte = _NAMED_BYTE.fullmatch(token)
    if byte is not None:
        return bytes([int(byte[1], 16)])
    return token.replace(SPACE, " ").encode("utf-8", "replace")
