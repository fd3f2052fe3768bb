"""/api/runs: training runs that a monitor logs, live while they go."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from limelight.arrays import jsonable
from limelight.errors import FileError, LimelightError
from limelight.intake import reading
from limelight.journal import FORMAT, Figure, shipped
from limelight.journal.reading import CHUNK, AlarmLine, Bound, ClipLine, Numbers, Tail, is_journal
from limelight.journal.run import Alarm, Run, SiteOfRun
from limelight.studio.answers import NotFound, to_json
from limelight.studio.api.asked import Index, Name
from limelight.studio.endpoint import Asked, Endpoint, Nothing
from limelight.studio.folders import Listed, check, listing
from limelight.studio.folders import opened as open_listed
from limelight.studio.guard import PROTOCOL
from limelight.studio.shelf import Damaged
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

ENDING = ".jsonl"
LOOK_EVERY = 0.5  # seconds
CLIPS = 200  # of QKClip, shown


class RunSummary(msgspec.Struct, kw_only=True):
    id: str
    title: str | None  # of a run that comes along
    bytes: int
    changed: float  # seconds since 1970


class RunInfo(msgspec.Struct, kw_only=True):
    id: str
    model: str
    started: float | None
    every: int | None
    records: int
    first_step: int | None
    last_step: int | None
    ended: str | None
    restarts: list[int]
    heads: int
    sites: list[SiteOfRun]
    bounds: list[Bound]
    events: list[AlarmLine]
    alarms: list[Alarm]
    clips: list[ClipLine]  # the latest of them, newest last
    clipped: int  # steps after which heads were scaled back


class RunView(msgspec.Struct, kw_only=True):
    """values[head][column]; column c covers the records from steps[c] to last_steps[c]."""

    figure: Figure
    records: int
    steps: list[int]
    last_steps: list[int]
    values: list[Numbers]
    loss: Numbers
    lr: Numbers


class OfRun(Asked, frozen=True):
    id: Name


class OfView(OfRun, frozen=True, kw_only=True):
    figure: Figure = "saturated"
    bins: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 240
    records: Index | None = None


def runs(studio: Studio, _: Nothing, cancel: Cancel) -> list[RunSummary]:
    """Newest first, then those that come along; a run in a folder hides one of its name."""
    own = studio.folders.find(ENDING)
    found = [one for one in _looked_at(studio, own, cancel) if isinstance(one, RunSummary)]
    along = [_summary(_along(row), row.title) for row in shipped.runs()
             if f"{row.name}{ENDING}" not in own]  # fmt: skip
    return [*sorted(found, key=lambda run: -run.changed), *along]


def damaged_runs(studio: Studio, _: Nothing, cancel: Cancel) -> list[Damaged]:
    own = studio.folders.find(ENDING)
    return [one for one in _looked_at(studio, own, cancel) if isinstance(one, Damaged)]


def _looked_at(
    studio: Studio, own: dict[str, Listed], cancel: Cancel
) -> Iterator[RunSummary | Damaged]:
    """The run in each file, or why it cannot be opened; what is somebody else's is left out."""
    for listed in own.values():
        cancel.check()
        try:
            if _ours(listed):
                check(listed, studio.limits.run_bytes)
                yield _summary(listed, None)
        except NotFound:
            continue
        except FileError as error:
            yield Damaged(listed.id, str(error).removeprefix(f"{listed.id}: "))


def _ours(listed: Listed) -> bool:
    """Whether a monitor wrote it, by its first line; an error where that is damaged."""
    if is_journal(listed.path):
        return True
    with open_listed(listed, sys.maxsize) as file, reading(listed.path):
        line = file.readline(CHUNK)
    if not line.strip():
        raise FileError("the file is empty: a monitor begins it with a line on the run")
    try:
        said = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FileError("the file is damaged: its first line is no JSON") from None
    if isinstance(said, dict) and said.get("format") == FORMAT:
        raise FileError("the file is damaged: its first line lacks what a monitor writes there")
    if isinstance(said, dict) and {"kind", "step", "sites"} <= set(said):
        raise FileError("the file is damaged: the line on the run, its first, is missing")
    return False


def _summary(listed: Listed, title: str | None) -> RunSummary:
    return RunSummary(
        id=listed.id.removesuffix(ENDING), title=title, bytes=listed.size,
        changed=listed.changed / 1e9,
    )  # fmt: skip


