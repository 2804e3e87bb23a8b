"""Publish what a watch sees to an MQTT broker, with descriptions for Home Assistant."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fiveshot import __version__
from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.watch.regions import plain_id
from fiveshot.watch.sources import BROKER, EXTRA, Notices, check_no_password

if TYPE_CHECKING:
    from fiveshot.watch.watching import Report

PORTS = {"mqtt": 1883, "mqtts": 8883}
LAST_MESSAGE = 2.0  # seconds to wait until the last message is sent
CONNECTING = 5.0  # seconds for one attempt
LONGEST_DELAY = 30  # seconds between two attempts, at most
TOPICS = "fiveshot"  # our topics begin with this
DISCOVERY = "homeassistant"  # Home Assistant looks for devices below this topic


@dataclass(frozen=True)
class MqttSettings:
    """The broker, the login, and the name of the device.

    Attributes
    ----------
    url : str
        ``mqtt://host:port``, or ``mqtts://host:port`` for TLS.
    name : str
        Name of the device; topics and ids are made from it.
    login : tuple of str, optional
        User and password.
    ca : str, optional
        PEM file with the certificates to trust instead of the system's.
    certificate : str, optional
        PEM file with our own certificate and its key, for brokers that ask for one.
    discovery : bool
        Whether to describe the device to Home Assistant.

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
    discovery: bool = True

    def __post_init__(self) -> None:
        """Refuse addresses that are not of a broker, and certificates without TLS."""
        parts = urlsplit(self.url)
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InputError(
                f"{self.url!r} is not a broker's address", hint="write mqtt://host or mqtts://host:8883"
            )
        check_no_password(parts, f"the broker {parts.hostname}", "FIVESHOT_MQTT_CREDENTIALS")
        if parts.scheme == "mqtt" and (self.ca or self.certificate):
            raise InputError("certificates need TLS", hint="write mqtts:// instead of mqtt://")

    @property
    def host(self) -> str:
        """Host name of the broker."""
        return str(urlsplit(self.url).hostname)

    @property
    def port(self) -> int:
        """Port of the broker."""
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def id(self) -> str:
        """The name in the form that topics and ids allow."""
        return plain_id(self.name) or "camera"

    def topic(self, last: str, region: str = "") -> str:
        """Return one of our topics; a region has its own."""
        return "/".join([TOPICS, self.id, *([plain_id(region)] if region else []), last])


