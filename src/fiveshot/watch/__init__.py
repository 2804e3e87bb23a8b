"""Watch a folder or a camera: recognize new photos, let them vote, and report to files, programs and MQTT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name

if TYPE_CHECKING:
    from fiveshot.watch.mqtt import MqttSettings as MqttSettings
    from fiveshot.watch.regions import parse_regions as parse_regions
    from fiveshot.watch.sources import Notice as Notice
    from fiveshot.watch.sources import credentials as credentials
    from fiveshot.watch.sources import is_address as is_address
    from fiveshot.watch.sources import open_source as open_source
    from fiveshot.watch.watching import Command as Command
    from fiveshot.watch.watching import Report as Report
    from fiveshot.watch.watching import Watching as Watching
    from fiveshot.watch.watching import json_line as json_line
    from fiveshot.watch.watching import watch as watch

_NAMES = (
    "Command",
    "MqttSettings",
    "Notice",
    "Report",
    "Watching",
    "credentials",
    "is_address",
    "json_line",
    "open_source",
    "parse_regions",
    "watch",
)


def __getattr__(name: str) -> Any:
    return imported_name(__name__, ("mqtt", "regions", "sources", "watching"), name, _NAMES)
