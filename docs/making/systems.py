"""The pages of docs/systems: what each kind of model does with attention, measured and drawn."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from limelight import Capture, captures, heads, live, pictures
from limelight.heads import KINDS
from limelight.pictures import Picture
from limelight.pictures.tokens import visible
from making import measures
from making.pages import DOCS, Page

SYSTEMS, EXAMPLES = DOCS / "systems", DOCS.parent / "examples"
KIND_NAMES = {kind.name: kind.meaning for kind in KINDS}


def make() -> list[Path]:
    return [path for page in PAGES for path in page().write()]


def llama() -> Page:
    sentence, paragraph = captures()["llama"], captures()["llama-paragraph"]
    page = Page(SYSTEMS / "llama.md")
    head = sentence[11]
    page.numbers["curious"] = f"{head.cell(2, 1, head=1).weight:.2f}"
    page.numbers["cat"] = f"{head.cell(3, 2, head=1).weight:.2f}"
    words = sentence.health().verdict
    page.numbers["saturated"] = str(int((words == "saturated").sum()))
    page.numbers["heads"] = str(words.size)
    page.picture("cat", lambda theme: one_head(sentence, 11, 1, theme))
    page.picture("lines", lambda theme: lines(sentence, 11, 1, theme))
    page.picture("heads", lambda theme: grid(sentence, "how decided each head is", theme))
    kinds(page, paragraph, ("previous", "induction", "sink", "diagonal", "bracket"))
    layer, head_number = strongest(paragraph, "induction")
    page.picture("induction", lambda theme: one_head(paragraph, layer, head_number, theme))
    sink = strongest(paragraph, "sink")
    page.numbers["sink-head"] = f"{sink[0]}.{sink[1]}"
    page.numbers["sink-value"] = f"{100 * first_value(paragraph, *sink):.0f}"
    return page


def bert() -> Page:
    capture = captures()["bert"]
    page = Page(SYSTEMS / "bert.md")
    tables = np.stack([[site.weights(head=h) for h in range(site.heads)] for site in capture])
    later = np.triu(np.ones(tables.shape[-2:]), 1)
    forward = (tables * later).sum(-1)[..., :-1].mean()  # the last token has nothing after it
    page.numbers["forward"] = f"{100 * forward:.0f}"
    first, last = tables[..., 0].mean(-1), tables[..., -1].mean(-1)  # [layers, heads]
    page.numbers["cls"] = f"{100 * first.mean():.0f}"
    page.numbers["sep"] = f"{100 * last.mean():.0f}"
    page.numbers["even"] = f"{100 / tables.shape[-1]:.0f}"
    layer, head = (int(n) for n in np.unravel_index(first.argmax(), first.shape))
    page.numbers["cls-head"] = f"{layer}.{head}"
    page.numbers["cls-most"] = f"{100 * first.max():.0f}"
    page.numbers["cls-value"] = f"{100 * first_value(capture, layer, head):.0f}"
    page.picture("sink", lambda theme: one_head(capture, layer, head, theme))
    kinds(page, capture, ("previous", "next", "diagonal", "sink"))
    before, after = strongest(capture, "previous"), strongest(capture, "next")
    page.picture("both-ways", lambda theme: lines(capture, *before, theme).beside(
        lines(capture, *after, theme)))  # fmt: skip
    page.picture("heads", lambda theme: grid(capture, "every head's map", theme, 8))
    for name in ("river", "savings"):
        bank = captures()[f"bank-{name}"]
        row = bank[2].weights([6], head=11)[0]  # bank is the seventh token, what it means before it
        page.numbers[name] = f"{row[5]:.2f}"
    cosines = captures()["bank-river"].source["cosine"]
    page.numbers["embedded"], page.numbers["parted"] = f"{cosines[0]:.2f}", f"{cosines[-1]:.2f}"
    return page


def gpt() -> Page:
    capture = captures()["gpt"]
    page = Page(SYSTEMS / "gpt.md")
    text = "".join(capture.tokens[0])
    found = measured(page, capture, {
        "looks at the character before": measures.previous(text),
        "looks at the spaces between words": measures.spaces(text),
        "looks at line breaks": measures.line_breaks(text),
        "looks from inside a word to its first letter": measures.word_start(text),
        "looks at what followed where the word stood before": measures.repeated_words(text),
    })  # fmt: skip
    page.picture("heads", lambda theme: grid(capture, "every head's map", theme, 84))
    words, spaces = found[3], found[1]
    part = slice(11, 55)
    page.picture("words", lambda theme: region(capture, words.layer, words.head, part, part, theme))
    page.picture(
        "spaces", lambda theme: region(capture, spaces.layer, spaces.head, part, part, theme)
    )
    model, facts = _trained("train_gpt")
    page.numbers["loss"] = f"{facts['held_out']:.2f}"
    page.numbers["steps"] = f"{facts['steps']:,}"
    page.numbers["parameters"] = f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}"
    page.code("sample", _sample(model, facts))
    return page


def code() -> Page:
    capture = captures()["code"]
    page = Page(SYSTEMS / "code.md")
    text = "".join(capture.tokens[0])
    found = measured(page, capture, {
        "looks from inside brackets to the innermost open one": measures.open_bracket(text),
        "looks at what followed where the name stood before": measures.repeated_words(text),
        "looks from a line's indentation to that of the line above": measures.indentation(text),
        "looks from a line's indentation to the line break before it": measures.line_start(text),
        "looks from inside a name to its first letter": measures.word_start(text),
        "looks at the character before": measures.previous(text),
    })  # fmt: skip
    for name, targets in zip(("inner", "outer"), measures.nested(text), strict=True):
        lit = measures.share(capture, found[0].layer, found[0].head, targets)
        page.numbers[name] = f"{100 * lit:.0f}"
    begins, again, body = (text.index(words) for words in ("return", "json.loads", "    def"))
    brackets, names, lines = found[:3]
    whole = slice(begins, len(text) - 1)
    page.picture("brackets", partial(region, capture, brackets.layer, brackets.head, whole, whole))
    spelled, imports = slice(again, again + len("json")), slice(0, text.index("from"))
    page.picture("names", partial(region, capture, names.layer, names.head, spelled, imports))
    block = slice(body, text.index(" = Path"))
    page.picture("indentation", partial(region, capture, lines.layer, lines.head, block, block))
    full, less = (_nats(text, off) for off in ([], [(names.layer, names.head)]))
    inside = np.isin(np.arange(len(full)), sorted(measures.repeated_words(text)))
    page.numbers["with"] = f"{full[inside].mean():.2f}"
    page.numbers["without"] = f"{less[inside].mean():.2f}"
    page.numbers["elsewhere"] = f"{(less - full)[~inside].mean():+.2f}".replace("-", "−")
    page.numbers["judged"] = str(int(inside.sum()))
    page.code("class", text, "text")
    model, facts = _trained("train_code")
    page.numbers["loss"] = f"{facts['held_out']:.2f}"
    page.numbers["steps"] = f"{facts['steps']:,}"
    page.code("completions", _completions(model), "text")
    return page


def vit() -> Page:
    capture = captures()["vit"]
    page = Page(SYSTEMS / "vit.md")
    labels, read = capture.source["labels"], capture.source["read"]
    wrong = [i for i, (label, seen) in enumerate(zip(labels, read, strict=True)) if label != seen]
    facts = _trained("train_vit")[1]
    page.numbers["accuracy"] = f"{100 * facts['accuracy']:.1f}"
    page.numbers["steps"] = f"{facts['steps']:,}"
    page.numbers["learned"] = f"{facts['learned']:,}"
    page.numbers["held"] = f"{facts['held']:,}"
    page.numbers["layers"], page.numbers["heads"] = str(len(capture)), str(capture[0].heads)
    page.numbers["pictures"] = str(len(labels))
    page.numbers["misread"] = " and ".join(f"{_a(labels[i])} read as {_a(read[i])}" for i in wrong)
    cloth = np.stack([_patches(one, capture.grid) for one in capture.image])
    rows = []
    for site in capture:
        weights = np.stack([site.weights(rows=[0], batch=n)[:, 0] for n in range(site.batch)])
        own, rest = weights[..., 0], weights[..., 1:]  # [pictures, heads], … and patches
        lit = (rest * cloth[:, None]).sum(-1) / np.maximum(rest.sum(-1), 1e-9)
        rows.append([str(site.layer), f"{100 * own.mean():.0f} %", f"{100 * lit.mean():.0f} %",
                     f"{100 * cloth.mean():.0f} %"])  # fmt: skip
    heading = ["layer", "of the gathering token's attention on itself",
               "of the rest on patches that show clothing", "such patches"]  # fmt: skip
    page.table("gather", heading, rows)
    page.picture("heads", lambda theme: grid(capture, "every head's map", theme, 50))
    last = len(capture) - 1
    shown = tuple(labels.index(kind) for kind in ("trousers", "bag", "ankle boot"))
    page.picture("empty", lambda theme: looks(capture, 0, (0, *shown[::2]), theme, head=1))
    page.picture("looks", lambda theme: looks(capture, last, shown, theme))
    page.picture("misread", lambda theme: looks(capture, last, tuple(wrong), theme))
    return page


def kinds(page: Page, capture: Capture, names: tuple[str, ...]) -> None:
    """A table of the strongest head of each kind."""
    found = heads.find(capture)
    lines = []
    for name in names:
        site, head, score = found.best(name, 1)[0]
        rows = int(found.rows[name][site, head])
        few = f"too few rows ({rows}) to say" if rows < heads.LEAST_ROWS else "weak"
        sure = "yes" if found.is_kind(name)[site, head] else few
        lines.append([name, KIND_NAMES[name], f"{found.layers[site]}.{head}", f"{score:.2f}",
                      f"{found.chance[name][site, head]:.2f}", sure])  # fmt: skip
    heading = ["kind", "such a head", "strongest, layer.head", "attention on its targets",
               "an even head's", "is one"]  # fmt: skip
    page.table("kinds", heading, lines)


def measured(
    page: Page, capture: Capture, targets: dict[str, measures.Targets]
) -> list[measures.Found]:
    """A table of the head that does each thing most."""
    found = [measures.best(capture, cells) for cells in targets.values()]
    rows = [[f"{one.layer}.{one.head}", words, f"{100 * one.share:.0f} %",
             f"{100 * one.chance:.0f} %", str(one.rows)]
            for words, one in zip(targets, found, strict=True)]  # fmt: skip
    page.table("measured", ["layer.head", "the head that most", "share of its attention",
                            "an even head's", "characters judged"], rows)  # fmt: skip
    return found


def strongest(capture: Capture, kind: str) -> tuple[int, int]:
    found = heads.find(capture)
    site, head, _ = found.best(kind, 1)[0]
    return found.layers[site], head


def first_value(capture: Capture, layer: int, head: int) -> float:
    """The norm of the first token's value, over the median of the others'."""
    site = capture[layer]
    assert site.value is not None
    values = np.asarray(site.value[0], np.float64)  # [key heads, tokens, size]
    norms = np.linalg.norm(values[head * len(values) // site.heads], axis=-1)
    return float(norms[0] / np.median(norms[1:]))


def grid(capture: Capture, words: str, theme: str, thumbnails: int = 0) -> Picture:
    title = f"{_model(capture)}: {words}"
    return pictures.head_grid(capture, thumbnails=thumbnails, theme=theme, title=title)


def one_head(capture: Capture, layer: int, head: int, theme: str) -> Picture:
    site = capture[layer]
    seen = site.heatmap((site.queries, site.keys), head=head)
    return pictures.heatmap(seen, tokens=site.labels(), theme=theme,
                            title=_title(capture, layer, head))  # fmt: skip


def lines(capture: Capture, layer: int, head: int, theme: str) -> Picture:
    site = capture[layer]
    return pictures.lines(site.weights(head=head), tokens=site.labels(), theme=theme,
                          title=_title(capture, layer, head))  # fmt: skip


def region(
    capture: Capture, layer: int, head: int, rows: slice, columns: slice, theme: str
) -> Picture:
    """Part of a head's map, one cell a character."""
    site = capture[layer]
    shape = rows.stop - rows.start, columns.stop - columns.start
    seen = site.heatmap(shape, rows=rows, columns=columns, head=head)
    texts = [visible(token) for token in site.labels()]
    return pictures.heatmap(seen, tokens=texts, theme=theme, title=_title(capture, layer, head))


