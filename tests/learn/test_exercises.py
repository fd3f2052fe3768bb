"""Exercises: numbers that fit on paper, and a checker that knows right, nearly, and why not."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import limelight as ll
from limelight.errors import ArgumentError, ShapeError
from limelight.learn.exercises import (
    LEVELS,
    MISTAKES,
    QUIZ,
    STEPS,
    WORKED,
    Exercise,
    Progress,
    check,
    generate,
)

ALL = [(level, seed) for level in LEVELS for seed in range(1 if level == 0 else 7)]
CAUSAL = generate(4, seed=0)


def softmax(scores):
    power = np.exp(np.asarray(scores) - np.max(scores))
    return power / power.sum()


def rounded(numbers, digits=2):
    return [round(float(x), digits) for x in numbers]


@pytest.mark.parametrize(("level", "seed"), ALL)
def test_the_solution_is_attention(level, seed):
    exercise = generate(level, seed)
    made = LEVELS[level]
    assert (len(exercise.keys), exercise.d_k) == (made.keys, made.size)
    assert len(exercise.values[0]) == made.value_size
    assert all(exercise.allowed) == (not made.causal)
    mask = [list(exercise.allowed)]
    output = ll.attention([exercise.query], exercise.keys, exercise.values, mask=mask)[0]
    np.testing.assert_allclose(exercise.output, output, rtol=1e-12)
    raw = np.asarray(exercise.keys) @ np.asarray(exercise.query)
    np.testing.assert_array_equal(exercise.raw, raw)
    np.testing.assert_allclose(exercise.scaled, raw / np.sqrt(made.size))
    assert exercise.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(("level", "seed"), ALL)
def test_the_exact_answer_is_right_and_so_is_the_rounded_one(level, seed):
    exercise = generate(level, seed)
    for step in STEPS:
        exact = exercise.expected(step)
        for answer in (exact, rounded(exact, 2), rounded(exact, 4), ", ".join(map(str, exact))):
            feedback = check(exercise, step, answer)
            assert feedback.right, feedback
            assert feedback.instead == ""
            assert feedback.exact == tuple(exact)


@pytest.mark.parametrize(("level", "seed"), [pair for pair in ALL if pair[0]])
def test_each_required_mistake_is_told_apart(level, seed):
    exercise = generate(level, seed)
    raw, values = exercise.raw, np.asarray(exercise.values, float)
    seen = np.asarray(exercise.allowed)

    def masked(scores):
        return np.where(seen, softmax(np.where(seen, scores, -np.inf)), 0)

    top = exercise.weights.argmax()
    wrong = {"not-scaled": masked(raw), "divided-by-d_k": masked(raw / exercise.d_k)}
    assert check(exercise, "weights", np.eye(len(raw))[top]).kind == "one-hot"
    assert check(exercise, "output", values[top]).kind == "top-value-only"
    if not seen.all():
        wrong["unmasked"] = softmax(exercise.scaled)
        wrong["masked-late"] = softmax(exercise.scaled) * seen
        wrong["masked-with-zero"] = softmax(np.where(seen, exercise.scaled, 0))
    for kind, weights in wrong.items():
        for step, answer in (("weights", weights), ("output", weights @ values)):
            feedback = check(exercise, step, rounded(answer))
            assert (feedback.verdict, feedback.kind) == ("mistake", kind), (step, feedback)
    assert check(exercise, "scaled", raw).kind == "not-scaled"
    assert check(exercise, "scaled", rounded(raw / exercise.d_k)).kind == "divided-by-d_k"
    column = masked(values[:, 0])
    assert check(exercise, "weights", rounded(column)).kind == "softmax-over-values"
    by_value = np.stack([softmax(row) for row in values])
    output = check(exercise, "output", rounded(exercise.weights @ by_value))
    assert output.kind == "softmax-over-values"


@pytest.mark.parametrize(
    ("step", "answer", "verdict", "kind"),
    [
        ("raw", "5, 2, -1", "right", ""),
        ("raw", "5 2 −1", "right", ""),
        ("raw", [5, 2, -1], "right", ""),
        ("raw", "5, 2, 1", "mistake", "lost-sign"),
        ("raw", "6, 4, 2", "mistake", "added"),
        ("raw", "20, 8, 3", "mistake", "values-for-keys"),
        ("raw", "1, 0.894, -0.447", "mistake", "cosine"),
        ("raw", "4, 1, 2, 0, 0, -1", "mistake", "not-added"),
        ("raw", "2, 5, -1", "mistake", "swapped"),
        ("raw", "-1, 2, 5", "mistake", "swapped"),
        ("raw", "4, 2, 0", "mistake", "first-product-only"),
        ("raw", "1, 0, -1", "mistake", "last-product-only"),
        ("raw", "3.54, 1.41, -0.71", "mistake", "scaled-already"),
        ("raw", "5, 3, -1", "wrong", ""),
        ("raw", "5, 2", "unreadable", ""),
        ("raw", "", "unreadable", ""),
        ("raw", "five", "unreadable", ""),
        ("raw", "nan, inf, 1", "unreadable", ""),
        ("raw", "5, hidden, -1", "wrong", "hid-too-much"),
        ("scaled", "3.54, 1.41, -0.71", "right", ""),
        ("scaled", "3,54; 1,41; -0,71", "right", ""),
        ("scaled", "5/1.4142136, 1.41, -0.71", "right", ""),
        ("scaled", "3.53, 1.41, -0.70", "rounding", "cut-off"),
        ("scaled", "3.55, 1.42, -0.71", "rounding", "slip"),
        ("scaled", "5, 2, -1", "mistake", "not-scaled"),
        ("scaled", "2.5, 1, -0.5", "mistake", "divided-by-d_k"),
        ("scaled", "7.07, 2.83, -1.41", "mistake", "multiplied"),
        ("scaled", "2.89, 1.15, -0.58", "mistake", "divided-by-keys"),
        ("scaled", "1.41, 3.54, -0.71", "mistake", "swapped"),
        ("scaled", "0.88, 0.11, 0.01", "mistake", "weights-already"),
        ("scaled", "3.4, 1.36, -0.68", "wrong", "close"),
        ("scaled", "3.54, 1.41, -0.75", "wrong", "close"),
        ("scaled", "3.54, 1.41, 0.71", "wrong", ""),
        ("weights", "0.88, 0.11, 0.01", "right", ""),
        ("weights", "0.88, 0.10, 0.01", "right", "by-hand"),
        ("weights", "88, 11, 1", "right", "percent"),
        ("weights", "88%, 11%, 1%", "right", "percent"),
        ("weights", "0.95, 0.05, 0.00", "mistake", "not-scaled"),
        ("weights", "0.79, 0.18, 0.04", "mistake", "divided-by-d_k"),
        ("weights", "1, 0, 0", "mistake", "one-hot"),
        ("weights", "0.11, 0.88, 0.01", "mistake", "swapped"),
        ("weights", "3.54, 1.41, -0.71", "mistake", "still-scores"),
        ("weights", "0.85, 0.13, 0.02", "wrong", "close"),
        ("weights", "0.91, 0.11, 0.01", "wrong", "close"),
        ("weights", "0.33, 0.33, 0.33", "mistake", "even"),
        ("weights", "34.3, 4.11, 0.49", "mistake", "not-normalised"),
        ("weights", "0.83, 0.33, -0.17", "mistake", "no-exponential"),
        ("weights", "0.89, 0.10, 0.02", "rounding", "slip"),
        ("weights", "0.7, 0.2, 0.1", "wrong", ""),
        ("output", "8.83, 0.86", "right", ""),
        ("output", "8.81, 0.89", "right", "by-hand"),
        ("output", "10, 0", "mistake", "top-value-only"),
        ("output", "9.51, 0.38", "mistake", "not-scaled"),
        ("output", "3.67, 3", "mistake", "even"),
        ("output", "11, 9", "mistake", "even"),
        ("output", "34.65, 10.61", "mistake", "scores-as-weights"),
        ("output", "1.87, 0.87", "mistake", "keys-for-values"),
        ("output", "8.82, 0, 0, 0.85, 0.01, 0.01", "mistake", "not-added"),
        ("output", "0.86, 8.83", "mistake", "swapped"),
        ("output", "1.07, 7.07", "mistake", "wrong-pairs"),
        ("output", "8.83, 0.01", "mistake", "left-out"),
        ("output", "8.6, 0.82", "wrong", "close"),
        ("output", "8.9, 0.9", "rounding", "slip"),
        ("output", "1, 2", "wrong", ""),
        ("key", "0", "right", ""),
        ("key", "Key 0", "right", ""),
        ("key", 0, "right", ""),
        ("key", ["0"], "right", ""),
        ("key", "2", "mistake", "smallest"),
        ("key", "1", "wrong", ""),
        ("value", "Value 0", "right", ""),
        ("value", "v0", "right", ""),
        ("value", "1", "wrong", ""),
        ("value", "7", "unreadable", ""),
        ("value", "0.5", "unreadable", ""),
        ("value", "x", "unreadable", ""),
        ("value", "0, 1", "unreadable", ""),
        ("why", "z", "unreadable", ""),
        ("why", "9", "unreadable", ""),
    ],
)
def test_the_worked_example(step, answer, verdict, kind):
    feedback = check(WORKED, step, answer)
    assert (feedback.verdict, feedback.kind) == (verdict, kind), feedback
    assert feedback.says
    assert bool(feedback.instead) == (not feedback.right)
    assert feedback.exact == () or feedback.right


def test_by_hand_is_right_and_says_what_is_exact():
    feedback = check(WORKED, "output", "8.81, 0.89")
    assert feedback.right
    assert "weights rounded to two digits" in feedback.says
    assert "[8.829123, 0.858154]" in feedback.says


@pytest.mark.parametrize(
    ("step", "answer", "says"),
    [
        ("raw", "5, 3, -1", "Look again at key 1; the rest is right."),
        ("raw", "1, 1, 1", "None of these is right."),
        ("weights", "0.9, 0.2, -0.1", "never negative"),
        ("weights", "0.5, 0.2, 0.1", "sum to 0.8, and must sum to 1"),
        ("weights", "0.1, 0.2, 0.7", "not in the order of the scores"),
        ("output", "8.83, 4", "Look again at number 1"),
        ("raw", "5, 2", "2 numbers came, and 3 are asked for"),
        ("key", "1", "counted from 0"),
        ("scaled", "3.54, 1.41, -0.75", "Off: key 2 by 0.04"),
    ],
)
def test_what_can_be_seen_is_said(step, answer, says):
    assert says in check(WORKED, step, answer).says


def test_hidden_keys_may_be_left_open():
    raw = [
        float(x) if seen else "hidden" for x, seen in zip(CAUSAL.raw, CAUSAL.allowed, strict=True)
    ]
    for word in ("hidden", "-inf", "−∞", "x", "-", None):
        row = [word if item == "hidden" else item for item in raw]
        assert check(CAUSAL, "raw", row).right, word
    weights = [
        float(w) if seen else None for w, seen in zip(CAUSAL.weights, CAUSAL.allowed, strict=True)
    ]
    assert check(CAUSAL, "weights", weights).right
    short = CAUSAL.raw[list(CAUSAL.allowed)]
    assert "the hidden ones are missing" in check(CAUSAL, "raw", short).says


def test_a_zero_for_a_hidden_score_is_explained():
    scores = np.where(CAUSAL.allowed, CAUSAL.scaled, 0)
    assert check(CAUSAL, "scaled", rounded(scores)).kind == "masked-with-zero"


def test_weight_on_a_hidden_key_is_named():
    weights = np.full(4, 0.25)
    weights[:2] = 0.4, 0.3
    assert "is hidden: its weight is 0" in check(CAUSAL, "weights", weights * [1, 1, 1, 0.2]).says


@pytest.mark.parametrize(
    ("step", "answer", "look"),
    [
        ("raw", "5, 3, -1", "key 1 once more: 2·1 and 1·0"),
        ("scaled", "3.4, 1.36, -0.68", "divided by about 1.47"),
        ("scaled", "3.54, 1.41, -0.75", "key 2 once more"),
        ("weights", "0.91, 0.11, 0.01", "the sum you divided by"),
        ("weights", "0.85, 0.13, 0.02", "the power for key"),
        ("output", "8.6, 0.86", "number 0 once more: 0.88·10, 0.11·0, 0.01·1"),
    ],
)
def test_a_slip_is_told_where_to_look(step, answer, look):
    assert look in check(WORKED, step, answer).instead


def sentences(text):
    return {part.strip(" .:").lower() for part in text.replace(": ", ". ").split(". ")} - {""}


@pytest.mark.parametrize("exercise", [WORKED, generate(2, 1), CAUSAL], ids=repr)
def test_feedback_and_hint_do_not_repeat_each_other(exercise):
    for step in STEPS:
        count = len(exercise.expected(step))
        answers = [[7.7] * count, exercise.expected(step) * 1.04, exercise.expected(step) + 1]
        answers += [[j] for j in range(len(exercise.options(step)))]
        answers += [
            wrong for mistake in MISTAKES for wrong in mistake.answers(exercise).get(step, [])
        ]
        hints = set().union(*map(sentences, exercise.hints(step)))
        for answer in answers:
            feedback = check(exercise, step, answer)
            assert not hints & sentences(f"{feedback.says} {feedback.instead}"), feedback


APART = Exercise((1, 1), ((1, 1), (0, 1), (2, 2)), ((1, 0), (9, 9), (3, 4)), position=1)


def test_the_largest_weight_and_the_largest_contribution_are_two_questions():
    assert (APART.top_key, APART.top_value) == (0, 1)
    assert check(APART, "key", 0).right
    assert check(APART, "key", 1).kind == "by-contribution"
    assert check(APART, "key", 2).kind == "hidden-winner"
    assert check(APART, "value", 1).right
    assert "though key 0 has the larger weight" in check(APART, "value", 1).says
    assert check(APART, "value", 0).kind == "by-weight"
    assert check(APART, "value", 2).kind == "hidden-value"
    last = Exercise((1, 1), ((0, 1), (1, 1)), ((1, 0), (3, 4)))
    assert check(last, "value", 2).kind == "counted-from-one"
    large = Exercise((1, 1), ((3, 1), (0, -3)), ((5, 5), (9, 9)))
    assert check(large, "value", 1).kind == "by-size"


@pytest.mark.parametrize("exercise", [WORKED, APART, generate(3, 4), CAUSAL], ids=repr)
def test_one_reason_is_true_and_the_others_are_misreadings(exercise):
    kinds = [reason.kind for reason in exercise.reasons]
    assert len(set(kinds)) == len(kinds) == len(exercise.options("why")) == 4
    assert kinds.count("") == 1
    assert {"by-weight", "by-size"} < set(kinds)
    parted = "is not the largest" in exercise.reasons[kinds.index("")].text
    assert parted == (exercise.top_key != exercise.top_value)
    for n, reason in enumerate(exercise.reasons):
        for answer in (n, str(n), "abcd"[n], ["abcd"[n]]):
            feedback = check(exercise, "why", answer)
            assert (feedback.right, feedback.kind) == (not reason.kind, reason.kind)
            assert feedback.says == reason.says
        assert reason.says.startswith("No" if reason.kind else "Yes")


def by_plain_arithmetic(query, keys, values, position):
    """The answers, by nothing of limelight or NumPy: integers, math.exp and sums."""
    seen = len(keys) if position is None else position + 1
    raw = [sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    scaled = [score / math.sqrt(len(query)) for score in raw]
    powers = [math.exp(score) for score in scaled[:seen]]
    weights = [power / math.fsum(powers) for power in powers] + [0.0] * (len(keys) - seen)
    output = [math.fsum(w * v[c] for w, v in zip(weights, values, strict=True))
              for c in range(len(values[0]))]  # fmt: skip
    shares = [math.fsum(abs(w * x) for x in v) for w, v in zip(weights, values, strict=True)]
    return {"raw": raw, "scaled": scaled, "weights": weights, "output": output}, shares


def verify(level, seeds):
    """Every accepted answer against plain arithmetic, and no other choice accepted. How often the
    leading key's value is not the one that contributes most."""
    apart = 0
    for seed in seeds:
        exercise = generate(level, seed)
        answers, shares = by_plain_arithmetic(
            exercise.query, exercise.keys, exercise.values, exercise.position
        )
        for step, exact in answers.items():
            assert exercise.expected(step) == pytest.approx(exact, rel=1e-12, abs=1e-15)
            assert check(exercise, step, [f"{x:.2f}" for x in exact]).right, (level, seed, step)
        weights = answers["weights"]
        for step, figures in (("key", weights), ("value", shares)):
            top, second = sorted(figures)[:-3:-1]
            assert top - second > 0.05, (level, seed, step)  # a clear lead, and no tie
            marks = [check(exercise, step, j).right for j in range(len(figures))]
            assert marks == [x == top for x in figures], (level, seed, step)
        parted = weights.index(max(weights)) != shares.index(max(shares))
        truth = [n for n, _ in enumerate(exercise.reasons) if check(exercise, "why", n).right]
        (text,) = [exercise.reasons[n].text for n in truth]
        assert ("is not the largest" in text) == parted
        apart += parted
    return apart


