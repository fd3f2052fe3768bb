"""The guard list, one hostile request (or more) for each line of it, against a real server."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl  # noqa: F401  (keeps http.client's import cost out of the timings below)
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from limelight.studio.guard import POLICY, host_names
from limelight.studio.keys import Keys
from limelight.studio.limits import Limits
from tests.studio.conftest import Running

LIMITS = Limits()
EVERY_PATH = ["/", "/assets/x.js", "/api/quiz", "/api/captures", "/api/openapi.json", "/nothing"]


def raw(port: int, data: bytes) -> bytes:
    """The answer's first bytes to exactly these bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        return connection.recv(4096)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def web_socket(studio: Running, **headers: str | None) -> int:
    """The status of a WebSocket handshake with these headers changed (None leaves one out)."""
    sent: dict[str, str | None] = {
        "Host": studio.netloc, "Origin": studio.origin, "Upgrade": "websocket",
        "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Cookie": cookie(studio),
        "Sec-WebSocket-Protocol": f"limelight, {tab(studio)}", **headers,
    }  # fmt: skip
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value is not None)
    request = f"GET /api/runs/run/live HTTP/1.1\r\n{lines}\r\n"
    return status(raw(studio.port, request.encode()))


def cookie(studio: Running) -> str:
    reply = studio.ask(f"/?token={studio.token}", let_in=False)
    return reply.headers["set-cookie"].partition(";")[0]


