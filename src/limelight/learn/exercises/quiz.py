"""A short quiz on what is often misread. Every option says why it is right or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from limelight.errors import ArgumentError


@dataclass(frozen=True)
class Option:
    text: str
    says: str


@dataclass(frozen=True)
class Question:
    """One question; `right` is the number of the right option, counted from 0."""

    name: str
    text: str
    options: tuple[Option, ...]
    right: int

    def check(self, choice: int) -> tuple[bool, str]:
        """Whether the choice is right, and why or why not.

        >>> QUIZ[0].check(QUIZ[0].right)[0]
        True
        """
        if isinstance(choice, bool) or choice not in range(len(self.options)):
            raise ArgumentError(
                f"there is no option {choice!r}: choose from 0 to {len(self.options) - 1}"
            )
        return choice == self.right, self.options[choice].says

    def to_dict(self, *, answers: bool = False) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "text": self.text,
                                "options": [option.text for option in self.options]}  # fmt: skip
        if answers:
            data |= {"right": self.right, "says": [option.says for option in self.options]}
        return data


QUIZ = (
    Question(
        "mixture",
        "A row of weights is 0.7, 0.2, 0.1. What is the output of that row?",
        (
            Option(
                "The value with weight 0.7.",
                "No: that would be a hard choice. The other two values are in the output as well, "
                "with 20 % and 10 %.",
            ),
            Option(
                "0.7, 0.2 and 0.1 of the three values, added up.",
                "Yes: a weighted average of the values. It need not equal any of them.",
            ),
            Option(
                "One of the values, drawn at random with these chances.",
                "No: nothing is drawn. The weights have the form of probabilities, but they are "
                "used to average.",
            ),
        ),
        1,
    ),
    Question(
        "softmax-of-what",
        "What does the softmax act on?",
        (
            Option(
                "On the values, so that they become comparable.",
                "No: values are never normalised. They enter after the softmax, as they are.",
            ),
            Option(
                "On the whole table of scores at once, so that all of it sums to 1.",
                "No: each query has its own row, and every row sums to 1 by itself.",
            ),
            Option(
                "On each query's row of scores.",
                "Yes: row by row over the keys. That is why the weights of one query compete with "
                "each other and not with those of another query.",
            ),
        ),
        2,
    ),
    Question(
        "ranking",
        "Scores are divided by √d_k. What happens to the order of the weights in a row?",
        (
            Option(
                "It stays the same, always.",
                "Yes: dividing by a positive number never changes an order. Only the sharpness "
                "changes.",
            ),
            Option(
                "It usually stays the same, but close scores can swap.",
                "No: a larger number divided by √d_k is still the larger one, however close.",
            ),
            Option(
                "It is turned around where scores are negative.",
                "No: that would take a negative factor.",
            ),
        ),
        0,
    ),
    Question(
        "why-the-root",
        "Why divide by √d_k and not by d_k?",
        (
            Option(
                "Roots are cheaper to compute.",
                "No: it is one number for the whole layer. Speed has nothing to do with it.",
            ),
            Option(
                "Because the standard deviation of a dot product grows like √d_k.",
                "Yes: the variance is the sum of d_k terms, so the standard deviation is its "
                "root. Dividing by d_k would shrink the scores towards 0 as d_k grows, and every "
                "row would be nearly even.",
            ),
            Option(
                "Because the norm of a key is √d_k exactly.",
                "No: it is about that on average, for entries of variance 1, but nothing makes it "
                "exact.",
            ),
        ),
        1,
    ),
    Question(
        "score-table",
        "What is in the table Q·Kᵀ?",
        (
            Option(
                "How well each query matches each key: one number for every pair.",
                "Yes: with n queries and n keys it has n × n numbers, and no value has been "
                "touched yet.",
            ),
            Option(
                "How much of each value every query receives.",
                "No: those are the weights, which come out of the softmax. Scores can be negative "
                "and sum to anything.",
            ),
            Option(
                "The queries multiplied by the values.",
                "No: values take part only in the last step.",
            ),
        ),
        0,
    ),
    Question(
        "key-and-value",
        "Why does a token have both a key and a value?",
        (
            Option(
                "To save memory: two short vectors instead of a long one.",
                "No: they cost extra memory. They are there because they do different jobs.",
            ),
            Option(
                "The value is the key after the softmax.",
                "No: both come from the token by a projection of its own; neither is made from the "
                "other.",
            ),
            Option(
                "Being found and having something to say are two different things.",
                "Yes: the key decides who attends to the token, the value what they get from it.",
            ),
        ),
        2,
    ),
    Question(
        "small-weight",
        "In the worked example key 0 has 88 % of the weight and its value is [10, 0]. Why is the "
        "second number of the output 0.86 and not about 0?",
        (
            Option(
                "Rounding: it is 0 if you compute with enough digits.",
                "No: the exact number is 0.858154.",
            ),
            Option(
                "Value 1 is [0, 8], and even 11 % of 8 is a lot beside 88 % of 0.",
                "Yes: 0.105686·8 + 0.012669·1 = 0.858154. A weight says how much of a value is "
                "taken; how large the result is depends on the value too.",
            ),
            Option(
                "The softmax moves a part of every value into the others.",
                "No: the softmax never sees the values.",
            ),
        ),
        1,
    ),
    Question(
        "small-gradient",
        "The top weight p of a row has a small p·(1 − p). Is the row saturated?",
        (
            Option(
                "Yes, that is what saturated means.",
                "Not quite: with 1,000 keys and even weights p is 0.001, and p·(1 − p) is small "
                "as well, though nothing is stuck.",
            ),
            Option(
                "Only if p itself is close to 1.",
                "Yes: look at p together with the slope. Near 1 the softmax hardly moves; near 0 "
                "there simply are many keys.",
            ),
            Option(
                "No, a small slope is a sign of health.",
                "No: where p is close to 1 a small slope means that hardly any gradient gets "
                "through.",
            ),
        ),
        1,
    ),
    Question(
        "hide-with",
        "A causal attention hides later keys. How?",
        (
            Option(
                "It sets their scores to 0.",
                "No: e^0 = 1, so a key with score 0 takes part, and often a large one.",
            ),
            Option(
                "It sets their weights to 0 after the softmax.",
                "No: then the rest no longer sums to 1, and the hidden keys have still shaped the "
                "sum.",
            ),
            Option(
                "It sets their scores to −∞ before the softmax.",
                "Yes: e^(−∞) = 0. They add nothing to the sum, and the keys in view share all of "
                "the weight.",
            ),
        ),
        2,
    ),
    Question(
        "shape",
        "When does the output have as many numbers per token as the input?",
        (
            Option(
                "Always: attention keeps shapes.",
                "No: it has the size of the values (times the heads). Often that is chosen to be "
                "the input's size, or W_O brings it back.",
            ),
            Option(
                "When the size of the values, times the heads, equals the input's, or when W_O "
                "maps it back.",
                "Yes: d_v is a free choice, independent of d_k and of the input.",
            ),
            Option(
                "When d_k equals d_v.",
                "No: d_k appears in the scores only and leaves no trace in the output's shape.",
            ),
        ),
        1,
    ),
    Question(
        "unit-vectors",
        "Two random vectors have d independent entries with mean 0 and variance 1. What is the "
        "variance of their dot product?",
        (
            Option(
                "d.", "Yes: each of the d products has variance 1, and variances add. Hence √d_k."
            ),
            Option(
                "1/d.",
                "No: that is so for random vectors with a norm of 1, whose entries shrink as d "
                "grows. Queries and keys are not scaled to that.",
            ),
            Option("1, whatever d is.", "No: that is what it becomes after dividing by √d."),
        ),
        0,
    ),
    Question(
        "shift",
        "All scores of a row are raised by 100. What happens to its weights?",
        (
            Option(
                "The largest takes everything.",
                "No: only differences of scores matter, and those are as before.",
            ),
            Option(
                "They overflow, because e^100 is too large.",
                "No: programs take the row's largest score off first, exactly because that changes "
                "nothing.",
            ),
            Option(
                "Nothing.", "Yes: every exponential is multiplied by e^100, and so is their sum."
            ),
        ),
        2,
    ),
    Question(
        "columns",
        "Every row of the weights sums to 1. And every column?",
        (
            Option(
                "Also to 1.",
                "No: nothing makes them. A key that all queries look at has a large column.",
            ),
            Option(
                "To anything from 0 to the number of queries.",
                "Yes: a column says how much attention a key receives from all queries together, "
                "and some keys get most of it.",
            ),
            Option(
                "To less than 1.",
                "No: a key that two queries look at with all their weight has a sum of 2.",
            ),
        ),
        1,
    ),
)
