"""Serving: find a port, say the address, open the browser, end at once when told to."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from limelight.errors import ArgumentError
from limelight.studio.app import create_app
from limelight.studio.connections import connection
from limelight.studio.guard import host_names
from limelight.studio.keys import Keys
from limelight.studio.studio import Studio

PORT, TRIES = 8765, 64
LAST_WORDS = 0.4  # seconds that work under way gets to stop by itself


@dataclass(frozen=True)
class Address:
    """Where a studio answers: bound already, so that nobody can take the port in between."""

    bound: socket.socket
    host: str
    port: int
    secure: bool = False

    def url(self, token: str | None = None) -> str:
        shown = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        shown = f"[{shown}]" if ":" in shown else shown
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{shown}:{self.port}/" + (f"?token={token}" if token else "")

    @property
    def exposed(self) -> bool:
        """Whether others than this machine's own programs can reach it."""
        return self.host not in ("localhost", "::1") and not self.host.startswith("127.")


def bind(host: str, port: int, say: Callable[[str], None], secure: bool = False) -> Address:
    """Bind to `host`:`port`, or to the next free port, said aloud; 0 is any free port."""
    last = min(port + TRIES, 65_536) if port else 1
    for candidate in range(port, last):
        try:
            bound = _bind(host, candidate)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES) and candidate + 1 < last:
                continue
            why = f"cannot listen on {host} port {candidate}: {error.strerror or error}"
            raise ArgumentError(why) from None
        taken = bound.getsockname()[1]
        if port and taken != port:
            say(f"port {port} is busy: using {taken}")
        return Address(bound, host, taken, secure)
    raise ArgumentError(f"no free port from {port} to {last - 1} on {host}: choose another --port")


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ArgumentError(f"--host {host[:80]}: {error.strerror}") from None
    except (UnicodeError, ValueError):
        raise ArgumentError(f"--host {host[:80]!r}: no host has such a name") from None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows this option would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    bound.set_inheritable(False)
    return bound


class Server(uvicorn.Server):
    """uvicorn, with two changes: work is told to stop first, and `opened` runs once it listens."""

    def __init__(self, config: uvicorn.Config, studio: Studio, opened: Callable[[], None]) -> None:
        super().__init__(config)
        self._studio = studio
        self._opened = opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is not None:  # a handshake has as long as a request, not a minute
            loop: Any = asyncio.get_running_loop()
            seconds = self._studio.limits.first_seconds
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=seconds)
        await super().startup(sockets)
        if self.started:
            threading.Thread(target=self._opened, daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._studio.stop()
        await super().shutdown(sockets)


def serve(
    studio: Studio,
    address: Address,
    *,
    allow_hosts: tuple[str, ...] = (),
    opened: Callable[[Keys], None],
    verbose: bool = False,
    certificate: Path | None = None,
    key: Path | None = None,
) -> None:
    """Answer until SIGTERM or Ctrl-C; `opened(keys)` is called when the server listens.

    With a certificate, over TLS; its key may stand in the same file.
    """
    keys = Keys()
    hosts = host_names(address.host, address.port, allow_hosts)
    app = create_app(studio, keys=keys, hosts=hosts, port=address.port, secure=address.secure)
    config = uvicorn.Config(
        _logged(app) if verbose else app,
        http=connection(studio.limits),
        loop="asyncio",
        ws="websockets-sansio",
        ws_max_size=studio.limits.message_bytes,
        ws_per_message_deflate=False,
        h11_max_incomplete_event_size=2 * studio.limits.header_bytes,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        access_log=False,  # it would write addresses, and the first one holds the token
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
    )
    logging.basicConfig(level="WARNING", format="limelight: %(message)s", stream=sys.stderr)
    server = Server(config, studio, lambda: opened(keys))
    # uvicorn raises the signal again once it has closed everything; that is the end we want.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[address.bound])
    if not server.started:
        raise ArgumentError("the studio could not start; the lines above say why")
    _end(studio)


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise where the two do not make a server that browsers talk to over TLS."""
    if certificate is None:
        if key is not None:
            raise ArgumentError(f"--key {key}: a key goes with a certificate: give --certificate")
        return
    for option, path in (("--certificate", certificate), ("--key", key)):
        if path is not None and os.path.exists(path) and not os.path.isfile(path):
            raise ArgumentError(f"{option} {path}: it is no plain file")  # and might be waited for
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        why = "not a certificate and its key, in PEM"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            why = error.strerror or why
        missing = "" if key is not None else "; its key goes in the same file, or with --key"
        raise ArgumentError(f"--certificate {certificate}: {why}{missing}") from None


def _end(studio: Studio) -> None:
    """Out. A native computation cannot be interrupted, and must not hold the process."""
    studio.work.join(LAST_WORDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _logged(app: Any) -> Any:
    """One line a request with method, path and status: never the query, which may hold a token."""

    async def logged(scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                path = scope["path"].encode("unicode_escape").decode()
                print(f"{scope['method']} {path} {message['status']}", file=sys.stderr, flush=True)
            await send(message)

        await app(scope, receive, noted if scope["type"] == "http" else send)

    return logged
