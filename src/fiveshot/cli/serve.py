"""``fiveshot serve``, ``label-studio`` and ``watch``: commands that run until they are stopped."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from fiveshot.cli import options
from fiveshot.cli.output import echo, report_system_errors
from fiveshot.errors import FiveshotError, InputError, StorageError, counted

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer
    from fiveshot.service import Settings, StudioSettings
    from fiveshot.values import SightingLimits
    from fiveshot.watch import Notice, Report

LIBRARIES = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")  # needed by every service
SOURCE, KEEP, REPORT = (
    "The folder or the camera",
    "Keep photos without a name",
    "Call a program, MQTT and Home Assistant",
)

Host = Annotated[str, Option(metavar="NAME", help="Address to listen on; others need --token.")]
Port = Annotated[int, Option(metavar="N", help="Port to listen on; 0 means any free port.")]


def serve(
    model: options.Model,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Annotated[
        str | None, Option(metavar="TEXT", envvar="FIVESHOT_TOKEN", help="Password of at least 16 characters.")
    ] = None,
    latency: Annotated[float, Option(metavar="MS", help="Milliseconds to wait for more photos.")] = 10.0,
    rate: Annotated[float, Option(metavar="N", help="Requests per second for one client.")] = 200.0,
    max_photos: Annotated[int, Option(metavar="N", help="Photos in a request.")] = 50,
    max_megabytes: Annotated[int, Option(metavar="N", help="Megabytes in a request.")] = 64,
    max_megapixels: Annotated[int, Option(metavar="N", help="Megapixels of a photo.")] = 50,
    read_only: Annotated[bool, Option("--read-only", help="Recognize photos; refuse changes.")] = False,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
) -> None:
    """Serve a model over HTTP, with a page to teach and try it in the browser.

    Example: fiveshot serve birds

    Example: fiveshot serve birds --read-only
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
    settings = Settings(
        host=host, port=port, token=token, latency=latency / 1000, limits=limits, read_only=read_only
    )
    _run(model, settings, device=device, runtime=runtime, weights=weights)


