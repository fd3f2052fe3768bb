"""Stories: what the captures that come along show, head by head, as their pages in docs/systems do.

A mention names a head by its layer, the cell that shows what is said of it, and the words. The
first one is where the capture opens; docs/systems measures what the words claim.
"""

from __future__ import annotations

from limelight.capture import Capture
from limelight.views.schema import Mention, Story

Told = tuple[int, int, tuple[int, int], str]  # layer, head, cell, words

_STORIES: dict[str, tuple[str, str, tuple[Told, ...]]] = {
    "llama": (
        "systems/llama.md",
        "A decoder reads one way: a word may look at itself and at what came before, never ahead.",
        (
            (11, 1, (2, 1), "cat looks at curious: this head looks mostly at the word before"),
            (11, 6, (3, 3), "every word looks at itself"),
            (18, 8, (5, 0), "a sink: all weight rests on the first word, where little is taken"),
        ),
    ),
    "llama-paragraph": (
        "systems/llama.md",
        "The same decoder on a text that repeats itself: some heads find where a word stood before "
        "and look at what followed it there.",
        (
            (17, 5, (34, 2),
             "curious comes again, and looks at the cat that followed it before: induction"),
            (16, 0, (50, 49), "every word looks at the one before"),
            (18, 8, (54, 0), "a sink: all weight rests on the first word, where little is taken"),
        ),
    ),
    "bert": (
        "systems/bert.md",
        "An encoder reads both ways: every word may look at every other, and two tokens that stand "
        "for no word, [CLS] and [SEP], catch what is left over.",
        (
            (0, 2, (3, 2), "every word looks at the one before"),
            (1, 8, (4, 5), "words look at the one after: an encoder may"),
            (4, 5, (3, 0), "most weight rests on [CLS], where little is taken"),
        ),
    ),
    "bank-river": (
        "systems/bert.md",
        "One word, two meanings: an encoder gives bank a vector of its own in each sentence, made "
        "of what stands around it. Put the savings bank beside it.",
        (
            (2, 11, (6, 5), "bank looks at river, which says what kind of bank it is"),
            (0, 2, (6, 5), "every word looks at the one before, whatever it means"),
        ),
    ),
    "bank-savings": (
        "systems/bert.md",
        "One word, two meanings: an encoder gives bank a vector of its own in each sentence, made "
        "of what stands around it. Put the river bank beside it.",
        (
            (2, 11, (6, 5), "bank looks at savings, which says what kind of bank it is"),
            (0, 2, (6, 5), "every word looks at the one before, whatever it means"),
        ),
    ),
    "gpt": (
        "systems/gpt.md",
        "A decoder of letters, trained here on Shakespeare. Nobody told it what a word is.",
        (
            (2, 0, (81, 79), "letters look at the first letter of their word"),
            (0, 4, (120, 119), "every letter looks at the one before"),
            (1, 0, (77, 75), "letters look at the spaces between words"),
        ),
    ),
    "code": (
        "systems/code.md",
        "A decoder of characters, trained here on Python, as the models behind code assistants are "
        "on far more. Code must be exact: brackets close, names come again letter by letter.",
        (
            (4, 2, (124, 121), "inside brackets, a look at the one that opened them"),
            (3, 3, (100, 32),
             "inside a name, a look at the letter that followed where it stood before"),
            (2, 0, (103, 99), "inside a name, a look at its first letter"),
        ),
    ),
    "vit": (
        "systems/vit.md",
        "A picture in patches: every patch is a token, and one token more, [CLS], gathers what the "
        "digit is read from.",
        (
            (3, 3, (0, 7), "where the model looks while it reads a digit"),
            (3, 1, (10, 6), "a patch looks at the one above it"),
        ),
    ),
}  # fmt: skip


def story(capture: Capture, name: str) -> Story | None:
    """What there is to tell of the shipped capture of that name; None where there is nothing."""
    if name not in _STORIES:
        return None
    page, words, told = _STORIES[name]
    sites = {site.layer: index for index, site in enumerate(capture.sites)}
    source = capture.source
    return Story(
        words=words,
        page=page,
        beside=source.get("beside"),
        word=source.get("word"),
        cosines=source.get("cosine", []),
        mentions=[
            Mention(site=sites[layer], head=head, cell=cell, words=said)
            for layer, head, cell, said in told
            if layer in sites
        ],
    )
