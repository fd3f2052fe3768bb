"""Sheets: the same from the same seed, no two exercises alike, every printed answer right."""

import re
from html import unescape
from html.parser import HTMLParser

import pytest

from limelight.errors import ArgumentError
from limelight.learn.exercises import STEPS, check, generate, sheet
from limelight.learn.exercises.sheet import printed

MADE = sheet(seed=7, count=12)


class Cells(HTMLParser):
    """The text of every table cell and of every line for an answer, in order."""

    def __init__(self, page):
        super().__init__()
        self.found, self._inside = [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "td" or (tag == "span" and ("class", "answer") in attrs):
            self._inside = True
            self.found.append("")

    def handle_endtag(self, tag):
        self._inside = self._inside and tag not in ("td", "span")

    def handle_data(self, data):
        if self._inside:
            self.found[-1] += data


def test_the_same_seed_gives_the_same_sheet():
    assert sheet(seed=7, count=12) == MADE
    assert sheet(seed=7, count=12).to_html() == MADE.to_html()
    assert sheet(seed=8, count=12) != MADE


def test_levels_rise_and_no_two_exercises_are_alike():
    levels = [task.level for task in MADE.exercises]
    assert levels == sorted(levels)
    assert set(levels) == {1, 2, 3, 4, 5}
    assert len({(task.query, task.keys, task.values) for task in MADE.exercises}) == 12
    assert [task.level for task in sheet(3, 5, [4, 2, 2]).exercises] == [2, 2, 2, 4, 4]
    for task in MADE.exercises:
        assert generate(task.level, task.seed) == task  # so its number brings it back


@pytest.mark.parametrize("seed", range(4))
def test_every_printed_answer_is_right(seed):
    for task in sheet(seed, 10).exercises:
        for step in STEPS:
            assert check(task, step, printed(task, step)).right
        assert re.fullmatch(r"−?\d+(, −?\d+)*", printed(task, "raw"))
        assert re.fullmatch(r"0\.\d\d(, 0\.\d\d)*", printed(task, "weights"))


def test_the_sheet_asks_and_the_answer_page_answers():
    page = MADE.to_html()
    asked, answered = page.split('<article class="answers">')
    blank = [text for text in Cells(asked).found if text]
    numbers = [str(list(map(int, row))).replace("-", "−") for task in MADE.exercises
               for pair in zip(task.keys, task.values, strict=True) for row in pair]  # fmt: skip
    assert blank == numbers  # nothing but what is given
    filled = Cells(answered).found
    assert "" not in filled
    text = unescape(answered)
    for task in MADE.exercises:
        for weight in printed(task, "weights").split(", "):
            assert weight in filled
        assert f"[{printed(task, 'output')}]" in filled
        for reason in task.options("why"):
            assert reason not in text
            assert reason in unescape(asked)
    assert "<script" not in page
    assert "--sheet --seed 7 --count 12 --level 1 --level 2" in page


def test_an_output_from_rounded_weights_stands_where_it_differs():
    answered = sheet(7, 2, [1]).to_html().split('class="answers"')[1]
    # exercise 5154 by hand: weights 0.20 and 0.80 give another second digit than the exact ones
    assert "From weights rounded to two digits: [3.80, 5.40]." in answered
    assert "[3.78, 5.39]" in answered


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"levels": [6]}, "there is no level 6 for a sheet: choose from 1 to 5"),
        ({"levels": []}, "no level was chosen"),
        ({"count": 201}, "count=201: give a whole number from 1 to 200"),
        ({"count": True}, "count=True"),
        ({"seed": -1}, "seed=-1: give a whole number ≥ 0"),
    ],
)
def test_errors(given, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        sheet(**given)


@pytest.mark.parametrize(
    ("language", "said", "reason"),
    [
        ("de", ["Attention von Hand", "Größtes Gewicht: Key", "verdeckt", "Gewicht × Value"],
         "Sein Key passt am besten, und nur das Gewicht zählt."),
        ("es", ["Atención a mano", "Mayor peso: clave", "oculta", "peso × valor"],
         "Su clave es la que mejor encaja, y solo cuenta el peso."),
    ],
)  # fmt: skip
def test_a_sheet_in_another_language_asks_the_same(language, said, reason):
    made = sheet(seed=7, count=12, language=language)
    assert made.exercises == MADE.exercises
    page = unescape(made.to_html())
    assert f'<html lang="{language}">' in page
    assert Cells(made.to_html()).found == Cells(MADE.to_html()).found  # the same figures
    for text in (*said, reason, f"--seed EXERCISE --language {language}"):
        assert text in page
    words = re.sub(r"<style>.*</style>|<code>.*?</code>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert re.findall(r"\b(?:the|of|and|is|weight|each|hidden|with)\b", words) == []


def test_a_language_that_is_not_there():
    with pytest.raises(ArgumentError, match="no texts in 'fr': choose en, de, es"):
        sheet(1, 1, language="fr")


def test_the_title_is_text():
    page = sheet(1, 1).to_html(title="<b>Class 7 & 8</b>")
    assert "&lt;b&gt;Class 7 &amp; 8&lt;/b&gt;" in page
