"""The lessons' texts: every message has its translations, and no translation is left over."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from limelight import texts
from limelight.errors import ArgumentError

WEB = Path(__file__).parents[2] / "web/src"
TAGGED = re.compile(r"\bt`((?:[^`\\]|\\.)*)`")
SAID = re.compile(r"\btext=\{\"((?:[^\"\\]|\\.)*)\"\}")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
OTHERS = [language for language in texts.LANGUAGES if language != "en"]


def gaps(text: str) -> list[str]:
    return sorted(re.findall(r"\{\w+\}|</?[a-z]+>", text))


@cache
def sources() -> dict[str, str]:
    return {
        str(path.relative_to(WEB)): path.read_text("utf-8")
        for path in sorted(WEB.rglob("*"))
        if path.suffix in (".svelte", ".ts") and ".test." not in path.name
    }


def template(body: str) -> str:
    """A tagged template as a message: what is put in becomes {1}, {2}, …, however deep it nests."""
    out, n, depth = "", 0, 0
    for k, letter in enumerate(body):
        if depth == 0 and body.startswith("${", k):
            n, depth, out = n + 1, 1, f"{out}{{{n + 1}}}"
        elif depth == 0:
            out += letter
        elif letter in "{}" and not (letter == "{" and body[k - 1] == "$" and depth == 1):
            depth += 1 if letter == "{" else -1
    return json.loads(f'"{out}"') if "\\" in out else out


@cache
def shown() -> set[str]:
    """The messages that stand in the sources of the page as such."""
    found = set()
    for name, source in sources().items():
        if name.startswith(("learn", "lessons", "views", "App")):
            said = COMMENT.sub("", source)
            found |= {template(body) for body in TAGGED.findall(said)}
            found |= {" ".join(body.split()) for body in SAID.findall(said)}
    return found - {""}


@pytest.mark.parametrize("language", OTHERS)
def test_every_message_of_the_page_is_translated(language: str) -> None:
    missing = sorted(shown() - set(texts.texts(language)))
    assert missing == [], f"{len(missing)} messages are not in {language}.json"


@pytest.mark.parametrize("language", OTHERS)
def test_gaps_and_tags_are_kept(language: str) -> None:
    for message, text in texts.texts(language).items():
        assert gaps(message) == gaps(text), message


def test_every_language_has_the_same_messages() -> None:
    first, *rest = (list(texts.texts(language)) for language in OTHERS)
    for other in rest:
        assert sorted(other) == sorted(first)


def test_no_message_stands_twice() -> None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), [n for n in names if names.count(n) > 1]
        return dict(pairs)

    for language in OTHERS:
        path = Path(texts.__file__).with_name(f"{language}.json")
        json.loads(path.read_text("utf-8"), object_pairs_hook=once)


def test_a_sentence_is_found_by_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {
        "Key {1} is hidden.": "{1} ist verdeckt.",
        "{1} {2} is off": "{2}: {1}",
        "Key": "Schlüssel",
    }
    monkeypatch.setattr(texts, "texts", lambda _: held)
    texts._catalogue.cache_clear()
    try:
        assert texts.translate("Key 2 is hidden.", "de") == "2 ist verdeckt."
        assert texts.translate("Key 3 is off", "de") == "3: Schlüssel"
        assert texts.translate("Nobody has this.", "de") == "Nobody has this."
    finally:
        texts._catalogue.cache_clear()


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no texts in 'fr': choose en, de, es"):
        texts.translate("Right.", "fr")