def discovery_messages(settings: MqttSettings, regions: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the messages, by topic, that describe sensors to Home Assistant: one for each region, or else two."""
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
            # A single class has no probability, and Home Assistant takes None for unknown.
            "value_template": "{{ (value_json.probability * 100) | round(1) "
            "if value_json.probability is not none else none }}",
            "unit_of_measurement": "%",
            "state_class": "measurement",
        },
    }
    if regions:
        sensors = {
            plain_id(name): {
                **sensors["seen"],
                "name": name,
                "state_topic": settings.topic("state", name),
                "json_attributes_topic": settings.topic("state", name),
                "availability": [{"topic": settings.topic("availability", of)} for of in ("", name)],
                "availability_mode": "all",
            }
            for name in regions
        }
    return {
        f"{DISCOVERY}/sensor/{settings.id}/{key}/config": {
            "state_topic": settings.topic("state"),
            "availability": [{"topic": settings.topic("availability")}],
            **sensor,
            "unique_id": f"fiveshot_{settings.id}_{key}",
            "device": device,
            "origin": {"name": "fiveshot", "sw_version": __version__},
        }
        for key, sensor in sensors.items()
    }


class Publisher:
    """Publishes the last report of each region, and whether photos arrive and the region can be seen.

    A separate thread keeps the connection. A lost broker is reported once. When it is back, it gets the
    description and the last reports; earlier ones are not sent again. It keeps nothing of an earlier watch with
    the same name: regions that are gone are removed.
    """

    def __init__(self, settings: MqttSettings, notices: Notices, regions: Sequence[str] = ()) -> None:
        mqtt = import_extra("paho.mqtt.client", extra=EXTRA)
        self._settings, self._notices = settings, notices
        self._described = discovery_messages(settings, regions) if settings.discovery else {}
        states = {settings.topic("state", region) for region in regions or [""]}
        self._available = dict.fromkeys(["", *regions], True)  # by region; "" is the source
        self._topics = {*self._described, *states, *(settings.topic("availability", of) for of in self._available)}
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}  # by region
        self._removals: list[Any] = []  # messages that remove what an earlier watch left
        self._connected = False
        self._tried = threading.Event()  # set after the first attempt to connect
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"fiveshot-{settings.id[:40]}-{secrets.token_hex(4)}"
        )
        self._client.connect_timeout = CONNECTING
        self._client.reconnect_delay_set(1, LONGEST_DELAY)
        if settings.login is not None:
            self._client.username_pw_set(*settings.login)
        if urlsplit(settings.url).scheme == "mqtts":
            try:
                self._client.tls_set(settings.ca, settings.certificate)
            except (OSError, ValueError) as error:
                raise InputError(f"the certificates cannot be used ({error})", hint="give PEM files") from error
        self._client.will_set(settings.topic("availability"), "offline", qos=1, retain=True)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_kept
        self._client.on_connect_fail = self._on_failure
        self._client.on_disconnect = self._on_disconnect
        self._client.connect_async(settings.host, settings.port, keepalive=30)
        self._client.loop_start()

    def tell(self, report: Report) -> None:
        """Publish a report: ``state`` is the vote, the rest is about the last photo."""
        seen = {"state": report.vote.label or "unknown", **report.as_dict()}
        del seen["event"]
        with self._lock:
            self._last[report.region] = json.dumps(seen, allow_nan=False)
            if self._connected:
                self._publish("state", self._last[report.region], report.region)

    def available(self, available: bool, region: str = "") -> None:
        """Publish whether photos arrive, or whether a region can be seen."""
        with self._lock:
            if available != self._available[region]:
                self._available[region] = available
                if self._connected:
                    self._tell_available(region)

    def close(self) -> None:
        """Publish that watching has ended, and disconnect. A short run waits until its messages are sent."""
        self._tried.wait(CONNECTING)
        with self._lock:
            said = self._publish("availability", "offline") if self._connected else None
        if said is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # the broker was gone before
                said.wait_for_publish(LAST_MESSAGE)
                for one in self._removals:  # complete: what was kept came before the answer to our last message
                    one.wait_for_publish(LAST_MESSAGE)
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, topic: str, text: str, region: str = "") -> Any:
        return self._client.publish(self._settings.topic(topic, region), text, qos=1, retain=True)

    def _tell_available(self, region: str) -> None:
        self._publish("availability", "online" if self._available[region] else "offline", region)

    @property
    def _where(self) -> str:
        return f"the broker {self._settings.host}:{self._settings.port}"

    def _on_connect(self, client: Any, _: Any, __: Any, reason: Any, ___: Any) -> None:
        if reason.is_failure:
            self._notices.trouble(BROKER, f"{self._where} refuses: {reason}; check user and password. Retrying")
            self._tried.set()
            return
        with self._lock:
            self._connected = True
            for topic, message in self._described.items():
                client.publish(topic, json.dumps(message), qos=1, retain=True)
            for region in self._available:
                self._tell_available(region)
            for region, text in self._last.items():
                self._publish("state", text, region)
        client.subscribe([(f"{DISCOVERY}/sensor/{self._settings.id}/+/config", 1), (self._settings.topic("#"), 1)])
        self._tried.set()
        self._notices.over(BROKER, f"{self._where} is back")

    def _on_kept(self, client: Any, _: Any, message: Any) -> None:
        """Remove a message that the broker has kept from an earlier watch; ``retain`` is False for a new one."""
        if message.retain and message.topic not in self._topics:
            self._removals.append(client.publish(message.topic, None, qos=1, retain=True))

    def _on_failure(self, *_: Any) -> None:
        self._notices.trouble(BROKER, f"{self._where} does not answer; retrying")
        self._tried.set()

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        with self._lock:
            self._connected = False
        if reason.is_failure:
            self._notices.trouble(BROKER, f"{self._where} is gone ({reason}); retrying")
