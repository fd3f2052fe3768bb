"""Stories: what the captures that come along show, head by head, as their pages in docs/systems do.

A mention names a head by its layer, the cell that shows what is said of it, the words, and what to
see in its map. The first one is where the capture opens; docs/systems measures what is claimed.
"""

from __future__ import annotations

from limelight.capture import Capture
from limelight.views.schema import Mention, Story

Told = tuple[int, int, tuple[int, int], str, str]  # layer, head, cell, words, why
Page = tuple[str, str, tuple[Told, ...]]  # its file, what the capture is, its heads


def _bank(kind: str, other: str) -> Page:
    """One of the two meanings of bank."""
    return (
        "systems/bert.md",
        "One word, two meanings: an encoder gives bank a vector of its own in each sentence, made "
        f"of what stands around it. Put the {other} bank beside it.",
        (
            (2, 11, (6, 5), f"bank looks at {kind}, which says what kind of bank it is",
             f"What bank takes from {kind} becomes part of its own vector; the bars above say how "
             "far the two vectors of bank have parted after each layer."),
            (0, 2, (6, 5), "every word looks at the one before, whatever it means",
             "The same light in both sentences: this head goes by place, and not by meaning."),
        ),
    )  # fmt: skip


_SINK = (
    "A softmax sums to one, so the weight has to go somewhere where a head has nothing to fetch. "
    "Light the cells by what they bring, below the map, and the column goes dark."
)
_STORIES: dict[str, Page] = {
    "llama": (
        "systems/llama.md",
        "A decoder reads one way: a word may look at itself and at what came before, never ahead.",
        (
            (11, 1, (2, 1), "cat looks at curious: this head looks mostly at the word before",
             "The bright cells lie one left of the diagonal: watched looks at cat in the same way. "
             "What is fetched from the word before is there for every later layer."),
            (11, 6, (3, 3), "every word looks at itself",
             "The light is the diagonal: query and key are the same token."),
            (18, 8, (5, 0), "a sink: all weight rests on the first word, where little is taken",
             _SINK),
        ),
    ),
    "llama-paragraph": (
        "systems/llama.md",
        "The same decoder on a text that repeats itself: some heads find where a word stood before "
        "and look at what followed it there.",
        (
            (17, 5, (34, 2),
             "curious comes again, and looks at the cat that followed it before: induction",
             "Slanted runs of light are phrases that came before, to the old oak among them; the "
             "first column is the same head where nothing repeats. Heads of this kind are known to "
             "help a model repeat names and phrases."),
            (16, 0, (50, 49), "every word looks at the one before",
             "The light runs one left of the diagonal, whatever the words are."),
            (18, 8, (54, 0), "a sink: all weight rests on the first word, where little is taken",
             _SINK),
        ),
    ),
    "bert": (
        "systems/bert.md",
        "An encoder reads both ways: every word may look at every other, and two tokens that stand "
        "for no word, [CLS] and [SEP], catch what is left over.",
        (
            (0, 2, (3, 2), "every word looks at the one before",
             "The light runs one left of the diagonal, as in a decoder."),
            (1, 8, (4, 5), "words look at the one after: an encoder may",
             "Right of the diagonal stands what comes later. In a decoder that half is hidden."),
            (4, 5, (3, 0), "most weight rests on [CLS], where little is taken", _SINK),
        ),
    ),
    "bank-river": _bank("river", "savings"),
    "bank-savings": _bank("savings", "river"),
    "gpt": (
        "systems/gpt.md",
        "A decoder of letters, trained here on Shakespeare. Nobody told it what a word is.",
        (
            (2, 0, (81, 79), "letters look at the first letter of their word",
             "Short upright strokes of light, one for each word: all its letters look at where it "
             "began."),
            (0, 4, (120, 119), "every letter looks at the one before",
             "The light runs one left of the diagonal."),
            (1, 0, (77, 75), "letters look at the spaces between words",
             "Every stroke of light stands under a space: where one word ends and the next begins "
             "is what a model of letters has to find out first."),
        ),
    ),
    "code": (
        "systems/code.md",
        "A decoder of characters, trained here on Python, as the models behind assistants such as "
        "Copilot are on far more. Code must be exact: brackets close, and what was imported or "
        "named above is spelled the same below.",
        (
            (4, 2, (107, 103), "inside brackets, a look at the one that opened them",
             "Each stroke of light stands under an opening bracket, as long as what is inside: so "
             "the model knows that there is one to close."),
            (3, 3, (150, 8),
             "json is written again: its j looks at the s that followed j in the import",
             "While a name is written anew, this head looks at the letter that came next where the "
             "name stood before. With it switched off the model spells such names worse."),
            (2, 1, (173, 171), "inside a name, a look at its first letter",
             "Short upright strokes of light, one for each name."),
        ),
    ),
    "vit": (
        "systems/vit.md",
        "A photograph in patches: every patch is a token, and one token more, [CLS], gathers what "
        "the piece of clothing is named by. Choose another entry to see another photograph.",
        (
            (0, 1, (0, 29), "[CLS] looks at an empty place: of a T-shirt, under its short sleeve",
             "What is not there tells too. On trousers this head looks beside the legs, on shoes "
             "above the toe, where a shirt would be."),
            (2, 1, (0, 36), "[CLS] looks along the sides, beside what is worn",
             "On the pullover and the coat the light stands beside the sleeves, on the bag inside "
             "its handle."),
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
            Mention(site=sites[layer], head=head, cell=cell, words=said, why=why)
            for layer, head, cell, said, why in told
            if layer in sites
        ],
    )
