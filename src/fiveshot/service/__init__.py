"""A recognizer over HTTP: an API, and a page to teach it by dropping photos into a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name, require_extra
from fiveshot.service.settings import RequestLimits, Settings

if TYPE_CHECKING:
    from fiveshot.service._app import create_app

__all__ = ["RequestLimits", "Settings", "create_app"]


def __getattr__(name: str) -> Any:
    """Import the application when it is asked for: settings can be checked without the web framework."""
    if name in __all__:
        require_extra("fastapi", "python_multipart", "prometheus_client", extra="serve")
    return imported_name(__name__, ("_app",), name, __all__)
