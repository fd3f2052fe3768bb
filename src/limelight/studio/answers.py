"""Answers: typed JSON, and every error as one sentence with the right status.

JSON has no NaN and no infinity. Numbers that are not finite leave as null, and come in as an error
of the request (400), never of the server.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from limelight.errors import LimelightError
from limelight.looking.pyramid import Cancelled
from limelight.studio.guard import TooLarge, TooSlow
from limelight.studio.work import Busy, Gone

CLIENT_CLOSED = 499  # nobody reads it; it keeps the record straight


class Problem(msgspec.Struct):
    """What every error answer holds."""

    error: str


class NotFound(LimelightError):
    """A capture, site, run or file that is not there."""


class Missing(LimelightError):
    """Something that needs a package which is not installed here."""


def _plain(item: Any) -> Any:
    if isinstance(item, (np.ndarray, np.generic)):
        return item.tolist()
    raise TypeError(f"{type(item).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def to_json(data: Any) -> bytes:
    """Strict JSON of structs, dicts, lists and NumPy arrays.

    >>> to_json({"weights": np.array([0.5, np.nan, np.inf])})
    b'{"weights":[0.5,null,null]}'
    """
    return _encoder.encode(data)


def answer(data: Any, status: int = 200) -> Response:
    return Response(to_json(data), status, media_type="application/json")


def problem(status: int, text: str, **headers: str) -> Response:
    return Response(to_json(Problem(text)), status, headers, media_type="application/json")


async def _asked_wrongly(request: Request, error: Exception) -> Response:
    return problem(400, request.app.state.folders.told(str(error)))


async def _not_found(_: Request, error: Exception) -> Response:
    return problem(404, str(error))


async def _missing(_: Request, error: Exception) -> Response:
    return problem(409, str(error))


async def _too_large(_: Request, error: Exception) -> Response:
    return problem(413, str(error), Connection="close")


async def _too_slow(_: Request, error: Exception) -> Response:
    return problem(408, str(error), Connection="close")


async def _busy(_: Request, __: Exception) -> Response:
    again = {"Retry-After": "1"}
    return problem(503, "too many requests are waiting: try again in a moment", **again)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


HANDLERS: dict[Any, Any] = {
    LimelightError: _asked_wrongly,
    msgspec.MsgspecError: _asked_wrongly,
    NotFound: _not_found,
    Missing: _missing,
    TooLarge: _too_large,
    TooSlow: _too_slow,
    Busy: _busy,
    Gone: _gone,
    Cancelled: _gone,
}
