"""Files found by attack, each with what it did; and sound ones, from which others are mutated."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from limelight import Causal, Lengths
from limelight.capture import Capture, Grid, Site
from limelight.capture import tensors as container
from limelight.survey import Survey
from tests.studio import samples
from tests.survey import samples as surveys

Change = Callable[[dict[str, Any], dict[str, Any]], None]


def sound_capture() -> Capture:
    """Small, with all that a file can hold: masks of two kinds, texts, an image, facts."""
    draw = np.random.default_rng(1)
    cells = draw.random((1, 1, 5, 5)) < 0.7
    sites = [
        Site(f"layer.{n}", n, *draw.standard_normal((3, 2, 2, 5, 4)).astype(np.float32), mask=mask)
        for n, mask in enumerate((Causal() & Lengths([5, 3]), cells, None))
    ]
    picture = draw.integers(0, 255, (2, 4, 4, 3), np.uint8)
    words = (("the", " cat", " sat", " on", "‮ it"),) * 2
    source = {
        "model": "sound",
        "text": "the cat sat",
        "title": "A sound one",
        "steps": [1, 2.5, None],
    }
    return Capture(tuple(sites), words, image=picture, grid=Grid(2, 2, 1), source=source)


def saved(capture: Capture | Survey) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        capture.save(Path(folder) / "a")
        return (Path(folder) / "a").read_bytes()


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The table of tensors, what the capture means, and the data."""
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    meaning = json.loads(table.pop("__metadata__")["limelight"])
    return table, meaning, data[8 + length :]


def packed(table: Any, meaning: Any, data: bytes) -> bytes:
    """A file of these, without a checksum: whoever edits a file can also make one."""
    text = meaning if isinstance(meaning, str) else json.dumps(meaning)
    header = json.dumps({"__metadata__": {"limelight": text}, **table}).encode()
    return len(header).to_bytes(8, "little") + header + data


def edited(change: Change, capture: Capture | None = None) -> bytes:
    """A sound capture after change(meaning, tensors)."""
    with tempfile.TemporaryDirectory() as folder:
        (capture or sound_capture()).save(Path(folder) / "a")
        tensors, texts = container.read(Path(folder) / "a")
        meaning = json.loads(texts["limelight"])
        change(meaning, tensors)
        container.write(Path(folder) / "b", tensors, {"limelight": json.dumps(meaning)})
        return (Path(folder) / "b").read_bytes()


def empty(shape: list[int], sites: int = 1, keys: list[int] | None = None) -> bytes:
    """Sites whose queries and keys have axes and no numbers."""
    shapes = {"q": shape, "k": keys or shape}
    table = {
        name: {"dtype": "F32", "shape": axes, "data_offsets": [0, 0]}
        for name, axes in shapes.items()
    }
    site = {"name": "a", "layer": 0, "kind": "self", "scale": 1.0, "softcap": None, "mask": None,
            "tokens": None, "query_tokens": None, "tensors": {"query": "q", "key": "k"}}  # fmt: skip
    meaning = {"format": "limelight-capture", "version": 1, "sites": [site] * sites, "masks": [], "labels": [],
               "tokens": None, "query_tokens": None, "grid": None, "image": False, "source": {}}  # fmt: skip
    return packed(table, meaning, b"")


def facts(text: str) -> bytes:
    """A capture whose facts are this JSON."""
    table, meaning, data = parts(saved(sound_capture()))
    meaning["source"] = "FACTS"
    return packed(table, json.dumps(meaning).replace('"FACTS"', text), data)


