"""Learn, parts 6 and 7: exercises and quiz, and the future hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.learn.exercises import QUIZ, STEPS, Exercise, check, generate
from tests.marks import quick
from tests.studio.looking import close, figures, focused, typeset

# --- Part 6 ----------------------------------------------------------------------------------------


@pytest.fixture
def apply(page: Any) -> Any:
    part = page.locator("#apply")
    part.locator(".board:not(.waiting)").wait_for()
    return part


def answer(part: Any, step: str, numbers: Any) -> None:
    if step in ("key", "value", "why"):
        part.get_by_role("radio").nth(int(numbers[0])).check()
    else:
        inputs = part.locator("form input").all()
        for field, number in zip(inputs, numbers, strict=True):
            field.fill(str(number))
    part.get_by_role("button", name="Check").click()


def solve(part: Any, exercise: Exercise) -> None:
    for n, step in enumerate(STEPS):
        part.locator("form h3").wait_for()
        exact = exercise.expected(step)
        answer(part, step, exact.round(2).tolist())
        part.locator(".steps li.done").nth(n).wait_for()


def written(vector: Any) -> str:
    """As the page writes it: [3, −1]."""
    return f"[{', '.join(map(str, vector))}]".replace("-", "−")


def level(part: Any, number: int) -> None:
    part.get_by_role("combobox", name="Level").select_option(str(number))
    first = generate(number, 1)
    keys = f"key {len(first.keys) - 1}"
    part.locator("dt", has_text=keys).wait_for()
    part.locator("dd", has_text=written(first.query)).first.wait_for()
    part.locator("dd", has_text=written(first.keys[-1])).first.wait_for()
    assert part.locator("form label").count() == len(first.keys)


def test_the_fields_of_a_step_stand_in_a_row(apply: Any) -> None:
    first, second = (label.bounding_box() for label in apply.locator("form label").all())
    assert first["y"] == second["y"]
    assert second["x"] > first["x"] + first["width"]


WHOLE = """select => [...select.options].map((option) => {
  const alone = select.cloneNode();
  alone.append(option.cloneNode(true));
  alone.style.cssText = "display: inline-block; width: auto";
  select.after(alone);
  const width = alone.getBoundingClientRect().width;
  alone.remove();
  return width <= select.getBoundingClientRect().width;
})"""


@pytest.mark.parametrize("width", [360, 900, 1440])
def test_what_a_level_is_made_of_is_read_whole(open_tab: Any, width: int) -> None:
    part = open_tab("#/learn/apply", width=width).locator("#apply")
    part.locator(".board:not(.waiting)").wait_for()
    assert part.get_by_role("combobox", name="Level").evaluate(WHOLE) == [True] * 6


@pytest.mark.parametrize("number", quick(range(6), 0, 3, 5))
def test_an_exercise_of_every_level_is_solved_step_by_step(apply: Any, number: int) -> None:
    level(apply, number)
    exercise = generate(number, 1)
    solve(apply, exercise)
    assert "Done, without help" in apply.inner_text()
    assert apply.get_by_text("1 solved, 1 of them without help").is_visible()
    apply.get_by_role("button", name="Next exercise").click()
    after = generate(number, 2) if number else generate(1, 1)
    apply.locator("dd", has_text=written(after.query)).first.wait_for()
    apply.locator("dd", has_text=written(after.keys[1])).first.wait_for()
    assert apply.get_by_role("combobox", name="Level").input_value() == str(max(1, number))


def test_a_mistake_is_diagnosed_by_the_library(apply: Any) -> None:
    exercise = generate(1, 1)
    answer(apply, "raw", exercise.raw.tolist())
    apply.locator("form h3", has_text="Scale").wait_for()
    forgot = exercise.raw.tolist()  # not divided at all
    answer(apply, "scaled", forgot)
    feedback = check(exercise, "scaled", forgot)
    assert feedback.kind == "not-scaled"
    said = apply.locator(".feedback")
    said.get_by_text(feedback.says).wait_for()
    assert typeset(feedback.instead) in said.inner_text()
    halved = (exercise.raw / exercise.d_k).round(2).tolist()  # by d_k in place of its root
    answer(apply, "scaled", halved)
    apply.locator(".feedback").get_by_text(
        typeset(check(exercise, "scaled", halved).says)
    ).wait_for()
    answer(apply, "scaled", ["many", "1"])
    apply.locator(".feedback").get_by_text("is not a number").wait_for()


def test_check_says_what_it_waits_for(apply: Any) -> None:
    button = apply.get_by_role("button", name="Check")
    assert button.is_disabled()
    paint = "button => getComputedStyle(button).backgroundColor"
    dead = button.evaluate(paint)
    apply.get_by_text("Fill in every field to check.").wait_for()
    for field in apply.locator("form input").all():
        field.fill("1")
    assert button.is_enabled()
    assert button.evaluate(paint) != dead
    assert apply.get_by_text("Fill in every field").count() == 0


def test_which_number_is_wrong_is_marked(apply: Any) -> None:
    exercise = generate(1, 1)
    first, second = exercise.raw.tolist()
    answer(apply, "raw", [first, second + 17])
    apply.locator("form input[aria-invalid]").wait_for()
    marks = apply.locator("form input").evaluate_all("found => found.map(i => i.ariaInvalid)")
    assert marks == [None, "true"]


def test_hints_and_solutions_are_given_and_counted(apply: Any) -> None:
    exercise = generate(1, 1)
    for n, hint in enumerate(exercise.hints("raw")):
        apply.get_by_role("button", name="Hint").click()
        assert typeset(hint) in apply.locator(".feedback").inner_text(), n
    assert apply.get_by_role("button", name="Hint").is_disabled()
    for n, step in enumerate(STEPS):
        heading = apply.locator("form h3").inner_text()
        apply.get_by_role("button", name="Show me").click()
        apply.get_by_role("button", name="Go on").wait_for()
        assert apply.locator("form h3").inner_text() == heading
        for line in exercise.working(step):
            assert typeset(line) in apply.locator(".feedback").inner_text()
        apply.get_by_role("button", name="Go on").click()
        apply.locator(".steps li.done").nth(n).wait_for()
    assert "Seen through" in apply.locator(".end").inner_text()
    assert "Done" not in apply.locator(".end").inner_text()
    assert apply.get_by_text("0 solved, 0 of them without help").is_visible()


def test_a_step_that_was_shown_is_not_solved(apply: Any) -> None:
    exercise = generate(1, 1)
    apply.get_by_role("button", name="Show me").click()
    apply.get_by_role("button", name="Go on").click()
    for n, step in enumerate(STEPS[1:], start=1):
        apply.locator("form h3").wait_for()
        answer(apply, step, exercise.expected(step).round(2).tolist())
        apply.locator(".steps li.done").nth(n).wait_for()
    assert f"with 1 of {len(STEPS)} steps shown" in apply.locator(".end").inner_text()
    assert "in your own hand" not in apply.locator(".end").inner_text()
    assert apply.get_by_text("0 solved").is_visible()


def test_a_question_of_choosing_shows_what_to_choose_from(apply: Any) -> None:
    exercise = generate(1, 1)
    for n, step in enumerate(STEPS):
        apply.locator("form h3").wait_for()
        if options := exercise.options(step):
            assert apply.locator("form .choice").all_inner_texts() == list(options)
            assert "number." not in apply.locator("form .question").inner_text()
        answer(apply, step, exercise.expected(step).round(2).tolist())
        apply.locator(".steps li.done").nth(n).wait_for()


def test_progress_stays_in_the_browser(apply: Any, page: Any) -> None:
    level(apply, 2)
    solve(apply, generate(2, 1))
    apply.get_by_role("button", name="Next exercise").click()
    apply.locator("form h3", has_text="Compare").wait_for()
    page.reload()
    apply.locator("form h3", has_text="Compare").wait_for()
    assert apply.get_by_text("1 solved, 1 of them without help").is_visible()
    assert apply.get_by_role("combobox", name="Level").input_value() == "2"
    query = "".join(str(generate(2, 2).query)).replace("(", "[").replace(")", "]").replace("-", "−")
    page.locator("#apply", has_text=query).wait_for()
    apply.get_by_role("button", name="forget").click()
    assert apply.get_by_text("0 solved, 0 of them without help").is_visible()


def test_an_exercise_goes_by_keyboard_alone(apply: Any, page: Any) -> None:
    exercise = generate(1, 1)
    apply.locator("form input").first.focus()
    for number in exercise.raw.tolist():
        page.keyboard.type(str(number))
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # on Check, which the last Tab reached
    apply.locator("form h3", has_text="Scale").wait_for()
    focused(page, "#apply form input")


def test_a_calculator_stands_where_exponentials_are_asked_for(apply: Any) -> None:
    exercise = generate(1, 1)
    answer(apply, "raw", exercise.raw.tolist())
    apply.locator("form h3", has_text="Scale").wait_for()
    answer(apply, "scaled", exercise.scaled.tolist())
    apply.locator("form h3", has_text="Normalise").wait_for()
    apply.get_by_text("Calculator", exact=True).click()
    field = apply.get_by_label("Calculate, such as")
    field.fill("e^3.5 ÷ (1 + √4)")
    said = apply.locator("output")
    assert float(said.inner_text().removeprefix("= ")) == pytest.approx(np.exp(3.5) / 3, abs=1e-6)
    field.fill("e to the x")
    assert "brackets" in said.inner_text()
    assert field.input_value() == "e to the x"


def test_the_quiz_explains_every_option(apply: Any) -> None:
    apply.get_by_role("button", name="Quiz").click()
    for n, question in enumerate(QUIZ):
        legend = apply.locator("legend")
        apply.get_by_text(f"Question {n + 1} of {len(QUIZ)}").wait_for()
        assert legend.inner_text() == typeset(question.text)
        wrong = (question.right + 1) % len(question.options)
        for choice in (wrong, question.right):
            option = question.options[choice]
            apply.get_by_role("radio", name=typeset(option.text), exact=True).check()
            assert apply.locator(".says").inner_text() == typeset(option.says)
        apply.get_by_role("button", name="Next question").click()
    assert (
        f"0 of {len(QUIZ)} right at first try" in apply.inner_text()
    )  # the first answers were wrong
    apply.get_by_role("button", name="start again").click()
    apply.get_by_role("radio").nth(QUIZ[0].right).check()
    assert "1 of 1 right at first try" in apply.inner_text()


# --- Part 7 ----------------------------------------------------------------------------------------

N = 6
X = np.array(
    [
        [0, 0.1, 0, 1],
        [1, 0, 0.1, 0],
        [0.1, 1, 0, 0],
        [0, 0.1, 1, 0],
        [0, 0.1, 0, 1],
        [0.2, 0.9, 0.1, 0],
    ]
)
W_Q = np.array([[0, 2, 0], [3, 0, 0.5], [0, 3, 0], [0, 2, 0]])
W_K = np.array([[2, 0, 0], [0, 2, 0], [0, 0, 1.5], [-1, -1, 0]])


def toy(count: int, mask: Any) -> Any:
    x = X[:count]
    return ll.trace(x @ W_Q, x @ W_K, x, mask=mask)


def check_triangle(part: Any, ahead: int) -> None:
    mask = np.tri(N, k=ahead, dtype=bool)
    done = toy(N, mask)
    close(figures(part.locator(".triangle")), done.weights[mask])
    assert part.get_by_role("slider").get_attribute("aria-valuenow") == str(ahead)
    for row in (0, 2, 5):
        part.locator(".triangle .word").nth(row).click()
        shown = part.locator("table tbody data").evaluate_all("found => found.map(d => d.value)")
        scores, powers, weights = np.array([float(text) for text in shown]).reshape(N, 3).T
        close(weights, done.weights[row])
        close(np.where(mask[row], scores, 0), np.where(mask[row], done.logits[row], 0))
        assert (scores[~mask[row]] == -np.inf).all()
        with np.errstate(under="ignore"):
            close(powers, np.exp(done.logits[row] - done.logits[row].max()))


def test_the_triangle_is_dragged(page: Any) -> None:
    part = page.locator("#future")
    check_triangle(part, 0)
    grip = part.get_by_role("slider")
    grip.scroll_into_view_if_needed()
    box = part.locator(".triangle svg").bounding_box()
    cell = box["width"] / N
    knob = part.locator("circle.knob").bounding_box()
    page.mouse.move(knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2)
    page.mouse.down()
    page.mouse.move(
        knob["x"] + knob["width"] / 2 + cell, knob["y"] + knob["height"] / 2 - cell, steps=8
    )
    page.mouse.up()
    check_triangle(part, 2)  # a cell to the right and one up: two diagonals
    assert "2 words of its future" in part.inner_text()


def test_the_triangle_moves_by_keyboard(page: Any) -> None:
    part = page.locator("#future")
    grip = part.get_by_role("slider")
    grip.focus()
    page.keyboard.press("End")
    check_triangle(part, N - 1)
    assert "BERT" in part.inner_text()
    grip.focus()
    page.keyboard.press("ArrowLeft")
    check_triangle(part, N - 2)
    grip.focus()
    page.keyboard.press("Home")
    check_triangle(part, 0)
    assert "GPT and Llama" in part.inner_text()


def test_writing_leaves_the_past_alone_only_with_the_mask(page: Any) -> None:
    part = page.locator("#future").get_by_role("region", name="Writing word by word")
    grid = part.locator(".grid")
    for count in (3, 4, 5, 6):
        close(figures(grid), toy(count, ll.Causal()).weights[np.tri(count, dtype=bool)])
        assert part.locator(".changed").count() == 0
        assert "none of the" in part.inner_text()
        if count < N:
            part.get_by_role("button", name="Write a word").click()
    assert part.get_by_role("button", name="Write a word").is_disabled()
    part.get_by_role("switch").click()
    now, before = (toy(count, None).weights for count in (6, 5))
    close(figures(grid), now)
    changed = int((now[:5, :5] != before).sum())
    assert part.locator(".changed").count() == changed
    assert f"{changed} of the 25 earlier weights changed" in part.inner_text()
    for _ in range(5):
        part.get_by_role("button", name="Take back").click()
    close(figures(grid), [1.0])
