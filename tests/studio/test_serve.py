"""Starting and ending: ports, signals, answering while computing, letting go of what nobody wants."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from limelight.errors import ArgumentError
from limelight.studio.limits import Limits
from limelight.studio.serve import bind
from tests.studio import samples
from tests.studio.conftest import Running, run_alone

SOON = 1.0  # seconds


def test_a_busy_port_gives_the_next_free_one_and_says_so() -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        address = bind("127.0.0.1", port, said.append)
    with address.bound:
        assert address.port > port
        assert said == [f"port {port} is busy: using {address.port}"]


def test_the_command_says_it_aloud(start_studio: Callable[..., Running]) -> None:
    first = start_studio()
    second = start_studio("--port", str(first.port))
    assert second.port != first.port
    assert f"port {first.port} is busy: using {second.port}" in second.log.read_text()
    assert second.ask("/healthz").status == 200


@pytest.mark.parametrize(
    ("host", "said"),
    [("256.1.1.1", "--host"), ("192.0.2.1", "cannot listen"), ("no.such.name.invalid", "--host")],
)
def test_an_address_that_is_not_ours(host: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        bind(host, 0, print)


def test_a_clean_error_for_a_wrong_folder() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "limelight", "studio", "--no-browser", "--folder", "/no/such/folder"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "limelight: --folder /no/such/folder: there is no such folder"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("state", ["idle", "kept alive", "watching", "not taking", "computing"])
def test_it_ends_cleanly_within_a_second(
    start_studio: Callable[..., Running], tmp_path: Path, number: signal.Signals, state: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    samples.write_lines(folder / "run.jsonl", samples.run_lines(5))
    running = start_studio(folder=folder)
    held: list[Any] = []
    if state == "kept alive":
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=5)
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        held.append(connection)
    elif state == "watching":
        held.append(watch(running))
    elif state == "not taking":
        held.append(not_taking(running.port, running.token))
        time.sleep(1)
    elif state == "computing":
        samples.long_capture(16_384, heads=8).save(folder / "heavy.safetensors")
        thread = threading.Thread(
            target=swallow, args=(running, "/api/captures/heavy/health"), daemon=True
        )
        thread.start()
        held.append(thread)
        wait_until(lambda: running.get("/healthz")["under_way"] > 0)
    began = time.monotonic()
    running.process.send_signal(number)
    code = running.process.wait(10)
    took = time.monotonic() - began
    for each in held:
        each.close() if hasattr(each, "close") else each.join()
    assert code == 0
    # One second, and what a machine with two busy cores takes to notice.
    assert took < SOON + 0.5, took
    assert running.log.read_text() == ""


def watch(running: Running) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.port), timeout=10)
    connection.sendall(
        f"GET /api/runs/run/live HTTP/1.1\r\nHost: {running.netloc}\r\nOrigin: {running.origin}\r\n"
        f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {running.token}\r\n\r\n".encode()
    )
    assert b"101" in connection.recv(4096)
    return connection


def not_taking(port: int, token: str) -> socket.socket:
    """A connection that asks for 30 MB and reads none of it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", port))
    asked = (f"GET /api/openapi.json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
             f"Authorization: Bearer {token}\r\n\r\n")  # fmt: skip
    connection.sendall(asked.encode() * 300)
    return connection


def swallow(running: Running, path: str) -> None:
    try:
        running.ask(path, timeout=60)
    except (OSError, http.client.HTTPException):
        return