def mentioned(times: int) -> bytes:
    """One tensor of bits that many masks name, and two sites: each mask decoded it for itself."""

    def change(meaning: dict[str, Any], tensors: dict[str, Any]) -> None:
        side = 2048
        tensors["bits"] = np.zeros(side * side // 8, np.uint8)
        tensors["q"] = np.zeros((1, 1, side, 1), np.float32)
        meaning["masks"] = [{"is": "cells", "bits": "bits", "shape": [side, side]}] * times
        meaning["sites"] = [{**meaning["sites"][2], "tensors": {"query": "q", "key": "q"}, "mask": n,
                             "tokens": None, "query_tokens": None} for n in (0, times - 1)]  # fmt: skip

    return edited(change)


def masked(tree: Any, side: int = 5, **tensors: Any) -> bytes:
    """A capture whose first site has this mask, on side × side."""

    def change(meaning: dict[str, Any], held: dict[str, Any]) -> None:
        held.update(tensors)
        held["q"] = np.zeros((1, 1, side, 1), np.float32)
        meaning["masks"] = [tree]
        meaning["sites"] = [{**meaning["sites"][2], "tensors": {"query": "q", "key": "q"}, "mask": 0,
                             "tokens": None, "query_tokens": None}]  # fmt: skip

    return edited(change)


def _set(*way: Any) -> bytes:
    """A sound capture with one value of its description replaced."""
    *path, last, value = way

    def change(meaning: Any, _: Any) -> None:
        for step in path:
            meaning = meaning[step]
        meaning[last] = value

    return edited(change)


def _tensor(name: str, array: Any) -> bytes:
    return edited(lambda _, tensors: tensors.update({name: array}))


# Refused when opened, with a reason, in little memory and time.
CAPTURES: dict[str, Callable[[], bytes]] = {
    "axes beyond all bounds where one is 0": lambda: empty([10**12, 0, 4, 8]),
    "a batch without numbers": lambda: empty([2**40, 1, 1, 0]),
    "keys without numbers": lambda: empty([1, 1, 2**31, 0]),
    "10**15 keys of no head": lambda: empty([1, 0, 4, 8], keys=[1, 0, 10**15, 8]),
    "many sites of one tensor": lambda: empty([1, 1, 2**19, 0], sites=2_000),
    "too many sites": lambda: empty([1, 1, 1, 0], sites=20_000),
    "an image of 0 x 0": lambda: _tensor("image", np.zeros((1, 0, 0, 3), np.uint8)),
    "patches without end": lambda: _set("grid", {"rows": 2**30, "columns": 2**30, "start": 0}),
    "no patches": lambda: _set("grid", {"rows": 0, "columns": 0, "start": 0}),
    "key lengths of 10**15": lambda: masked({"is": "lengths", "keys": 10**15, "queries": None}),
    "key lengths of 10**15 in a tensor": lambda: masked(
        {"is": "lengths", "keys": "n", "queries": None}, n=np.array([10**15])),
    "a prefix of 2**62": lambda: masked({"is": "prefix", "n": 2**62}),
    "a window of 10**18": lambda: masked(
        {"is": "window", "left": 10**18, "right": 0, "align": "top-left"}),
    "documents scattered over all keys": lambda: masked(
        {"is": "documents", "ids": "ids", "queries": None}, 2**17, ids=np.arange(2**17) % 2),
    "intervals against intervals": lambda: masked(
        {"is": "both", "masks": [{"is": "intervals", "spans": "s", "nk": 20_000}] * 2}, 20_000,
        s=np.tile(np.repeat(np.arange(0, 20_000, 20, dtype=np.int32), 2).reshape(1, 1, 1, 1_000, 2),
                  (1, 1, 20_000, 1, 1))[:, :, :, ::10]),
    "NaN in facts": lambda: facts('{"a": NaN}'),
    "infinity in facts": lambda: facts('{"a": [1e999]}'),
    "half a character in facts": lambda: facts('{"a": "\\ud800"}'),
    "half a character in the title": lambda: facts('{"title": "\\ud800"}'),
    "half a character in the name of a fact": lambda: facts('{"\\ud800": 1}'),
    "a whole number of 5,000 digits": lambda: facts('{"a": %s}' % ("9" * 5_000)),
    "a whole number of 70 bits": lambda: facts(f'{{"a": {2**70}}}'),
    "facts 500 deep": lambda: facts('{"a": %s}' % ("[" * 500 + "]" * 500)),
    "facts 100,000 deep": lambda: facts('{"a": %s}' % ("[" * 100_000)),
    "a fact twice": lambda: facts('{"a": 1, "a": 2}'),
    "a fact of 2 MB": lambda: facts('{"a": "%s"}' % ("x" * 2**21)),
    "facts that are a list": lambda: facts("[1, 2]"),
    "3,000,000 facts": lambda: facts('{"a": [%s1]}' % ("1," * 3_000_000)),
    "half a character among the tokens": lambda: _set("labels", 0, 0, 0, "\ud800"),
    "a token of 20,000 characters": lambda: _set("labels", 0, 0, 0, "x" * 20_000),
    "a name of 2,000 characters": lambda: _set("sites", 0, "name", "x" * 2_000),
    "a layer of 2**60": lambda: _set("sites", 0, "layer", 2**60),
    "a header of empty lists": lambda: packed({"x": []}, "[" + "[]," * 3_000_000 + "[]]", b""),
    "nine axes": lambda: packed({"x": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}}, {}, b"\0" * 4),
    "a tensor's name of 2,000 characters": lambda: packed(
        {"x" * 2_000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, {}, b"\0" * 4),
    "a header that is not there": lambda: (2**24).to_bytes(8, "little") + b"{}",
    "nothing": lambda: b"",
}  # fmt: skip

# Opened, since nothing in them is wrong; what it costs is bounded.
SOUND_CAPTURES: dict[str, Callable[[], bytes]] = {
    "sound": lambda: saved(sound_capture()),
    "one tensor that 500 masks name": lambda: mentioned(500),
    "markup and escapes in every text": lambda: _set(
        "source", {"model": "[/x][bold]\x1b[31m‮evil", "text": "[red]\x9b2J\u2028"}),
    "a name that is markup": lambda: _set("sites", 0, "name", "[/x][bold]\x1b]0;evil\x07"),
}  # fmt: skip


def log(*lines: dict[str, Any] | bytes) -> bytes:
    return b"".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
    )


