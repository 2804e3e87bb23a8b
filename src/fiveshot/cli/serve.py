"""``fiveshot serve``, ``label-studio`` and ``watch``: a recognizer that goes on, over HTTP or as photos arrive."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Context, Option

from fiveshot.cli import options
from fiveshot.cli.output import echo, system_errors_told
from fiveshot.errors import FiveshotError, StorageError, counted

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer
    from fiveshot.service import Settings, StudioSettings
    from fiveshot.watch import Notice, Sighting

LIBRARIES = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")  # that every service needs
OfBroker = partial(Option, rich_help_panel="MQTT and Home Assistant")
OfCamera = partial(Option, rich_help_panel="Snapshots from an address")

Host = Annotated[str, Option(help="Address to listen on; any but this machine's own needs a token.")]
Port = Annotated[int, Option(help="Port to listen on; 0 takes any that is free.")]


def serve(
    model: options.Model,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Annotated[
        str | None, Option(envvar="FIVESHOT_TOKEN", help="What clients must know; 16 or more characters.")
    ] = None,
    latency: Annotated[
        float, Option(help="Milliseconds that a photo waits for others to share a forward pass with.")
    ] = 10.0,
    rate: Annotated[float, Option(help="Requests a second that one client may send.")] = 200.0,
    max_photos: Annotated[int, Option(help="Photos of one request.")] = 50,
    max_megabytes: Annotated[int, Option(help="Size of one request.")] = 64,
    max_megapixels: Annotated[int, Option(help="Size of one photo.")] = 50,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
) -> None:
    """Serve a model: a page to teach and try it in a browser, and an HTTP API.

    Example: fiveshot serve birds
    """
    from fiveshot.extras import require_extra
    from fiveshot.service import MIB, RequestLimits, Settings

    require_extra(*LIBRARIES, extra="serve")
    limits = RequestLimits(
        photos=max_photos,
        body_bytes=max_megabytes * MIB,
        held_bytes=max(RequestLimits().held_bytes, 4 * max_megabytes * MIB),
        pixels=max_megapixels * 1_000_000,
        rate=rate,
    )
    settings = Settings(host=host, port=port, token=token, latency=latency / 1000, limits=limits)
    _run(model, settings, device=device, runtime=runtime, weights=weights)


def label_studio(
    model: options.Model,
    studio: Annotated[
        str, Option(envvar="LABEL_STUDIO_URL", help="Address of Label Studio, as this machine reaches it.")
    ] = "http://localhost:8080",
    key: Annotated[
        str | None,
        Option(envvar="LABEL_STUDIO_API_KEY", help="An access token of Label Studio, to fetch its photos."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        Option(metavar="HOST", help="Another host that photos may be fetched from; any number of times."),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 9090,
    token: Annotated[
        str | None,
        Option(envvar="FIVESHOT_TOKEN", help="What Label Studio must send as the password; 16 characters."),
    ] = None,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
) -> None:
    """Be an ML backend of Label Studio: predict its tasks, and learn from annotations as they are submitted.

    Example: fiveshot label-studio birds --key TOKEN
    """
    from fiveshot.extras import require_extra
    from fiveshot.service import Settings

    require_extra(*LIBRARIES, "httpx", extra="label-studio")
    from fiveshot.service import StudioSettings

    settings = Settings(host=host, port=port, token=token)
    place = StudioSettings(studio, key, tuple(allow_host or ()))
    logging.basicConfig(format="%(message)s")
    logging.getLogger("fiveshot.label_studio").setLevel(logging.INFO)
    _run(model, settings, place, device=device, runtime=runtime, weights=weights)


def _run(model: Path, settings: Settings, studio: StudioSettings | None = None, **where: Any) -> None:
    """Serve a model until it is told to end; ``where`` is as for ``Recognizer.open``."""
    from fiveshot.recognizer import check_openable
    from fiveshot.service import address, listen

    check_openable(model, **where)
    if not os.access(model, os.W_OK):
        raise StorageError(
            f"cannot serve {model}: it is read-only, or not yours, and a service keeps what it is taught",
            hint="copy the folder to a place where you may write, and serve that",
            code="read_only",
        )

    def open_model() -> Recognizer:
        from fiveshot.recognizer import Recognizer

        return Recognizer.open(model, **where)

    with listen(settings) as sock:
        place = "" if studio is None else f", a backend for the Label Studio at {studio.url}"
        echo(f"serving {model} at {address(sock)}{place}")
        echo("Ctrl-C ends it" if studio else "open that address in a browser; Ctrl-C ends it")
        if settings.token is not None:
            echo("the page asks for the token; programs send it as: Authorization: Bearer TOKEN")
        from fiveshot.service import create_app, make_server

        make_server(create_app(open_model, settings, studio), settings).run(sockets=[sock])


def watch(
    ctx: Context,
    model: options.Model,
    place: Annotated[
        str, Argument(metavar="FOLDER|URL", help="A folder that photos arrive in, or the address of a snapshot.")
    ],
    existing: Annotated[bool, Option("--existing", help="Take the photos that are there already, too.")] = False,
    settle: Annotated[float, Option(help="Seconds for which a file stays as it is before it is read.")] = 1.0,
    frames: Annotated[int, Option(help="How many of the last photos vote.", min=1)] = 1,
    top: Annotated[int, Option(help="Candidates for each photo.", min=1)] = 3,
    sure: options.Sure = None,
    limit: Annotated[int | None, Option(help="End after so many photos.", min=1)] = None,
    out: Annotated[Path | None, Option(help="File that JSON lines are appended to.")] = None,
    run: Annotated[
        str | None,
        Option(
            help="Program to call for each photo, with {photo}, {label}, {answer}, {probability}, {vote}, {time} "
            "or {source} in its arguments; no shell sees them. It gets the JSON line on standard input."
        ),
    ] = None,
    on_change: Annotated[bool, Option("--on-change", help="Call it only when the vote changes.")] = False,
    run_timeout: Annotated[float, Option(help="Seconds after which the program is stopped.", min=0.1)] = 30.0,
    every: Annotated[float, OfCamera(help="Seconds between two snapshots.")] = 5.0,
    timeout: Annotated[float, OfCamera(help="Seconds that one may take.")] = 10.0,
    credentials: Annotated[
        str | None, OfCamera(metavar="FILE", help="File with user:password; else FIVESHOT_CREDENTIALS has them.")
    ] = None,
    ca: Annotated[str | None, OfCamera(metavar="FILE", help="Certificate to trust, for https.")] = None,
    mqtt: Annotated[
        str | None, OfBroker(metavar="URL", help="Broker: mqtt://host, or mqtts://host for TLS.")
    ] = None,
    name: Annotated[str | None, OfBroker(help="Of the device; the model's name unless given.")] = None,
    mqtt_credentials: Annotated[
        str | None,
        OfBroker(metavar="FILE", help="File with user:password; else FIVESHOT_MQTT_CREDENTIALS has them."),
    ] = None,
    mqtt_ca: Annotated[
        str | None, OfBroker(metavar="FILE", help="Certificate to trust instead of the system's.")
    ] = None,
    mqtt_certificate: Annotated[str | None, OfBroker(metavar="FILE", help="Our own certificate.")] = None,
    mqtt_key: Annotated[str | None, OfBroker(metavar="FILE", help="Its key.")] = None,
    mqtt_prefix: Annotated[str, OfBroker(help="Where topics begin.")] = "fiveshot",
    discovery: Annotated[
        str, OfBroker(help="Where Home Assistant looks for devices; '' describes none.")
    ] = "homeassistant",
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object in a line for each photo.")] = False,
) -> None:
    """Recognize photos as they arrive in a folder, or at an address every few seconds.

    Ctrl-C ends it. What goes wrong on the way is said once, and watching goes on.

    Example: fiveshot watch birds inbox

    Example: fiveshot watch birds http://camera/snapshot.jpg --frames 3 --mqtt mqtt://localhost
    """
    with _errors_told(model, as_json=as_json):
        from fiveshot.extras import require_extra

        require_extra("watchfiles", "paho", "httpx", extra="watch")
        from fiveshot.recognizer import Recognizer
        from fiveshot.watch import Command, MqttSettings, Watching, open_source
        from fiveshot.watch import credentials as login
        from fiveshot.watch import watch as watch_source

        _refuse_unused(ctx, place, run, mqtt)
        broker = None
        if mqtt is not None:
            broker = MqttSettings(
                mqtt,
                name or model.resolve().name,
                login(mqtt_credentials, "FIVESHOT_MQTT_CREDENTIALS"),
                mqtt_ca,
                mqtt_certificate,
                mqtt_key,
                mqtt_prefix,
                discovery,
            )
        source = open_source(
            place,
            existing=existing,
            every=every,
            settle=settle,
            timeout=timeout,
            login=login(credentials, "FIVESHOT_CREDENTIALS"),
            ca=ca,
        )
        command = None if run is None else Command(run, timeout=run_timeout)
        how = Watching(top, sure, frames, limit, on_change, command, out, broker)
        opened = Recognizer.open(model, device=device, runtime=runtime, weights=weights, readonly=True)
        with opened as recognizer, _stopped_by_signals() as stop:
            if not as_json:
                echo(f"watching {place} with {model}; Ctrl-C ends it", err=True)
            seen = watch_source(
                recognizer,
                source,
                how,
                stop=stop,
                on_sighting=_print_line if as_json else _print_sighting,
                on_notice=_print_line if as_json else lambda notice: echo(f"note: {notice.message}", err=True),
            )
        if not as_json:
            echo(f"watched {counted(seen, 'photo')}", err=True)


@contextmanager
def _errors_told(model: Path, *, as_json: bool) -> Iterator[None]:
    """Print an error that ends the watching as all commands do, with --json on one line."""
    try:
        with system_errors_told(model):
            yield
    except FiveshotError as error:
        if not as_json:
            raise
        echo(json.dumps({"command": "watch", "model": str(model), "ok": False, "error": error.as_dict()}))
        raise typer.Exit(1) from error


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM end the watching after a photo, not in the middle of it."""
    stop = threading.Event()
    endings = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(ending, lambda *_: stop.set()) for ending in endings]
    try:
        yield stop
    finally:
        for ending, handler in zip(endings, before, strict=True):
            signal.signal(ending, handler)


def _refuse_unused(ctx: Context, place: str, run: str | None, mqtt: str | None) -> None:
    if run is None:
        options.refuse_unused(ctx, "is for a program; name it with --run", "on_change", "run_timeout")
    if mqtt is None:
        named = ("name", "mqtt_credentials", "mqtt_ca", "mqtt_certificate", "mqtt_key", "mqtt_prefix", "discovery")
        options.refuse_unused(ctx, "is for a broker; name it with --mqtt", *named)
    if place.lower().startswith(("http://", "https://")):
        options.refuse_unused(ctx, "is for a folder; leave it out", "existing", "settle")
    else:
        options.refuse_unused(ctx, "is for an address; leave it out", "every", "timeout", "credentials", "ca")


def _print_line(event: Sighting | Notice) -> None:
    from fiveshot.watch import json_line

    echo(json_line(event.as_dict()))


def _print_sighting(sighting: Sighting) -> None:
    from fiveshot.cli.photos import describe

    vote = sighting.vote
    together = ""
    if vote.frames > 1:
        together = (
            f" [{vote.label or 'unknown'}, {vote.votes} of {vote.frames}]" if vote.decided else " [undecided]"
        )
    echo(f"{sighting.time} {describe(sighting.prediction)}{together}")
