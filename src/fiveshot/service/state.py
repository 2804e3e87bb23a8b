"""What the routes of one service share, and how they get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from fiveshot.service.engine import Engine
from fiveshot.service.idempotency import IdempotencyKeys
from fiveshot.service.listing import Listings
from fiveshot.service.pictures import Pictures
from fiveshot.service.settings import Limits


@dataclass(frozen=True, eq=False)
class Service:
    """The parts of a running service."""

    engine: Engine
    limits: Limits
    keys: IdempotencyKeys
    pictures: Pictures
    listings: Listings


async def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(service_of)]