def heads(count: int, **more: Any) -> dict[str, Any]:
    figures = ("max_logit", "max_prob", "entropy", "spread", "peaked", "saturated", "not_a_number")
    return {"name": "a", "layer": 0, "heads": count, **dict.fromkeys(figures, [0] * count), **more}


RUN, *RECORDS = samples.run_lines(6)
RECORD = RECORDS[0]
LOGS: dict[str, Callable[[], bytes]] = {
    "sound": lambda: log(*samples.run_lines(12)),
    "a first line 100,000 deep": lambda: b'{"kind":"run","alarms":' + b"[" * 100_000 + b"\n",
    "markup in the names": lambda: log(
        {**RUN, "model": "[/x][bold]\x1b[31m"}, {**RECORD, "sites": [heads(3, name="[/x][bold]‮")]}),
    "records of a few bytes after one of 65,536 heads": lambda: log(
        RUN, {**RECORD, "sites": [heads(65_536)]}) + b'{"kind":"record","step":1,"time":0,"sites":[]}\n' * 5_000,
    "numbers beyond use": lambda: log(RUN, {**RECORD, "loss": 1e308, "ranks": "many", "extra": 10**400}),
    "spreads below 0 and beyond 1": lambda: log(
        RUN, {**RECORD, "sites": [heads(3, spread=[-5, 1e308, None], max_logit=[-1e308, 1e308, 0])]}),
    "an alarm of a head that is not there": lambda: log(
        RUN, {**RECORD, "step": 9, "sites": [heads(2)]},
        {"kind": "alarm", "event": "raised", "step": 1, "time": 0.0, "alarm": "x", "site": "a", "layer": 0,
         "head": 2**40, "figure": "spread", "value": 1.0, "bound": 0.5}),
    "a line without end": lambda: log(RUN) + b"x" * (9 << 20),
    "a version of the future": lambda: log({**RUN, "version": 10**9}),
    "half a character": lambda: log(RUN).replace(b'"GPT"', b'"\\ud800"'),
    "nothing": lambda: b"",
}  # fmt: skip


