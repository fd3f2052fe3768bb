"""Every reader of files: the library's, the command line's, the studio's. Each gives what came of it.

"read" is a right answer, "refused" an error of ours in one line; anything else is raised.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limelight.errors import LimelightError

Outcome = Literal["read", "refused"]
FEW = 1 << 16  # cells that are looked at in full


class Wrong(Exception):
    """An answer that is not right, or an error that is not ours."""


@dataclass(frozen=True)
class Reader:
    name: str
    ending: str
    read: Callable[[Path], Outcome]


def _library(read: Callable[[Path], object]) -> Callable[[Path], Outcome]:
    def judged(path: Path) -> Outcome:
        try:
            read(path)
        except LimelightError as error:
            text = str(error)
            if "\n" in text or len(text) > 5_000:
                raise Wrong(f"an error of {len(text)} characters: {text[:200]}") from error
            return "refused"
        return "read"

    return judged


def _capture(path: Path) -> None:
    from limelight.capture import Capture

    found = Capture.open(path)
    repr(found)
    for site in found.sites[:3]:
        if (
            not (site.batch and site.heads and site.queries and site.keys)
            or site.queries * site.keys > FEW
        ):
            continue
        cell = site.cell(0, 0)
        total = site.weights(slice(0, 1), head=0)[..., 0, :].sum(dtype=np.float64)
        if site.rows is None and site.sinks is None and np.isfinite(total) and not (
            abs(total - 1) < 1e-3 or total == 0
        ):  # fmt: skip
            raise Wrong(f"weights that sum to {total}, where the first is {cell.weight}")


def _survey(path: Path) -> None:
    from limelight.survey import Survey

    found = Survey.open(path)
    found.table()
    for site, heads in zip(found.sites[:2], found.counts, strict=False):
        for head in range(min(2, heads)):
            found.places(site, head)
            found.distances(site, head)
            found.received(site, head)
            for kind in found.known[:2]:
                found.examples(site, head, kind.name)


def _log(path: Path) -> None:
    from limelight.journal.run import Run

    run = Run.open(path, 256 << 20)
    for figure in ("saturated", "entropy"):
        run.view(figure, 50)


def _gguf(path: Path) -> None:
    from limelight.live.gguf import Gguf

    with Gguf(path) as found:
        for name in list(found.tensors)[:4]:
            found.array(name)


def _llama(path: Path) -> None:
    from limelight import live

    with np.errstate(all="ignore"):  # weights may be any numbers
        run = live.load(path).run("the cat")
        repr(run)
        run.write(2, temperature=1.0)
        run.model.effects("the", answer="t")


def _table(path: Path) -> None:
    from limelight.cli._files import read

    read(path)


def _folder(path: Path) -> None:
    from limelight.hf.fence import check_folder

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "config.json")
        check_folder(Path(folder))


def _command(*words: str) -> Callable[[Path], Outcome]:
    """A command of the terminal: it ends with 0, or with 2 and one plain line."""

    def judged(path: Path) -> Outcome:
        from typer.testing import CliRunner

        from limelight.cli import app

        done = CliRunner().invoke(app, [word.format(path=path) for word in words])
        if done.exit_code not in (0, 2) or (
            done.exception and not isinstance(done.exception, SystemExit)
        ):
            raise Wrong(f"exit code {done.exit_code}: {done.exception!r}") from done.exception
        text = done.stdout + done.stderr
        if any(sign in text for sign in "\x1b\x07\x9b‮\u2028"):
            raise Wrong(f"a sign that acts on a terminal: {text!r}")
        if done.exit_code == 2 and len(done.stderr.splitlines()) != 1:
            raise Wrong(f"an error of several lines: {done.stderr}")
        return "refused" if done.exit_code else "read"

    return judged


def _studio(ending: str, *paths: str) -> Callable[[Path], Outcome]:
    """A studio on a folder with this file and a sound one: no list fails, nothing is an error of it."""

    def judged(path: Path) -> Outcome:
        from starlette.testclient import TestClient

        from limelight.studio.app import create_app
        from limelight.studio.folders import Folders
        from limelight.studio.keys import Keys
        from limelight.studio.studio import Studio

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "model" if ending == "config.json" else Path(name)
            folder.mkdir(exist_ok=True)
            if ending == "config.json":
                (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
            shutil.copy(path, folder / (ending if ending == "config.json" else f"x{ending}"))
            studio, keys = Studio(Folders.of((Path(name),))), Keys()
            app = create_app(studio, keys=keys, hosts=frozenset({"testserver"}), port=80)
            asked = TestClient(app, headers={"Authorization": f"Bearer {keys.token}"})
            answers = [asked.get(each) for each in ("/api/captures", "/api/damaged", "/api/runs")]
            if any(answer.status_code != 200 for answer in answers):
                raise Wrong(f"a list fails: {[answer.text[:200] for answer in answers]}")
            seen = [asked.get(each) for each in paths]
            studio.work.stop()
            for answer in seen:
                if answer.status_code >= 500:
                    raise Wrong(f"{answer.url.path}: {answer.status_code} {answer.text[:200]}")
                answer.json() if "json" in answer.headers["content-type"] else answer.content
            return "read" if all(answer.status_code == 200 for answer in seen) else "refused"

    return judged


def _all() -> list[Reader]:
    captures = ("/api/captures/x", "/api/captures/x/sites/0/heads/0/tile",
                "/api/captures/x/sites/0/heads/0/cells/0/0", "/api/captures/x/image")  # fmt: skip
    rows: list[tuple[str, str, Any]] = [
        ("Capture.open", ".safetensors", _library(_capture)),
        ("limelight heatmap", ".safetensors", _command("heatmap", "{path}")),
        ("limelight heads", ".safetensors", _command("heads", "{path}", "--json")),
        ("studio, captures", ".safetensors", _studio(".safetensors", *captures)),
        ("Survey.open", ".survey.safetensors", _library(_survey)),
        ("limelight heads, survey", ".survey.safetensors", _command("heads", "{path}", "--json")),
        ("Run.open", ".jsonl", _library(_log)),
        ("limelight watch", ".jsonl", _command("watch", "{path}", "--once")),
        ("studio, runs", ".jsonl", _studio(".jsonl", "/api/runs/x", "/api/runs/x/view?figure=entropy")),
        ("live.gguf", ".gguf", _library(_gguf)),
        ("live.load", ".llama.gguf", _library(_llama)),
        ("limelight score, JSON", ".json", _command("score", "--file", "{path}")),
        ("limelight score, CSV", ".csv", _command("score", "--file", "{path}")),
        ("score's file", ".json", _library(_table)),
        ("limelight experiment", ".results.json", _command("experiment", "scaling", "--results", "{path}")),
        ("hf, config.json", "config.json", _library(_folder)),
        ("studio, models", "config.json", _studio("config.json", "/api/models")),
    ]  # fmt: skip
    return [Reader(*row) for row in rows]


READERS = {reader.name: reader for reader in _all()}