def tab(studio: Running) -> str:
    """The secret that the page gets for the token."""
    page = studio.ask(f"/?token={studio.token}", let_in=False).body.decode()
    found = re.search(r'<meta name="limelight-tab" content="([\w-]{43})"', page)
    assert found, page[:500]
    return found[1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_listens_on_the_loopback_alone(studio: Running) -> None:
    listening = subprocess.run(
        ["python3", "-c", "print(open('/proc/net/tcp').read(), open('/proc/net/tcp6').read())"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    mine = [line.split()[1] for line in listening.splitlines()
            if line.split()[1:2] and line.split()[1].endswith(f":{studio.port:04X}")
            and line.split()[3] == "0A"]  # fmt: skip
    assert mine == [f"0100007F:{studio.port:04X}"]


@pytest.mark.parametrize("path", [*EVERY_PATH, "/healthz"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.evil.example",
     "127.0.0.1.evil.example:{port}", "LOCALHOST:{port}", "localhost.:{port}", "[::1]:{port}",
     "0.0.0.0:{port}", "2130706433:{port}", "127.1:{port}", "user@127.0.0.1:{port}", ""],
)  # fmt: skip
def test_another_host_is_refused(studio: Running, path: str, host: str) -> None:
    reply = studio.ask(path, headers={"Host": host.format(port=studio.port)})
    assert reply.status in (400, 421)


def test_two_hosts_or_none_are_refused(studio: Running) -> None:
    both = f"Host: {studio.netloc}\r\nHost: evil.example\r\n"
    for hosts in (both, ""):
        assert status(raw(studio.port, f"GET /healthz HTTP/1.1\r\n{hosts}\r\n".encode())) in (
            400,
            421,
        )
    assert status(raw(studio.port, b"GET /healthz HTTP/1.0\r\n\r\n")) in (400, 421)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_its_own_names_are_answered(studio: Running, host: str) -> None:
    assert studio.ask("/api/quiz", headers={"Host": f"{host}:{studio.port}"}).status == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://{netloc}", "http://localhost:{port}", "http://127.0.0.1",
     "http://127.0.0.1:1", "http://{netloc}.evil.example", "http://{netloc}/", "", "file://",
     "http://{netloc} http://evil.example"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_refused(studio: Running, origin: str, method: str) -> None:
    origin = origin.format(netloc=studio.netloc, port=studio.port)
    body = {} if method == "POST" else None
    reply = studio.ask("/api/quiz", method, body=body, headers={"Origin": origin})
    assert reply.status == 403


def test_a_post_without_an_origin_is_refused(studio: Running) -> None:
    reply = studio.ask(
        "/api/captures", "POST", body={}, let_in=False, headers={"Cookie": cookie(studio)}
    )
    assert reply.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
@pytest.mark.parametrize("path", EVERY_PATH)
def test_what_another_site_asks_for_is_refused(studio: Running, site: str, path: str) -> None:
    """A page on another port of this machine shares our cookies: SameSite knows no ports."""
    reply = studio.ask(path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors",
                                      "Sec-Fetch-Dest": "script"})  # fmt: skip
    assert reply.status == 403


def test_another_site_may_link_to_the_front_page_but_not_frame_it(studio: Running) -> None:
    link = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert studio.ask("/", headers=link).status in (200, 503)
    assert studio.ask("/api/quiz", headers=link).status == 403
    assert studio.ask("/", headers={**link, "Sec-Fetch-Dest": "iframe"}).status == 403


@pytest.mark.parametrize(
    "changed",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": None},
     {"Origin": "null"}, {"Sec-WebSocket-Protocol": None},
     {"Sec-WebSocket-Protocol": "limelight, guess"}, {"Sec-Fetch-Site": "same-site"}],
)  # fmt: skip
def test_a_hostile_web_socket_is_refused(studio: Running, changed: dict[str, str | None]) -> None:
    assert web_socket(studio, **changed) in (400, 403)


@pytest.mark.parametrize(
    ("line", "more"),
    [("POST / HTTP/1.1", "Content-Length: 10\r\n"), ("GET / HTTP/1.1", "Content-Length: 10\r\n"),
     ("GET / HTTP/1.1", "Transfer-Encoding: chunked\r\n"), ("GET / HTTP/1.1", "X: a\x01b\r\n"),
     ("GET / HTTP/1.1", "A: b\r\n" * 300), ("GET / HTTP/1.1", "X: " + "a" * 14_000 + "\r\n"),
     (f"GET /{'a' * 15_000} HTTP/1.1", "")],
    ids=["post", "body", "chunks", "control", "many", "long", "longer"],
)  # fmt: skip
def test_what_is_no_handshake_is_not_waited_for(studio: Running, line: str, more: str) -> None:
    """HTTP lets it pass, and the WebSocket's own parser would wait for the rest of it."""
    asked = f"{line}\r\nHost: {studio.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{more}\r\n"
    with socket.create_connection(("127.0.0.1", studio.port), timeout=5) as connection:
        connection.sendall(asked.encode())
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert status(answer) == 400


def test_the_own_web_socket_is_let_in(studio: Running) -> None:
    assert web_socket(studio) == 101


@pytest.mark.parametrize("path", EVERY_PATH)
def test_without_the_key_nothing_is_given(studio: Running, path: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {studio.token}"},
        {"Authorization": f"Bearer {studio.token[:-1]}"},
        {"Authorization": f"Bearer {studio.token}x"},
        {"Authorization": "Bearer \u00e9"},
        {"Cookie": f"limelight-{studio.port}={studio.token}"},
        {"Cookie": f"limelight-{studio.port}=; limelight-{studio.port}=x"},
        {"Cookie": "=;;;\x7f"},
    ):
        assert studio.ask(path, let_in=False, headers=headers).status == 401


def test_a_wrong_token_in_the_address_is_refused(studio: Running) -> None:
    for query in (
        "token=guess",
        "token=",
        f"token={studio.token}&token=x",
        f"token={studio.token}x",
    ):
        reply = studio.ask(f"/?{query}", let_in=False)
        assert reply.status == 403
        assert "set-cookie" not in reply.headers


def test_the_token_is_exchanged_for_a_cookie_and_the_tabs_secret(studio: Running) -> None:
    reply = studio.ask(f"/?a=1&token={studio.token}", let_in=False)
    assert reply.status == 200
    assert reply.headers["cache-control"] == "no-store"
    value, *rules = (part.strip() for part in reply.headers["set-cookie"].split(";"))
    assert {rule.lower() for rule in rules} == {"httponly", "path=/", "samesite=strict"}
    assert studio.token not in value
    assert tab(studio) not in value
    assert studio.token not in reply.body.decode()
    for headers in (
        {"X-Limelight-Tab": tab(studio)},
        {"X-Limelight-Tab": tab(studio), "Cookie": value},
    ):
        assert studio.ask("/api/quiz", let_in=False, headers=headers).status == 200


def test_a_cookie_alone_opens_the_page_and_nothing_else(studio: Running) -> None:
    """A browser sends it to every port of this host: whoever listens there can replay it."""
    stolen = {"Cookie": cookie(studio), "Origin": studio.origin, "Sec-Fetch-Site": "same-origin"}
    page = studio.ask("/", let_in=False, headers=stolen)
    assert page.status == 200
    assert tab(studio) not in page.body.decode()
    for path in ("/api/quiz", "/api/captures", "/api/captures/sample", "/api/runs/run",
                 "/api/captures/sample/report", "/api/openapi.json"):  # fmt: skip
        for guess in ({}, {"X-Limelight-Tab": ""}, {"X-Limelight-Tab": cookie(studio)},
                      {"X-Limelight-Tab": cookie(studio).partition("=")[2]}):  # fmt: skip
            assert studio.ask(path, let_in=False, headers={**stolen, **guess}).status == 401, path
    body = {"model": "smollm2", "text": "x"}
    assert (
        studio.ask("/api/captures", "POST", body=body, let_in=False, headers=stolen).status == 401
    )
    assert web_socket(studio, **{"Sec-WebSocket-Protocol": None}) == 403
    assert web_socket(studio) == 101


FOREIGN = [
    "a=b", 'a="b', 'a="b;c"', "a", "=", "=b", "a=b=c", "a b=c", "a[0]=1", "a@b=c", "{\"a\":1}", "a={\"b\":[1,2]}",
    "a=\x7f", "ä=ö", "$Version=1; a=b", "a=b,c", "expires=Thu, 01 Jan 1970; path=/",
]  # fmt: skip


@pytest.mark.parametrize("foreign", FOREIGN)
def test_cookies_of_others_lock_nobody_out(studio: Running, foreign: str) -> None:
    own, foreign = cookie(studio), foreign.encode().decode("latin-1")
    name = own.partition("=")[0]
    for line in (
        f"{foreign}; {own}",
        f"{own}; {foreign}",
        f"{foreign};{own};{foreign}",
        f"{name}=x; {own}",
    ):
        assert studio.ask("/", let_in=False, headers={"Cookie": line}).status == 200, line
    replaced = {"Cookie": f"{name}=set-by-another-port", "X-Limelight-Tab": tab(studio)}
    assert studio.ask("/api/quiz", let_in=False, headers=replaced).status == 200


@pytest.mark.parametrize("coding", ["chunked", "gzip, chunked", "identity", "x"])
def test_a_length_told_twice_is_refused_and_nothing_after_it_is_read(
    studio: Running, coding: str
) -> None:
    smuggled = f"GET /healthz HTTP/1.1\r\nHost: {studio.netloc}\r\n\r\n"
    request = (
        f"POST /api/captures HTTP/1.1\r\nHost: {studio.netloc}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {studio.token}\r\nTransfer-Encoding: {coding}\r\n"
        f"Content-Length: {len(smuggled)}\r\n\r\n0\r\n\r\n{smuggled}"
    )
    with socket.create_connection(("127.0.0.1", studio.port), timeout=10) as connection:
        connection.sendall(request.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(
        b"HTTP/1.1 400" if coding == "chunked" else (b"HTTP/1.1 400", b"HTTP/1.1 501")
    )
    assert answer.count(b"HTTP/1.1 ") == 1


def test_the_token_opens_only_the_front_page(studio: Running) -> None:
    assert studio.ask(f"/api/quiz?token={studio.token}", let_in=False).status == 401
    assert studio.ask(f"//evil.example?token={studio.token}", let_in=False).status == 401


def test_tokens_differ_between_starts_and_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import hmac

    compared: list[tuple[bytes, bytes]] = []
    true = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or true(a, b))
    one, other = Keys(), Keys()
    secrets = [getattr(keys, name) for keys in (one, other) for name in vars(keys)]
    assert len(set(secrets)) == len(secrets) == 8
    assert len(one.token) >= 43
    assert not one.holds(other.cookie)
    assert not one.bears(other.token)
    assert not one.sits(other.tab)
    assert not one.opens("\ud800é")
    assert len(compared) == 5
    assert not any(secret in repr(one) for secret in secrets)


def test_a_ticket_is_good_once() -> None:
    keys = Keys()
    assert [keys.opens(keys.token), keys.opens(ticket := keys.ticket), keys.opens(ticket)] == [
        True, True, False,
    ]  # fmt: skip


def test_the_token_stays_out_of_the_log(start_studio: Callable[..., Running]) -> None:
    running = start_studio("--verbose")
    value = cookie(running)
    running.ask("/?token=wrong", let_in=False)
    running.ask(f"/nothing?token={running.token}")
    running.ask(f"/{running.token[:4]}\x1b[31m".replace("\x1b", "%1b"))
    running.process.terminate()
    running.process.wait(5)
    log = running.log.read_text()
    assert "GET / 200" in log
    assert "GET /nothing 404" in log
    assert running.token not in log
    assert value.partition("=")[2] not in log
    assert "token" not in log
    assert "\x1b" not in log


@pytest.mark.parametrize(
    "method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW"]
)
def test_there_is_no_cors_and_no_other_method(studio: Running, method: str) -> None:
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Private-Network": "true",
    }
    reply = studio.ask("/api/quiz", method, headers=asked)
    assert reply.status == 405
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", [*EVERY_PATH, "/healthz", "/?token=wrong", "/api/captures/none"])
def test_every_answer_is_armoured(studio: Running, path: str) -> None:
    for let_in in (True, False):
        reply = studio.ask(path, let_in=let_in)
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert "cache-control" in reply.headers
        assert "server" not in reply.headers
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_the_policy_has_no_inline_and_no_other_place() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "*" not in POLICY
    assert "default-src 'none'" in POLICY
    assert "frame-ancestors 'none'" in POLICY


