"""``fiveshot serve``: the recognizer over HTTP, with a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.options import Device, Model, Runtime, Weights
from fiveshot.cli.output import echo

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer


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
    from fiveshot.recognizer.photos.embedding import check_openable
    from fiveshot.service import RequestLimits, Settings
    from fiveshot.service.settings import MIB, address, listen

    require_extra("fastapi", "uvicorn", "python_multipart", "prometheus_client", extra="serve")
    check_openable(model, weights=weights, device=device, runtime=runtime)
    limits = RequestLimits(
        photos=max_photos,
        body_bytes=max_megabytes * MIB,
        held_bytes=max(RequestLimits().held_bytes, 4 * max_megabytes * MIB),
        pixels=max_megapixels * 1_000_000,
        rate=rate,
    )
    settings = Settings(host=host, port=port, token=token, latency=latency / 1000, limits=limits)

    def open_model() -> Recognizer:
        from fiveshot.recognizer import Recognizer

        return Recognizer.open(model, device=device, runtime=runtime, weights=weights)

    with listen(settings) as sock:
        echo(f"serving {model} at {address(sock)}")
        if token is not None:
            echo("the page asks for the token; programs send it as: Authorization: Bearer TOKEN")
        from fiveshot.service import create_app
        from fiveshot.service.http.server import make_server

        make_server(create_app(open_model, settings), settings).run(sockets=[sock])
