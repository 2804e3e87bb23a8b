"""A recognizer over HTTP: an API, and a page to teach it by dropping photos into a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name, require_extra
from fiveshot.service.settings import MIB as MIB
from fiveshot.service.settings import RequestLimits, Settings
from fiveshot.service.settings import address as address
from fiveshot.service.settings import listen as listen

if TYPE_CHECKING:
    from fiveshot.service._app import create_app
    from fiveshot.service.label_studio import StudioSettings as StudioSettings
    from fiveshot.service.server import make_server as make_server

__all__ = ["RequestLimits", "Settings", "create_app"]
_LATER = {"create_app": "_app", "make_server": "server", "StudioSettings": "label_studio"}


def __getattr__(name: str) -> Any:
    """Import the application when it is asked for: settings can be checked without the web framework."""
    if name in _LATER:
        require_extra("fastapi", "python_multipart", "prometheus_client", extra="serve")
        return imported_name(__name__, (_LATER[name],), name, list(_LATER))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
