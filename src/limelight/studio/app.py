"""The app factory: routes, error handlers and the guard as data."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from limelight.studio import pages
from limelight.studio.answers import HANDLERS, answer, problem
from limelight.studio.api import ENDPOINTS, SOCKETS
from limelight.studio.guard import Guard
from limelight.studio.keys import Keys
from limelight.studio.openapi import describe
from limelight.studio.studio import Studio


def create_app(
    studio: Studio, *, keys: Keys, hosts: frozenset[str], port: int, secure: bool = False
) -> ASGIApp:
    """The guarded studio as an ASGI app; `hosts` are the exact Host values it answers to."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        studio.work.stop()

    inner = Starlette(routes=_routes(studio), exception_handlers=HANDLERS, lifespan=lifespan)
    inner.router.redirect_slashes = False
    inner.state.folders = studio.folders
    return Guard(inner, keys=keys, hosts=hosts, port=port, limits=studio.limits, secure=secure)


@cache
def _description() -> dict[str, Any]:
    """Made when it is first asked for: it takes as long as the rest of a start."""
    return describe(ENDPOINTS)


def _routes(studio: Studio) -> list[BaseRoute]:
    async def healthz(_: Request) -> Response:
        return answer({"status": "ok", "under_way": studio.work.under_way})

    async def openapi(_: Request) -> Response:
        return answer(_description())

    async def unknown(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):  # a person's browser
            return pages.missing(request.url.path)
        return problem(404, f"there is nothing at {request.url.path}: see /api/openapi.json")

    return [
        Route("/healthz", healthz),
        Route("/api/openapi.json", openapi),
        *(endpoint.route(studio) for endpoint in ENDPOINTS),
        *(socket.route(studio) for socket in SOCKETS),
        *pages.routes(),
        Route("/{rest:path}", unknown, methods=["GET", "POST"]),
    ]
