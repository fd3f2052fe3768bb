"""Captures and logs that the studio's tests look at: small, odd-sized, and some of them hostile."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from limelight import Causal
from limelight.capture import Capture, Grid, Site

HOSTILE = (
    '"><img src=x onerror=alert(1)>', "</script><script>alert(2)</script>", "שלום‮evil", "a\x00b",
    "👩‍🔬🏳️‍🌈", "<!--", "]]>", "&lt;b&gt;", "${7*7}", "\\u003c", " \n\t", "",
)  # fmt: skip
LAYERS, HEADS, KEY_HEADS, SIZE = 3, 4, 2, 8


def tokens(count: int) -> tuple[str, ...]:
    """Plain words, with every hostile text among them."""
    words = [
        "the",
        "curious",
        "cat",
        "watched",
        "a",
        "bird",
        "from",
        "behind",
        "the",
        "old",
        "garden",
        "wall",
        "while",
        "it",
        "sang",
    ]
    return tuple(
        HOSTILE[i] if i < len(HOSTILE) else f" {words[i % len(words)]}" for i in range(count)
    )


def text_capture(count: int = 23, seed: int = 7) -> Capture:
    """A decoder's capture: causal, two query heads on each key head; one head saturated."""
    rng = np.random.default_rng(seed)
    sites = []
    for layer in range(LAYERS):
        query = rng.standard_normal((1, HEADS, count, SIZE)).astype(np.float32)
        query[:, 1] *= 40.0 if layer == 1 else 3.0
        sites.append(
            Site(
                f"layers.{layer}.attention", layer, query,
                rng.standard_normal((1, KEY_HEADS, count, SIZE)).astype(np.float32),
                rng.standard_normal((1, KEY_HEADS, count, 5)).astype(np.float32),
                mask=Causal(), tokens=(tokens(count),),
            )
        )  # fmt: skip
    source = {"model": "<b>sample</b>", "text": "".join(tokens(count)), "licence": "none"}
    return Capture(tuple(sites), tokens=(tokens(count),), source=source)


def batch_capture(count: int = 13) -> Capture:
    """Two entries: the second one's heads are saturated, the first one's are not."""
    rng = np.random.default_rng(5)
    sites = []
    for layer in (3, 17):
        query, key = rng.standard_normal((2, 2, 3, count, SIZE)).astype(np.float32)
        query[1] *= 40.0
        sites.append(Site(f"layers.{layer}", layer, query, key, mask=Causal()))
    words = tuple(tuple(f" {letter}{n}" for n in range(count)) for letter in "ab")
    return Capture(tuple(sites), tokens=words, source={"model": "batch sample"})


