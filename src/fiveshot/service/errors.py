"""One shape for every error: ``{"error": {"code", "message", "hint"}}``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse

from fiveshot.data import ImageError
from fiveshot.errors import FiveshotError, StorageError

RETRY = {"Retry-After": "1"}


class ApiError(Exception):
    """An answer that is no: a status, a code for programs, a message and a way out for people."""

    def __init__(
        self, status: int, code: str, message: str, hint: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """Return the error as it goes over the wire."""
        body = {"error": {"code": self.code, "message": wire_text(self.message), "hint": wire_text(self.hint)}}
        return JSONResponse(body, self.status, headers=self.headers)


def busy(message: str) -> ApiError:
    """Return the refusal of work that would be taken on later."""
    return ApiError(503, "busy", message, "try again in a moment", headers=RETRY)


def too_large(message: str, hint: str) -> ApiError:
    """Return the refusal of a request that is too large."""
    return ApiError(413, "too_large", message, hint)


def not_found(what: str) -> ApiError:
    """Return the error for something that is not there."""
    return ApiError(404, "not_found", what, "GET /v1/classes lists what is there")


def from_library(error: FiveshotError, model: Path) -> ApiError:
    """Return an error of the library as an answer."""
    text = library_text(error, model)
    message, _, hint = text.partition("; ")
    if isinstance(error, StorageError):
        return ApiError(503, "storage", message, hint or "look at the server's disk", headers=RETRY)
    if isinstance(error, ImageError) or "cannot be used:" in message:
        return ApiError(422, "bad_photo", text, "send JPEG, PNG or WebP photos that open in a viewer")
    return ApiError(422, "refused", message, hint or "change the request")


def library_text(error: FiveshotError, model: Path) -> str:
    """Return what the library says; where the model lies is nobody's business."""
    return str(error).replace(str(model), "the model")


def wire_text(text: Any) -> str:
    """Return text that can be sent as UTF-8, whatever a client has put into it.

    >>> wire_text("a\\ud800")
    'a\\\\ud800'
    """
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")
