"""The lessons in other languages: the English text is the message, a translation is one file.

de.json maps every message of the lessons and the exercises to German. A gap, as in "Key {1} is
hidden.", stands for what changes from sentence to sentence, and what stands in it is translated too
where it is a message itself; a tag, as in <b>, stays. What no file holds stays English. The page
reads the same files: web/src/lib/language.svelte.ts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from functools import cache
from importlib.resources import files
from typing import Any

from limelight.errors import ArgumentError

# Their names, in themselves.
LANGUAGES = {"en": "English", "de": "Deutsch", "es": "Español"}
GAP = re.compile(r"\{(\d+)\}")


def known(language: str) -> str:
    """The language itself, or an error that names those there are."""
    if language not in LANGUAGES:
        raise ArgumentError(f"no texts in {language!r}: choose {', '.join(LANGUAGES)}")
    return language


def translate(sentence: str, language: str) -> str:
    """A sentence of the lessons in another language; what no file holds stays as it is.

    >>> translate("Right.", "de")
    'Richtig.'
    """
    texts, forms = _catalogue(known(language))
    exact = texts.get(sentence)
    if exact is not None:
        return exact
    for form, order, to in forms:
        found = form.fullmatch(sentence)
        if found:
            said = (translate(gap, language) for gap in found.groups())
            return _fill(to, dict(zip(order, said, strict=True)))
    return sentence


def speaker(language: str) -> Callable[..., str]:
    """Says messages in that language: with what belongs in its gaps, or a sentence as it stands.

    >>> say = speaker("de")
    >>> say("{1} of {2}", 3, 7), say("Key 2 is hidden: its weight is 0.")
    ('3 von 7', 'Key 2 ist verdeckt: Sein Gewicht ist 0.')
    """
    held = texts(language)

    def say(message: str, *gaps: object) -> str:
        if not gaps:
            return translate(message, language)
        given = {str(n): str(gap) for n, gap in enumerate(gaps, start=1)}
        return _fill(held.get(message, message), given)

    return say


def translated(data: Any, language: str, fields: Collection[str]) -> Any:
    """Data for a page or a grader with what stands in these fields in another language.

    >>> translated({"kind": "", "says": ["Right."]}, "es", ["says"])
    {'kind': '', 'says': ['Correcto.']}
    """
    if isinstance(data, dict):
        return {
            name: _all_of(part, language) if name in fields else translated(part, language, fields)
            for name, part in data.items()
        }
    return [translated(part, language, fields) for part in data] if isinstance(data, list) else data


def _all_of(data: Any, language: str) -> Any:
    if isinstance(data, dict):
        return {name: _all_of(part, language) for name, part in data.items()}
    if isinstance(data, list):
        return [_all_of(part, language) for part in data]
    return translate(data, language) if isinstance(data, str) else data


@cache
def texts(language: str) -> dict[str, str]:
    """A language's file, from messages to texts; of English itself, nothing."""
    if known(language) == "en":
        return {}
    held: dict[str, str] = json.loads(
        files("limelight.texts").joinpath(f"{language}.json").read_text("utf-8")
    )
    return held


@cache
def _catalogue(
    language: str,
) -> tuple[dict[str, str], list[tuple[re.Pattern[str], list[str], str]]]:
    held = texts(language)
    # The form that leaves least open goes first.
    forms = sorted((m for m in held if GAP.search(m)), key=lambda m: -len(GAP.sub("", m)))
    return held, [(_form(m), GAP.findall(m), held[m]) for m in forms]


def _form(message: str) -> re.Pattern[str]:
    parts = GAP.split(message)
    body = "".join("(.+?)" if n % 2 else re.escape(part) for n, part in enumerate(parts))
    return re.compile(body, re.DOTALL)


def _fill(text: str, gaps: dict[str, str]) -> str:
    return GAP.sub(lambda gap: gaps[gap[1]], text)
