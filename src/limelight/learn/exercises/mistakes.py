"""The typical mistakes, each with the answers it leads to.

A mistake is a row of the table: what it is called, what to say about it, and a function from an
exercise to the answers that someone who makes it would give, step by step. The checker compares;
it knows none of them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from limelight.learn.exercises.exercise import Array, Exercise

Answers = dict[str, list[Any]]  # step to the answers that the mistake gives there


@dataclass(frozen=True)
class Mistake:
    """One way to go wrong: its name, what happened, and what to do instead."""

    kind: str
    says: str
    instead: str
    answers: Callable[[Exercise], Answers]


def slack(exercise: Exercise, step: str) -> Array:
    """How far a number of this step may be off and still be a matter of rounding.

    Weights that are off by 0.01 each move the output by up to 0.01·Σ|value|.
    """
    if step == "output":
        values = np.abs(np.asarray(exercise.values, np.float64))
        reach: Array = 0.01 + 0.01 * values[list(exercise.allowed)].sum(axis=0)
        return reach
    return np.full(exercise.expected(step).shape, 0.005 if step == "raw" else 0.02)


def distance(exercise: Exercise, step: str, answer: Array, other: Array) -> float:
    """How far two answers are apart, in units of the step's slack; the worst number counts."""
    return float(np.max(np.abs(answer - other) / slack(exercise, step)))


def candidates(exercise: Exercise, step: str) -> list[tuple[Mistake, Array]]:
    """The wrong answers this step can have, leaving out those no one could tell from the right."""
    right = exercise.expected(step)
    found = []
    for mistake in MISTAKES:
        for answer in mistake.answers(exercise).get(step, []):
            wrong = np.asarray(answer, np.float64)
            if distance(exercise, step, wrong, right) >= 2.0:
                found.append((mistake, wrong))
    return found


def distinguishable(exercise: Exercise) -> bool:
    """Whether the mistakes that every exercise must tell apart give different answers here:
    different from the right one, and from each other."""
    kinds = ALWAYS if exercise.position is None else (*ALWAYS, *HIDING)
    found = [mistake.answers(exercise) for mistake in MISTAKES if mistake.kind in kinds]
    for step in ("scaled", "weights", "output"):
        groups = [answers[step] for answers in found if step in answers]
        groups.append([exercise.expected(step)])
        for first, second in combinations(groups, 2):
            if any(distance(exercise, step, a, b) < 2.5 for a, b in product(first, second)):
                return False
    return True


def _softmax(exercise: Exercise, scores: Array, *, everywhere: bool = False) -> Array:
    seen = np.ones(len(scores), bool) if everywhere else np.asarray(exercise.allowed)
    power = np.where(seen, np.exp(scores - scores[seen].max()), 0.0)
    weights: Array = power / power.sum()
    return weights


def _values(exercise: Exercise) -> Array:
    return np.asarray(exercise.values, np.float64)


def _keys(exercise: Exercise) -> Array:
    return np.asarray(exercise.keys, np.float64)


def _from_scores(exercise: Exercise, scores: Array) -> Answers:
    """Wrong scores, and everything that follows from them."""
    weights = _softmax(exercise, scores)
    return {"scaled": [scores], "weights": [weights], "output": [weights @ _values(exercise)]}


def _from_weights(exercise: Exercise, *weights: Array) -> Answers:
    return {"weights": list(weights), "output": [w @ _values(exercise) for w in weights]}


def _lost_sign(e: Exercise) -> Answers:
    return {"raw": [np.abs(_keys(e)) @ np.abs(e.query)]}


def _added(e: Exercise) -> Answers:
    return {"raw": [(_keys(e) + np.asarray(e.query)).sum(axis=1)]}


def _values_for_keys(e: Exercise) -> Answers:
    if len(e.values[0]) != e.d_k:
        return {}
    return {"raw": [_values(e) @ np.asarray(e.query)]}


def _cosine(e: Exercise) -> Answers:
    norms = np.linalg.norm(_keys(e), axis=1) * np.linalg.norm(e.query)
    return {"raw": [e.raw / np.where(norms == 0, 1.0, norms)]}


def _not_scaled(e: Exercise) -> Answers:
    return _from_scores(e, e.raw)


def _divided_by_d_k(e: Exercise) -> Answers:
    return _from_scores(e, e.raw / e.d_k)


def _multiplied(e: Exercise) -> Answers:
    return _from_scores(e, e.raw * math.sqrt(e.d_k))


def _divided_by_keys(e: Exercise) -> Answers:
    count = len(e.keys)
    both = [_from_scores(e, e.raw / by) for by in (math.sqrt(count), count)]
    return {step: both[0][step] + both[1][step] for step in both[0]}


def _softmax_over_values(e: Exercise) -> Answers:
    values = _values(e)
    columns = [_softmax(e, column) for column in values.T]
    by_key = np.stack(columns, axis=1)  # each column of the values normalised over the keys
    by_value = np.stack([_normalised(row) for row in values])
    return {
        "weights": [*columns, _softmax(e, values.sum(axis=1))],
        "output": [e.weights @ by_key, e.weights @ by_value, _normalised(e.output)],
    }


