"""Errors as replies of one shape: ``{"code", "message", "hint"}``, with ``details`` for several problems."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from fiveshot.data import ImageError
from fiveshot.errors import FiveshotError, StorageError
from fiveshot.recognizer import LostModelError

RETRY = {"Retry-After": "1"}
SEE_DOCUMENT = "see GET /v1/openapi.json"
PHOTO_HINT = "send photos that open in a viewer"
DRAIN_SECONDS = 5.0  # time to read and discard a body
DRAIN_BYTES = 256 * 1024 * 1024
MOST_DETAILS = 10
Detail = Mapping[str, str]  # "name", "code" and "message" of one problem


class ApiError(FiveshotError):
    """An error with its HTTP status, its headers, and details of several problems."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str,
        *,
        headers: Mapping[str, str] | None = None,
        details: Sequence[Detail] = (),
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.status = status
        self.headers = dict(headers or {})
        self.details = tuple(details)

    def as_dict(self) -> dict[str, Any]:
        """Return the shape that every error has."""
        body: dict[str, Any] = {key: wire_text(text) for key, text in super().as_dict().items()}
        if self.details:
            body["details"] = [
                {key: wire_text(text) for key, text in one.items()} for one in self.details[:MOST_DETAILS]
            ]
        return body

    def response(self) -> JSONResponse:
        """Return the error as an HTTP response."""
        return JSONResponse(self.as_dict(), self.status, headers=self.headers)


def busy(message: str) -> ApiError:
    """Return the error for a request that comes while the service is busy."""
    return ApiError(503, "busy", message, "try again in a moment", headers=RETRY)


def loading(message: str, hint: str) -> ApiError:
    """Return the error for a request that comes before the model is loaded."""
    return ApiError(503, "loading", message, hint, headers=RETRY)


def too_large(message: str, hint: str) -> ApiError:
    """Return the error for a request that is too large."""
    return ApiError(413, "too_large", message, hint)


def not_found(message: str) -> ApiError:
    """Return the error for something that does not exist."""
    return ApiError(404, "not_found", message, "list the classes with GET /v1/classes")


def from_library(error: FiveshotError, model: Path | None) -> ApiError:
    """Return an error of the library as a reply; an ``ApiError`` stays unchanged."""
    if isinstance(error, ApiError):
        return error
    message, hint = without_path(error.message, model), without_path(error.hint, model)
    if isinstance(error, LostModelError):
        return ApiError(503, error.code, message, hint, headers=RETRY)
    if isinstance(error, StorageError):
        return ApiError(503, "storage", message, hint or "check the server's disk", headers=RETRY)
    if isinstance(error, ImageError):
        return ApiError(422, "bad_photo", message, hint or PHOTO_HINT)
    return ApiError(422, "refused", message, hint or "change the request")


def without_path(text: str, model: Path | None) -> str:
    """Return text without the path of the model."""
    return text if model is None else text.replace(str(model), "the model")


def wire_text(text: Any) -> str:
    """Return text that can be sent as UTF-8, even if a client sent invalid characters.

    >>> wire_text("a\\ud800")
    'a\\\\ud800'
    """
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an error before the body was read, and end the connection.

    A client that is still sending would see a broken connection instead of the reply. So its body is read for a
    moment and discarded. A client that waits for permission to send does not get it.
    """
    if Headers(scope=scope).get("expect", "").lower() != "100-continue":
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await _throw_away(receive)
    error.headers.setdefault("Connection", "close")
    await error.response()(scope, receive, send)


async def _throw_away(receive: Receive) -> None:
    """Read and discard a body, up to a limit."""
    seen = 0
    while seen <= DRAIN_BYTES:
        message = await receive()
        seen += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


def answer_errors(app: FastAPI) -> None:
    """Give every error of an application the same shape, without the path of the model."""

    @app.exception_handler(FiveshotError)
    async def refused(_: Request, error: FiveshotError) -> Response:
        return from_library(error, app.state.service.engine.path).response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, ApiError):  # raised while a body was read
            return error.__cause__.response()
        return _plain_error(request, error).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _invalid(error.errors(), _example_of(request)).response()

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return ApiError(400, "cut_off", "the connection ended before the request did", "send it again").response()


def _plain_error(request: Request, error: HTTPException) -> ApiError:
    """Return the reply for an error of the framework."""
    if error.status_code == 404:
        slash = request.scope["path"].endswith("/")
        hint = "remove the slash at the end" if slash else "list all addresses with GET /v1/openapi.json"
        return ApiError(404, "not_found", "there is nothing at this address", hint)
    if error.status_code == 405:
        headers = {"Allow": ", ".join(_allowed(request, error))}
        hint = "see the header Allow, or GET /v1/openapi.json"
        return ApiError(405, "wrong_method", "method not allowed", hint, headers=headers)
    if error.status_code == 400:
        return ApiError(400, "malformed", "the body cannot be read", SEE_DOCUMENT)
    text = str(error.detail).lower()
    return ApiError(error.status_code, "refused", text, SEE_DOCUMENT, headers=error.headers)


def _allowed(request: Request, error: HTTPException) -> list[str]:
    """Return all methods that an address accepts."""
    allowed = set((error.headers or {}).get("Allow", "").split(", "))  # only of one route
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            allowed |= route.methods or set()
    if "GET" in allowed:
        allowed.add("HEAD")
    return sorted(allowed - {""})


def _example_of(request: Request) -> str:
    """Return an example body for this request, from the OpenAPI document."""
    body = getattr(request.scope.get("route"), "body_field", None)
    settings = getattr(body.field_info.annotation, "model_config", {}) if body is not None else {}
    example = settings.get("json_schema_extra", {}).get("example")
    return SEE_DOCUMENT if example is None else f"send an object, for example {json.dumps(example)}"


def _invalid(found: Sequence[Mapping[str, Any]], example: str) -> ApiError:
    """Return the reply for values that fail validation."""
    details = [
        {"name": ".".join(map(str, one["loc"][1:])), "code": one["type"], "message": what_is_wrong(one)}
        for one in found
    ]
    message = "; ".join(one["message"] for one in details[:5])
    hint = example if any(one["loc"][0] == "body" for one in found) else SEE_DOCUMENT
    return ApiError(422, "invalid", message, hint, details=details)


def what_is_wrong(error: Mapping[str, Any]) -> str:
    """Return the validation error of one value as a message for the client.

    >>> what_is_wrong({"type": "missing", "loc": ("body", "name"), "msg": "Field required"})
    'name: Field required'
    """
    place = error["loc"]
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']} at character {place[1]}"
    if place == ("body",):
        return "the body is empty" if error["type"] == "missing" else "the body is not a JSON object"
    return f"{'.'.join(map(str, place[1:])) or place[0]}: {error['msg']}"
