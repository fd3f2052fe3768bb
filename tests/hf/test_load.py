"""Models are found where they are, and only safe ones are loaded."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from limelight import hf
from limelight.errors import FileError
from limelight.hf import places
from tests.hf import folders


def test_a_folder(tmp_path: Path) -> None:
    loaded = hf.load(folders.text_model(tmp_path / "small"))
    assert loaded.name == "small"
    assert type(loaded.model).__name__ == "LlamaForCausalLM"
    found = loaded.capture("the curious cat watched the bird")
    assert found.tokens == (("the", "curious", "cat", "watched", "the", "bird"),)
    assert found.source["text"] == "the curious cat watched the bird"
    assert str(tmp_path) not in json.dumps(found.source)


def test_an_encoder_and_decoder_writes_by_itself(tmp_path: Path) -> None:
    found = hf.load(folders.text_model(tmp_path, "t5")).capture("the cat")
    kinds = [site.kind for site in found]
    assert kinds.count("cross") == 2
    assert found.tokens == (("the", "cat"),)
    assert len(found.query_tokens[0]) == found["decoder.block.0.layer.1.EncDecAttention"].queries


def test_images(tmp_path: Path) -> None:
    loaded = hf.load(folders.vision_model(tmp_path / "vit"))
    found = loaded.capture(image=folders.picture(tmp_path / "a.png"))
    assert found.grid == places_grid()
    assert found.image.shape == (1, 20, 20, 3)
    assert found.image[0, 2, 2].tolist() == [20, 220, 20]
    assert found.image[0, -2, -2].tolist() == [200, 30, 30]
    with pytest.raises(ValueError, match="has no tokenizer: give it an image"):
        loaded.capture("a text")
    for bad, why in ((tmp_path / "none.png", "there is no such file"),
                     (tmp_path / "vit" / "config.json", "not an image that can be read")):  # fmt: skip
        with pytest.raises(FileError, match=why):
            loaded.capture(image=bad)


def places_grid() -> Any:
    from limelight.capture import Grid

    return Grid(5, 5, 1)


def test_a_processor_of_the_models_own(tmp_path: Path) -> None:
    folder = folders.vision_model(tmp_path)
    tf.ViTImageProcessor(size={"height": 20, "width": 20}, image_mean=[0.4] * 3,
                         image_std=[0.3] * 3).save_pretrained(folder)  # fmt: skip
    found = hf.load(folder).capture(image=folders.picture(tmp_path / "a.png"))
    np.testing.assert_allclose(found.image[0, 2, 2], [20, 220, 20], atol=1)
    image = pytest.importorskip("PIL.Image")
    loaded, drawn = hf.load(folder), image.open(tmp_path / "a.png")
    for mode in ("RGB", "RGBA", "CMYK", "L", "P", "1"):
        other = loaded.capture(image=drawn.convert(mode))
        assert other.image.shape == found.image.shape
    for bad in (np.zeros((8, 8, 3), np.uint8), 5, b"a.png"):
        with pytest.raises(ValueError, match=r"the image is an? .*: give a file's path or a PIL"):
            loaded.capture(image=bad)


class Trap:
    def __reduce__(self) -> Any:
        raise AssertionError("a pickle was loaded")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_pickles_are_never_loaded(name: str, tmp_path: Path) -> None:
    folder = folders.text_model(tmp_path)
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    (folder / name).write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(FileError, match="pickles only, and limelight never loads those"):
        hf.load(folder)


def test_safetensors_win_over_a_pickle_beside_them(tmp_path: Path, monkeypatch: Any) -> None:
    folder = folders.text_model(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"never read")

    def loaded(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was loaded")

    monkeypatch.setattr(torch, "load", loaded)
    monkeypatch.setattr(pickle, "load", loaded)
    hf.load(folder)


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path) -> None:
    folder = folders.text_model(tmp_path)
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "architectures": ["Evil"],
               "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileError, match="cannot be loaded"):
        hf.load(folder)


def test_weights_cut_short(tmp_path: Path) -> None:
    folder = folders.text_model(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(FileError, match="cannot be loaded") as caught:
        hf.load(folder)
    assert "\n" not in str(caught.value)


def test_places_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no model there: name a folder that has a config\.json"):
        hf.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileError, match="no weights"):
        hf.load(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "a.gguf").write_bytes(b"GGUX")
    with pytest.raises(FileError, match=r"holds GGUF files: name one, such as .*a\.gguf"):
        hf.load(tmp_path)
    with pytest.raises(FileError, match="not a GGUF file"):
        hf.load(tmp_path / "a.gguf")
    (tmp_path / "a.gguf").write_bytes(b"GGUF\3\0\0\0cut")
    with pytest.raises(FileError, match="damaged: its header is malformed"):
        hf.load(tmp_path / "a.gguf")


def test_names_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=r"there is no model 'nobody': .*downloads nothing$"):
        hf.load("nobody")
    with pytest.raises(FileError, match="hf download someone/something"):
        hf.load("someone/something")


@pytest.mark.parametrize("name", places.BUILTIN)
def test_a_package_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places.importlib.util, "find_spec", lambda *_: None)
    command = places.BUILTIN[name].install
    with pytest.raises(FileError, match=f"the model {name} is not installed: {command}"):
        hf.load(name)


def test_a_name_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot as the hub's own tool lays it out."""
    home = tmp_path / "hub" / "models--someone--small"
    snapshot = home / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    folders.text_model(snapshot)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    import huggingface_hub

    own = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download",
        lambda name, **kw: own(name, cache_dir=tmp_path / "hub", **kw),
    )  # fmt: skip
    assert hf.load("someone/small").name == "someone/small"


def test_without_transformers_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.57.1")
    with pytest.raises(ValueError, match=r"needs transformers 5.4 or later, and here is 4\.57\.1: "
                                         r"in limelight's checkout, pip install -e '\.\[models\]'"):  # fmt: skip
        hf.load  # noqa: B018
    monkeypatch.undo()
    assert hf.missing() is None


def test_a_gguf_can_be_saved_and_cast(smollm2: Any, tmp_path: Path) -> None:
    model = smollm2.model
    assert model.dtype == torch.float32
    assert not getattr(model, "is_quantized", False)
    assert "quantization_config" not in model.config.to_dict()


def test_what_a_model_cannot_be_asked(minilm: Any) -> None:
    for wrong, message in (
        (lambda: hf.load(None), "named by a text or a path, and this is a NoneType"),  # type: ignore[arg-type]
        (lambda: minilm.capture(["one", "two"]), "the text is a list: give one string"),
        (lambda: minilm.capture("one", tokens=-1), "tokens=-1: give the number of tokens to keep"),
        (lambda: minilm.capture("one", generate=-1), "generate=-1: give the number"),
        (lambda: minilm.capture("one", generate="x"), "generate='x': give the number"),
        (lambda: minilm.capture("one", tokens=1.5), "tokens=1.5: give the number"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
