"""The frame around attention: directions, where X comes from, softmax's rivals, heads, recall."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.capture import Capture
from limelight.learn.exercises import QUIZ
from limelight.learn.projections import SelfAttention
from limelight.studio.shelf import shipped
from tests.studio.looking import close, figures, matrix
from tests.studio.test_learn_apply import W_K, W_Q, X

KEYS, VALUES = [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]]


def check_direction(part: Any) -> Any:
    """The table of projections and the output against the library, for the query as it stands."""
    query = [float(part.get_by_role("textbox", name=f"query, {n} entry").input_value()
             .replace("−", "-")) for n in ("first", "second")]  # fmt: skip
    done = ll.trace([query], KEYS, VALUES)
    arrows = part.get_by_role("region", name="The same, as directions")
    table = figures(arrows.locator("table")).reshape(3, 4)
    along = np.array(KEYS) @ query / np.hypot(*query)
    close(table[:, 0], along)
    close(table[:, 0] * np.hypot(*query), done.raw[0])  # a score is a projection times a length
    close(table[:, 1:], np.stack([done.raw[0], done.scaled[0], done.weights[0]], axis=1))
    close(figures(arrows.locator(".figure")), done.output[0])
    return done


def test_the_query_is_turned_by_keyboard_and_by_hand(page: Any) -> None:
    part = page.locator("#example")
    assert check_direction(part).weights[0].argmax() == 0
    grip = part.get_by_role("slider", name="Direction of the query")
    grip.focus()
    for _ in range(8):
        page.keyboard.press("Shift+ArrowRight")
    check_direction(part)
    page.keyboard.press("ArrowUp")
    longer = check_direction(part)
    assert np.hypot(*longer.query[0]) == pytest.approx(np.hypot(2, 1) + 0.25, abs=0.01)
    plot = part.locator("svg.plot")
    plot.scroll_into_view_if_needed()
    knob, box = part.locator("circle.knob").bounding_box(), plot.bounding_box()
    page.mouse.move(knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20, steps=5)
    page.mouse.up()
    turned = check_direction(part)
    assert turned.weights[0].argmax() == 2  # straight down, where key 2 points
    assert turned.query[0, 0] == pytest.approx(0, abs=0.1)


def test_without_positions_attention_cannot_tell_who_came_first(page: Any) -> None:
    part = page.locator("#input")
    embedded = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0.1, 1, 0, 0]])
    waves = np.array([[f(p / 10000 ** (n / 4)) for n in (0, 2) for f in (np.sin, np.cos)]
                      for p in range(3)])  # fmt: skip
    w_v = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0.5]])

    def handed(x: np.ndarray) -> np.ndarray:
        return np.asarray(ll.attention(x @ W_Q, x @ W_K, x @ w_v)[1])

    close(matrix(part, "positions"), waves)
    close(figures(part.locator("dl")), [handed(embedded), handed(embedded[::-1])])
    assert "bag of words" in part.inner_text()
    part.get_by_role("switch", name="Add the position").click()
    close(matrix(part, "rows of X"), embedded + waves)
    close(figures(part.locator("dl")), [handed(embedded + waves), handed(embedded[::-1] + waves)])
    assert "Different numbers" in part.inner_text()
    part.get_by_role("button", name="Swap").click()
    close(matrix(part, "rows of X"), embedded[::-1] + waves)


def test_softmax_against_plain_normalising_and_argmax(page: Any) -> None:
    part = page.locator("#softmax")

    def shares(way: str) -> np.ndarray:
        return figures(part.get_by_role("region", name=way).locator("ul"))

    scores = np.array([2.0, 1, -1])
    close(shares("Softmax"), np.exp(scores) / np.exp(scores).sum())
    close(shares("Plain normalising"), scores / scores.sum())
    close(shares("Argmax"), [1, 0, 0])
    least = part.get_by_role("region", name="Plain normalising").locator("ul data").last
    assert f"a negative share, here {least.inner_text()}," in part.inner_text()
    part.get_by_role("slider").fill("0.5")
    moved = [figures(part.get_by_role("region", name=way).locator(".moved"))[0]
             for way in ("Softmax", "Argmax")]  # fmt: skip
    assert moved[0] > 0.05
    assert moved[1] == 0
    before = shares("Softmax")
    part.get_by_role("button", name="Add 10").click()
    close(shares("Softmax"), before)  # only differences count


def test_a_mask_after_the_softmax_loses_what_it_crosses_out(page: Any) -> None:
    part = page.locator("#future")
    late = part.locator(".after")
    close(figures(late.locator(".sum")), [1.0])
    late.get_by_role("switch").click()
    done = ll.trace(X @ W_Q, X @ W_K, X)
    close(figures(late.locator(".sum")), [done.weights[2, :3].sum()])
    assert "simply lost" in late.inner_text()


def test_the_heads_of_a_layer_stand_side_by_side(page: Any) -> None:
    part = page.locator("#heads")
    capture = Capture.open(shipped()["llama"])
    slider = part.get_by_role("slider", name="Layer")
    for layer in (11, 0):
        slider.fill(str(layer))
        part.get_by_text(f"In layer {layer}, the 9 heads of “cat”").wait_for()
        weights = np.stack([np.asarray(capture[layer].trace(head=h).weights) for h in range(9)])
        close(figures(part.locator(".heads")), weights.reshape(9, 6, 6)[:, 2].max(axis=1))


def test_heads_are_joined_and_added_to_the_word(page: Any) -> None:
    part = page.locator("#heads")
    x = X[:4]
    w_q = np.hstack([W_Q, [[0, 0, 0.5], [0, 0, 3], [0, 1, 0], [0, 0, 1]]])
    w_k = np.hstack([W_K, [[0.5, 0, 0], [0, 1, 0], [0, 0, 2], [0, 0, -1]]])
    w_o = matrix(part, "output matrix")
    layer = SelfAttention(w_q, w_k, np.eye(4), w_o, heads=2)
    done = layer.trace(x)
    close(matrix(part, "heads side by side"), done.mixed[2:3])
    close(matrix(part, "what is added"), done.output[2:3])
    close(matrix(part, "the word after"), x[2:3] + done.output[2:3])
    part.get_by_role("switch", name="Replace the word").click()
    close(matrix(part, "the word after"), done.output[2:3])
    assert "gone or changed" in part.inner_text()


def test_the_pipeline_is_put_in_order_and_a_wrong_step_is_told(page: Any) -> None:
    part = page.locator("#stays").get_by_role("region", name="The pipeline, from memory")
    order = ["Look each word up", "Multiply by WQ", "Dot products", "Divide by", "Set hidden",
             "Softmax of", "Mix the values", "Lay the heads", "Add it"]  # fmt: skip
    for n, name in enumerate(order):
        if name == "Set hidden":
            part.get_by_role("button", name="Softmax of").click()
            assert "mask comes before the softmax" in part.locator(".told").inner_text()
        part.get_by_role("button", name=name).click()
        assert part.locator("ol li").count() == n + 1
    assert "whole way" in part.locator(".told").inner_text()
    part.get_by_role("button", name="Start over").click()
    assert part.locator("ol li").count() == 0


def test_who_seeks_who_advertises_who_contributes(page: Any) -> None:
    part = page.locator("#stays").get_by_role("region", name="Who seeks")
    for text, role in (("seeks", "key"), ("advertises", "key"), ("contributes", "value")):
        part.get_by_label(re.compile(f"What a word {text}")).select_option(role)
    assert "seeking side is the query" in part.inner_text()
    part.get_by_label("What a word seeks").select_option("query")
    assert "Right" in part.inner_text()
    weight, *output = figures(part.locator("dl"))
    part.get_by_label("value 1, second number").fill("-3")
    again, *other = figures(part.locator("dl"))
    assert weight == again
    assert output != other
    part.get_by_label("key 1, second number").fill("2")
    done = ll.trace([[2, 1]], [[2, 1], [1, 2], [0, -1]], [[10, 0], [0, -3], [1, 1]])
    close(figures(part.locator("dl")), [done.weights[0, 1], *done.output[0]])


def test_every_part_ends_in_what_stays_and_one_page_has_all(page: Any) -> None:
    parts = page.locator("main section[id]:not(#stays)")
    lines = [part.locator("aside li").all_inner_texts() for part in parts.all()]
    assert all(len(found) == 2 for found in lines)
    listed = page.locator("#stays .page dd").all_inner_texts()
    assert listed == [line for found in lines for line in found]
    kinds = page.locator("#stays .lives a")
    assert [re.findall(r"explore/(\w+)", kind.get_attribute("href"))[0] for kind in kinds.all()] \
        == ["gpt", "bert", "code", "llama", "vit"]  # fmt: skip
    quoted = page.locator("#lab blockquote")
    assert "Vaswani" in quoted.inner_text()
    page.locator("#stays").get_by_role("link", name="Go to Explore").click()
    page.get_by_label("Type, and see what comes next").first.wait_for()


def test_the_quiz_ends_with_a_result_and_what_to_revisit(page: Any) -> None:
    part = page.locator("#apply")
    part.get_by_role("button", name="Quiz").click()
    for question in QUIZ:
        wrong = question.name == "hide-with"
        part.get_by_role("radio").nth((question.right + wrong) % len(question.options)).check()
        part.get_by_role("button", name="Next question").click()
    assert f"{len(QUIZ) - 1} of {len(QUIZ)} right" in part.locator("h3").inner_text()
    assert part.locator(".revisit a").all_inner_texts() == ["The future hidden"]
    part.get_by_role("button", name="Start again").click()
    assert part.get_by_text(f"Question 1 of {len(QUIZ)}").is_visible()
