"""Sightings for a home: published to an MQTT broker, and described so that Home Assistant finds them."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fiveshot import __version__
from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.watch.sources import BROKER, EXTRA, Notices, check_no_password

if TYPE_CHECKING:
    from fiveshot.watch.sightings import Sighting

PORTS = {"mqtt": 1883, "mqtts": 8883}
FAREWELL = 2.0  # seconds for the last message
CONNECTING = 5.0  # seconds for one try
SLOWEST = 30  # seconds between two tries at most


@dataclass(frozen=True)
class MqttSettings:
    """Which broker, as whom, and under which names.

    Attributes
    ----------
    url : str
        ``mqtt://host:port``, or ``mqtts://host:port`` for TLS.
    name : str
        What the device is called; topics and ids are made of it.
    login : tuple of str, optional
        User and password.
    ca, certificate, key : str, optional
        PEM files: whom to trust instead of the system's authorities, and who we are, for TLS.
    prefix : str
        Where the topics of sightings begin.
    discovery : str
        Where Home Assistant looks for devices; an empty text describes none.

    Examples
    --------
    >>> settings = MqttSettings("mqtt://127.0.0.1", "Garden feeder")
    >>> settings.host, settings.port, settings.topic("state")
    ('127.0.0.1', 1883, 'fiveshot/garden_feeder/state')
    """

    url: str
    name: str
    login: tuple[str, str] | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    prefix: str = "fiveshot"
    discovery: str = "homeassistant"

    def __post_init__(self) -> None:
        """Refuse what cannot be a broker, and options of TLS without it."""
        parts = urlsplit(self.url)
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InputError(
                f"{self.url!r} is not a broker's address", hint="write mqtt://host or mqtts://host:8883"
            )
        check_no_password(parts, f"the broker {parts.hostname}", "FIVESHOT_MQTT_CREDENTIALS")
        if parts.scheme == "mqtt" and (self.ca or self.certificate or self.key):
            raise InputError("certificates are for TLS", hint="write mqtts:// instead of mqtt://")
        if (self.certificate is None) != (self.key is None):
            raise InputError("a certificate and its key go together", hint="give both, or none")
        for text in (self.prefix, self.discovery):
            if re.search(r"[+#\0]|^/|/$|//", text):
                raise InputError(
                    f"{text!r} cannot begin a topic", hint="use letters, digits, _ and single slashes"
                )

    @property
    def host(self) -> str:
        """The broker."""
        return str(urlsplit(self.url).hostname)

    @property
    def port(self) -> int:
        """Its port."""
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def id(self) -> str:
        """The name as topics and ids can have it."""
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_") or "camera"

    def topic(self, last: str) -> str:
        """Return one of our topics."""
        return f"{self.prefix}/{self.id}/{last}"


def discovery_messages(settings: MqttSettings) -> dict[str, dict[str, Any]]:
    """Return by topic what Home Assistant needs to show what was seen, and how sure that is."""
    device = {
        "identifiers": [f"fiveshot_{settings.id}"],
        "name": settings.name,
        "manufacturer": "fiveshot",
        "model": "watch",
        "sw_version": __version__,
    }
    sensors: dict[str, dict[str, Any]] = {
        "seen": {
            "name": "Seen",
            "icon": "mdi:image-search",
            "value_template": "{{ value_json.state }}",
            "json_attributes_topic": settings.topic("state"),
        },
        "probability": {
            "name": "Probability",
            "icon": "mdi:percent",
            "value_template": "{{ (value_json.probability * 100) | round(1) }}",
            "unit_of_measurement": "%",
            "state_class": "measurement",
        },
    }
    return {
        f"{settings.discovery}/sensor/{settings.id}/{key}/config": {
            **sensor,
            "unique_id": f"fiveshot_{settings.id}_{key}",
            "state_topic": settings.topic("state"),
            "availability_topic": settings.topic("availability"),
            "device": device,
            "origin": {"name": "fiveshot", "sw_version": __version__},
        }
        for key, sensor in sensors.items()
    }


class Publisher:
    """Keeps the broker told: what was seen last, and whether anything is being watched.

    The connection is made and kept by a thread of its own. A broker that goes away is said once; when it is back
    it gets the description and what was seen last. What was seen in between is not kept for it.
    """

    def __init__(self, settings: MqttSettings, notices: Notices) -> None:
        mqtt = import_extra("paho.mqtt.client", extra=EXTRA)
        self._settings, self._notices = settings, notices
        self._lock = threading.Lock()
        self._last: str | None = None
        self._available = True
        self._connected = False
        self._tried = threading.Event()  # set once the broker has answered, or has not
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"fiveshot-{settings.id[:40]}-{secrets.token_hex(4)}"
        )
        self._client.connect_timeout = CONNECTING
        self._client.reconnect_delay_set(1, SLOWEST)
        if settings.login is not None:
            self._client.username_pw_set(*settings.login)
        if urlsplit(settings.url).scheme == "mqtts":
            try:
                self._client.tls_set(settings.ca, settings.certificate, settings.key)
            except (OSError, ValueError) as error:
                raise InputError(f"the certificates cannot be used ({error})", hint="give PEM files") from error
        self._client.will_set(settings.topic("availability"), "offline", qos=1, retain=True)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_failure
        self._client.on_disconnect = self._on_disconnect
        self._client.connect_async(settings.host, settings.port, keepalive=30)
        self._client.loop_start()

    def tell(self, sighting: Sighting) -> None:
        """Publish what was seen: ``state`` is the vote, the rest is about the last photo."""
        seen = {"state": sighting.vote.label or "unknown", **sighting.as_dict()}
        del seen["event"]
        with self._lock:
            self._last = json.dumps(seen, allow_nan=False)
            if self._connected:
                self._publish("state", self._last)

    def available(self, available: bool) -> None:
        """Publish whether photos come."""
        with self._lock:
            if available != self._available:
                self._available = available
                if self._connected:
                    self._tell_available()

    def close(self) -> None:
        """Say that nobody watches any more, and leave; a short run waits until the broker has what it saw."""
        self._tried.wait(CONNECTING)
        with self._lock:
            said = self._publish("availability", "offline") if self._connected else None
        if said is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # the broker has left first
                said.wait_for_publish(FAREWELL)
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, topic: str, text: str) -> Any:
        return self._client.publish(self._settings.topic(topic), text, qos=1, retain=True)

    def _tell_available(self) -> None:
        self._publish("availability", "online" if self._available else "offline")

    @property
    def _where(self) -> str:
        return f"the broker {self._settings.host}:{self._settings.port}"

    def _on_connect(self, client: Any, _: Any, __: Any, reason: Any, ___: Any) -> None:
        if reason.is_failure:
            self._notices.trouble(BROKER, f"{self._where} refuses: {reason}; check user and password. Trying on")
            self._tried.set()
            return
        with self._lock:
            self._connected = True
            if self._settings.discovery:
                for topic, message in discovery_messages(self._settings).items():
                    client.publish(topic, json.dumps(message), qos=1, retain=True)
            self._tell_available()
            if self._last is not None:
                self._publish("state", self._last)
        self._tried.set()
        self._notices.over(BROKER, f"{self._where} is there again")

    def _on_failure(self, *_: Any) -> None:
        self._notices.trouble(BROKER, f"{self._where} does not answer; trying on")
        self._tried.set()

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        with self._lock:
            self._connected = False
        if reason.is_failure:
            self._notices.trouble(BROKER, f"{self._where} is gone ({reason}); trying on")
