"""Settings of a service: its address, its token and its limits."""

from __future__ import annotations

import errno
import ipaddress
import math
import socket
from dataclasses import dataclass, field, fields

from fiveshot.data import MAX_PIXELS
from fiveshot.errors import InputError

MIB = 1024 * 1024
SHORTEST_TOKEN = 16
# Names and units of the limits on the command line.
_OPTIONS = {
    "photos": ("--max-photos", 1),
    "body_bytes": ("--max-megabytes", MIB),
    "pixels": ("--max-megapixels", 1_000_000),
    "rate": ("--rate", 1),
}


@dataclass(frozen=True)
class RequestLimits:
    """Limits for one request, for one client and for all clients together.

    Parameters
    ----------
    body_bytes : int
        Bytes of a request with photos.
    plain_bytes : int
        Bytes of any other request.
    held_bytes : int
        Bytes of all requests together, in memory.
    photos : int
        Photos of one request.
    pixels : int
        Pixels of one photo.
    pending : int
        Photos in progress at a time.
    waiting : int
        Requests with photos at a time.
    connections : int
        Open connections.
    address_connections : int
        Open connections of one address, or of one IPv6 network (/64).
    loopback_connections : int
        Connections reserved for clients on this machine.
    rate : float
        Requests a second of one client, on average. Twice as many may come in a burst.
    header_seconds : float
        Time until the headers of a request are complete.
    pause_seconds : float
        Time between two chunks of a body.
    body_seconds : float
        Time until a body is complete.
    read_seconds : float
        Time until a client has read the sent bytes.
    answer_seconds : float
        Time from the headers of a request to the end of its answer.
    linger_seconds : float
        Time for the rest of a body after its answer, and for the last bytes before a connection closes.
    idle_seconds : float
        Time between two requests on a connection.
    connection_seconds : float
        Age after which a connection closes with the next answer.
    keys : int
        Idempotency keys that are remembered.
    sortings : int
        Sets of photos without labels that are sorted at a time.
    sorted_photos : int
        Photos of one such set.
    sorted_bytes : int
        Bytes of all such sets together, in memory.
    sorting_seconds : float
        Time without a request after which such a set is dropped.

    Raises
    ------
    InputError
        If a limit allows nothing, or cannot be enforced.

    Examples
    --------
    >>> Settings(limits=RequestLimits(photos=10)).limits.photos
    10
    >>> RequestLimits(rate=0)
    Traceback (most recent call last):
    fiveshot.errors.InputError: rate is 0 (--rate 0); choose a number above 0
    """

    body_bytes: int = 64 * MIB
    plain_bytes: int = 64 * 1024
    held_bytes: int = 256 * MIB
    photos: int = 50
    pixels: int = 50_000_000
    pending: int = 200
    waiting: int = 64
    connections: int = 256
    address_connections: int = 128
    loopback_connections: int = 16
    rate: float = 200.0
    header_seconds: float = 10.0
    pause_seconds: float = 15.0
    body_seconds: float = 120.0
    read_seconds: float = 30.0
    answer_seconds: float = 300.0
    linger_seconds: float = 5.0
    idle_seconds: float = 20.0
    connection_seconds: float = 600.0
    keys: int = 10_000
    sortings: int = 8
    sorted_photos: int = 5000
    sorted_bytes: int = 512 * MIB
    sorting_seconds: float = 1800.0

    def __post_init__(self) -> None:
        for one in fields(self):
            name, value = one.name, getattr(self, one.name)
            if one.type == "int" and (type(value) is not int or value < 1):
                raise InputError(f"{name} is {_shown(name, value)}", hint="choose a whole number of at least 1")
            if one.type != "int" and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise InputError(f"{name} is {_shown(name, value)}", hint="choose a number above 0")
        if self.pixels > MAX_PIXELS:
            raise InputError(
                f"pixels is {_shown('pixels', self.pixels)}",
                hint=f"choose 1 to {MAX_PIXELS:,}: larger photos are never opened",
            )
        if self.held_bytes < self.body_bytes:
            raise InputError(
                f"held_bytes is {self.held_bytes:,}, of all requests together",
                hint=f"choose {self.body_bytes:,} (body_bytes, of one request) or more",
            )


def _shown(name: str, value: float) -> str:
    """Return a limit with the option that sets it."""
    if name not in _OPTIONS or not isinstance(value, int | float):
        return repr(value)
    option, unit = _OPTIONS[name]
    return f"{value:,} ({option} {value / unit:g})"


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    Parameters
    ----------
    host : str
        Address to listen on. Any but this machine's own needs a token.
    port : int
        Port to listen on; 0 takes any that is free.
    token : str, optional
        The token that clients must send: 16 or more ASCII characters.
    latency : float
        Seconds that a photo waits for others, to share a forward pass.
    batch_size : int, optional
        Photos in one forward pass. The default depends on the device.
    refresh : float
        Seconds between checks for changes of other processes.
    drain : int
        Seconds for running requests when the service stops.
    limits : RequestLimits
        How much the service takes on.
    read_only : bool
        Whether requests that would change the model are refused, and the page only tries photos.

    Raises
    ------
    InputError
        If a value makes no sense, or other machines could connect without a token.

    Examples
    --------
    >>> Settings(host="0.0.0.0")
    Traceback (most recent call last):
    fiveshot.errors.InputError: 0.0.0.0 can be reached from other machines, so a token is needed; ...
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    latency: float = 0.01
    batch_size: int | None = None
    refresh: float = 2.0
    drain: int = 20
    limits: RequestLimits = field(default_factory=RequestLimits)
    read_only: bool = False

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines, so a token is needed",
                hint="set FIVESHOT_TOKEN or --token, or stay on 127.0.0.1",
            )
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise InputError(
                f"the token must have {SHORTEST_TOKEN} or more characters, all ASCII",
                hint="make one with: python -c 'import secrets; print(secrets.token_urlsafe())'",
            )
        if not 0 <= self.port <= 65535:
            raise InputError(f"there is no port {self.port}", hint="choose one from 0 (any that is free) to 65535")
        if not 0 <= self.latency <= 1:
            raise InputError(f"a latency of {self.latency} s cannot be kept", hint="choose 0 to 1")
        if self.batch_size is not None and not 1 <= self.batch_size <= 1024:
            raise InputError(
                f"a forward pass of {self.batch_size} photos is not possible", hint="choose 1 to 1024"
            )
        if not 0 < self.refresh < math.inf:
            raise InputError(f"refresh is {self.refresh} s", hint="choose a number above 0")
        if self.drain < 0:
            raise InputError(f"drain is {self.drain} s", hint="choose 0 or more")


def listen(settings: Settings) -> socket.socket:
    """Open the port; a port in use and a host that is not this machine are errors.

    >>> with listen(Settings(port=0)) as opened:
    ...     address(opened).rpartition(":")[0]
    'http://127.0.0.1'
    """
    host = settings.host.strip("[]")
    try:
        found = socket.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        opened = socket.create_server(found[0][4][:2], family=found[0][0], backlog=256)
    except (OSError, UnicodeError) as error:  # the latter: not a valid host name
        reason = (isinstance(error, OSError) and error.strerror) or error
        wrong_host = isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL
        hint = (
            "choose an address of this machine with --host, such as 127.0.0.1"
            if wrong_host
            else "choose another with --port, or --port 0 for any that is free"
        )
        raise InputError(f"cannot listen on {settings.host}:{settings.port} ({reason})", hint=hint) from error
    # Connections inherit this: without it the end of a reply waits 40 ms for the client's acknowledgment.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def address(sock: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host can be reached only from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("192.168.0.9")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
