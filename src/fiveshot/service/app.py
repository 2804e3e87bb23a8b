"""The application: routes over one recogniser, inside the layers that guard them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware

from fiveshot import __version__
from fiveshot.recognizer import Recognizer
from fiveshot.service import class_routes, predict_routes, status_routes
from fiveshot.service.answers import answer_errors
from fiveshot.service.body import BodyLimits
from fiveshot.service.engine import Engine
from fiveshot.service.errors import ApiError
from fiveshot.service.gate import Gate
from fiveshot.service.idempotency import IdempotencyKeys
from fiveshot.service.listing import Listings
from fiveshot.service.metrics import Metrics
from fiveshot.service.outside import Outside
from fiveshot.service.page_routes import page_routes
from fiveshot.service.pictures import Pictures
from fiveshot.service.settings import Settings
from fiveshot.service.state import Service

SETTLE = 30.0  # seconds between tries to erase what a purge had to leave
log = logging.getLogger("fiveshot.service")


def create_app(recognizer: Recognizer, settings: Settings | None = None) -> FastAPI:
    """Return the application; it closes the recogniser when it ends."""
    chosen = settings or Settings()
    metrics = Metrics()
    engine = Engine(recognizer, chosen, metrics)
    app = FastAPI(
        title="fiveshot",
        version=__version__,
        description="Teach an image classifier new classes from five photos each.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[
            Middleware(Outside, metrics=metrics),
            Middleware(Gate, settings=chosen),
            Middleware(BodyLimits, limits=chosen.limits),
        ],
    )
    app.state.service = Service(
        engine, chosen.limits, IdempotencyKeys(chosen.limits.keys), Pictures(engine), Listings()
    )
    routers = (class_routes.routes, predict_routes.routes, status_routes.routes, page_routes())
    for routes in routers:
        app.include_router(routes)
    answer_errors(app, [route for routes in routers for route in routes.routes])
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine: Engine = app.state.service.engine
    running = asyncio.create_task(_keep_up(engine))
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await engine.close()


async def _keep_up(engine: Engine) -> None:
    """Load the model while the service answers already, then follow what other processes change."""
    now = asyncio.get_running_loop().time
    due = now() + SETTLE  # whoever opened the model has just tried
    while True:
        try:
            if engine.ready:
                await engine.refresh()
            else:
                await engine.start()
            if now() >= due:
                due = now() + SETTLE
                await engine.settle()
        except ApiError as error:
            log.warning("%s: %s", error.message, error.hint)
        except Exception:
            log.exception("the model cannot be read")
        await asyncio.sleep(engine.settings.refresh)
