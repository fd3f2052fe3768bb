"""The figures of bench/results in the pages of the engines, and a few of them in the README."""

from __future__ import annotations

import json
from pathlib import Path

from making.pages import DOCS, Page

RESULTS = DOCS.parent / "bench" / "results"
CPU = {
    "float32, 12 heads, n 2048, d 64, causal": "12 heads, 2,048 tokens, causal, float32",
    "bfloat16, 12 heads, n 2048, d 64, causal": "the same in bfloat16",
    "decode, 32 heads, 8192 keys, d 128, bfloat16": "one token against 8,192, 32 heads, bfloat16",
}
GPU = {
    ("Forward, head size 128", "16384 causal"): "16,384 tokens, causal, size 128",
    ("Forward, head size 64", "16384 causal"): "the same, size 64",
    ("Decode", "16 × 8192"): "one token against 8,192, batch 16, 32 / 8 heads",
}


def make() -> list[Path]:
    return [path for page in (gpu(), native(), readme()) for path in page.write()]


def gpu() -> Page:
    """docs/gpu.md with the tables of an H200, as bench/gpu.py --write left them."""
    page = Page(DOCS / "gpu.md")
    for name in ("h200-training", "h200-small", "h200-masks", "h200-kinds", "h200"):
        page = _with(page, name)
    return page


def native() -> Page:
    """docs/native.md with the tables of bench/cpu.py --save, the machine's best and AVX2."""
    return _with(_with(Page(DOCS / "native.md"), "cpu"), "cpu-avx2")


def _with(page: Page, name: str) -> Page:
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8").strip("# \n")
    page.blocks[name] = text.replace("](cpu", "](../bench/results/cpu")
    return page


def readme() -> Page:
    """The README's table: output and health here, against the output alone."""
    page = Page(DOCS.parent / "README.md")
    lines = {line["name"]: line for line in json.loads((RESULTS / "cpu.json").read_text())["lines"]}
    rows = [
        ["two CPU cores", words, "torch SDPA", f"{lines[name]['ratio']:.2f}×"]
        for name, words in CPU.items()
    ]
    for (title, label), words in GPU.items():
        rows.append(["H200, bfloat16", words, "cuDNN", _h200(title, label)])
    page.table("speed", ["on", "work", "against", "speed"], rows)
    return page


def _h200(title: str, label: str) -> str:
    """The ratio in the first "limelight, health" cell of a row of bench/results/h200.md."""
    text = (RESULTS / "h200.md").read_text(encoding="utf-8")
    section = text[text.index(f"### {title}") :].split("\n\n")[1]
    heading, _, *rows = (line.strip("| ").split(" | ") for line in section.splitlines())
    row = next(row for row in rows if row[0] == label)
    return row[heading.index("limelight, health")].split("(")[1].strip(")")
