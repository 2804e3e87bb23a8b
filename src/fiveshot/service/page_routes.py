"""The page: four files, read once, so that no path of a client is ever looked up on the disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

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
        routes.add_api_route(path, answer, methods=["GET", "HEAD"], include_in_schema=False, response_model=None)
    return routes


def _file(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{sha256(data).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Type": kind}

    async def answer(request: Request) -> Response:
        """Return a file of the page."""
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers)

    return answer
