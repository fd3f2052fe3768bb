"""Endpoint: one row of the API. Routes, checking, threads and description all read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from limelight.errors import ArgumentError
from limelight.studio.answers import answer
from limelight.studio.work import Cancel, Gone, Lane

if TYPE_CHECKING:
    from limelight.studio.studio import Studio


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request holds: path parts and query of a GET, the body of a POST, as typed fields."""


class Nothing(Asked, frozen=True):
    """A request without parameters."""


class MediaTypes:
    """What an endpoint gives that is not JSON: the kinds that its bytes may be."""

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclass(frozen=True)
class Binary:
    """An answer that is not JSON: its bytes, kind, and extra headers (a file's name, a shape)."""

    data: bytes
    media_type: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Endpoint:
    """One address of the API.

    function(studio, asked, cancel) runs in a thread of its lane. It is plain Python over the
    library: it knows nothing of HTTP. `gives` is the type of its answer, or MediaTypes.
    """

    path: str
    function: Callable[[Studio, Any, Cancel], Any]
    asked: type[Asked]
    gives: Any
    summary: str
    method: str = "GET"
    lane: Lane = "quick"

    def route(self, studio: Studio) -> Route:
        decoder = msgspec.json.Decoder(self.asked)

        async def handle(request: Request) -> Response:
            if self.method == "POST":
                try:
                    body = await request.body()
                except ClientDisconnect:
                    raise Gone from None
                asked = decoder.decode(body)
            else:
                asked = read_query(request, self.asked)
            return await studio.work.run(
                lambda cancel: respond(self.function(studio, asked, cancel)),
                request.receive,
                self.lane,
            )

        return Route(self.path, handle, methods=[self.method], name=self.function.__name__)


def read_query(request: Request, asked: type[Asked]) -> Asked:
    """Path parts and query as the fields of `asked`; a name given twice is an error."""
    pairs = request.query_params.multi_items()
    given: dict[str, Any] = dict(pairs)
    if len(given) < len(pairs) or set(given) & set(request.path_params):
        raise ArgumentError("a parameter is given twice: give each one once")
    given.update(request.path_params)
    return msgspec.convert(given, asked, strict=False)


def respond(made: Any) -> Response:
    """The finished answer; encoding a large one also belongs in the thread."""
    if isinstance(made, Binary):
        return Response(made.data, media_type=made.media_type, headers=made.headers)
    return answer(made)
