"""Only files of the right kind, only from the folders named at start, by no trick."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from limelight import hf
from limelight.errors import ArgumentError, FileError
from limelight.studio import folders
from limelight.studio.answers import NotFound, to_json
from limelight.studio.api import runs
from limelight.studio.api.captures import summary
from limelight.studio.api.models import places
from limelight.studio.app import create_app
from limelight.studio.folders import Folders, check
from limelight.studio.keys import Keys
from limelight.studio.limits import Limits
from limelight.studio.measure import measure
from limelight.studio.shelf import Book, Damaged, Shelf
from limelight.studio.studio import Studio
from limelight.studio.work import Cancel, Gone
from tests.fuzz import corpus
from tests.studio import samples
from tests.studio.conftest import Running, start, stop


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A capture and a run that no folder holds."""
    folder = tmp_path / "outside"
    folder.mkdir()
    samples.text_capture(5).save(folder / "secret.safetensors")
    samples.write_lines(folder / "secret.jsonl", samples.run_lines(3))
    return folder


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A studio whose folder is full of links to what lies outside."""
    place = tmp_path_factory.mktemp("walled")
    (outside := place / "outside").mkdir()
    samples.text_capture(5).save(outside / "secret.safetensors")
    samples.write_lines(outside / "secret.jsonl", samples.run_lines(3))
    (root := place / "root").mkdir()
    samples.text_capture(5).save(root / "sample.safetensors")
    (root / "x.safetensors").symlink_to(outside / "secret.safetensors")
    (root / "x.jsonl").symlink_to(outside / "secret.jsonl")
    (root / "a").symlink_to(outside)
    (root / "notes.txt").write_text("root: secret")
    running = start(root, place / "studio.log")
    yield running
    stop(running)


def test_only_the_endings_asked_for_are_found(tmp_path: Path) -> None:
    samples.fill(tmp_path)
    folders = Folders.of((tmp_path,))
    assert set(folders.find(".safetensors")) == {
        "sample.safetensors", "batch.safetensors", "long.safetensors", "deeper:vision.safetensors",
        "broken.safetensors",
    }  # fmt: skip
    assert set(folders.find(".jsonl")) == {"run.jsonl", "not-a-run.jsonl"}


@pytest.mark.parametrize("kind", ["file", "folder", "loop", "dangling", "relative", "hard-to-see"])
def test_links_do_not_lead_out(tmp_path: Path, outside: Path, kind: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    match kind:
        case "file":
            (root / "x.safetensors").symlink_to(outside / "secret.safetensors")
        case "folder":
            (root / "x").symlink_to(outside)
        case "loop":
            (root / "x").symlink_to(root)
            (root / "x.safetensors").symlink_to(root / "x.safetensors")
        case "dangling":
            (root / "x.safetensors").symlink_to(root / "nothing.safetensors")
        case "relative":
            (root / "x.safetensors").symlink_to(Path("..") / "outside" / "secret.safetensors")
        case _:
            (root / "a").symlink_to(outside)
            (root / "x.safetensors").symlink_to(root / "a" / "secret.safetensors")
    assert Folders.of((root,)).find(".safetensors") == {}


def test_a_link_within_the_folder_is_fine(tmp_path: Path) -> None:
    samples.text_capture(5).save(tmp_path / "real.safetensors")
    (tmp_path / "other.safetensors").symlink_to(tmp_path / "real.safetensors")
    assert set(Folders.of((tmp_path,)).find(".safetensors")) == {
        "real.safetensors",
        "other.safetensors",
    }


def test_a_file_swapped_for_a_link_after_the_listing_is_refused(
    tmp_path: Path, outside: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    path = root / "x.safetensors"
    samples.text_capture(5).save(path)
    listed = Folders.of((root,)).get("x.safetensors", ".safetensors")
    assert check(listed, 10**9) == path.resolve()
    path.unlink()
    path.symlink_to(outside / "secret.safetensors")
    with pytest.raises(NotFound, match="not inside"):
        check(listed, 10**9)
    path.unlink()
    with pytest.raises(NotFound, match="no longer"):
        check(listed, 10**9)


def test_what_is_not_a_plain_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    assert Folders.of((tmp_path,)).find(".safetensors") == {}


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room
    listed = Folders.of((tmp_path,)).get("large.safetensors", ".safetensors")
    with pytest.raises(FileError, match="opens up to"):
        check(listed, 2**33)


def test_deep_and_many_folders_end(tmp_path: Path) -> None:
    deep = tmp_path
    for n in range(40):
        deep = deep / f"d{n}"
    deep.mkdir(parents=True)
    (deep / "x.safetensors").write_bytes(b"")
    assert Folders.of((tmp_path,)).find(".safetensors") == {}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no such folder"):
        Folders.of((tmp_path / "nothing",))


NAMES = (
    ["..%2Foutside%2Fsecret", "..%2foutside%2fsecret.safetensors", "%2e%2e:outside:secret", "..:outside:secret",
     "x", "a:secret", "/etc/passwd", "%2Fetc%2Fpasswd", "sample%00", "sample.safetensors%00.jsonl", "notes",
     "notes.txt", "sample%2F..%2F..%2Foutside%2Fsecret", "C:%5CWindows", "~", "$HOME", "%F0%9F%98%80", "%FF%FE"]
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out(walled: Running, name: str) -> None:
    running = walled
    for path in (f"/api/captures/{name}", f"/api/captures/{name}/sites/0/heads/0/tile",
                 f"/api/runs/{name}", f"/api/captures/{name}/report"):  # fmt: skip
        reply = running.ask(path)
        assert reply.status in (400, 404), (path, reply.status, reply.body)
        assert b"root:" not in reply.body
        assert b"blocks." not in reply.body
    body = {"model": name, "text": "x"}
    assert running.ask("/api/captures", "POST", body=body, timeout=120).status in (404, 409)


def test_a_pickle_is_not_a_model(start_studio: Callable[..., Running], tmp_path: Path) -> None:
    root = tmp_path / "models"
    (root / "evil").mkdir(parents=True)
    (root / "evil" / "config.json").write_text(
        '{"model_type": "llama", "auto_map": {"AutoModel": "x.Y"}}'
    )
    (root / "evil" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    (root / "evil" / "x.py").write_text("raise SystemExit('ran')")
    running = start_studio(folder=root)
    assert "evil" not in {model["id"] for model in running.get("/api/models")["models"]}
    body = {"model": "evil", "text": "x"}
    assert running.ask("/api/captures", "POST", body=body, timeout=120).status in (404, 409)


def test_a_capture_that_changes_is_read_anew(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    samples.text_capture(5).save(root / "x.safetensors")
    running = start_studio(folder=root)
    assert running.get("/api/captures/x")["tokens"] == 5
    samples.text_capture(7).save(root / "x.safetensors")
    assert running.get("/api/captures/x")["tokens"] == 7
    assert [entry["tokens"] for entry in running.get("/api/captures") if entry["id"] == "x"] == [7]
    shutil.rmtree(root)
    assert running.ask("/api/captures/x").status == 404
    assert running.ask("/healthz").status == 200


def test_damaged_files_are_named_and_foreign_ones_left_out(tmp_path: Path) -> None:
    samples.text_capture(5).save(tmp_path / "good.safetensors")
    whole = (tmp_path / "good.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-7])
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "empty.safetensors").write_bytes(b"")
    weights = b'{"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    model = len(weights).to_bytes(8, "little") + weights + b"\0\0"
    (tmp_path / "model.safetensors").write_bytes(model)
    (tmp_path / "large.safetensors").write_bytes(model)
    os.truncate(tmp_path / "large.safetensors", 2**40)  # a hole: it takes no room
    found = Shelf(Folders.of((tmp_path,)), Limits()).facts(lambda book: book.id)
    assert "good" in found
    assert not {"model", "large"} & set(found)
    damaged = {one.id: one.why for one in found if isinstance(one, Damaged)}
    assert set(damaged) == {"cut.safetensors", "deeper:empty.safetensors"}
    assert damaged["deeper:empty.safetensors"].startswith("not a safetensors file")
    assert damaged["cut.safetensors"].startswith("the file is damaged: it was cut short")
    small = Shelf(Folders.of((tmp_path,)), Limits(file_bytes=len(whole) - 1))
    large = next(one for one in small.facts(lambda book: book.id)
                 if isinstance(one, Damaged) and one.id == "good.safetensors")  # fmt: skip
    assert "the studio opens up to" in large.why


def test_an_error_tells_no_more_of_a_path_than_its_place_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("", "deeper", "model"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "none.safetensors").write_bytes(b"none")
    (tmp_path / "deeper" / "none.safetensors").write_bytes(b"none")
    (tmp_path / "model" / "config.json").write_text("{")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"none")
    named = tmp_path.parent / f"{tmp_path.name}.safetensors"
    named.write_bytes(b"none")
    studio, keys = Studio(Folders.of((tmp_path,), (named,))), Keys()
    app = create_app(studio, keys=keys, hosts=frozenset({"testserver"}), port=80)
    page = TestClient(app, headers={"Authorization": f"Bearer {keys.token}"})
    said = [page.get(f"/api/captures/{name}").json()["error"]
            for name in ("none", "deeper:none", tmp_path.name)]  # fmt: skip
    starts = "none.safetensors: ", "deeper/none.safetensors: ", f"{tmp_path.name}.safetensors: "
    for error, place in zip(said, starts, strict=True):
        assert error.startswith(place)
    if hf.missing() is None:
        answer = page.post("/api/captures", json={"model": "model", "text": "so"})
        assert answer.json()["error"].startswith("model/config.json: ")

    def unreadable(_: Any, name: str) -> Any:
        raise FileError(f"{tmp_path / name}: cannot be read")

    monkeypatch.setattr(runs, "opened", unreadable)
    with page.websocket_connect("ws://testserver/api/runs/a.jsonl/live") as socket:
        assert socket.receive_json() == {"error": "a.jsonl: cannot be read"}
    studio.work.stop()


def test_only_a_path_that_begins_with_the_folder_is_made_short() -> None:
    told = "'/tmp/a/b', in /var/tmp/c, https://x.y/tmp/z and model/config.json"
    short = "'a/b', in /var/tmp/c, https://x.y/tmp/z and model/config.json"
    assert Folders((Path("/tmp"),)).told(told) == short
    short = "'tmp/a/b', in var/tmp/c, https://x.y/tmp/z and model/config.json"
    assert Folders((Path("/"),)).told(told) == short


def test_a_capture_cut_short_while_it_is_open_ends_nothing(tmp_path: Path) -> None:
    """A mapped file that loses its pages would end the process in the middle of a pass."""
    target = tmp_path / "sample.safetensors"
    made = samples.long_capture(1031, size=32)
    made.save(target)
    shelf = Shelf(Folders.of((tmp_path,)), Limits())
    book = shelf.book("sample")
    os.truncate(target, 4096)
    seen = measure(book.site(0), Cancel()).health().summary()
    np.testing.assert_allclose(seen.entropy, made.sites[0].health().summary().entropy, rtol=1e-5)
    with pytest.raises(FileError, match="damaged"):
        shelf.book("sample")


def test_a_server_whose_capture_is_cut_short_says_so(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    samples.text_capture(23).save(folder / "sample.safetensors")
    running = start_studio(folder=folder)
    here = "/api/captures/sample/sites/0/heads/0"
    assert running.ask(f"{here}/tile").status == 200
    os.truncate(folder / "sample.safetensors", 2000)
    reply = running.ask(f"{here}/tile?rows=0:5")
    assert reply.status == 400, reply.body
    assert running.get("/healthz")["status"] == "ok"


class Impatient(Cancel):
    """Waits for so many steps and then goes away."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.set()
        super().check()


