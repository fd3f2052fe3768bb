"""What the heads of the character models do, as the share of attention on target characters.

Like limelight.heads, with targets that need to know what a text is made of: for each character p,
a set T(p) of earlier characters. A head's share is the mean over the characters that have targets
of Σ weight(p, j) for j in T(p); chance is what even attention over the past would give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from limelight import Capture

Targets = dict[int, list[int]]
OPENERS, CLOSERS = "([{", ")]}"


@dataclass(frozen=True)
class Found:
    """The head that does something most."""

    layer: int
    head: int
    share: float
    chance: float
    rows: int


def best(capture: Capture, targets: Targets) -> Found:
    """The head with the largest share of its attention on the targets."""
    chance = float(np.mean([len(to) / (at + 1) for at, to in targets.items()]))
    found = [
        Found(site.layer, head, share(capture, site.layer, head, targets), chance, len(targets))
        for site in capture
        for head in range(site.heads)
    ]
    return max(found, key=lambda one: one.share)


def share(capture: Capture, layer: int, head: int, targets: Targets) -> float:
    weights = capture[layer].weights(head=head)
    return float(np.mean([weights[at, to].sum() for at, to in targets.items()]))


def previous(text: str) -> Targets:
    return {p: [p - 1] for p in range(1, len(text))}


def spaces(text: str) -> Targets:
    """From anywhere to the spaces before."""
    return _signs(text, " ")


def line_breaks(text: str) -> Targets:
    """From anywhere to the line breaks before."""
    return _signs(text, "\n")


def _signs(text: str, sign: str) -> Targets:
    found = {p: [j for j in range(p) if text[j] == sign] for p in range(len(text))}
    return {p: to for p, to in found.items() if to}


def word_start(text: str) -> Targets:
    """From inside a word to its first letter."""
    words = re.finditer(r"\w+", text)
    return {p: [word.start()] for word in words for p in range(word.start() + 1, word.end())}


def repeated_words(text: str) -> Targets:
    """From a letter of a word to what followed that letter where the word stood before."""
    before: dict[str, list[int]] = {}
    targets: Targets = {}
    for word in re.finditer(r"\w+", text):
        earlier = before.setdefault(word.group(), [])
        for k in range(len(word.group()) - 1):
            if earlier:
                targets[word.start() + k] = [start + k + 1 for start in earlier]
        earlier.append(word.start())
    return targets


def open_bracket(text: str) -> Targets:
    """From inside brackets to the innermost one that is open."""
    return {p: waiting[-1:] for p, waiting in _open(text).items()}


def nested(text: str) -> tuple[Targets, Targets]:
    """From inside several brackets to the innermost, and to the outermost."""
    deep = {p: waiting for p, waiting in _open(text).items() if len(waiting) > 1}
    return {p: w[-1:] for p, w in deep.items()}, {p: w[:1] for p, w in deep.items()}


def _open(text: str) -> Targets:
    """The brackets that are open at each character, outermost first."""
    waiting: list[int] = []
    found: Targets = {}
    for p, sign in enumerate(text):
        if sign in CLOSERS and waiting:
            waiting.pop()
        if waiting:
            found[p] = list(waiting)
        if sign in OPENERS:
            waiting.append(p)
    return found


def line_start(text: str) -> Targets:
    """From the spaces that begin a line to the line break before them."""
    return {p: [start - 1] for start, spaces in _indents(text) if start for p in spaces}


def indentation(text: str) -> Targets:
    """From the spaces that begin a line to those that begin the line before."""
    pairs = pairwise(_indents(text))
    return {p: list(above) for (_, above), (_, spaces) in pairs for p in spaces if above}


def _indents(text: str) -> list[tuple[int, range]]:
    """Each line's start, and the places of the spaces it begins with."""
    found, start = [], 0
    for line in text.split("\n"):
        found.append((start, range(start, start + len(line) - len(line.lstrip(" ")))))
        start += len(line) + 1
    return found