def test_long_headers_are_refused(studio: Running) -> None:
    assert studio.ask("/api/quiz", headers={"X-Long": "x" * LIMITS.header_bytes}).status == 431
    try:
        endless = raw(studio.port, b"GET / HTTP/1.1\r\nX: " + b"x" * 2**20)
    except ConnectionError:
        return
    assert endless == b"" or status(endless) in (400, 431)


def test_a_long_address_is_refused(studio: Running) -> None:
    reply = studio.ask("/api/quiz?x=" + "x" * LIMITS.query_bytes)
    assert reply.status == 414


def test_a_long_body_is_refused_before_it_is_sent(studio: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=10)
    connection.putrequest("POST", "/api/captures")
    connection.putheader("Authorization", f"Bearer {studio.token}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(10**15))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("length", ["-1", "1e9", "0x10", "9" * 5000, "\u0661"])
def test_a_strange_length_is_refused(studio: Running, length: str) -> None:
    try:
        reply = studio.ask("/api/captures", "POST", body=b"{}",
                           headers={"Content-Length": length.encode().decode("latin-1")})  # fmt: skip
    except (ConnectionError, http.client.HTTPException, TimeoutError):
        return
    assert reply.status in (400, 413)


def test_an_endless_chunked_body_is_cut_off(studio: Running) -> None:
    piece = b" " * 2**16
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(4 * LIMITS.body_bytes // len(piece)):
            sent += len(piece)
            yield piece

    try:
        reply = studio.ask("/api/captures", "POST", body=pieces())
    except ConnectionError:  # cut off while sending: as good an answer
        pass
    else:
        assert reply.status == 413
    assert sent < 4 * LIMITS.body_bytes
    assert studio.ask("/healthz").status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_form_cannot_post(studio: Running, kind: str) -> None:
    """These are the kinds that a page of another site can send without asking."""
    reply = studio.ask("/api/captures", "POST", body=b"{}", headers={"Content-Type": kind})
    assert reply.status == 415


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"x":NaN}', b'{"x":1e999}', b"\xff\xfe", b'{"a":' * 5000,
     b'{"model": "\\ud800"}', b'"' + b"x" * 10_000],
)  # fmt: skip
def test_a_strange_body_is_the_senders_error(studio: Running, body: bytes) -> None:
    reply = studio.ask("/api/captures", "POST", body=body)
    assert reply.status == 400, reply.body
    assert reply.json()["error"]


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"\r\n\r\n\r\n", b"GET http://evil.example/ HTTP/1.1\r\n\r\n",
     b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 100],
)  # fmt: skip
def test_what_is_not_a_request_does_no_harm(studio: Running, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", studio.port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(4096)
    assert studio.ask("/healthz").status == 200


@pytest.mark.parametrize(
    "path",
    ["/assets/../index.html", "/assets/..%2f..%2fapp.py", "/assets/%2e%2e/%2e%2e/keys.py",
     "/assets/....//app.py", "/assets//etc/passwd", "/%00", "/assets/%00", "/../../etc/passwd",
     "/assets/..%5c..%5capp.py", "/api/captures/..%2f..%2fetc%2fpasswd",
     "/api/captures/%00", "/api/captures/..", "/api/runs/..%2f..%2fetc%2fpasswd", "/api/runs/%2fetc%2fpasswd"],
)  # fmt: skip
def test_no_path_leaves_its_place(studio: Running, path: str) -> None:
    reply = studio.ask(path)
    assert reply.status in (400, 404), reply.body
    assert b"root:" not in reply.body
    assert b"import " not in reply.body


def test_host_names_are_exact() -> None:
    assert host_names("127.0.0.1", 80) >= {"127.0.0.1", "localhost"}
    assert host_names("::1", 8000) == {"[::1]:8000", "localhost:8000"}
    assert host_names("10.1.2.3", 8000, ("gpu.lab:8000",)) == {"10.1.2.3:8000", "gpu.lab:8000"}
    assert "127.0.0.1:8000" in host_names("0.0.0.0", 8000)


def test_json_answers_hold_no_nan() -> None:
    from limelight.studio.answers import to_json

    data: Any = {"a": [float("nan"), float("inf"), -float("inf"), 1.5]}
    assert json.loads(to_json(data)) == {"a": [None, None, None, 1.5]}
