"""Statuses that routes may answer with, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from fiveshot.service.schemas import ChangeReply, ErrorReply
from fiveshot.service.uploads import FIELD

REASONS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "A page of another site asked.",
    404: "There is no such class or picture.",
    405: "The method is not for this path.",
    408: "The request took too long to arrive.",
    409: "The state of the model does not allow it.",
    413: "Too many bytes, photos or pixels.",
    415: "The body is of another kind than this request takes.",
    421: "The service is not called so.",
    422: "A value, a name or a photo cannot be used.",
    429: "Too many requests.",
    503: "Too much is in work, or the model is being loaded.",
}
PENDING: dict[str, Any] = {
    "model": ChangeReply,
    "description": "The class is gone, but its traces cannot be erased yet: see `pending`. Do not send it again.",
}
COMMON = (400, 401, 403, 405, 408, 413, 421, 422, 429, 503)
PHOTOS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "additionalProperties": False,
                    "properties": {
                        FIELD: {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "Photos: JPEG, PNG, WebP and the like, each with a file name.",
                        }
                    },
                }
            }
        },
    }
}


def replies(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of a route, beside those that all have."""
    return {
        status: {"model": ErrorReply, "description": REASONS[status]} for status in sorted({*COMMON, *statuses})
    }
