"""The application: routes over one recognizer, inside the layers that guard them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.middleware import Middleware

from fiveshot import __version__
from fiveshot.errors import FiveshotError
from fiveshot.recognizer import Recognizer
from fiveshot.service._engine import Engine
from fiveshot.service._errors import answer_errors
from fiveshot.service._gate import AccessControl, HeadersAndCounters, Metrics
from fiveshot.service._requests import IdempotencyKeys
from fiveshot.service._routes import Service, page_routes, photo_routes, status_routes
from fiveshot.service._second_look import Reviews, Sortings, second_look_routes
from fiveshot.service._sightings import SightingsInGroups, sighting_routes
from fiveshot.service.settings import Settings

if TYPE_CHECKING:
    from fiveshot.service.label_studio import StudioSettings

ERASE_AGAIN = 30.0  # seconds between tries to erase remaining traces
log = logging.getLogger("fiveshot.service")
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # its warnings repeat the client's text


def create_app(
    model: Recognizer | Callable[[], Recognizer],
    settings: Settings | None = None,
    studio: StudioSettings | None = None,
) -> FastAPI:
    """Return the application that serves a model; it closes the model when it ends.

    Any ASGI server can run it. ``fiveshot serve`` adds limits on connections, which an application cannot set.

    Parameters
    ----------
    model : Recognizer or callable
        The model, or a function that opens it: for writing, unless the settings are read-only. With a function,
        the application answers at once and opens the model in the background.
    settings : Settings, optional
        Access and limits.
    studio : StudioSettings, optional
        A Label Studio that uses the application as its ML backend.

    Returns
    -------
    fastapi.FastAPI
        The application. Until the backbone is loaded, requests that need it are answered with 503.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.service import Settings, create_app
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     app = create_app(birds, Settings(token="a-token-of-some-length"))
    >>> app.title
    'fiveshot'
    """
    chosen = settings or Settings()
    metrics = Metrics()
    engine = Engine(model if callable(model) else lambda: model, chosen, metrics)
    app = FastAPI(
        title="fiveshot",
        version=__version__,
        description="Teach an image classifier new classes from five photos each.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the usual documentation pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[
            Middleware(HeadersAndCounters, metrics=metrics),
            Middleware(AccessControl, settings=chosen),
        ],
    )
    keys = IdempotencyKeys(chosen.limits.keys)
    app.state.service = Service(
        engine, chosen.limits, keys, Reviews(engine), Sortings(engine), SightingsInGroups(engine)
    )
    page = page_routes(read_only=chosen.read_only)
    routers = [photo_routes, second_look_routes, sighting_routes, status_routes, page]
    app.state.studio = None
    if studio is not None:
        from fiveshot.service.label_studio import Studio, studio_routes

        app.state.studio = Studio(engine, studio)
        routers.append(studio_routes)
    for routes in routers:
        app.router.routes.extend(routes.routes)  # add the route objects directly: include_router would copy them
    answer_errors(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine: Engine = app.state.service.engine
    running = asyncio.create_task(_keep_up(engine))
    try:
        async with app.state.studio.running() if app.state.studio else contextlib.nullcontext():
            yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await engine.close()


async def _keep_up(engine: Engine) -> None:
    """Load the model while the service already answers, then follow the changes of other processes."""
    now = asyncio.get_running_loop().time
    due = now() + ERASE_AGAIN  # opening the model has just tried to erase them
    logged = ""  # log each problem once, not at every try
    while True:
        problem = ""
        try:
            await engine.keep_up()
            if now() >= due and not engine.settings.read_only:
                due = now() + ERASE_AGAIN
                await engine.settle()
        except FiveshotError as error:
            problem = str(error)
            if problem != logged:
                log.warning("%s", problem)
        except Exception as error:
            problem = repr(error)
            if problem != logged:
                log.exception("the model cannot be read")
        logged = problem
        await asyncio.sleep(engine.settings.refresh)