@pytest.mark.parametrize("level", list(LEVELS)[1:])
def test_accepted_answers_by_independent_arithmetic(level):
    assert 12 <= verify(level, range(50)) <= 38


@pytest.mark.slow
@pytest.mark.parametrize("level", list(LEVELS)[1:])
def test_a_thousand_exercises_by_independent_arithmetic(level):
    assert 450 <= verify(level, range(1000)) <= 550


def test_feedback_never_gives_the_answer_away_before_it_is_right():
    exercise = generate(3, seed=2)
    for step in STEPS[:4]:
        feedback = check(exercise, step, [7.7] * len(exercise.expected(step)))
        assert feedback.exact == ()
        for number in exercise.expected(step):
            assert f"{number:.6f}" not in feedback.says + feedback.instead


def test_every_mistake_has_its_own_name_and_words():
    assert len({mistake.kind for mistake in MISTAKES}) == len(MISTAKES)
    for mistake in MISTAKES:
        assert mistake.says.endswith(".")
        assert mistake.instead.endswith(".")
        assert set(mistake.answers(CAUSAL)) <= set(STEPS)


def test_the_same_seed_gives_the_same_exercise():
    assert generate(2, 11) == generate(2, 11)
    assert len({generate(2, seed).query + generate(2, seed).keys[0] for seed in range(20)}) > 10


