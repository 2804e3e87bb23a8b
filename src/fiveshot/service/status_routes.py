"""Routes about the service itself."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from fiveshot.service.errors import busy
from fiveshot.service.replies import replies
from fiveshot.service.schemas import ModelReply, StatusReply
from fiveshot.service.state import TheService

routes = APIRouter(tags=["service"])


@routes.get("/v1/health", responses=replies())
async def health() -> StatusReply:
    """Tell that the process answers."""
    return StatusReply(status="ok")


@routes.get("/v1/ready", responses=replies())
async def ready(service: TheService) -> StatusReply:
    """Tell whether photos are taken: 503 while the model is loaded, and when the service is about to end."""
    if not service.engine.ready:
        raise busy("the service is not ready: the model is being loaded, or the service is about to end")
    return StatusReply(status="ready")


@routes.get("/v1/model", responses=replies())
async def model(service: TheService) -> ModelReply:
    """Describe the model and the limits of the service."""
    snapshot = service.engine.serving.snapshot
    limits = service.limits
    options = snapshot.manifest.options
    return ModelReply(
        classes=len(snapshot.memory.labels),
        base_classes=len(snapshot.contents.base.labels),
        backbone=snapshot.manifest.backbone.name,
        rejection=snapshot.rejection.note,
        thumbnails=options.thumbnails,
        keep_photos=options.keep_photos,
        limits={"body_bytes": limits.body_bytes, "photos": limits.photos, "pixels": limits.pixels},
        state=snapshot.state,
    )


@routes.get(
    "/metrics",
    response_class=Response,
    responses={**replies(), 200: {"content": {"text/plain": {}}, "description": "Prometheus's text format."}},
)
async def metrics(service: TheService) -> Response:
    """Count requests, photos and forward passes."""
    return Response(service.engine.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
