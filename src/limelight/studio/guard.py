"""Guard: nothing reaches the studio that its own page did not send.

Any web page can make a browser send requests to 127.0.0.1, a hostile name server can make a page's
own name point there, and any program on the machine can connect. So every request is checked
before a route sees it:

    Host     must be one of the names this server was started under, exactly (DNS rebinding)
    Origin   where sent, must be this server's own; always for WebSockets and for POST
    Sec-Fetch-Site   where sent, must say same-origin, or none (the person typed the address)
    the key  the secret of the page's tab in a header; a token as `Authorization: Bearer` for
             scripts. A browser sends cookies to every port of a host, so a cookie opens only the
             page itself, which holds nothing
    sizes    headers, address and body, before they are read

and every answer carries the headers that keep the page from doing anything but its work. There is
no CORS: a preflight is answered with 405 and without a single Access-Control header.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limelight.studio.keys import Keys
from limelight.studio.limits import Limits
from limelight.studio.pages import page

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
ANSWER_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
OPEN = frozenset({"/healthz"})
TAB = "x-limelight-tab"  # the header of a page's requests; WebSockets have it among their protocols
PROTOCOL = "limelight"
METHODS = frozenset({"GET", "HEAD", "POST"})
SAFE = frozenset({"GET", "HEAD"})


@dataclass(frozen=True)
class Refusal:
    """Why a request is turned away."""

    status: int
    reason: str

    def response(self) -> Response:
        # Where a request ends is in doubt when it is malformed: nothing is read after it.
        close = {"Connection": "close"} if self.status == 400 else None
        return PlainTextResponse(f"limelight: {self.reason}\n", self.status, close)


class TooLarge(Exception):
    """A body that turned out longer than it may be; the app answers 413."""


class TooSlow(Exception):
    """A body that did not arrive in time; the app answers 408."""


class Guard:
    """ASGI middleware around the whole studio.

    hosts   the exact Host values it answers to, such as {"127.0.0.1:8765", "localhost:8765"}
    port    names the cookie: cookies do not tell ports apart, and two studios may run
    secure  whether it is served over TLS
    """

    def __init__(
        self, app: ASGIApp, *, keys: Keys, hosts: frozenset[str], port: int, limits: Limits,
        secure: bool = False,
    ) -> None:  # fmt: skip
        self.app = app
        self.keys = keys
        self.hosts = hosts
        self.cookie = f"limelight-{port}"
        self.limits = limits
        self.secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        web_socket = scope["type"] == "websocket"
        refusal = self._refuse(scope, headers, web_socket)
        if web_socket:
            if refusal is None:
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
            return
        send = _with_headers(send)
        if refusal is None and (exchange := self._exchange(scope)) is not None:
            await exchange(scope, receive, send)
        elif refusal is None and (refusal := self._stranger(scope, headers)) is None:
            await self.app(scope, self._counted(receive), send)
        else:
            assert refusal is not None
            await refusal.response()(scope, receive, send)

    def _refuse(self, scope: Scope, headers: Headers, web_socket: bool) -> Refusal | None:
        """What is wrong with where the request comes from, or with its size."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return Refusal(421, "this server has no such name: use the address it printed")
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > self.limits.header_bytes:
            return Refusal(431, f"the headers are longer than {self.limits.header_bytes} bytes")
        if len(scope["query_string"]) > self.limits.query_bytes:
            return Refusal(414, f"the address is longer than {self.limits.query_bytes} bytes")
        method = "GET" if web_socket else scope["method"]
        if method not in METHODS:
            return Refusal(405, f"{method} is not used here: GET, HEAD and POST are")
        origins = headers.getlist("origin")
        own = f"{'https' if self.secure else 'http'}://{hosts[0]}"
        if any(origin != own for origin in origins) or len(origins) > 1:
            return Refusal(403, "the request comes from another page's origin")
        script = "authorization" in headers
        if not origins and (web_socket or method not in SAFE) and not script:
            return Refusal(403, "a request that changes something must say its Origin")
        if not self._from_here(scope, headers):
            return Refusal(403, "the request was made by another site")
        if web_socket:
            return self._stranger(scope, headers)
        return self._body(headers, method)

    def _from_here(self, scope: Scope, headers: Headers) -> bool:
        """Browsers say who made a request; another site may only link to the front page."""
        site = headers.get("sec-fetch-site", "none")
        if site in ("same-origin", "none"):
            return True
        top = headers.get("sec-fetch-mode") == "navigate" and (
            headers.get("sec-fetch-dest") == "document"
        )
        return bool(top and scope["type"] == "http" and scope["path"] == "/")

    def _body(self, headers: Headers, method: str) -> Refusal | None:
        length = headers.get("content-length")
        if length is not None and "transfer-encoding" in headers:
            return Refusal(400, "the body's length is told in two ways, and they may differ")
        if length is not None and not (length.isascii() and length.isdigit()):
            return Refusal(400, "Content-Length is not a number")
        if length is not None and int(length[:20]) > self.limits.body_bytes:
            return Refusal(413, f"the body is longer than {self.limits.body_bytes} bytes")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return Refusal(415, "a body must be application/json")
        return None

    def _exchange(self, scope: Scope) -> Response | None:
        """The page, asked for with a token: with the cookie, and the tab's secret in it.

        The page takes the token out of its address. The secret is in no address and no cookie: it
        goes to whoever had the token, and other origins cannot read it.
        """
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if not given or scope["method"] != "GET" or scope["path"] != "/":
            return None
        if len(given) > 1 or not self.keys.opens(given[0]):
            return Refusal(403, "this token is not from the running studio: use the address it "
                                "printed when it started").response()  # fmt: skip
        answer = page(self.keys.tab)
        answer.set_cookie(
            self.cookie, self.keys.cookie, httponly=True, samesite="strict", secure=self.secure
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _stranger(self, scope: Scope, headers: Headers) -> Refusal | None:
        """None for whoever has the key."""
        if scope["path"] in OPEN:
            return None
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.keys.bears(bearer.strip()):
            return None
        said = [*headers.getlist(TAB), *_listed(headers, "sec-websocket-protocol", ",")]
        if any(self.keys.sits(value) for value in said):
            return None
        if _is_page(scope) and any(self.keys.holds(value) for value in self._cookies(headers)):
            return None
        return Refusal(401, "open the address that was printed when the studio started; if you "
                            "have just followed it from another page, reload this one")  # fmt: skip

    def _cookies(self, headers: Headers) -> list[str]:
        """Ours, among whatever else stands there: other programs on this host set cookies too."""
        pairs = (pair.partition("=") for pair in _listed(headers, "cookie", ";"))
        return [value.strip().strip('"') for name, _, value in pairs if name.strip() == self.cookie]

    def _counted(self, receive: Receive) -> Receive:
        """Count the body while it is read: a chunked one does not say its length.

        All of it has its time from here on: what trickles in does not wind the clock again.
        """
        left, whole, clock = self.limits.body_bytes, False, asyncio.get_running_loop().time
        end = clock() + self.limits.body_seconds

        async def counted() -> Message:
            nonlocal left, whole
            try:
                message = await asyncio.wait_for(receive(), None if whole else end - clock())
            except asyncio.TimeoutError:
                raise TooSlow("the body did not arrive") from None
            whole = not message.get("more_body", False)
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge(f"the body is longer than {self.limits.body_bytes} bytes")
            return message

        return counted


def _is_page(scope: Scope) -> bool:
    """Whether it is a file of the page: public, the same for everybody."""
    return scope["type"] == "http" and not scope["path"].startswith("/api")


def _listed(headers: Headers, name: str, mark: str) -> list[str]:
    return [part.strip() for line in headers.getlist(name) for part in line.split(mark)]


def _with_headers(send: Send) -> Send:
    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in ANSWER_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return dressed


def host_names(host: str, port: int, extra: tuple[str, ...] = ()) -> frozenset[str]:
    """The exact Host values of a server bound to `host`:`port`.

    >>> sorted(host_names("127.0.0.1", 8765))
    ['127.0.0.1:8765', 'localhost:8765']
    """
    return frozenset(
        {*(f"{_bracketed(name)}:{port}" for name in _names(host)), *extra}
        | ({_bracketed(name) for name in _names(host)} if port == 80 else set())
    )


def _names(host: str) -> set[str]:
    if host in ("127.0.0.1", "localhost"):
        return {"127.0.0.1", "localhost"}
    if host == "::1":
        return {"::1", "localhost"}
    if host in ("0.0.0.0", "::"):
        return {"127.0.0.1", "::1", "localhost", *_own_names()}
    return {host}


def _own_names() -> set[str]:
    """This machine's name and addresses, for a server bound to all of them."""
    name = socket.gethostname()
    found: set[str] = {name.lower()}
    with contextlib.suppress(OSError):
        found |= {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(name, None)}
    return found


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name