def test_numbers_fit_on_paper():
    for level, seed in ALL:
        exercise = generate(level, seed)
        numbers = [*exercise.query, *sum(exercise.keys, ()), *sum(exercise.values, ())]
        assert all(isinstance(x, int) and -10 <= x <= 10 for x in numbers)


def test_exercises_and_feedback_are_json():
    for exercise in (WORKED, CAUSAL):
        data = json.loads(json.dumps(exercise.to_dict(answers=True), allow_nan=False))
        assert data["query"] == list(exercise.query)
        assert data["keys"] == [list(key) for key in exercise.keys]
        assert data["answers"]["key"] == exercise.top_key
        assert data["answers"]["value"] == exercise.top_value
        assert [step["step"] for step in data["steps"]] == list(STEPS)
        assert "answers" not in exercise.to_dict()
        feedback = check(exercise, "raw", exercise.raw).to_dict()
        assert json.loads(json.dumps(feedback))["right"] is True


def test_hints_go_from_the_rule_to_the_first_number():
    for step in STEPS:
        hints = CAUSAL.hints(step)
        assert all(hints)
        if not CAUSAL.options(step):
            assert len(CAUSAL.working(step)) == len(CAUSAL.expected(step))
    assert CAUSAL.hints("raw")[-1].endswith(CAUSAL.working("raw")[0])