def _first_product(e: Exercise) -> Answers:
    return {"raw": [_keys(e)[:, 0] * e.query[0]]}


def _last_product(e: Exercise) -> Answers:
    return {"raw": [_keys(e)[:, -1] * e.query[-1]]}


def _scaled_already(e: Exercise) -> Answers:
    return {"raw": [e.scaled]}


def _still_scores(e: Exercise) -> Answers:
    return {"weights": [np.where(e.allowed, scores, 0.0) for scores in (e.scaled, e.raw)]}


def _weights_already(e: Exercise) -> Answers:
    return {"scaled": [e.weights]}


def _swapped(e: Exercise) -> Answers:
    steps = ("raw", "scaled", "weights", "output")
    return {step: [np.array(row) for row in permutations(e.expected(step))][1:] for step in steps}


def _wrong_pairs(e: Exercise) -> Answers:
    """The weights of two keys in view on each other's values."""
    swaps = []
    for a, b in combinations(np.flatnonzero(e.allowed), 2):
        weights = e.weights.copy()
        weights[[a, b]] = weights[[b, a]]
        swaps.append(weights @ _values(e))
    return {"output": swaps}


def _left_out(e: Exercise) -> Answers:
    """Every value in view but one; two would be the top value alone."""
    return {"output": [e.output - part for part in e.weights[:, None] * _values(e) if part.any()]}


def _one_hot(e: Exercise) -> Answers:
    return {"weights": [np.eye(len(e.keys))[e.top_key]]}


def _top_only(e: Exercise) -> Answers:
    return {"output": [_values(e)[e.top_key]]}


def _unmasked(e: Exercise) -> Answers:
    return {} if e.position is None else _from_weights(e, _softmax(e, e.scaled, everywhere=True))


def _masked_late(e: Exercise) -> Answers:
    if e.position is None:
        return {}
    return _from_weights(e, np.where(e.allowed, _softmax(e, e.scaled, everywhere=True), 0.0))


def _masked_with_zero(e: Exercise) -> Answers:
    if e.position is None:
        return {}
    scores = np.where(e.allowed, e.scaled, 0.0)
    return {"scaled": [scores], **_from_weights(e, _softmax(e, scores, everywhere=True))}


def _no_exponential(e: Exercise) -> Answers:
    seen = np.where(e.allowed, e.scaled, 0.0)
    shares = [part / part.sum() for part in (seen, np.abs(seen)) if abs(part.sum()) > 1e-9]
    return _from_weights(e, *shares)


def _not_normalised(e: Exercise) -> Answers:
    return _from_weights(e, np.where(e.allowed, np.exp(e.scaled), 0.0))


def _scores_as_weights(e: Exercise) -> Answers:
    seen = np.asarray(e.allowed)
    return {"output": [np.where(seen, s, 0.0) @ _values(e) for s in (e.scaled, e.raw)]}


def _even(e: Exercise) -> Answers:
    seen = np.asarray(e.allowed, np.float64)
    mean = seen / seen.sum()
    return {"weights": [mean], "output": [mean @ _values(e), seen @ _values(e)]}


def _keys_for_values(e: Exercise) -> Answers:
    return {"output": [e.weights @ _keys(e)]} if len(e.values[0]) == e.d_k else {}


def _hidden_winner(e: Exercise) -> Answers:
    return {"key": [[int(e.raw.argmax())]]}


def _hidden_value(e: Exercise) -> Answers:
    return {"value": [[j] for j, seen in enumerate(e.allowed) if not seen]}


def _by_contribution(e: Exercise) -> Answers:
    return {"key": [[e.top_value]]}


def _by_weight(e: Exercise) -> Answers:
    return {"value": [[e.top_key]]}


def _by_size(e: Exercise) -> Answers:
    sizes = [np.abs(rows).sum(axis=1) for rows in (_keys(e), _values(e))]
    return {"key": [[int(sizes[0].argmax())]], "value": [[int(sizes[1].argmax())]]}


def _counted_from_one(e: Exercise) -> Answers:
    # Only past the end is it plain; inside, the number may just as well mean that one.
    tops = {"key": e.top_key, "value": e.top_value}
    return {step: [[top + 1]] for step, top in tops.items() if top + 1 == len(e.keys)}


def _smallest(e: Exercise) -> Answers:
    shown = np.asarray(e.allowed)
    figures = {"key": e.weights, "value": e.contributions}
    return {step: [[int(np.where(shown, row, np.inf).argmin())]] for step, row in figures.items()}


def _normalised(row: Array) -> Array:
    power = np.exp(row - row.max())
    shares: Array = power / power.sum()
    return shares