def long_capture(count: int = 4099, heads: int = 1, size: int = 64) -> Capture:
    """Longer than a screen: bands, a sink and a faint diagonal, without values."""
    rng = np.random.default_rng(3)
    place = np.arange(count)[:, None] / 90.0
    wave = np.concatenate([np.cos(place * k) for k in range(1, size // 2 + 1)]
                          + [np.sin(place * k) for k in range(1, size // 2 + 1)], axis=1)  # fmt: skip
    noise = rng.standard_normal((2, heads, count, size)) * 0.5
    query, key = (wave + noise[i] for i in (0, 1))
    key[:, 0] *= 3
    site = Site(
        "long", 0, query[None].astype(np.float32), key[None].astype(np.float32), mask=Causal()
    )
    words = (tuple(f" w{i}" for i in range(count)),)
    return Capture((site,), tokens=words, source={"model": "long sample", "text": f"{count} words"})


def image_capture(side: int = 7) -> Capture:
    """A vision model's: a class token before the patches, and the picture they are cut from."""
    rng = np.random.default_rng(11)
    count = side * side + 1
    rows, columns = np.divmod(np.arange(count - 1), side)
    place = np.stack(
        [np.cos(rows * 0.8), np.sin(rows * 0.8), np.cos(columns * 0.8), np.sin(columns * 0.8)], 1
    )
    place = np.concatenate([np.zeros((1, 4)), place]) * 2.5
    sites = tuple(
        Site(f"encoder.{layer}", layer,
             (place + 0.3 * rng.standard_normal((1, 3, count, 4))).astype(np.float32),
             (place + 0.3 * rng.standard_normal((1, 3, count, 4))).astype(np.float32))
        for layer in range(2)
    )  # fmt: skip
    y, x = np.mgrid[0:112, 0:112] / 111.0
    picture = np.stack([255 * x, 255 * (1 - y), 128 + 127 * np.sin(9 * x * y)], -1).astype(np.uint8)
    labels = (("[class]", *(f"{r},{c}" for r, c in zip(rows, columns, strict=True))),)
    return Capture(sites, tokens=labels, image=picture[None], grid=Grid(side, side, 1),
                   source={"model": "vision sample"})  # fmt: skip


def run_lines(steps: int = 40, layers: int = 3, heads: int = 4) -> list[dict[str, Any]]:
    """A training run in which one head saturates, raises an alarm, and comes back."""
    lines: list[dict[str, Any]] = [
        {"kind": "run", "format": "limelight.monitor", "version": 1, "every": 10, "model": "GPT",
         "started": 1763183000.0, "alarms": [{"name": "one_hot", "figure": "saturated", "above": True,
                                              "raise_at": 0.9, "clear_at": 0.7, "patience": 1}]},
    ]  # fmt: skip
    on = False
    for n in range(steps):
        sites = []
        for layer in range(layers):
            bad = [math.exp(-((n - 0.6 * steps) / (0.12 * steps)) ** 2) if (layer, h) == (1, 2) else
                   0.05 + 0.04 * math.sin(n / 5 + h + layer) for h in range(heads)]  # fmt: skip
            sites.append({
                "name": f"blocks.{layer}.attention", "layer": layer, "heads": heads, "rows": 256,
                "judged": [255] * heads, "not_a_number": [0] * heads,
                "max_logit": [4 + 60 * b for b in bad], "max_prob": [0.2 + 0.78 * b for b in bad],
                "entropy": [3 * (1 - b) for b in bad], "spread": [1 - b for b in bad],
                "peaked": [b / 3 for b in bad], "saturated": bad,
            })  # fmt: skip
        lines.append({"kind": "record", "step": 10 * n, "time": 1763183000.0 + n, "ranks": 1,
                      "loss": 4 * math.exp(-n / 20) + 1, "lr": 0.001, "sites": sites})  # fmt: skip
        value = sites[1]["saturated"][2] if layers > 1 and heads > 2 else 0.0
        if (value > 0.9) != on and (value > 0.9 or value < 0.7):
            on = not on
            lines.append({"kind": "alarm", "event": "raised" if on else "cleared", "step": 10 * n,
                          "time": 1763183000.0 + n, "alarm": "one_hot", "site": "blocks.1.attention",
                          "layer": 1, "head": 2, "figure": "saturated", "value": value,
                          "bound": 0.9 if on else 0.7})  # fmt: skip
    return lines


def write_lines(path: Path, lines: list[dict[str, Any]], mode: str = "w") -> None:
    with path.open(mode) as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


def fill(folder: Path) -> None:
    """The folder that the tests' studio is started with."""
    text_capture().save(folder / "sample.safetensors")
    batch_capture().save(folder / "batch.safetensors")
    long_capture().save(folder / "long.safetensors")
    (folder / "deeper").mkdir()
    image_capture().save(folder / "deeper" / "vision.safetensors")
    write_lines(folder / "run.jsonl", run_lines())
    (folder / "notes.txt").write_text("secret")
    (folder / "broken.safetensors").write_bytes(b"\xff" * 64)
    (folder / "not-a-run.jsonl").write_text('{"kind": "other"}\n')
