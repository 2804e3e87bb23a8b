"""How errors become answers of the one shape; what nobody expected gets it in ``Outside``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from fiveshot.service.errors import ApiError

DOCUMENT = "see GET /v1/openapi.json"
RENAMING = 'send an object, for example {"name": "tawny owl"}'


def answer_errors(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Give every error of an application with these routes the one shape."""

    @app.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, ApiError):  # raised while a body was read
            return error.__cause__.response()
        if error.status_code == 404:
            return nothing_there(request).response()
        if error.status_code == 405:
            return wrong_method(request, routes, error).response()
        if error.status_code == 400:
            return ApiError(400, "malformed", "the body cannot be read", DOCUMENT).response()
        text = str(error.detail).lower()
        return ApiError(error.status_code, "refused", text, DOCUMENT, headers=error.headers).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        found = error.errors()
        message = "; ".join(map(what_is_wrong, found[:5]))
        hint = RENAMING if any(one["loc"][0] == "body" for one in found) else DOCUMENT
        return ApiError(422, "invalid", message, hint).response()

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return ApiError(400, "cut_off", "the connection ended within the request", "send it again").response()


def nothing_there(request: Request) -> ApiError:
    """Return the answer for an address that leads nowhere."""
    slash = request.scope["path"].endswith("/")
    hint = "leave out the slash at the end" if slash else "GET /v1/openapi.json lists what there is"
    return ApiError(404, "not_found", "there is nothing at this address", hint)


def wrong_method(request: Request, routes: Sequence[BaseRoute], error: HTTPException) -> ApiError:
    """Return the answer for a method that an address does not take, with all that it does."""
    allowed = set((error.headers or {}).get("Allow", "").split(", "))  # of one route; there may be others
    for route in routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            allowed |= route.methods or set()
    if "GET" in allowed:
        allowed.add("HEAD")
    hint = "see the header Allow, or GET /v1/openapi.json"
    headers = {"Allow": ", ".join(sorted(allowed - {""}))}
    return ApiError(405, "wrong_method", "method not allowed", hint, headers=headers)


def what_is_wrong(error: Mapping[str, Any]) -> str:
    """Return what validation says about one value, in words for who sent it.

    >>> what_is_wrong({"type": "missing", "loc": ("body", "name"), "msg": "Field required"})
    'name: Field required'
    """
    place = error["loc"]
    if error["type"] == "json_invalid":
        return f"the body is no JSON: {error['ctx']['error']} at character {place[1]}"
    if place == ("body",):
        return "the body is empty" if error["type"] == "missing" else "the body is no JSON object"
    return f"{'.'.join(map(str, place[1:])) or place[0]}: {error['msg']}"
