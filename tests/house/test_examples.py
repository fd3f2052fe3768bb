"""The trainers: the same seed gives the same curve, and the shipped weights do what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = (
    "make_runs",
    "remedies",
    "scaling",
    "text",
    "train_code",
    "train_gpt",
    "train_vit",
    "training",
    "transformer",
)


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The modules of examples/, writing their checkpoints elsewhere."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import importlib

    modules = {name: importlib.import_module(name) for name in NAMES}
    monkeypatch.setattr(modules["training"], "CHECKPOINTS", tmp_path)
    for name in ("train_gpt", "train_code"):
        monkeypatch.setattr(
            modules[name], "QUICK", {"width": 32, "heads": 2, "layers": 2, "length": 32}
        )
    torch.set_num_threads(1)
    return SimpleNamespace(**modules, folder=tmp_path)


@pytest.fixture
def play(tmp_path: Path) -> Path:
    """A text that is quick to read."""
    path = tmp_path / "play.txt"
    path.write_text("".join(f"ROMEO:\nI say it is the moon, {n} times.\n\n" for n in range(300)))
    return path


@pytest.fixture
def clothes(tmp_path: Path) -> Path:
    """A folder as the package has it, of pictures drawn at random; one of them is cut short."""
    folder = tmp_path / "package" / "src" / "clothes"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for kind in range(10):
        rows = draw.integers(0, 256, (21, 28 * 28)).tolist()
        (folder / f"{kind}.json").write_text(json.dumps({"data": [*rows, rows[0][:-1]]}))
    return tmp_path / "package"


def run(module: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *arguments])
    module.main()


@pytest.mark.parametrize("name", ["gpt", "code", "vit"])
def test_the_same_seed_gives_the_same_curve(
    name: str,
    examples: Any,
    play: Path,
    clothes: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = getattr(examples, f"train_{name}")
    if name == "code":
        monkeypatch.setattr(module, "standard_library", lambda note: play.read_text())
    data = {"gpt": ["--data", str(play)], "vit": ["--data", str(clothes)]}.get(name, [])
    curves = []
    for checkpoint, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        run(
            module,
            monkeypatch,
            "--quick",
            "--steps",
            "4",
            "--seed",
            seed,
            "--name",
            checkpoint,
            *data,
        )
        weights, facts = examples.training.load(checkpoint, module.build)
        curves.append(facts["curve"])
        assert len(list(weights.parameters())) > 10
    assert curves[0] == curves[1]
    assert curves[0] != curves[2]
    printed = capsys.readouterr().out
    assert "4 steps" in printed
    assert {"gpt": "ROMEO:\n", "code": "⟦", "vit": "% of the held-out"}[name] in printed


def test_the_curve_falls(examples: Any, play: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(
        examples.train_gpt,
        monkeypatch,
        "--quick",
        "--steps",
        "80",
        "--batch",
        "8",
        "--data",
        str(play),
    )
    facts = examples.training.load("gpt-quick", examples.train_gpt.build)[1]
    assert facts["curve"][-1] < 0.7 * facts["curve"][0]
    assert facts["held_out"] < facts["curve"][0]


def test_the_monitor_writes_what_watch_reads(
    examples: Any, clothes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = examples.folder / "run.jsonl"
    run(examples.train_vit, monkeypatch, "--quick", "--steps", "2", "--journal", str(journal),
        "--data", str(clothes))  # fmt: skip
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    records = [line for line in lines if "sites" in line]
    assert [record["step"] for record in records] == [0]
    assert len(records[0]["sites"]) == 2


def test_an_experiment_run_repeats(examples: Any, play: Path) -> None:
    job = ("unit", "none", 16, 3, 4, str(play))
    first, second = (examples.scaling.run(job) for _ in range(2))
    assert first == second
    assert (
        first["saturated"][0] > examples.scaling.run(("unit", "1/√d_k", *job[2:]))["saturated"][0]
    )
    assert all(
        len(first[name]) == 4 for name in ("steps", "loss", "score_gradient", "spread", "saturated")
    )


def test_every_remedy_leaves_its_file(
    examples: Any, play: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from limelight.journal.run import Run

    monkeypatch.setattr(
        examples.remedies, "QUICK", {"width": 16, "heads": 2, "layers": 1, "length": 16}
    )
    out = examples.folder / "runs"
    run(examples.remedies, monkeypatch, "--data", str(play), "-o", str(out), "--quick", "--steps",
        "10", "--batch", "4", "--rates", "1e-2", "1.0")  # fmt: skip
    done = json.loads((out / "remedies.json").read_text())["runs"]
    assert len(done) == 2 * len(examples.remedies.REMEDIES)
    for one in done:
        assert Run.open(out / one["file"]).records == 10
    calm = [one for one in done if one["rate"] == 1e-2]
    assert not any(one["died"] for one in calm)
    assert any(one["clipped"] for one in done if one["remedy"] == "clip" and one["rate"] == 1.0)
    for one in done:
        steps, told = examples.make_runs.gathered(one, out)
        assert steps == [0, 2, 4, 6, 8]
        assert told["most"] == one["largest"] == pytest.approx(max(told["largest"]), rel=1e-3)
        assert bool(told["dead"]) == bool({"logit", "entropy"} & {*one["died"]})
        json.dumps(told, allow_nan=False)
    path = examples.folder / "thin.jsonl"
    path.write_text(examples.make_runs.thinned(out / done[0]["file"]), encoding="utf-8")
    assert Run.open(path).view("entropy", 100).steps == [0, 5]


@pytest.mark.parametrize("name", ["train_gpt", "scaling"])
def test_a_missing_text_is_one_line(
    name: str, examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"there is no file none\.txt: give --data any plain text"):
        run(getattr(examples, name), monkeypatch, "--data", "none.txt")


@pytest.mark.parametrize("name", ["gpt", "code", "vit"])
def test_shipped_weights_are_small(
    name: str, examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples.training, "CHECKPOINTS", EXAMPLES / "checkpoints")
    assert examples.training.place(name).stat().st_size < 4_000_000


class TestShippedWeights:
    @pytest.fixture(autouse=True)
    def shipped(self, examples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(examples.training, "CHECKPOINTS", EXAMPLES / "checkpoints")

    def test_the_gpt_is_below_1_6_nats(self, examples: Any) -> None:
        model, facts = examples.training.load("gpt", examples.train_gpt.build)
        assert facts["held_out"] < 1.6
        import limelight

        text = "".join(limelight.captures()["gpt"].tokens[0])  # held out too, and easy to repeat
        symbols = examples.text.encode(text, facts["alphabet"]).long()[None]
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(symbols[:, :-1])[0], symbols[0, 1:])
        assert float(loss) < 1.6

    def test_the_code_model_completes_brackets_and_self(self, examples: Any) -> None:
        model, _ = examples.training.load("code", examples.train_code.build)

        def after(start: str) -> str:
            return examples.train_code.complete(model, start)

        assert after("print(len(items[0]").startswith("))")
        assert after("        return self").startswith(".")
        assert after("    def __init__(self, name):\n        self.name = ").startswith("name")
        assert after("import os\nimport sy").startswith("s")

    def test_the_vit_names_four_of_five_and_its_pictures_as_captioned(self, examples: Any) -> None:
        model, facts = examples.training.load("vit", examples.train_vit.build)
        assert facts["accuracy"] > 0.8
        assert facts["held"] == 10_000
        pictures = examples.training.along("vit", "pictures")
        read = examples.train_vit.reads(model, pictures.float() / 255)
        names = [examples.train_vit.KINDS[kind] for kind in read]
        assert names[:10] == facts["labels"][:10] == list(examples.train_vit.KINDS)
        for taken, kind, sort in zip(
            names[10:], facts["labels"][10:], ("SHOES", "TOPS"), strict=True
        ):
            assert kind in getattr(examples.train_vit, sort)
            assert taken != kind


def test_missing_pictures_are_one_line(
    examples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"cannot read the pictures in .*: give --data the folder"):
        run(examples.train_vit, monkeypatch, "--data", str(tmp_path))
