"""What routes refuse before they look at a request: parameters nobody knows, and bodies of another kind."""

from __future__ import annotations

from difflib import get_close_matches

from fastapi import Request

from fiveshot.service.errors import ApiError


async def as_documented(request: Request) -> None:
    """Refuse parameters and bodies that the OpenAPI document does not name, and parameters that are there twice.

    A misspelt ``state``, or a ``purge`` in a body, that went unnoticed would undo or keep what it should not.
    """
    operation = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    known = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    allowed = f"it takes {', '.join(known)}" if known else "it takes none"
    if "requestBody" not in operation and has_body(request):
        raise ApiError(
            422, "unknown_body", "this request takes no body", f"of parameters in the address {allowed}"
        )
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? {allowed}" if near else allowed
            raise ApiError(422, "unknown_parameter", f"this request takes no parameter {name[:50]!r}", hint)
        if given.count(name) > 1:
            raise ApiError(422, "repeated_parameter", f"the parameter {name!r} is there twice", "give it once")


async def json_body(request: Request) -> None:
    """Refuse a body that is not said to be JSON."""
    kind = media_type(request)
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ApiError(
            415,
            "not_json",
            f"the body comes as application/json, not as {kind or 'nothing'}",
            "send the header: Content-Type: application/json",
        )


def has_body(request: Request) -> bool:
    """Tell whether a request brings a body."""
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def media_type(request: Request) -> str:
    """Return the kind of a request's body, or nothing where it is not said."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
