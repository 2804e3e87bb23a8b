"""A recogniser over HTTP: an API, and a page to teach it by dropping photos into a browser."""

from __future__ import annotations

from fiveshot.service.settings import Limits, Settings

__all__ = ["Limits", "Settings"]