def gguf(
    facts: list[bytes], tensors: list[bytes] | None = None, counts: tuple[int, int] | None = None
) -> bytes:
    made = tensors or []
    told = counts or (len(made), len(facts))
    return struct.pack("<4sIQQ", b"GGUF", 3, *told) + b"".join(facts) + b"".join(made) + b"\0" * 256


def gguf_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_fact(name: str, kind: int, value: bytes) -> bytes:
    return gguf_text(name) + struct.pack("<I", kind) + value


def gguf_tensor(name: str, shape: tuple[int, ...], place: int = 0) -> bytes:
    return gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, place)


GGUFS: dict[str, Callable[[], bytes]] = {
    "sound": lambda: gguf([gguf_fact("general.architecture", 8, gguf_text("llama")),
                           gguf_fact("llama.block_count", 4, struct.pack("<I", 2)),
                           gguf_fact("x", 9, struct.pack("<IQ3f", 6, 3, 1, 2, 3))],
                          [gguf_tensor("a", (4, 8))]),
    "2**60 facts": lambda: gguf([], counts=(0, 2**60)),
    "2**60 tensors": lambda: gguf([], counts=(2**60, 0)),
    "a list of 2**60": lambda: gguf([gguf_fact("a", 9, struct.pack("<IQ", 0, 2**60))]),
    "a text of 2**63": lambda: gguf([struct.pack("<Q", 2**63)]),
    "lists in lists": lambda: gguf([gguf_fact("a", 9, struct.pack("<IQ", 9, 1) * 5_000)]),
    "a tensor of 2**60 x 2**60": lambda: gguf([], [gguf_tensor("a", (2**60, 2**60))]),
    "a tensor of 4 billion axes": lambda: gguf([], [gguf_text("a") + struct.pack("<I", 2**32 - 1)]),
    "a list of 70,000,000 bytes": lambda: gguf(
        [gguf_fact("a", 9, struct.pack("<IQ", 0, 70_000_000) + b"\0" * 70_000_000)]),
    "an alignment of 0": lambda: gguf([gguf_fact("general.alignment", 4, struct.pack("<I", 0))]),
    "nothing but its name": lambda: b"GGUF",
}  # fmt: skip


