"""What a service is told: where it listens, who may ask, and how much it takes on."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field, fields

from fiveshot.data import MAX_PIXELS
from fiveshot.errors import InputError

MIB = 1024 * 1024
SHORTEST_TOKEN = 16
# What the command line calls a limit, and in which unit.
_OPTIONS = {
    "photos": ("--max-photos", 1),
    "body_bytes": ("--max-megabytes", MIB),
    "pixels": ("--max-megapixels", 1_000_000),
    "rate": ("--rate", 1),
}


@dataclass(frozen=True)
class Limits:
    """What one request, one client and all of them together may ask for.

    >>> Settings(limits=Limits(photos=10)).limits.photos
    10
    >>> Limits(rate=0)
    Traceback (most recent call last):
    fiveshot.errors.InputError: rate is 0 (--rate 0); choose a number above 0
    """

    body_bytes: int = 64 * MIB  # of a request with photos
    plain_bytes: int = 64 * 1024  # of any other request
    held_bytes: int = 256 * MIB  # of all requests together, in memory
    photos: int = 50  # of a request
    pixels: int = 50_000_000  # of a photo
    pending: int = 200  # photos in work at a time
    waiting: int = 64  # requests with photos at a time
    connections: int = 256
    rate: float = 200.0  # requests a second of one client, on average; twice as many in a burst
    header_seconds: float = 10.0  # until a request's headers are there
    pause_seconds: float = 15.0  # between two pieces of a body
    body_seconds: float = 120.0  # until a body is there
    keys: int = 10_000  # idempotency keys that are remembered

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could be asked, or which could not be kept."""
        for one in fields(self):
            value = getattr(self, one.name)
            _check_limit(one.name, value, whole=one.type == "int")
        if self.pixels > MAX_PIXELS:
            shown = _shown("pixels", self.pixels)
            raise InputError(f"pixels is {shown}; choose 1 to {MAX_PIXELS:,}: larger photos are never opened")
        if self.held_bytes < self.body_bytes:
            raise InputError(
                f"held_bytes is {self.held_bytes:,}, of all requests together; choose {self.body_bytes:,} "
                "(body_bytes, of one request) or more"
            )


def _check_limit(name: str, value: float, *, whole: bool) -> None:
    if whole and (type(value) is not int or value < 1):
        raise InputError(f"{name} is {_shown(name, value)}; choose a whole number from 1 on")
    if not whole and not (isinstance(value, int | float) and 0 < value < math.inf):
        raise InputError(f"{name} is {_shown(name, value)}; choose a number above 0")


def _shown(name: str, value: float) -> str:
    if name not in _OPTIONS or not isinstance(value, int | float):
        return repr(value)
    option, unit = _OPTIONS[name]
    return f"{value:,} ({option} {value / unit:g})"


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    >>> Settings(host="0.0.0.0")
    Traceback (most recent call last):
    fiveshot.errors.InputError: 0.0.0.0 can be reached from other machines, so a token is needed; ...
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    latency: float = 0.01  # seconds that a photo waits for others to share a forward pass with
    batch_size: int | None = None  # photos of a forward pass; None: what the device likes
    refresh: float = 2.0  # seconds between looks at what other processes have changed
    drain: int = 20  # seconds for what is in flight when the service ends
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Refuse to listen to the world without a token, and values that make no sense."""
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines, so a token is needed; "
                "set FIVESHOT_TOKEN or --token, or stay on 127.0.0.1"
            )
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise InputError(
                f"the token must have {SHORTEST_TOKEN} or more characters, all ASCII; "
                "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        if not 0 <= self.port <= 65535:
            raise InputError(f"there is no port {self.port}; choose one from 0 (any that is free) to 65535")
        if not 0 <= self.latency <= 1:
            raise InputError(f"a latency of {self.latency} s cannot be kept; choose 0 to 1")
        if self.batch_size is not None and not 1 <= self.batch_size <= 1024:
            raise InputError(f"a forward pass of {self.batch_size} photos is not possible; choose 1 to 1024")
        if not 0 < self.refresh < math.inf:
            raise InputError(f"refresh is {self.refresh} s; choose a number above 0")
        if self.drain < 0:
            raise InputError(f"drain is {self.drain} s; choose 0 or more")


def is_loopback(host: str) -> bool:
    """Tell whether a host can be reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("192.168.0.9")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
