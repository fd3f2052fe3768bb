"""The lessons' texts: every message has its translations, and no translation is left over."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from limelight import texts
from limelight.errors import ArgumentError
from tests.lessons.said import sentences

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web/src"
# The files of Python whose own words are messages.
SPEAKING = (
    "cli/exercise.py",
    "learn/exercises/sheet.py",
    "learn/experiments/__init__.py",
    "learn/experiments/rescue.py",
    "lessons/page.py",
    "report/page.py",
)
TEMPLATE = re.compile(r"`([^`\\]*)`")
LITERAL = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"")
# Words that no sentence in another language has.
ENGLISH = re.compile(
    r"\b(the|of|and|is|are|with|for|each|weights?|keys?|value|numbers?|scores?|to|from|by|it|its|that"
    r"|this|they|not)\b"
)
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


@cache
def literals() -> frozenset[str]:
    """The strings that stand in the sources of the page, and in the Python that speaks itself."""
    found = set()
    for name, source in sources().items():
        if name.startswith(("learn", "lessons", "views", "lib")):
            found |= {json.loads(body) for body in LITERAL.findall(source) if "\\u{" not in body}
            found |= {template(body) for body in TEMPLATE.findall(source)}
    for name in SPEAKING:
        tree = ast.parse((ROOT / "src/limelight" / name).read_text("utf-8"))
        found |= {node.value for node in ast.walk(tree)
                  if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
    return frozenset(found)


def used(sentence: str, language: str) -> Iterator[str]:
    """The messages that a sentence is translated by, its own and those of its gaps."""
    held = texts.texts(language)
    if sentence in held:
        yield sentence
        return
    for message in forms(language):
        found = texts._form(message).fullmatch(sentence)
        if found:
            yield message
            for gap in found.groups():
                yield from used(gap, language)
            return


@cache
def forms(language: str) -> list[str]:
    """As texts tries them: what leaves least open goes first."""
    held = [message for message in texts.texts(language) if texts.GAP.search(message)]
    return sorted(held, key=lambda message: -len(texts.GAP.sub("", message)))


def untranslated(said: Iterable[str], language: str) -> list[str]:
    """Sentences that no message reads, or that keep an English word."""
    held = texts.texts(language)
    told = {sentence: texts.translate(sentence, language) for sentence in said}
    return sorted(
        sentence for sentence, other in told.items()
        if (other == sentence and sentence not in held) or ENGLISH.search(other)
    )  # fmt: skip


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_of_the_exercises_is_translated(language: str) -> None:
    assert untranslated(sentences(), language) == []


@pytest.mark.slow
@pytest.mark.parametrize("language", OTHERS)
def test_over_many_seeds_too(language: str) -> None:
    assert untranslated(sentences(30, 6), language) == []


@pytest.mark.parametrize("language", OTHERS)
def test_what_python_says_itself_is_translated(language: str) -> None:
    spoken = set()
    for name in SPEAKING:
        tree = ast.parse((ROOT / "src/limelight" / name).read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = (
                    node.func.attr
                    if isinstance(node.func, ast.Attribute)
                    else getattr(node.func, "id", "")
                )
                if called in ("say", "marked", "translate"):
                    spoken.add(node.args[0].value)
    assert len(spoken) > 30
    assert sorted(spoken - set(texts.texts(language))) == []


@pytest.mark.parametrize("language", OTHERS)
def test_no_translation_is_left_over(language: str) -> None:
    read = {message for sentence in sentences() for message in used(sentence, language)}
    idle = set(texts.texts(language)) - shown() - literals() - read
    assert sorted(idle) == []


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_of_a_table_is_translated(language: str) -> None:
    tables = [
        re.sub(r"/\*\*.*?\*/", "", source, flags=re.DOTALL)
        for name, source in sources().items()
        if name.endswith("texts.ts")
    ]
    said = {json.loads(body) for source in tables for body in LITERAL.findall(source)}
    told = {text for text in said if " " in text and re.search(r"[A-Za-z]{3}", text)}
    assert len(told) > 100
    assert sorted(told - set(texts.texts(language))) == []


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


def test_no_style_says_what_nobody_can_translate() -> None:
    words = re.compile(r"content:\s*\"[^\"]*[A-Za-z]{2}")
    assert [name for name, text in sources().items() if words.search(text)] == []
