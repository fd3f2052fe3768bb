"""Masks from text: the words in which they print themselves, and nothing that runs."""

import warnings

import numpy as np
import pytest

from limelight.errors import ArgumentError, DtypeError
from limelight.masks import Causal, Documents, Lengths, Prefix, Window
from limelight.masks.text import MOST_CHARACTERS, parse


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("causal", Causal()),
        ("Causal()", Causal()),
        ("causal(align='top-left')", Causal(align="top-left")),
        (" window(2, 0) ", Window(2, 0)),
        ("window(left=None, right=3)", Window(None, 3)),
        ("lengths([2, 5])", Lengths([2, 5])),
        ("documents([0, 0, 1])", Documents([0, 0, 1])),
        ("documents([[0, 0], [0, 1]])", Documents([[0, 0], [0, 1]])),
        ("causal & window(4, 0) | ~prefix(3)", (Causal() & Window(4, 0)) | ~Prefix(3)),
        ("causal & (window(4, 0) | prefix(3))", Causal() & (Window(4, 0) | Prefix(3))),
    ],
)
def test_reads(text, mask):
    assert parse(text) == mask
    assert parse(mask.expression) == mask


def test_size_of_what_is_read():
    np.testing.assert_array_equal(parse("causal").dense(3, 3), np.tri(3, dtype=bool))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a mask: write causal"),
        ("causal &", "is not a mask"),
        (3, "3 is not a mask in words: write causal"),
        ("circle(3)", "there is no mask 'circle': write causal"),
        ("1 + 2", "'1 \\+ 2' is not a mask"),
        ("causal + prefix(1)", "is not a mask"),
        ("not causal", "combine masks with &, | and ~"),
        ("causal or prefix(1)", "combine masks with &, | and ~"),
        ("prefix", r"Prefix\(\): it takes n"),
        ("window(1, 2, 'top-left', 4)", "it takes left, right, align"),
        ("causal(left=2)", "it takes align"),
        ("prefix(open('x'))", "a mask takes numbers, lists of numbers and None"),
        ("__import__('os').system('true')", "is not a mask"),
        ("window(4or 5, 0)", "'4or 5': a mask takes numbers"),
        ("window(-1, 0)", "a width is a whole number"),
        ("causal" + " & causal" * MOST_CHARACTERS, "characters"),
        ("~" * 5000 + "causal", "is not a mask|joins more than"),
    ],
)
def test_refuses(text, message):
    with pytest.raises(ArgumentError, match=message):
        parse(text)


def test_python_says_nothing_of_it():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(ArgumentError):
            parse("window(4or 5, 0)")
    assert not said


def test_the_mask_itself_may_refuse():
    with pytest.raises(DtypeError, match="whole numbers"):
        parse("prefix(1.5)")