def llama(width: int = 8, layers: int = 1) -> bytes:
    """A model that runs, all of its weights the same numbers in the same place."""
    letters = [*"thecaĠ"]
    whole = {"context_length": 64, "embedding_length": width, "block_count": layers}
    whole["attention.head_count"] = 2
    said = [
        gguf_fact("general.architecture", 8, gguf_text("llama")),
        *(gguf_fact(f"llama.{name}", 4, struct.pack("<I", n)) for name, n in whole.items()),
        gguf_fact("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        gguf_fact("tokenizer.ggml.model", 8, gguf_text("gpt2")),
        gguf_fact("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 6) + b"".join(map(gguf_text, letters))),
        gguf_fact("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, 0)),
    ]  # fmt: skip
    square, row = (width, width), (width,)
    shapes = {"token_embd": (width, 6), "output_norm": row}
    for n in range(layers):
        parts = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
        shapes |= {f"blk.{n}.{part}": square for part in parts}
        shapes |= {f"blk.{n}.attn_norm": row, f"blk.{n}.ffn_norm": row}
    tensors = [gguf_tensor(f"{name}.weight", shape) for name, shape in shapes.items()]
    weights = np.random.default_rng(1).standard_normal(max(square[0] ** 2, 6 * width))
    return gguf(said, tensors) + weights.astype("<f4").tobytes()


LLAMAS: dict[str, Callable[[], bytes]] = {
    "sound": llama,
    "4,096 layers in one place": lambda: llama(256, 4_096),
}  # fmt: skip

JSONS: dict[str, Callable[[], bytes]] = {
    "sound": lambda: json.dumps({"query": [2, 1], "keys": [[2, 1], [1, 0]], "values": [[10, 0], [0, 10]],
                                 "tokens": ["a", "b"], "causal": False}).encode(),
    "lists 100,000 deep": lambda: b'{"query":' + b"[" * 100_000,
    "half a character": lambda: b'{"query":[1],"keys":[[1]],"values":[[1]],"tokens":["\\ud800"]}',
    "markup": lambda: b'{"query":[1],"keys":[[1]],"values":[[1]],"tokens":["[/x][bold]\\u001b[31m"]}',
    "a number of 100,000 digits": lambda: b'{"query":[' + b"9" * 100_000 + b'],"keys":[[1]],"values":[[1]]}',
    "empty lists": lambda: b'{"query":[],"keys":[[]],"values":[[]]}',
}  # fmt: skip

CSVS: dict[str, Callable[[], bytes]] = {
    "sound": lambda: b"query,2,1\nkey,2,1\nkey,1,0\nvalue,10,0\nvalue,0,10\n",
    "a field of 200,000 signs": lambda: b"query," + b"1" * 200_000 + b"\nkey,1\nvalue,1\n",
    "a quote that is not closed": lambda: b'query,"1\nkey,1\nvalue,1\n',
    "a NUL": lambda: b"query,1\0\nkey,1\nvalue,1\n",
}  # fmt: skip

CONFIGS: dict[str, Callable[[], bytes]] = {
    "sound": lambda: json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
                                 "num_hidden_layers": 2, "vocab_size": 64, "patch_size": 4}).encode(),
    "a million layers": lambda: b'{"num_hidden_layers": 1000000}',
    "weights that are a pickle": lambda: b'{"transformers_weights": "adapter_model.bin"}',
    "5 MB of blanks": lambda: b" " * (5 << 20) + b"{}",
    "lists 100,000 deep": lambda: b'{"a":' + b"[" * 100_000,
}  # fmt: skip

RESULTS: dict[str, Callable[[], bytes]] = {
    "sound": lambda: _results("scaling"),
    "of remedies": lambda: _results("remedies"),
    "lists 100,000 deep": lambda: b'{"facts":' + b"[" * 100_000,
    "markup": lambda: _results("scaling").replace(b'"steps": ', b'"steps":"[/x]\\u001b[31m","x":', 1),
}  # fmt: skip


def _results(name: str) -> bytes:
    """The first runs of an experiment that comes along: as small as what is mutated should be."""
    data = json.loads((files("limelight.learn.experiments") / f"{name}.json").read_bytes())
    return json.dumps({**data, "runs": data["runs"][:3]}).encode()


SURVEYS: dict[str, Callable[[], bytes]] = {
    "sound": lambda: saved(surveys.made(range(6))),
    "heads without end": lambda: _survey_set("heads", [1 << 30, 2]),
    "sites without end": lambda: _survey_set("sites", ["a"] * 100_000),
    "markup": lambda: _survey_set("source", {"model": "[/x][bold]\x1b[31m\u202eevil"}),
    "a capture": lambda: saved(sound_capture()),
}  # fmt: skip


def _survey_set(name: str, value: Any) -> bytes:
    table, meaning, data = parts(SURVEYS["sound"]())
    return packed(table, {**meaning, name: value}, data)


CORPUS = {
    ".safetensors": {**CAPTURES, **SOUND_CAPTURES}, ".jsonl": LOGS, ".gguf": GGUFS, ".json": JSONS,
    ".csv": CSVS, "config.json": CONFIGS, ".survey.safetensors": SURVEYS,
    ".results.json": RESULTS, ".llama.gguf": LLAMAS,
}  # fmt: skip
