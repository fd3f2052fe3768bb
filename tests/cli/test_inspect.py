"""limelight inspect, on models of a few thousand numbers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
from typer.testing import CliRunner

from limelight.capture import Capture, Site
from limelight.cli import app
from limelight.cli._looking import listed_layers
from limelight.errors import ArgumentError

pytest.importorskip("transformers")
from tests.hf import folders

TEXT = "the curious cat watched the bird ( the curious cat )"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(folders.text_model(tmp_path_factory.mktemp("models") / "small"))


def run(*args: Any) -> Any:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["inspect", *map(str, args)])


def test_what_a_person_sees(model: str, tmp_path: Path) -> None:
    result = run(model, "--text", TEXT, "--save", tmp_path / "cap.safetensors")
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    assert "small  2 layers × 6 heads, 11 × 11 tokens" in text
    assert "largest weight (mean), layers down, heads across" in text
    for kind in ("previous", "sink", "induction", "bracket", "diagonal", "uniform"):
        assert kind in text
    assert "saved to" in text
    assert f"limelight studio --folder {tmp_path} shows it" in text
    assert max(map(len, text.replace(str(tmp_path), "").splitlines())) <= 80
    assert len(Capture.open(tmp_path / "cap.safetensors")) == 2


def test_json_and_a_saved_capture(model: str, tmp_path: Path) -> None:
    target = tmp_path / "cap.safetensors"
    result = run(model, "--text", TEXT, "--layers", "-1", "--json", "--save", target)
    found = json.loads(result.stdout)
    assert [site["layer"] for site in found["sites"]] == [1]
    assert found["saved"] == str(target)
    assert len(found["health"]["sites"][0]["heads"]) == 6
    assert {kind["kind"] for kind in found["kinds"]["kinds"]} >= {"previous", "sink", "induction"}
    again = json.loads(run(target, "--json").stdout)
    assert again["sites"] == found["sites"]
    assert again["health"] == found["health"]
    refused = run(target, "--text", "a", "--layers", "0", "--tokens", "3", "--values").stderr
    assert "capture, made already: leave out --text, --layers, --tokens, --values" in refused
    again = run(target, "--save", target)
    assert again.exit_code == 2
    assert "is there already: give --force to replace it" in again.stderr
    copy = tmp_path / "copy.safetensors"
    copy.write_text("old")
    assert run(target, "--save", copy, "--force").exit_code == 0
    assert len(Capture.open(copy)) == 1
    run(model, "--text", TEXT, "--save", tmp_path / "half.safetensors", "--half")
    assert Capture.open(tmp_path / "half.safetensors")[0].key.dtype == "float16"


def test_files_and_generation(model: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    found = json.loads(run(model, "--file", tmp_path / "a.txt", "--tokens", 5, "--json").stdout)
    assert found["sites"][0]["keys"] == 5
    found = json.loads(run(model, "--text", "the cat", "--generate", 3, "--json").stdout)
    assert found["sites"][0]["keys"] == 4


def test_an_image(tmp_path: Path) -> None:
    vit = folders.vision_model(tmp_path / "vit")
    target = tmp_path / "cap.safetensors"
    image = folders.picture(tmp_path / "a.png")
    result = run(vit, "--image", image, "--save", target)
    assert result.exit_code == 0, result.stderr
    assert Capture.open(target).grid is not None


def test_a_table_for_other_programs(tmp_path: Path) -> None:
    target = tmp_path / "health.csv"
    result = run("llama", "--csv", target, "--json")
    assert result.exit_code == 0, result.stderr
    rows = target.read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("site,layer,head,rows,")
    assert len(rows) == 1 + sum(
        len(site["heads"]) for site in json.loads(result.stdout)["health"]["sites"]
    )


def test_a_narrow_terminal_gets_the_table_in_pieces(model: str) -> None:
    result = CliRunner(env={"COLUMNS": "30"}).invoke(app, ["inspect", model, "--text", TEXT])
    assert result.stdout.count("─\n") == 2


def test_layers_in_words() -> None:
    assert listed_layers("0, 3,10-12,-1") == [0, 3, 10, 11, 12, -1]
    assert listed_layers(None) is None
    for wrong in ("7-3", "-9-2", "1--1"):
        with pytest.raises(ArgumentError, match=f"'{wrong}' is no layer: write 0,3,10-14 or -1"):
            listed_layers(f"0,{wrong}")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nobody", "--text", "a"], "there is no model 'nobody'"),
        (["nobody"], "there is no model 'nobody'"),
        (["nope.gguf"], "there is no model 'nope.gguf'"),
        (["."], "no model there"),
        ([""], "the model's name is empty"),
        (["bert", "--half"], "--half is how --save writes"),
        (
            ["bert", "--save", "notes.txt"],
            "notes.txt ends in .txt: give a name that ends in .safetensors",
        ),
        (["MODEL"], "give the model one of --text, --file and --image, and got none"),
        (["MODEL", "--text", "a", "--file", "b"], "and got --text and --file"),
        (["MODEL", "--file", "none.txt"], "none.txt: cannot be read"),
        (["MODEL", "--image", "none.png"], "takes no images"),
        (["MODEL", "--text", ""], "the text is empty"),
        (["MODEL", "--text", "a", "--layers", "x"], "'x' is no layer"),
        (["MODEL", "--text", "a", "--layers", "7"], "layer 7 does not exist"),
        (["MODEL", "--text", "a", "--figure", "colour"], "there is no figure 'colour'"),
        (["MODEL", "--text", "a", "--save", "no/such/a.safetensors"], "there is no folder"),
        (["MODEL", "--text", "a", "--generate", "-1"], "--generate"),
    ],
)
def test_one_line_for_what_cannot_be_done(
    args: list[str], message: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*(model if arg == "MODEL" else arg for arg in args))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_capture_cut_short(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\x50\0\0\0\0\0\0\0{")
    result = run(tmp_path / "a.safetensors")
    assert result.exit_code == 2
    assert "the file is damaged: it ends inside its header" in result.stderr


def test_a_file_that_is_no_text(model: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00\x80")
    assert "not UTF-8 text" in run(model, "--file", tmp_path / "a.txt").stderr


def test_rows_that_are_not_a_number_are_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 1, 3, 5, 4))
    Capture((Site("layer 0", 0, query, key),)).save(tmp_path / "sound.safetensors")
    query[0, 1, 2] = np.nan
    Capture((Site("layer 0", 0, query, key),)).save(tmp_path / "strange.safetensors")
    assert "not a number" not in run(tmp_path / "sound.safetensors").stdout
    told = run(tmp_path / "strange.safetensors").stdout
    assert "0 saturated, 1 with rows that are not a number\n" in told