def _along(row: shipped.Shipped) -> Listed:
    """A run that comes along, as a file in a folder is listed."""
    path = row.path
    return listing(f"{row.name}{ENDING}", path, path.parent.resolve(), path.stat())


def _listed(studio: Studio, name: str) -> Listed:
    for row in shipped.runs():
        if row.name == name and f"{name}{ENDING}" not in studio.folders.find(ENDING):
            return _along(row)
    return studio.folders.get(f"{name}{ENDING}", ENDING)


def run(studio: Studio, asked: OfRun, _: Cancel) -> RunInfo:
    held = opened(studio, asked.id)
    first = held.view("saturated", 1)
    return RunInfo(
        id=asked.id, model=held.model, started=held.started, every=held.every, records=held.records,
        first_step=first.steps[0] if first.steps else None,
        last_step=first.last_steps[-1] if first.steps else None,
        ended=held.ended, restarts=held.restarts, heads=held.heads, sites=list(held.sites.values()),
        bounds=held.bounds, events=held.events, alarms=held.alarms,
        clips=held.clips[-CLIPS:], clipped=held.clipped,
    )  # fmt: skip


def run_view(studio: Studio, asked: OfView, _: Cancel) -> RunView:
    held = opened(studio, asked.id)
    seen = held.view(asked.figure, asked.bins, asked.records)
    return RunView(
        figure=asked.figure, records=held.records, steps=seen.steps, last_steps=seen.last_steps,
        values=jsonable(np.asarray(seen.values, np.float64).round(6)),
        loss=jsonable(np.asarray(seen.scalars["loss"], np.float64)),
        lr=jsonable(np.asarray(seen.scalars["lr"], np.float64)),
    )  # fmt: skip


def opened(studio: Studio, name: str) -> Run:
    """The run as far as it has been written."""
    listed, most = _listed(studio, name), studio.limits.run_bytes
    path = check(listed, most)
    held = studio.runs.get(path, lambda: Run(Tail(path, most, partial(open_listed, listed, most))))
    held.read_on()
    return held


class Live:
    """The WebSocket that says when a run has grown: {"records": n, "ended": reason or null}."""

    path = "/api/runs/{id}/live"

    def route(self, studio: Studio) -> WebSocketRoute:
        async def handle(socket: WebSocket) -> None:
            await socket.accept(PROTOCOL if PROTOCOL in socket.scope["subprotocols"] else None)
            if studio.sockets >= studio.limits.sockets:
                await socket.close(1013, "too many pages watch runs already")
                return
            studio.sockets += 1
            try:
                await _follow(studio, socket)
            except (WebSocketDisconnect, asyncio.CancelledError):
                pass
            finally:
                studio.sockets -= 1

        return WebSocketRoute(self.path, handle, name="run_live")


async def _follow(studio: Studio, socket: WebSocket) -> None:
    name = socket.path_params["id"]
    left = asyncio.ensure_future(_until_left(socket))
    told: Any = None
    try:
        while not left.done() and not studio.stopped:
            try:
                held = await asyncio.to_thread(opened, studio, name)
            except (LimelightError, OSError) as error:
                await socket.send_text(to_json({"error": studio.folders.told(str(error))}).decode())
                await socket.close(1000)
                return
            now = {"records": held.records, "ended": held.ended}
            if now != told:
                await socket.send_text(to_json(now).decode())
                told = now
            await asyncio.wait([left], timeout=LOOK_EVERY)
        if not left.done():
            await socket.close(1001, "the studio ends")
    finally:
        left.cancel()


async def _until_left(socket: WebSocket) -> None:
    """Pages only listen: whatever they say is let pass, until they leave."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


ENDPOINTS = (
    Endpoint("/api/runs", runs, Nothing, list[RunSummary],
             "Training runs in the folders, and those that come along."),
    Endpoint("/api/damaged/runs", damaged_runs, Nothing, list[Damaged],
             "Files in the folders that should hold a run, and why each cannot be opened."),
    Endpoint("/api/runs/{id}", run, OfRun, RunInfo, "One run: its sites, bounds and alarms."),
    Endpoint("/api/runs/{id}/view", run_view, OfView, RunView,
             "One figure of every head over the steps, pooled by the worse."),
)  # fmt: skip
SOCKETS = (Live(),)
