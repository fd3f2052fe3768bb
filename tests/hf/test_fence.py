"""Whatever a model folder says, no pickle is opened, and no memory is taken for a model that is none."""

from __future__ import annotations

import json
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from limelight import hf
from limelight.errors import FileError
from limelight.hf.fence import no_pickles
from tests.hf import folders

REACHED: list[str] = []


class Trap:
    """Unpickled, it says so."""

    def __reduce__(self) -> Any:
        return REACHED.append, ("a pickle was opened",)


def edit(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def sharded(folder: Path, shard: str) -> None:
    """An index whose one shard is called that; the weights stand beside it under their own name."""
    (folder / "model.safetensors").rename(folder / "real.safetensors")
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def omni(folder: Path) -> None:
    """An architecture whose own from_pretrained opens a file of speakers by torch.load."""
    torch.save({"a": Trap()}, folder / "spk_dict.pt")
    edit(folder / "config.json", model_type="qwen2_5_omni",
         architectures=["Qwen2_5OmniForConditionalGeneration"])  # fmt: skip


def adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "base_model_name_or_path": str(folder)}))  # fmt: skip
    torch.save({"a": Trap()}, folder / "adapter_model.bin")


WAYS: dict[str, Any] = {
    "a shard that is a pickle": lambda folder: sharded(folder, "shard.bin"),
    "a shard in another folder": lambda folder: sharded(folder, "../shard.safetensors"),
    "a shard that is no name": lambda folder: sharded(folder, 3),  # type: ignore[arg-type]
    "weights named in the config": lambda folder: edit(
        folder / "config.json", transformers_weights="adapter_model.bin"),
    "an adapter": adapter,
    "an architecture with a file of its own": omni,
    "a pickle for a tokenizer": lambda folder: edit(
        folder / "tokenizer_config.json", tokenizer_class="TransfoXLTokenizer"),
    "a pickle alone": lambda folder: (folder / "model.safetensors").unlink(),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_pickle_is_ever_reached(way: str, tmp_path: Path, monkeypatch: Any) -> None:
    folder = folders.text_model(tmp_path / "model")
    for name in ("shard.bin", "pytorch_model.bin", "adapter_model.bin", "vocab.pkl", "model.pt"):
        torch.save({"model.embed_tokens.weight": Trap()}, folder / name)
    WAYS[way](folder)
    REACHED.clear()
    for module, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"),
                         (pickle, "Unpickler")):  # fmt: skip
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name,
            lambda *a, real=real, what=name, **k: (REACHED.append(what), real(*a, **k))[1],
        )  # fmt: skip
    try:
        hf.load(folder)
    except FileError as error:
        assert "\n" not in str(error)  # noqa: PT017
    assert REACHED == []


def test_the_reasons(tmp_path: Path) -> None:
    for at, (way, why) in enumerate((
        ("a shard that is a pickle", r"names 'shard\.bin' as weights, and limelight opens"),
        ("weights named in the config", r"names 'adapter_model\.bin' as weights"),
        ("an adapter", "holds an adapter"),
    )):  # fmt: skip
        folder = folders.text_model(tmp_path / str(at))
        WAYS[way](folder)
        with pytest.raises(FileError, match=why):
            hf.load(folder)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1,000,000, and no model has as many"),
        ({"num_hidden_layers": 10**18}, "num_hidden_layers"),
        ({"text_config": {"num_hidden_layers": 10**6}}, "num_hidden_layers"),
        ({"depths": [2, 10**9]}, "depths is 1,000,000,000"),
        ({"layer_types": ["full_attention"] * 5_000}, "layer_types has 5,000 entries"),
        ({"vocab_size": 10**8}, r"describes 7,\d+,\d+,\d+ numbers, and its weights are"),
        ({"intermediate_size": 10**8}, "bring both from one and the same place"),
        ({"hidden_size": float("nan")}, "NaN is not a number"),
    ],
)
def test_sizes_that_no_model_has(facts: dict[str, Any], why: str, tmp_path: Path) -> None:
    folder = folders.text_model(tmp_path)
    edit(folder / "config.json", **facts)
    began = time.monotonic()
    with pytest.raises(FileError, match=why):
        hf.load(folder)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", "[" * 10_000, '{"a": 1, "a": 2}', "\xff\xfe", "1" * 10_000]
)
def test_configs_that_are_none(text: str, tmp_path: Path) -> None:
    folder = folders.text_model(tmp_path)
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match=r"config\.json: cannot be read") as caught:
        hf.load(folder)
    assert "\n" not in str(caught.value)


def test_the_fence_is_this_threads_and_comes_down(tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "a.pt")
    go, found = threading.Event(), []

    def another() -> None:
        go.wait(10)
        found.append(torch.load(tmp_path / "a.pt"))

    thread = threading.Thread(target=another)
    thread.start()
    with no_pickles("x"):
        with pytest.raises(FileError, match="x: loading it would open a pickle"):
            torch.load(tmp_path / "a.pt")
        go.set()
        thread.join()
    assert found == [{"a": 1}] == [torch.load(tmp_path / "a.pt")]
