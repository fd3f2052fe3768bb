"""Learn, parts 1 and 2: the step-through and the heat-map, in a real browser, number by number."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.capture import Capture
from limelight.studio.shelf import shipped
from tests.studio.looking import at, close, fields, figures, focused, grid, matrix

STAGES = ("X", "Q, K, V", "Scores", "Scaled", "Masked", "Weights", "Output")


@pytest.fixture
def step(page: Any) -> Any:
    part = page.locator("#step")
    part.get_by_role("tab", name="X", exact=True).wait_for()
    return part


def stage(part: Any, name: str) -> Any:
    part.get_by_role("tab", name=name, exact=True).click()
    return part


def given(part: Any) -> dict[str, np.ndarray]:
    """What a person may edit: X and the three matrices."""
    stage(part, "Q, K, V")
    names = {"W_Q": "queries", "W_K": "keys", "W_V": "values"}
    made = {name: matrix(part, f"learned matrix for {kind}") for name, kind in names.items()}
    return {"X": matrix(part, "input"), **made}


def check(part: Any, *, causal: bool) -> Any:
    """Every table of every stage against the library, from what is in the inputs."""
    has = given(part)
    query, key, value = (has["X"] @ has[name] for name in ("W_Q", "W_K", "W_V"))
    done = ll.trace(query, key, value, mask=ll.Causal() if causal else None)
    for label, table in (("queries", query), ("keys", key), ("values", value)):
        close(matrix(part, label), table)
    stage(part, "Scores")
    close(matrix(part, "keys, transposed"), key.T)
    close(matrix(part, "scores"), done.raw)
    stage(part, "Scaled")
    close(matrix(part, "scaled scores"), done.scaled)
    hidden = np.where(done.allowed, done.logits, np.nan)
    stage(part, "Masked")
    close(matrix(part, "masked scores"), hidden)
    stage(part, "Weights")
    close(matrix(part, "attention weights"), np.where(done.allowed, done.weights, np.nan))
    close(matrix(part, "sum of each row"), np.ones((len(query), 1)))
    stage(part, "Output")
    close(matrix(part, "output"), done.output)
    return done


def test_every_stage_shows_the_librarys_numbers(step: Any) -> None:
    done = check(step, causal=False)
    assert done.weights[2].argmax() == 1  # cat looks at curious
    assert done.weights[3].argmax() == 2  # watched looks at cat


def test_the_causal_mask_hides_the_future(step: Any) -> None:
    step.get_by_role("switch", name="Causal mask").click()
    check(step, causal=True)
    stage(step, "Masked")
    assert at(step, "masked scores", 0, 3).inner_text().startswith("−∞")


def test_an_edited_number_is_followed_by_all_after_it(step: Any) -> None:
    stage(step, "X")
    field = at(step, "input", 2, 0).locator("input")
    field.fill("-0,75")  # a decimal comma will do
    field.press("Enter")
    assert field.input_value() == "−0.75"
    done = check(step, causal=False)
    assert done.query[2, 1] == pytest.approx(-1.5)
    stage(step, "Q, K, V")
    at(step, "learned matrix for keys", 3, 1).locator("input").fill("4")
    check(step, causal=False)
    step.get_by_role("button", name="Start over").click()
    close(given(step)["X"][2], [0.1, 1, 0, 0])


def test_what_is_no_number_is_kept_marked_and_changes_nothing(step: Any) -> None:
    before = given(step)["X"]
    stage(step, "X")
    field = at(step, "input", 1, 1).locator("input")
    field.fill("many")
    assert field.get_attribute("aria-invalid") == "true"
    for leave in (lambda: field.press("Enter"), field.blur):
        leave()
        assert field.input_value() == "many"  # what was typed is not thrown away
    assert "A number, such as −0.5" in at(step, "input", 1, 1).inner_text()
    for large in ("1e7", "1e308", "−1e999"):
        field.fill(large)
        said = at(step, "input", 1, 1).inner_text()
        assert "A number from −1,000,000 to 1,000,000" in said
    stage(step, "Q, K, V")
    close(matrix(step, "input"), before)


def test_a_number_is_nudged_by_keys_and_dragged_by_hand(step: Any, page: Any) -> None:
    stage(step, "X")
    field = at(step, "input", 1, 1).locator("input")
    field.focus()
    field.press("PageUp")
    field.press("Shift+PageUp")
    assert field.input_value() == "1.1"
    other = at(step, "input", 3, 3).locator("input")
    other.scroll_into_view_if_needed()
    box = other.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 35, box["y"] + 5, steps=6)
    page.mouse.up()
    assert other.input_value() == "0.5"  # one tenth for each six pixels
    check(step, causal=False)


def test_the_sentence_is_editable(step: Any) -> None:
    sentence = step.get_by_role("textbox", name="Sentence")
    sentence.fill("A kind old dog slept")
    labels = grid(step, "input").locator("tbody th").all_inner_texts()
    assert labels == ["A", "kind", "old", "dog", "slept"]
    check(step, causal=False)
    sentence.fill("one two three four five six seven")
    assert "first 6 words" in step.inner_text()
    assert len(given(step)["X"]) == 6
    sentence.fill("   ")
    assert "at least one word" in step.inner_text()
    sentence.fill("alone")
    check(step, causal=False)
    sentence.fill('<img src=x onerror="alert(1)"> cat')
    check(step, causal=False)


def test_a_common_word_reads_as_what_it_is(step: Any) -> None:
    step.get_by_role("textbox", name="Sentence").fill("The lazy dogs chased a fox.")
    stage(step, "X")
    glue, trait, thing, deed = np.eye(4)[[3, 0, 1, 2]]
    close(matrix(step, "input")[1:], [trait, thing, deed, glue, thing])
    assert "at random" not in step.inner_text()


def test_numbers_that_were_drawn_say_so_at_the_word(step: Any) -> None:
    step.get_by_role("textbox", name="Sentence").fill("The qwrtz slept")
    stage(step, "X")
    labels = grid(step, "input").locator("tbody th").all_inner_texts()
    assert labels == ["The", "qwrtz*", "slept"]
    note = step.get_by_text("* “qwrtz” is not in the toy’s small dictionary")
    assert "drawn at random" in note.inner_text()
    at(step, "input", 1, 0).locator("input").focus()
    assert "Drawn at random for “qwrtz”" in step.locator(".sum").inner_text()
    for column in range(4):
        at(step, "input", 1, column).locator("input").fill("0.25")
    assert "at random" not in step.inner_text()
    assert grid(step, "input").locator("tbody th").all_inner_texts()[1] == "qwrtz"


def test_the_stages_say_what_is_so(step: Any) -> None:
    stage(step, "Scaled")
    said = step.locator(".about").inner_text()
    assert "same range" not in said
    assert "It sets no bound" in said
    stage(step, "Weights")
    assert (
        "in view gets a positive weight, a hidden one gets 0" in step.locator(".about").inner_text()
    )


def test_back_and_next_and_the_arrow_keys_step(step: Any, page: Any) -> None:
    def now() -> str:
        return str(step.locator('[role=tab][aria-selected="true"] .name').inner_text())

    back, following = (step.get_by_role("button", name=name) for name in ("Back", "Next"))
    assert now() == "X"
    assert back.is_disabled()
    for name in STAGES[1:]:
        following.click()
        assert now() == name
    assert following.is_disabled()
    back.click()
    assert now() == "Weights"
    step.locator('[role=tab][aria-selected="true"]').focus()
    page.keyboard.press("ArrowLeft")
    assert now() == "Masked"
    focused(page, '[aria-selected="true"]')
    # Also with the focus nowhere, while this part is the one being read.
    page.evaluate("document.activeElement.blur()")
    page.goto(re.sub("#.*", "", page.url) + "#/learn/step")
    page.locator(".rail [aria-current][href$='#/learn/step']").wait_for()
    page.keyboard.press("ArrowRight")
    assert now() == "Weights"


def test_the_formula_lights_the_term_at_work(step: Any) -> None:
    lit = {
        "Scores": "QKT", "Scaled": "dk", "Weights": "softmax()", "Output": "V",
        "X": "XXX", "Q, K, V": "QWQKWKVWV",
    }  # fmt: skip
    for name, term in lit.items():
        stage(step, name)
        texts = step.locator("math .lit").evaluate_all("found => found.map(t => t.textContent)")
        assert re.sub(r"\s", "", "".join(texts)) == term
    stage(step, "Masked")
    assert step.locator("math .lit").count() == 0  # nothing is hidden, and no M in the formula
    step.get_by_role("switch").click()
    texts = step.locator("math .lit").evaluate_all("found => found.map(t => t.textContent)")
    assert [text.strip() for text in texts] == ["+M"]


@pytest.mark.parametrize("how", ["hover", "focus"])
def test_a_result_shows_the_row_and_the_column_it_came_from(step: Any, how: str) -> None:
    def lit(label: str) -> set[str]:
        cells = grid(step, label).locator("td.lit")
        return set(cells.evaluate_all("found => found.map(cell => cell.dataset.at)"))

    stage(step, "Scores")
    getattr(at(step, "scores", 3, 2), how)()
    assert lit("queries") == {"3,0", "3,1", "3,2"}
    assert lit("keys, transposed") == {"0,2", "1,2", "2,2"}
    assert lit("scores") == {"3,2"}
    has = given(step)
    raw = (has["X"] @ has["W_Q"] @ (has["X"] @ has["W_K"]).T)[3, 2]
    stage(step, "Scores")
    getattr(at(step, "scores", 3, 2), how)()
    said = step.locator(".how span").last.inner_text()
    assert float(said.removeprefix("= ").replace("−", "-")) == pytest.approx(raw, abs=5e-7)
    stage(step, "Output")
    getattr(at(step, "output", 1, 1), how)()
    assert lit("attention weights") == {"1,0", "1,1", "1,2", "1,3"}
    assert lit("values") == {"0,1", "1,1", "2,1", "3,1"}


def test_arrow_keys_walk_within_a_table_without_stepping(step: Any, page: Any) -> None:
    stage(step, "Scores")
    at(step, "scores", 2, 1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused(page, '[data-at="3,2"]')
    assert step.locator('[role=tab][aria-selected="true"] .name').inner_text() == "Scores"


# --- Part 2 ----------------------------------------------------------------------------------------


def cell_figures(part: Any) -> dict[str, float]:
    """What the open cell says, by step."""
    items = part.locator("article ol > li")
    found: dict[str, float] = {}
    for n in range(items.count()):
        name = items.nth(n).locator("h4").inner_text()
        sums = figures(items.nth(n).locator(".sum"))
        found[name] = sums[-1] if len(sums) else np.nan
        if name == "Normalise":
            found["exponential"], found["row sum"] = sums[0], sums[1]
    return found


def check_cell(part: Any, cell: Any) -> None:
    article = part.locator("article")
    seen = cell_figures(part)
    close(seen["Compare"], cell.raw)
    close(seen["Scale"], cell.scaled)
    if cell.allowed:
        close(seen["exponential"], cell.exponential)
        close(seen["row sum"], cell.row_sum)
        close(seen["Normalise"], cell.weight)
    else:
        assert "Hidden" in article.inner_text()
    rows = [cell.query, cell.key, cell.products]
    first = article.locator("ol > li").first
    if len(cell.key) > 8:
        first.locator("summary").click()
        close(figures(first.locator("table")), np.stack(rows, axis=1).ravel())
    else:
        close(figures(first.locator("table")), np.concatenate(rows))
    if cell.value is not None:
        last = article.locator("ol > li").last
        if len(cell.value) > 8:
            last.locator("summary").click()
            close(
                figures(last.locator("table")), np.stack([cell.value, cell.contribution], 1).ravel()
            )
        else:
            close(figures(last.locator("table")), np.concatenate([cell.value, cell.contribution]))


def click_cell(part: Any, row: int, column: int, size: int) -> None:
    area = part.get_by_role("application", name="Attention weights")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    where = {"x": (column + 0.5) * box["width"] / size, "y": (row + 0.5) * box["height"] / size}
    area.click(position=where)


def toy(page: Any, *, causal: bool) -> Any:
    has = given(page.locator("#step"))
    query, key, value = (has["X"] @ has[name] for name in ("W_Q", "W_K", "W_V"))
    return ll.trace(query, key, value, mask=ll.Causal() if causal else None)


def test_a_click_opens_the_whole_computation_of_a_cell(page: Any) -> None:
    part = page.locator("#map")
    part.get_by_role("button", name="The toy of Step through").click()
    done = toy(page, causal=False)
    for row, column in ((2, 1), (3, 2), (0, 3)):
        click_cell(part, row, column, 4)
        check_cell(part, done.cell(row, column))


HIGHEST = "bars => Math.max(...bars.map(bar => bar.height.baseVal.value))"


def test_a_value_and_what_is_taken_of_it_are_drawn_to_one_scale(page: Any) -> None:
    part = page.locator("#map")
    part.get_by_text("found in the model").wait_for()
    for row, column in ((2, 1), (4, 3), (5, 0)):
        click_cell(part, row, column, 6)
        cell = part.locator("article")
        weight = figures(cell.locator("ol > li", has_text="Normalise").locator("strong"))[0]
        mix = cell.locator("ol > li").last
        bars = [mix.get_by_role("img", name=name).locator("rect") for name in ("value:", "what")]
        value, taken = (found.evaluate_all(HIGHEST) for found in bars)
        assert taken == pytest.approx(max(weight * value, 0.4), rel=1e-3)


def test_a_hidden_cell_says_so(page: Any) -> None:
    part = page.locator("#map")
    part.get_by_role("button", name="The toy of Step through").click()
    page.locator("#step").get_by_role("switch").click()
    done = toy(page, causal=True)
    click_cell(part, 1, 3, 4)
    check_cell(part, done.cell(1, 3))


def test_the_map_is_walked_and_opened_by_keyboard(page: Any) -> None:
    part = page.locator("#map")
    part.get_by_role("button", name="The toy of Step through").click()
    done = toy(page, causal=False)
    part.get_by_role("application").focus()
    for key in ("Home", "ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    check_cell(part, done.cell(3, 2))
    assert "watched looks at cat: 0.9" in part.locator('[aria-live="polite"].unseen').inner_text()


def test_the_real_head_is_the_default(page: Any) -> None:
    paths = shipped()
    if "llama" not in paths:
        pytest.skip("no capture named llama is shipped in this checkout")
    capture = Capture.open(paths["llama"])
    part = page.locator("#map")
    part.get_by_text("layer 11, head 1").wait_for()
    site = capture[11]
    size = site.keys
    exact = site.trace(head=1)  # float64; site.cell() may use a float32 pass's row statistics
    for row, column in ((2, 1), (3, 2), (5, 0)):
        click_cell(part, row, column, size)
        check_cell(part, exact.cell(row, column))
    weights = np.asarray(exact.weights).reshape(size, size)
    assert weights[2].argmax() == 1  # cat → curious
    assert weights[3].argmax() == 2  # watched → cat


def test_the_toy_follows_part_1(page: Any) -> None:
    part = page.locator("#map")
    part.get_by_role("button", name="The toy of Step through").click()
    step = page.locator("#step")
    stage(step, "X")
    at(step, "input", 0, 0).locator("input").fill("0.9")
    done = toy(page, causal=False)
    click_cell(part, 2, 0, 4)
    check_cell(part, done.cell(2, 0))
    assert fields(grid(stage(step, "X"), "input"))[0] == 0.9


@pytest.mark.parametrize("width", [1440, 390])
def test_what_may_be_typed_is_told_inside_the_card(open_tab: Any, width: int) -> None:
    page = open_tab("#/learn/example", width=width)
    for part in ("example", "step"):
        for field in page.locator(f"#{part} .card input[inputmode=decimal]").all():
            field.fill("1e999")
            cut = field.evaluate(
                """input => {
                const said = input.parentElement.querySelector("[role=status]");
                const { left, right } = said.getBoundingClientRect();
                const box = (said.closest(".tables") ?? said.closest(".card")).getBoundingClientRect();
                return Math.max(box.left - left, right - box.right, -left, right - innerWidth);
                }"""
            )
            assert cut <= 0


@pytest.mark.parametrize("width", [1440, 390])
def test_a_word_of_any_length_keeps_to_its_place(open_tab: Any, width: int) -> None:
    long = "Incomprehensibilities" * 3
    page = open_tab(f"#/learn/step?step.sentence=the+{long[:60]}+saw", width=width)
    part = page.locator("#step")
    part.get_by_text(long[:60]).first.wait_for()
    for name in STAGES:
        stage(part, name)
        over = part.locator(".about p, .how span, .drawn").evaluate_all(
            """found => found.filter(text => {
              const written = document.createRange();
              written.selectNodeContents(text);
              const box = text.closest(".about, .drawn").getBoundingClientRect();
              return written.getBoundingClientRect().right > box.right + 1;
            }).length"""
        )
        assert over == 0, name


def test_an_emptied_sentence_moves_nothing(open_tab: Any) -> None:
    page = open_tab("#/learn/step")
    part = page.locator("#step")
    tabs = part.get_by_role("tablist")
    top = tabs.evaluate("box => box.offsetTop")
    part.get_by_label("Sentence").fill("")
    part.get_by_text("Type at least one word.").wait_for()
    assert tabs.evaluate("box => box.offsetTop") == top


@pytest.mark.parametrize("width", [1280, 900, 390, 360])
def test_the_tables_fit_their_box(open_tab: Any, width: int) -> None:
    page = open_tab("#/learn/step", width=width, height=844)
    part = page.locator("#step")
    for sentence in ("The curious cat watched", "The curious cat watched the birds"):
        part.get_by_label("Sentence").fill(sentence)
        for name in STAGES:
            stage(part, name)
            over = part.locator(".tables").evaluate(
                """box => { const { left, right } = box.getBoundingClientRect();
                return [...box.querySelectorAll("td, th")].filter(cell => cell.offsetParent)
                  .map(cell => cell.getBoundingClientRect())
                  .filter(cell => cell.left < left || cell.right > right).length }"""
            )
            assert over == 0, (sentence, name)