def label_studio(
    model: options.Model,
    studio: Annotated[
        str, Option(metavar="URL", envvar="LABEL_STUDIO_URL", help="Address of Label Studio.")
    ] = "http://localhost:8080",
    key: Annotated[
        str | None,
        Option(metavar="TEXT", envvar="LABEL_STUDIO_API_KEY", help="Access token of Label Studio."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        Option(metavar="HOST", help="Another host to fetch photos from; repeatable."),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 9090,
    token: Annotated[
        str | None,
        Option(metavar="TEXT", envvar="FIVESHOT_TOKEN", help="Password of at least 16 characters."),
    ] = None,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
) -> None:
    """Run an ML backend for Label Studio: predict tasks, and learn from submitted annotations.

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
    """Serve a model until stopped; ``where`` is as for ``Recognizer.open``."""
    from fiveshot.recognizer import check_openable
    from fiveshot.service import address, listen

    check_openable(model, **where)
    if not settings.read_only and not os.access(model, os.W_OK):
        copy = "copy it to a folder that you can write to, and serve the copy"
        raise StorageError(
            f"cannot serve {model}: the folder is not writable",
            hint=copy if studio else f"add --read-only, or {copy}",
            code="read_only",
        )

    def open_model() -> Recognizer:
        from fiveshot.recognizer import Recognizer

        return Recognizer.open(model, readonly=settings.read_only, **where)

    with listen(settings) as sock:
        place = "" if studio is None else f", a backend for the Label Studio at {studio.url}"
        how = " read-only" if settings.read_only else ""
        echo(f"serving {model}{how} at {address(sock)}{place}")
        echo("stop with Ctrl-C" if studio else "open this address in a browser; stop with Ctrl-C")
        if settings.token is not None:
            echo("the page asks for the token; programs send the header: Authorization: Bearer TOKEN")
        from fiveshot.service import create_app, make_server

        make_server(create_app(open_model, settings, studio), settings).run(sockets=[sock])


def watch(
    model: options.Model,
    place: Annotated[
        str, Argument(metavar="FOLDER|URL", help="Folder to watch, or address of a camera's snapshot.")
    ],
    box: Annotated[
        list[str] | None,
        Option(metavar="NAME=X,Y,W,H", help="Recognize this part, by this name; repeatable."),
    ] = None,
    when_changed: Annotated[bool, Option("--when-changed", help="Compute nothing for a still picture.")] = False,
    frames: Annotated[int, Option(metavar="N", help="Let the last N photos vote.", min=1)] = 1,
    top: Annotated[int, Option(metavar="N", help="Show at most N candidates.", min=1)] = 3,
    sure: options.Sure = None,
    limit: Annotated[int | None, Option(metavar="N", help="Stop after N photos.", min=1)] = None,
    out: Annotated[Path | None, Option(metavar="FILE", help="Append JSON lines to this file.")] = None,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    weights: options.Weights = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per line.")] = False,
    keep: Annotated[
        Literal["unsure", "all", "none"],
        Option(
            metavar="WHICH", help="Photos to name later: unsure and unknown ones, or all.", rich_help_panel=KEEP
        ),
    ] = "none",
    keep_most: Annotated[
        int | None,
        Option(metavar="N", help="Keep at most N photos.", show_default="1000", rich_help_panel=KEEP),
    ] = None,
    keep_megabytes: Annotated[
        float | None,
        Option(metavar="N", help="Keep at most N megabytes.", show_default="500", rich_help_panel=KEEP),
    ] = None,
    keep_days: Annotated[
        float | None,
        Option(metavar="N", help="Keep a photo for N days.", show_default="30", rich_help_panel=KEEP),
    ] = None,
    existing: Annotated[
        bool, Option("--existing", help="Include photos that are already there.", rich_help_panel=SOURCE)
    ] = False,
    settle: Annotated[
        float | None,
        Option(
            metavar="SECONDS",
            help="Read a file after it has not changed for this time.",
            show_default="1",
            rich_help_panel=SOURCE,
        ),
    ] = None,
    every: Annotated[
        float | None,
        Option(metavar="SECONDS", help="Time between two snapshots.", show_default="5", rich_help_panel=SOURCE),
    ] = None,
    credentials: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="File with user:password.",
            show_default="FIVESHOT_CREDENTIALS",
            rich_help_panel=SOURCE,
        ),
    ] = None,
    run: Annotated[
        str | None,
        Option(
            metavar="COMMAND",
            help="Call it for each photo: {photo}, {label}, {vote} and so on are filled in.",
            rich_help_panel=REPORT,
        ),
    ] = None,
    on_change: Annotated[
        bool, Option("--on-change", help="Call it only if the vote changes.", rich_help_panel=REPORT)
    ] = False,
    mqtt: Annotated[
        str | None,
        Option(metavar="URL", help="Broker: mqtt://host, or mqtts://host for TLS.", rich_help_panel=REPORT),
    ] = None,
    name: Annotated[
        str | None,
        Option(
            metavar="TEXT", help="Name of the device.", show_default="name of the model", rich_help_panel=REPORT
        ),
    ] = None,
    mqtt_credentials: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="File with user:password.",
            show_default="FIVESHOT_MQTT_CREDENTIALS",
            rich_help_panel=REPORT,
        ),
    ] = None,
    discovery: Annotated[
        bool, Option(help="Describe the device to Home Assistant.", rich_help_panel=REPORT)
    ] = True,
    ca: Annotated[
        str | None, Option(metavar="FILE", help="Certificate to trust (PEM).", rich_help_panel=REPORT)
    ] = None,
    certificate: Annotated[
        str | None,
        Option(metavar="FILE", help="Own certificate and key for the broker (PEM).", rich_help_panel=REPORT),
    ] = None,
) -> None:
    """Recognize photos as they arrive in a folder, or from a camera every few seconds. Stop with Ctrl-C.

    Problems are reported once, and watching continues.

    Example: fiveshot watch birds inbox

    Example: fiveshot watch birds http://camera/snapshot.jpg --frames 3 --mqtt mqtt://localhost

    Example: fiveshot watch yard http://camera/a.jpg --box gate=0.1,0.2,0.3,0.4 --keep unsure
    """
    with _report_errors(model, as_json=as_json):
        from fiveshot.extras import require_extra

        require_extra("watchfiles", "paho", "httpx", extra="watch")
        from fiveshot.recognizer import Recognizer
        from fiveshot.watch import Command, MqttSettings, Watching, is_address, open_source, parse_regions
        from fiveshot.watch import credentials as login
        from fiveshot.watch import watch as watch_source

        if on_change and run is None:
            raise _needs("--on-change", "--run COMMAND")
        if credentials is not None and not is_address(place):
            raise _needs("--credentials", "the address of a camera")
        if mqtt is None and (name or mqtt_credentials or certificate):
            option = "--name" if name else "--mqtt-credentials" if mqtt_credentials else "--certificate"
            raise _needs(option, "--mqtt URL")
        regions = parse_regions(box or ())
        limits = _sighting_limits(keep, number=keep_most, megabytes=keep_megabytes, days=keep_days)
        broker = None
        if mqtt is not None:
            broker = MqttSettings(
                mqtt,
                name or model.resolve().name,
                login(mqtt_credentials, "FIVESHOT_MQTT_CREDENTIALS"),
                ca if mqtt.startswith("mqtts:") else None,
                certificate,
                discovery=discovery,
            )
        source = open_source(
            place,
            existing=existing,
            settle=settle,
            every=every,
            login=login(credentials, "FIVESHOT_CREDENTIALS"),
            ca=ca,
        )
        command = None if run is None else Command(run)
        how = Watching(
            top, sure, frames, limit, on_change, command, out, broker, keep, limits, regions, when_changed
        )
        readonly = keep == "none"
        opened = Recognizer.open(model, device=device, runtime=runtime, weights=weights, readonly=readonly)
        with opened as recognizer, _stopped_by_signals() as stop:
            if not as_json:
                echo(f"watching {place} with {model}; stop with Ctrl-C", err=True)
            seen = watch_source(
                recognizer,
                source,
                how,
                stop=stop,
                on_report=_print_line if as_json else _print_report,
                on_notice=_print_line if as_json else lambda notice: echo(f"note: {notice.message}", err=True),
            )
        if not as_json:
            echo(f"watched {counted(seen, 'photo')}", err=True)


def _sighting_limits(keep: str, **given: float | None) -> SightingLimits:
    from fiveshot.values import SightingLimits

    wanted = {name: value for name, value in given.items() if value is not None}
    if keep == "none" and wanted:
        options = {"number": "--keep-most", "megabytes": "--keep-megabytes", "days": "--keep-days"}
        raise _needs(options[next(iter(wanted))], "--keep unsure or --keep all")
    return SightingLimits(**wanted)  # type: ignore[arg-type]


def _needs(option: str, other: str) -> InputError:
    return InputError(f"{option} needs {other}", hint="add it, or leave the option out", code="unused_option")


@contextmanager
def _report_errors(model: Path, *, as_json: bool) -> Iterator[None]:
    """Print an error that ends the command; with --json on one line."""
    try:
        with report_system_errors(model):
            yield
    except FiveshotError as error:
        if not as_json:
            raise
        echo(json.dumps({"command": "watch", "model": str(model), "ok": False, "error": error.as_dict()}))
        raise typer.Exit(1) from error


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM stop the command between two photos, not within one."""
    stop = threading.Event()
    endings = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(ending, lambda *_: stop.set()) for ending in endings]
    try:
        yield stop
    finally:
        for ending, handler in zip(endings, before, strict=True):
            signal.signal(ending, handler)


def _print_line(event: Report | Notice) -> None:
    from fiveshot.watch import json_line

    echo(json_line(event.as_dict()))


def _print_report(report: Report) -> None:
    from fiveshot.cli.photos import describe

    vote = report.vote
    together = ""
    if vote.frames > 1:
        together = (
            f" [{vote.label or 'unknown'}, {vote.votes} of {vote.frames}]" if vote.decided else " [undecided]"
        )
    where = f"{report.region}: " if report.region else ""
    echo(f"{report.time} {where}{describe(report.prediction)}{together}")