def looks(
    capture: Capture, layer: int, entries: tuple[int, ...], theme: str, head: int | None = None
) -> Picture:
    """What the gathering token looks at, by a head or the mean of all, picture beside picture."""
    assert capture.image is not None
    site, source = capture[layer], capture.source
    drawn = []
    for batch in entries:
        of = slice(None) if head is None else slice(head, head + 1)
        weights = site.weights(rows=[0], batch=batch)[of, 0].mean(axis=0)
        title = f"{_a(source['labels'][batch])}, read as {_a(source['read'][batch])}"
        drawn.append(pictures.patches(capture.image[batch], weights, grid=capture.grid,
                                      title=title, theme=theme))  # fmt: skip
    return drawn[0].beside(*drawn[1:])


def _title(capture: Capture, layer: int, head: int) -> str:
    return f"{_model(capture)}: layer {layer}, head {head}"


def _model(capture: Capture) -> str:
    return str(capture.source["model"]).partition(",")[0]


def _a(kind: str) -> str:
    return kind if kind == "trousers" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _patches(picture: Any, grid: Any) -> Any:
    """Which patches show clothing, in the order of the keys: half their pixels are no white."""
    dark = (picture < 240).any(-1)
    height, width = dark.shape[0] // grid.rows, dark.shape[1] // grid.columns
    return dark.reshape(grid.rows, height, grid.columns, width).mean((1, 3)).ravel() >= 0.5


def _nats(text: str, off: list[tuple[int, int]]) -> Any:
    """What each character after the first costs the code model, without those heads."""
    run = live.load("code").run(text, off=off, keep="all")
    logits = np.asarray(run.logits[:-1], np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    chances = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -chances[np.arange(len(chances)), list(run.ids[1:])]


def _trained(module: str) -> tuple[Any, dict[str, Any]]:
    """A model trained here, from its checkpoint."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    import importlib

    from training import load

    model, facts = load(module.removeprefix("train_"), importlib.import_module(module).build)
    return model, facts


def _sample(model: Any, facts: dict[str, Any]) -> str:
    import torch
    from text import decode, encode

    torch.manual_seed(0)
    start = encode("KATHARINA:\n", facts["alphabet"]).long()
    return decode(model.continue_text(start, 240), facts["alphabet"])


def _completions(model: Any) -> str:
    from train_code import COMPLETIONS, complete

    return "\n\n".join(f"{start}⟦{complete(model, start)}⟧" for start in COMPLETIONS)


PAGES = (llama, bert, gpt, code, vit)
