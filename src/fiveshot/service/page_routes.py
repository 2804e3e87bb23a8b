"""The page: four files, read once, so that no path of a client is ever looked up on the disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from fiveshot.service.tagged import tagged

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/gallery.js": ("gallery.js", "text/javascript; charset=utf-8"),
    "/api.js": ("api.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_routes() -> APIRouter:
    """Return the routes of the page's files."""
    routes = APIRouter()
    folder = files("fiveshot.service") / "page"
    for path, (name, kind) in FILES.items():
        answer = _file((folder / name).read_bytes(), kind)
        routes.add_api_route(path, answer, include_in_schema=False, response_model=None)
    return routes


def _file(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        """Return a file of the page."""
        return tagged(request, data, kind, "no-cache")

    return answer
