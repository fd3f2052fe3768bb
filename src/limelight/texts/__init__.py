"""The lessons in other languages: the English text is the message, a translation is one file.

de.json maps every message of the lessons and the exercises to German. A gap, as in "Key {1} is
hidden.", stands for what changes from sentence to sentence, and what stands in it is translated too
where it is a message itself; a tag, as in <b>, stays. What no file holds stays English. The page
reads the same files: web/src/lib/language.svelte.ts.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files

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
