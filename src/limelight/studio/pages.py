"""The page itself: the built front-end from the package, and nothing else from the disk."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOREVER = "public, max-age=31536000, immutable"


def static_folder() -> Path:
    return Path(str(files("limelight.studio"))) / "static"


class Assets(StaticFiles):
    """Files whose names hold their content's hash: the browser may keep them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = FOREVER
        return response


def page(tab: str | None = None) -> Response:
    """The page; with the tab's secret for whoever came with the token."""
    index = static_folder() / "index.html"
    if not index.is_file():
        return PlainTextResponse(
            "limelight: the studio's page was not built. In a checkout, `make web` builds it; a "
            "wheel has it inside.\n",
            status_code=503,
        )
    if tab is None:
        return FileResponse(index, media_type="text/html; charset=utf-8")
    told = f'<meta name="limelight-tab" content="{tab}" />'
    return HTMLResponse(index.read_text(encoding="utf-8").replace("<head>", f"<head>{told}", 1))


async def _page(_: Request) -> Response:
    return page()


async def _icon(_: Request) -> Response:
    icon = static_folder() / "favicon.svg"
    return FileResponse(icon) if icon.is_file() else Response(status_code=404)


def missing(path: str) -> Response:
    """What a browser shows at an address where nothing is."""
    return HTMLResponse(
        "<!doctype html><html lang=en><meta charset=utf-8><title>limelight: not found</title>"
        '<meta name=color-scheme content="light dark">'
        f"<h1>There is nothing at {escape(path)}</h1>"
        "<p><a href=/>To the studio</a>, or what its <a href=/api/openapi.json>API</a> answers to."
        "</html>",
        status_code=404,
    )


def routes() -> list[BaseRoute]:
    assets = static_folder() / "assets"
    mounted: list[BaseRoute] = [Route("/", _page), Route("/favicon.svg", _icon)]
    if assets.is_dir():
        mounted.append(Mount("/assets", Assets(directory=assets, follow_symlink=False)))
    return mounted