# Where two mistakes lead to the same answer, the first one named here is meant.
MISTAKES = (
    Mistake("not-scaled", "The scores were not scaled: these follow from the raw dot products.",
            "Divide every dot product by √d_k before the softmax.", _not_scaled),
    Mistake("divided-by-d_k", "Divided by d_k, not by its root.",
            "The dot product's standard deviation grows with √d_k, so √d_k is what to divide by.",
            _divided_by_d_k),
    Mistake("multiplied", "Multiplied by √d_k instead of divided.",
            "Scaling makes scores smaller: divide by √d_k.", _multiplied),
    Mistake("divided-by-keys", "Divided by the number of keys or its root.",
            "d_k is how many numbers one key has, not how many keys there are.",
            _divided_by_keys),
    Mistake("lost-sign", "A minus sign was lost.",
            "A negative number times a positive one is negative; keys may point the other way.",
            _lost_sign),
    Mistake("added", "Query and key were added, not multiplied.",
            "A dot product multiplies number by number, and then adds the products.", _added),
    Mistake("values-for-keys", "These are the query's dot products with the values.",
            "Queries meet keys; values come in only after the softmax.", _values_for_keys),
    Mistake("cosine", "These are cosines: the dot products divided by the vectors' norms.",
            "Attention takes the dot products as they are; only √d_k divides them.", _cosine),
    Mistake("scaled-already", "These are scaled already.",
            "Give the dot products themselves; dividing by √d_k is the step after this.",
            _scaled_already),
    Mistake("first-product-only", "Only the first product of each key was taken.",
            "Every number of the key has a product of its own, and all of them are added.",
            _first_product),
    Mistake("last-product-only", "Only the last product of each key was taken.",
            "Every number of the key has a product of its own, and all of them are added.",
            _last_product),
    Mistake("weights-already", "These are the weights, two steps on.",
            "Give the scores that go into the softmax; they may be negative and need no sum.",
            _weights_already),
    Mistake("unmasked", "Hidden keys took part in the softmax.",
            "A hidden key gets −∞ for a score, so that its weight is 0 and the others sum to 1.",
            _unmasked),
    Mistake("masked-late", "Hidden keys were taken out after the softmax, so the rest do not sum "
            "to 1.", "Hide them before the softmax: a score of −∞, not a weight crossed out.",
            _masked_late),
    Mistake("masked-with-zero", "Hidden keys got the score 0, and e^0 = 1 is not nothing.",
            "A hidden key's score is −∞: only then does it add 0 to the sum.", _masked_with_zero),
    Mistake("softmax-over-values", "The softmax was taken over the values.",
            "The softmax acts on the scores of query and keys; the values are only mixed by the "
            "weights it gives.", _softmax_over_values),
    Mistake("one-hot", "All of the weight was given to the best match.",
            "A softmax leaves every key in view a share: e to any score is more than 0.",
            _one_hot),
    Mistake("still-scores", "These are the scores, not yet weights.",
            "Weights are positive and sum to 1; the softmax makes them so.", _still_scores),
    Mistake("top-value-only", "Only the value with the largest weight was taken.",
            "Attention mixes: every value in view counts, each by its weight.", _top_only),
    Mistake("no-exponential", "The scores were divided by their sum, without the exponential.",
            "Softmax takes e to the power of each score first; that also makes negative ones "
            "positive.", _no_exponential),
    Mistake("not-normalised", "These are the exponentials, not yet divided by their sum.",
            "Divide each by the sum of all of them; weights sum to 1.", _not_normalised),
    Mistake("scores-as-weights", "The values were mixed by their scores, without a softmax.",
            "Turn the scores into weights first: positive, and with a sum of 1.",
            _scores_as_weights),
    Mistake("even", "All values counted alike, as if the scores did not matter.",
            "Each value counts by its weight; better matches count more.", _even),
    Mistake("keys-for-values", "The keys were mixed instead of the values.",
            "Keys decide the weights; what is mixed are the values.", _keys_for_values),
    Mistake("left-out", "One of the values was left out.",
            "Every value in view adds something, also one with a small weight.", _left_out),
    Mistake("wrong-pairs", "Two weights were put on each other's values.",
            "Weight 0 belongs to value 0, weight 1 to value 1, and so on.", _wrong_pairs),
    Mistake("swapped", "These are the right numbers in the wrong order.",
            "The first belongs in the first place, and so on; marked are those out of place.",
            _swapped),
    Mistake("hidden-winner", "That key matches best, but it is hidden from this query.",
            "Only keys in view have a weight; take the largest of those.", _hidden_winner),
    Mistake("hidden-value", "That value is hidden from this query: its weight is 0.",
            "Only values in view are in the output.", _hidden_value),
    Mistake("by-contribution", "That value contributes most to the output, but its key does not "
            "have the largest weight.", "Here, compare the weights alone.", _by_contribution),
    Mistake("by-weight", "That one has the largest weight, but its numbers are small.",
            "What a value adds is weight × value: work that out for each, and compare.",
            _by_weight),
    Mistake("by-size", "That one has the largest numbers, and they do not decide alone.",
            "A key's weight comes from its match with the query; a value adds weight × value.",
            _by_size),
    Mistake("smallest", "That one is the smallest of all in view.", "Look for the largest.",
            _smallest),
    Mistake("counted-from-one", "That number is one too high: they are counted from 0.",
            "The first one has the number 0.", _counted_from_one),
)  # fmt: skip

ALWAYS = ("not-scaled", "divided-by-d_k", "softmax-over-values", "one-hot", "top-value-only")
HIDING = ("unmasked", "masked-late", "masked-with-zero")