def test_row_statistics_in_steps_are_those_of_one_pass_and_end_with_their_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("limelight.studio.measure.WORK", 3 * 97 * 613)
    for made in (samples.long_capture(613, size=6), samples.text_capture(23)):
        for site in made.sites:
            whole = site.statistics
            stepped = measure(replace(site), Cancel())
            for name in ("logsumexp", "max_logit", "entropy"):
                found, expected = getattr(stepped.statistics, name), getattr(whole, name)
                np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    site = replace(samples.long_capture(613, size=6).sites[0])
    with pytest.raises(Gone):
        measure(site, Impatient(2))
    assert "statistics" not in vars(site)


def test_who_still_waits_gets_what_another_gave_up(tmp_path: Path) -> None:
    samples.long_capture(1031, size=32).save(tmp_path / "sample.safetensors")
    book = Shelf(Folders.of((tmp_path,)), Limits()).book("sample")
    with pytest.raises(Gone):
        book.head(0, 0, 0, Impatient(0))
    assert "statistics" in vars(book.head(0, 0, 0, Cancel()))


def test_every_file_found_by_attack_is_one_entry_and_no_list_fails(tmp_path: Path) -> None:
    for number, make in enumerate(corpus.CAPTURES.values()):
        (tmp_path / f"bad-{number}.safetensors").write_bytes(make())
    samples.text_capture(5).save(tmp_path / "good.safetensors")
    shelf = Shelf(Folders.of((tmp_path,)), Limits())
    found = shelf.facts(summary)
    damaged = {one.id: one.why for one in found if isinstance(one, Damaged)}
    assert set(damaged) == {f"bad-{number}.safetensors" for number in range(len(corpus.CAPTURES))}
    assert all(why and "\n" not in why and str(tmp_path) not in why for why in damaged.values())
    assert "good" in {one.id for one in found if not isinstance(one, Damaged)}