def wait_until(true: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


@pytest.fixture
def heavy(start_studio: Callable[..., Running], tmp_path: Path) -> Running:
    """A studio with a capture whose health takes seconds."""
    folder = tmp_path / "folder"
    folder.mkdir()
    samples.long_capture(12_289, heads=4).save(folder / "heavy.safetensors")
    samples.text_capture().save(folder / "sample.safetensors")
    return start_studio(folder=folder)


def test_it_answers_while_it_computes(heavy: Running) -> None:
    thread = threading.Thread(
        target=swallow, args=(heavy, "/api/captures/heavy/health"), daemon=True
    )
    thread.start()
    wait_until(lambda: heavy.get("/healthz")["under_way"] > 0)
    asked, slowest = 0, 0.0
    while asked < 20 and thread.is_alive():
        began = time.monotonic()
        assert heavy.get("/healthz")["status"] == "ok"
        heavy.get("/api/captures/sample/sites/0/heads/0/cells/3/2")
        slowest = max(slowest, time.monotonic() - began)
        asked += 1
    assert asked >= 3
    assert slowest < 1.0, slowest


def test_one_heavy_answer_does_not_block_the_others(heavy: Running) -> None:
    thread = threading.Thread(
        target=swallow, args=(heavy, "/api/captures/heavy/health"), daemon=True
    )
    thread.start()
    wait_until(lambda: heavy.get("/healthz")["under_way"] > 0)
    assert len(heavy.get("/api/captures/sample/health")["layers"]) == 3
    assert thread.is_alive(), "the heavy one was over too soon to tell"


def test_what_nobody_waits_for_is_dropped(heavy: Running) -> None:
    connections = []
    for _ in range(40):
        connection = http.client.HTTPConnection("127.0.0.1", heavy.port, timeout=30)
        connection.request(
            "GET", "/api/captures/heavy/health", headers={"Authorization": f"Bearer {heavy.token}"}
        )
        connections.append(connection)
    wait_until(lambda: heavy.get("/healthz")["under_way"] >= 40)
    for connection in connections:
        connection.close()
    # A few are being computed and stop at their next step; the others leave the line at once.
    wait_until(lambda: heavy.get("/healthz")["under_way"] <= Limits().heavy, 5)
    wait_until(lambda: heavy.get("/healthz")["under_way"] == 0, 20)
    assert heavy.get("/api/captures/sample")["tokens"] == 23


def test_work_whose_page_has_gone_stops_or_never_starts() -> None:
    import asyncio

    from limelight.studio.limits import Limits
    from limelight.studio.work import Cancel, Gone, Work

    started: list[str] = []
    stopped = threading.Event()

    def endless(cancel: Cancel) -> None:
        started.append("first")
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if cancel():
                stopped.set()
                return
            time.sleep(0.005)

    def leaving_after(seconds: float) -> Any:
        async def receive() -> Any:
            await asyncio.sleep(seconds)
            return {"type": "http.disconnect"}

        return receive

    async def scene() -> list[Any]:
        work = Work(Limits(heavy=1))
        first = asyncio.ensure_future(work.run(endless, leaving_after(0.5), "heavy"))
        await asyncio.sleep(0.05)
        second = work.run(lambda _: started.append("second"), leaving_after(0.1), "heavy")
        results = await asyncio.gather(first, second, return_exceptions=True)
        work.stop()
        assert work.join(5)
        return results

    began = time.monotonic()
    results = run_alone(scene())
    assert [type(result) for result in results] == [Gone, Gone]
    assert stopped.is_set()
    assert started == ["first"]
    assert time.monotonic() - began < 5


def test_too_many_are_told_to_come_back() -> None:
    import asyncio

    from limelight.studio.limits import Limits
    from limelight.studio.work import Busy, Work

    async def flood() -> int:
        work = Work(Limits(waiting=3))
        gate = threading.Event()

        async def never() -> Any:
            await asyncio.sleep(60)

        tasks = [asyncio.ensure_future(work.run(lambda _: gate.wait(5), never)) for _ in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            await work.run(lambda _: None, never)
        gate.set()
        await asyncio.gather(*tasks)
        work.stop()
        return len(tasks)

    assert run_alone(flood()) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_page_is_not_fetched_from_anywhere(studio: Running) -> None:
    """The server process holds no connection but those of its clients."""
    studio.ask("/api/models", timeout=60)
    local, inodes = set(), set()
    for entry in os.listdir(f"/proc/{studio.process.pid}/fd"):
        try:
            target = os.readlink(f"/proc/{studio.process.pid}/fd/{entry}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{studio.process.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                local.add((fields[1].partition(":")[0], fields[2].partition(":")[0]))
    assert all(mine == "0100007F" and theirs in ("0100007F", "00000000") for mine, theirs in local)


def closed_within(connection: socket.socket, seconds: float) -> bool:
    """Whether the other side hangs up in that time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(4096):  # the rest of an answer
            pass
        return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


IMPATIENT = """
import sys
from limelight.studio.limits import Limits
from limelight.studio.serve import bind, serve
from limelight.studio.studio import Studio

certificate = sys.argv[1] if sys.argv[1:] else None
place = bind("127.0.0.1", 0, print, secure=certificate is not None)
told = lambda keys: print(place.port, keys.token, flush=True)
limits = Limits(first_seconds=1.0, body_seconds=1.0)
serve(Studio(limits=limits), place, opened=told, certificate=certificate)
"""


@contextlib.contextmanager
def impatient_studio(*certificate: str) -> Iterator[tuple[int, str]]:
    code = [sys.executable, "-c", IMPATIENT, *certificate]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port, token = process.stdout.readline().split()
        yield int(port), token
        process.terminate()


@pytest.fixture
def impatient() -> Iterator[tuple[int, str]]:
    """The port and the token of a studio that gives a request, a body and an answer one second."""
    with impatient_studio() as known:
        yield known


def test_connections_that_ask_for_nothing_are_dropped(impatient: tuple[int, str]) -> None:
    """Silent, half a request, a request that trickles, and one after an answer that trickles."""
    place = ("127.0.0.1", impatient[0])
    held = [socket.create_connection(place, timeout=10) for _ in range(4)]
    _, half, slow, second = held
    head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{impatient[0]}\r\n".encode()
    half.sendall(head)
    second.sendall(head + b"\r\n")
    assert b"200 OK" in second.recv(4096)
    end = time.monotonic() + 3
    for letter in b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 200:
        for trickling in (slow, second):
            try:
                trickling.sendall(bytes([letter]))
            except OSError:
                continue
        if time.monotonic() > end:
            break
        time.sleep(0.25)
    found = [closed_within(each, 5) for each in held]
    for each in held:
        each.close()
    assert found == [True] * 4


@pytest.mark.parametrize(
    "piece", [b"", b" ", b"1\r\n \r\n"], ids=["stalls", "trickles", "in chunks"]
)
def test_a_body_has_its_time_and_no_more(impatient: tuple[int, str], piece: bytes) -> None:
    """Of whoever has the token: others are refused before it."""
    port, token = impatient
    length = "Transfer-Encoding: chunked" if b"\r" in piece else "Content-Length: 1000"
    head = (f"POST /api/exercise/check HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{length}\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n\r\n")  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as connection:
        connection.sendall(head.encode())
        end, answer = time.monotonic() + 8, b""
        while not answer and time.monotonic() < end:
            connection.sendall(piece)
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert closed_within(connection, 5)


def test_an_answer_that_nobody_takes_is_not_kept(impatient: tuple[int, str]) -> None:
    """Else it would be one that is being answered, and those stay."""

    def dropped() -> bool:
        try:
            connection.sendall(b"GET /")
        except ConnectionError:
            return True
        return False

    with not_taking(*impatient) as connection:
        wait_until(dropped, 20)


@pytest.mark.parametrize(
    "left", [[900_000, 900_000], [900_000, 890_000], [900_000, 700_000, 100_000, 100_000]],
    ids=["not at all", "in drops", "no more"],
)  # fmt: skip
def test_an_answer_stays_while_it_is_taken(left: list[int]) -> None:
    """A report of 10 MB takes a slow line longer than an answer is kept that nobody takes."""
    from types import SimpleNamespace

    from limelight.studio.connections import Connection

    later: list[Callable[[], None]] = []
    dropped: list[bool] = []
    one = Connection.__new__(Connection)
    one.limits = Limits()
    one.flow = SimpleNamespace(pause_writing=lambda: None)
    one.loop = SimpleNamespace(call_later=lambda _, act, *given: later.append(partial(act, *given)))
    one.transport = SimpleNamespace(
        get_write_buffer_size=lambda: left.pop(0), abort=lambda: dropped.append(True)
    )
    one.pause_writing()
    while not dropped:
        later.pop()()
    assert (left, later) == ([], [])


def test_400_idle_connections_lock_nobody_out(studio: Running) -> None:
    assert studio.ask("/healthz").status == 200
    idle = []
    waits = []
    try:
        for number in range(400):
            idle.append(socket.create_connection(("127.0.0.1", studio.port), timeout=10))
            if number % 40 == 39:
                began = time.monotonic()
                studio.get("/api/captures/sample/sites/0/heads/0/cells/3/2")
                waits.append(time.monotonic() - began)
        assert sorted(waits)[len(waits) // 2] < 1.0, waits
    finally:
        for connection in idle:
            connection.close()


def test_one_that_is_answered_stays_while_others_flood() -> None:
    """The oldest quiet one goes first, and among the quiet ones that have asked go last."""
    from types import SimpleNamespace

    from limelight.studio.connections import Connection

    made: list[Any] = []
    connections: set[Any] = set()
    dropped: list[Any] = []
    for born, (asked, quiet) in enumerate(
        [(True, True), (True, False), (False, True), (False, True)]
    ):
        one = Connection.__new__(Connection)
        one.connections, one.limits = connections, Limits(connections=2)
        one._asked, one._born = asked, float(born)
        one.cycle = SimpleNamespace(response_complete=quiet) if asked else None
        one.transport = SimpleNamespace(abort=lambda one=one: dropped.append(one))
        connections.add(one)
        made.append(one)
        one._make_room()
    assert [made.index(one) for one in dropped] == [0, 2]


PEM = Path(__file__).parent / "localhost.pem"


def test_over_tls(start_studio: Callable[..., Running]) -> None:
    import ssl

    running = start_studio("--certificate", str(PEM))
    assert running.url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=PEM)
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=10, context=context)
    connection.request("GET", f"/?token={running.token}")
    reply = connection.getresponse()
    assert reply.status == 200
    assert "; Secure" in reply.headers["set-cookie"]
    reply.read()
    for origin, status in (("https", 200), ("http", 403)):
        connection.request("GET", "/api/quiz", headers={
            "Authorization": f"Bearer {running.token}", "Origin": f"{origin}://{running.netloc}"})  # fmt: skip
        reply = connection.getresponse()
        assert reply.status == status
        reply.read()
    connection.close()


def test_over_tls_a_handshake_has_its_time() -> None:
    with (
        impatient_studio(str(PEM)) as (port, _),
        socket.create_connection(("127.0.0.1", port)) as silent,
    ):
        assert closed_within(silent, 8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--key", str(PEM)], "--key .*: a key goes with a certificate"),
        (["--certificate", "/no/such/file"], "--certificate /no/such/file: No such file"),
        (["--certificate", "pipe"], "--certificate pipe: it is no plain file"),
        (["--certificate", str(PEM), "--key", "pipe"], "--key pipe: it is no plain file"),
        (["circle.safetensors"], "circle.safetensors: there is no such file"),
        (["--certificate", __file__], "not a certificate and its key, in PEM; its key goes in the"),
        (["--host", "é..x"], "no host has such a name"),
        (["--host", "a" * 300], "no host has such a name"),
    ],
)
def test_what_cannot_be_served(options: list[str], said: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle.safetensors").symlink_to("circle.safetensors")
    done = subprocess.run(
        [sys.executable, "-m", "limelight", "studio", "--no-browser", "--port", "0", *options],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert re.search(said, line)


def test_beyond_the_loopback_it_says_what_travels_in_the_open(
    start_studio: Callable[..., Running],
) -> None:
    said = "travel unencrypted: --certificate and --key"
    assert said in start_studio("--host", "0.0.0.0").log.read_text()
    assert said not in start_studio("--host", "0.0.0.0", "--certificate", str(PEM)).log.read_text()
    assert said not in start_studio().log.read_text()
