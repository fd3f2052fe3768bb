"""Tokens as a person can read them: nothing invisible, nothing that breaks out of its place."""

from __future__ import annotations

import unicodedata

FIRST, POP = "\u2068", "\u2069"  # isolate a text's own direction from its surroundings
_NAMED = {" ": "·", "\n": "↵", "\t": "⇥", "\x7f": "␡", "\u00a0": "·", "\u2028": "↵", "\u2029": "↵"}


def visible(token: str, most: int = 14) -> str:
    """One token for an axis: spaces and controls shown by a sign, cut with … past `most` signs.

    A space becomes ·, a line break ↵, other controls their pictures (NUL ␀), and marks that turn
    the direction of text, half characters and what has no character become �.

    >>> visible(" cat"), visible("a\\x00b"), visible("\\u202egnp.exe")
    ('·cat', 'a␀b', '�gnp.exe')
    """
    text = "".join(_sign(letter) for letter in token)
    if not text:
        return "∅"
    return text if len(text) <= most else text[: most - 1] + "…"


def printable(text: str) -> str:
    """A sentence, in which only what has no sign of its own is replaced."""
    return "".join(letter if letter == " " else _sign(letter) for letter in text)


def isolated(text: str) -> str:
    """The text with its direction kept to itself, for right-to-left tokens beside others."""
    turned = any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in text)
    return f"{FIRST}{text}{POP}" if turned else text


def _sign(letter: str) -> str:
    if letter in _NAMED:
        return _NAMED[letter]
    if letter < " ":
        return chr(0x2400 + ord(letter))
    kind = unicodedata.category(letter)
    joiner = letter in "\u200c\u200d\ufe0e\ufe0f"  # parts of emoji and of several scripts
    return "�" if kind in ("Cc", "Cf", "Cs", "Co", "Cn") and not joiner else letter