def test_a_choice_does_not_ask_for_a_number():
    for step in STEPS:
        assert ("number" in WORKED.question(step).split("?")[1]) == (not WORKED.options(step))


def test_question_names_the_hidden_keys():
    assert "keys 2, 3 are hidden" in CAUSAL.question("weights")
    assert "hidden" not in WORKED.question("weights")


def test_progress_moves_only_on_right_answers_and_forgets_nothing():
    now = Progress(WORKED)
    assert now.step == "raw"
    now = now.answer("gibberish")
    assert (now.step, now.tries[0], now.feedback.verdict) == ("raw", 0, "unreadable")
    now = now.answer("5, 2, 1")
    assert (now.step, now.tries[0]) == ("raw", 1)
    now = now.answer("5, 2, -1")
    assert (now.step, now.tries[0]) == ("scaled", 2)
    now = now.show()
    assert now.step == "weights"
    assert now.shown == {"scaled"}
    now = now.answer(WORKED.weights).answer(WORKED.output).answer(0).answer(0)
    now = now.answer(int(WORKED.expected("why")[0]))
    assert now.step is None
    assert now.answer("1") is now.show() is now
    assert now.tries == (2, 0, 1, 1, 1, 1, 1)
    middle = Progress.at(WORKED, "weights")
    assert (middle.step, middle.begun, middle.shown) == ("weights", 2, frozenset())