def test_whatever_is_raised_by_one_file_costs_no_other(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        samples.text_capture(5).save(tmp_path / f"{name}.safetensors")

    def read(book: Book) -> str:
        if book.id == "b":
            raise RecursionError
        return book.id

    found = Shelf(Folders.of((tmp_path,)), Limits()).facts(read)
    assert Damaged("b.safetensors", "it cannot be shown (RecursionError)") in found
    assert {"a", "c"} <= {one for one in found if isinstance(one, str)}


def test_a_listing_reads_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.long_capture(1031, size=32).save(tmp_path / "long.safetensors")
    read: list[int] = []
    true = np.fromfile

    def counted(file: Any, dtype: Any, count: int) -> Any:
        read.append(count)
        return true(file, dtype, count)

    monkeypatch.setattr(np, "fromfile", counted)
    shelf = Shelf(Folders.of((tmp_path,)), Limits())
    assert "long" in shelf.facts(lambda book: book.id)
    assert sum(read) < 200_000  # masks and pictures of what is shipped, no queries and keys
    assert shelf.book("long").capture.sites[0].query.base is not None


def test_names_that_are_no_text_have_a_place_in_every_list(tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    samples.text_capture(5).save(whole)
    for name in (b"\xff\xfe.safetensors", b"\xed\xa0\x80.safetensors", b"a\nb\x1b.safetensors"):
        (tmp_path / os.fsdecode(name)).write_bytes(whole.read_bytes())
    shelf = Shelf(Folders.of((tmp_path,)), Limits())
    found = [one.id for one in shelf.facts(summary) if not isinstance(one, Damaged)]
    to_json(found)
    assert {"\\xff\\xfe", "a\nb\x1b"} <= set(found)
    assert shelf.book("\\xff\\xfe").capture.sites


def test_a_file_swapped_between_its_check_and_its_opening_is_not_read(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that was opened must be the one that stands inside the folder."""
    root = tmp_path / "root"
    root.mkdir()
    path = root / "x.safetensors"
    samples.text_capture(5).save(path)
    listed = Folders.of((root,)).get("x.safetensors", ".safetensors")
    true = folders.open_plain

    def swapped(name: Path) -> Any:
        path.unlink()
        path.symlink_to(outside / "secret.safetensors")
        file = true(name)
        path.unlink()
        samples.text_capture(5).save(path)
        return file

    monkeypatch.setattr(folders, "open_plain", swapped)
    with pytest.raises(NotFound, match="was replaced while it was opened"):
        folders.opened(listed, 10**9)


def test_a_model_that_is_none_costs_no_other(tmp_path: Path) -> None:
    for name, config in (("large", b" " * (5 << 20) + b"{}"), ("deep", b'{"a":' + b"[" * 100_000),
                         ("odd", b"\xff"), ("good", b'{"patch_size": 4}')):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes(config)
        (tmp_path / name / "model.safetensors").write_bytes(b"")
    os.mkfifo(tmp_path / "x.gguf")
    found = places(Studio(Folders.of((tmp_path,))))
    assert found["good"][2] == "image"
    assert "large" not in found
    assert {"deep", "odd"} <= set(found)  # there, and refused with a reason when they are opened


def test_what_is_kept_open_has_a_bound_in_bytes(tmp_path: Path) -> None:
    for n in range(3):
        samples.text_capture(23, seed=n).save(tmp_path / f"{n}.safetensors")
    size = (tmp_path / "0.safetensors").stat().st_size
    shelf = Shelf(Folders.of((tmp_path,)), Limits(open_bytes=2 * size))
    first = shelf.book("0")
    assert shelf.book("0") is first
    shelf.book("1"), shelf.book("2")
    assert shelf.book("0") is not first
