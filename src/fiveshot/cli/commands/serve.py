"""``fiveshot serve`` and ``label-studio``: a recognizer over HTTP, with a page, or as a backend for labeling."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.options import Device, Model, Runtime, Weights
from fiveshot.cli.output import echo

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer
    from fiveshot.service import Settings
    from fiveshot.service.label_studio import StudioSettings

LIBRARIES = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")  # that every service needs


def serve(
    model: Model,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any that is free.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(envvar="FIVESHOT_TOKEN", help="What clients must know; 16 or more characters."),
    ] = None,
    latency: Annotated[
        float, typer.Option(help="Milliseconds that a photo waits for others to share a forward pass with.")
    ] = 10.0,
    rate: Annotated[float, typer.Option(help="Requests a second that one client may send.")] = 200.0,
    max_photos: Annotated[int, typer.Option(help="Photos of one request.")] = 50,
    max_megabytes: Annotated[int, typer.Option(help="Size of one request.")] = 64,
    max_megapixels: Annotated[int, typer.Option(help="Size of one photo.")] = 50,
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
) -> None:
    """Serve a model: a page to teach and try it in a browser, and an HTTP API.

    Example: fiveshot serve birds
    """
    from fiveshot.extras import require_extra
    from fiveshot.service import RequestLimits, Settings
    from fiveshot.service.settings import MIB

    require_extra(*LIBRARIES, extra="serve")
    limits = RequestLimits(
        photos=max_photos,
        body_bytes=max_megabytes * MIB,
        held_bytes=max(RequestLimits().held_bytes, 4 * max_megabytes * MIB),
        pixels=max_megapixels * 1_000_000,
        rate=rate,
    )
    settings = Settings(host=host, port=port, token=token, latency=latency / 1000, limits=limits)
    _run(model, settings, None, device=device, runtime=runtime, weights=weights)


def label_studio(
    model: Model,
    studio: Annotated[
        str, typer.Option(envvar="LABEL_STUDIO_URL", help="Address of Label Studio, as this machine reaches it.")
    ] = "http://localhost:8080",
    key: Annotated[
        str | None,
        typer.Option(envvar="LABEL_STUDIO_API_KEY", help="An access token of Label Studio, to fetch its photos."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Another host that photos may be fetched from; any number of times."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any that is free.")] = 9090,
    token: Annotated[
        str | None,
        typer.Option(envvar="FIVESHOT_TOKEN", help="What Label Studio must send as the password; 16 characters."),
    ] = None,
    device: Device = "auto",
    runtime: Runtime = "auto",
    weights: Weights = None,
) -> None:
    """Be an ML backend of Label Studio: predict its tasks, and learn from annotations as they are submitted.

    Example: fiveshot label-studio birds --key TOKEN
    """
    from fiveshot.extras import require_extra
    from fiveshot.service import Settings

    require_extra(*LIBRARIES, "httpx", extra="label-studio")
    from fiveshot.service.label_studio import StudioSettings

    settings = Settings(host=host, port=port, token=token)
    place = StudioSettings(studio, key, tuple(allow_host or ()))
    logging.basicConfig(format="%(message)s")
    logging.getLogger("fiveshot.label_studio").setLevel(logging.INFO)
    _run(model, settings, place, device=device, runtime=runtime, weights=weights)


def _run(
    model: Path,
    settings: Settings,
    studio: StudioSettings | None,
    *,
    device: str,
    runtime: str,
    weights: Path | None,
) -> None:
    """Serve a model until it is told to end."""
    from fiveshot.recognizer.photos.embedding import check_openable
    from fiveshot.service.settings import address, listen

    check_openable(model, weights=weights, device=device, runtime=runtime)

    def open_model() -> Recognizer:
        from fiveshot.recognizer import Recognizer

        return Recognizer.open(model, device=device, runtime=runtime, weights=weights)

    with listen(settings) as sock:
        place = "" if studio is None else f", a backend for the Label Studio at {studio.url}"
        echo(f"serving {model} at {address(sock)}{place}")
        if settings.token is not None:
            echo("the page asks for the token; programs send it as: Authorization: Bearer TOKEN")
        from fiveshot.service import create_app
        from fiveshot.service.server import make_server

        make_server(create_app(open_model, settings, studio), settings).run(sockets=[sock])