def test_quiz_questions_are_sound():
    assert len({question.name for question in QUIZ}) == len(QUIZ) >= 10
    for question in QUIZ:
        assert len(question.options) == 3
        verdicts = [question.check(choice)[0] for choice in range(3)]
        assert verdicts.count(True) == 1
        for choice, right in enumerate(verdicts):
            assert question.check(choice)[1].startswith("Yes" if right else "No")
        assert "right" not in question.to_dict()
        assert question.to_dict(answers=True)["right"] == question.right
    assert {question.right for question in QUIZ} == {0, 1, 2}


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda: generate(9), ArgumentError, "there is no level 9: choose from 0 to 5"),
        (lambda: generate(1, -3), ArgumentError, "seed=-3: give a whole number ≥ 0"),
        (lambda: check(WORKED, "sum", "1"), ArgumentError, "there is no step 'sum': choose raw"),
        (lambda: Progress.at(WORKED, "x"), ArgumentError, "there is no step 'x'"),
        (lambda: QUIZ[0].check(3), ArgumentError, "there is no option 3: choose from 0 to 2"),
        (lambda: Exercise((1,), ((1,),), ((1,),), position=1), ArgumentError, "position=1"),
        (lambda: Exercise((1, 2), ((1,),), ((1,),)), ShapeError, "no dot product"),
    ],
)  # fmt: skip
def test_errors_say_what_came(attempt, error, message):
    with pytest.raises(error, match=message):
        attempt()


@settings(max_examples=200, deadline=None)
@given(
    step=st.sampled_from(STEPS),
    answer=st.one_of(
        st.text(max_size=30),
        st.lists(st.floats() | st.none() | st.integers() | st.text(max_size=5), max_size=6),
        st.lists(st.floats(-1e308, 1e308), min_size=4, max_size=4),
        st.none(),
        st.booleans(),
        st.floats(),
    ),
)
@example("scaled", [1.0, 1.1e-308, 0.0, 0.0])  # nearly divided by 0
def test_no_answer_breaks_the_checker(step, answer):
    feedback = check(CAUSAL, step, answer)
    assert feedback.step == step
    assert feedback.says
    json.dumps(feedback.to_dict(), allow_nan=False)


def test_half_of_the_last_digit_is_close_enough():
    """Two digits after the point: an answer that is off by 0.005 was rounded, not wrong."""
    exact = WORKED.expected("raw")
    assert check(WORKED, "raw", [x + 0.005 for x in exact]).right
    assert not check(WORKED, "raw", [x + 0.0051 for x in exact]).right
