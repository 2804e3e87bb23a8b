"""The routes: recognize, learn, list, rename, forget, undo; the state of the service; the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from fiveshot.recognizer import NONE, ModelReader
from fiveshot.service._engine import MOST_NAMES, Engine
from fiveshot.service._requests import (
    IdempotencyKeys,
    PathName,
    PhotoNumber,
    StrictRoute,
    check_key,
    checked_name,
    read_uploads,
)
from fiveshot.service._schemas import (
    ClassPage,
    ErrorDetail,
    ModelChange,
    ModelReply,
    Move,
    PhotoList,
    PredictionEntry,
    PredictReply,
    Removal,
    Rename,
    StatusReply,
    Undoable,
    documented,
)
from fiveshot.service.settings import RequestLimits
from fiveshot.values import ChangeMade, LearnedClass, PhotoChange, PhotosMade, RejectionReply

if TYPE_CHECKING:
    from fiveshot.service._second_look import Reviews, Sortings
    from fiveshot.service._sightings import SightingsInGroups

MOST_CLASSES = 500  # classes on a page
LARGEST_STATE = 2**63 - 1  # largest state number of a database
FAR = 2**31  # more than the classes of any model or the photos of any class
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}  # files of the page


@dataclass(frozen=True, eq=False)
class Service:
    """The parts of a running service, which its routes share."""

    engine: Engine
    limits: RequestLimits
    keys: IdempotencyKeys
    reviews: Reviews
    sortings: Sortings
    sightings: SightingsInGroups


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
photo_routes = APIRouter(prefix="/v1", route_class=StrictRoute)
status_routes = APIRouter()


@photo_routes.post("/predict", **documented("recognize", 409, 415, example="predicted", photos=True))
async def predict(
    service: TheService,
    request: Request,
    top: Annotated[int, Query(ge=1, le=100, description="Candidates for each photo.")] = 5,
    sure: Annotated[
        float | None,
        Query(gt=0, le=1, description="Probability that an answer needs; a group may have it if no class has."),
    ] = None,
    why: Annotated[int, Query(ge=0, le=100, description="Most similar learned photos to name.")] = 0,
    skip_bad: Annotated[bool, Query(description="Skip photos that cannot be used.")] = False,
) -> PredictReply:
    """Return what photos show, or that they show nothing known."""
    uploads = await read_uploads(request, service.limits)
    found, bad, state = await service.engine.predict(uploads, top, sure, why, skip_bad=skip_bad)
    predictions, left_out = [PredictionEntry.of(one) for one in found], [ErrorDetail.of(one) for one in bad]
    return PredictReply(predictions=predictions, left_out=left_out, state=state)


@photo_routes.get("/classes", **documented("classes", example="classes"))
async def list_classes(
    service: TheService,
    search: Annotated[str, Query(max_length=200, description="Text in the name.")] = "",
    offset: Annotated[int, Query(ge=0, le=FAR)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_CLASSES)] = 100,
) -> ClassPage:
    """List classes by name, a page at a time."""
    return await service.engine.classes(search, offset, limit)


@photo_routes.post("/classes/{name}/photos", **documented("classes", 404, 415, example="learned", photos=True))
async def learn(
    service: TheService,
    name: PathName,
    request: Request,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(description="Any text, new for each request. A request with the same key is not done again."),
    ] = None,
) -> LearnedClass:
    """Learn a class from about five photos, or add photos to it. It is on the disk before the reply."""
    if idempotency_key is None:
        reply, _ = await service.engine.learn(name, await read_uploads(request, service.limits))
        return reply
    check_key(idempotency_key)
    uploads = await read_uploads(request, service.limits)
    reply, replayed = await service.keys.once(
        f"{service.engine.openings}:{idempotency_key}",
        name,
        uploads,
        lambda: service.engine.learn(name, uploads, repeated=True),
    )
    if replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return reply


@photo_routes.get("/classes/{name}/photos/{number}", **documented("classes", 404, kind="image/jpeg"))
async def thumbnail(
    service: TheService,
    name: PathName,
    number: Annotated[int, Path(ge=0, le=FAR)],
    request: Request,
    v: Annotated[str, Query(description="Any text: gives a changed picture another address.")] = "",
) -> Response:
    """Return a small copy, 128 pixels, of a photo that a class was learned from."""
    picture = await service.engine.thumbnail(name, number)
    return cacheable(request, picture, "image/jpeg", "private, no-cache")


@photo_routes.get("/classes/{name}/photos", **documented("photos", 404, example="listed"))
async def list_photos(service: TheService, name: PathName) -> PhotoList:
    """List the photos of a class, with their ids and their scores when they are left out."""
    return await service.engine.photos(name)


@photo_routes.post("/correct", **documented("photos", 409, 415, example="photos_changed", photos=True))
async def correct(
    service: TheService,
    request: Request,
    name: Annotated[str, Query(max_length=1000, description="A class, known or new, or 'none of these'.")],
) -> PhotosMade:
    """Say what photos show: they are learned, or moved from another class."""
    wanted = checked_name(name, or_none=True)
    return await service.engine.correct(wanted, await read_uploads(request, service.limits))


@photo_routes.post("/negatives", **documented("photos", 409, 415, example="photos_changed", photos=True))
async def learn_none(service: TheService, request: Request) -> PhotosMade:
    """Learn photos that show none of the classes; they help to detect unknown photos."""
    return await service.engine.correct(NONE, await read_uploads(request, service.limits))


@photo_routes.get("/negatives", **documented("photos", example="listed"))
async def list_negatives(service: TheService) -> PhotoList:
    """List the photos that show none of the classes, with their ids."""
    return await service.engine.photos(NONE)


@photo_routes.get("/photos/{id}", **documented("photos", 404, kind="image/jpeg"))
async def picture(
    service: TheService,
    number: PhotoNumber,
    request: Request,
    kept: Annotated[bool, Query(description="The photo itself, if the model stores photos.")] = False,
) -> Response:
    """Return a small copy of a learned photo, or the photo itself if it is stored."""
    data = await service.engine.picture(number, kept=kept)
    return cacheable(request, data, picture_type(data), "private, no-cache")


@photo_routes.post(
    "/photos/remove", **documented("photos", 404, 409, 415, example="photos_changed", pending=PhotosMade)
)
async def remove(service: TheService, wanted: Removal, response: Response) -> PhotosMade:
    """Remove photos from their classes, all or none. This can be undone, unless ``for_good`` is true."""
    reply = await service.engine.change_photos(
        lambda model: model.remove(wanted.ids, of=wanted.of, for_good=wanted.for_good),
        PhotoChange("remove", tuple(wanted.ids), {}),
    )
    if wanted.for_good:
        service.keys.forget()
    if reply.pending is not None:
        response.status_code = 202
    return reply


@photo_routes.post("/photos/move", **documented("photos", 404, 409, 415, example="photos_changed"))
async def move(service: TheService, wanted: Move) -> PhotosMade:
    """Move photos to another class, as if they had been learned there, or join two classes."""
    to = checked_name(wanted.to, or_none=True)
    return await service.engine.change_photos(
        lambda model: model.move(wanted.ids or (), to=to, of=wanted.of, all_of=wanted.all_of)
    )


@photo_routes.patch("/classes/{name}", **documented("classes", 404, 409, 415, example="changed"))
async def rename(service: TheService, name: PathName, wanted: Rename) -> ChangeMade:
    """Give a class another name."""
    return await service.engine.rename(name, checked_name(wanted.name))


@photo_routes.delete("/classes/{name}", **documented("classes", 404, example="changed", pending=ChangeMade))
async def forget(
    service: TheService,
    name: PathName,
    response: Response,
    for_good: Annotated[bool, Query(description="Erase all traces: this cannot be undone.")] = False,
) -> ChangeMade:
    """Forget a class. This can be undone, unless ``for_good`` erases all traces from the disk."""
    reply = await service.engine.forget(name, for_good=for_good)
    if for_good:
        service.keys.forget(name)
    if reply.pending is not None:  # done, but traces remain: clients should not send it again
        response.status_code = 202
    return reply


@photo_routes.post("/undo", **documented("classes", 409, example="changed"))
async def undo(
    service: TheService,
    past_forget: Annotated[bool, Query(description="Skip changes that erased something for good.")] = False,
    state: Annotated[
        int | None,
        Query(
            ge=0,
            le=LARGEST_STATE,
            description="State that the client has seen: 409 if the model was changed since.",
        ),
    ] = None,
) -> ChangeMade:
    """Undo the last change that was not undone yet. ``state`` avoids undoing the change of another client."""
    return await service.engine.undo(past_forget=past_forget, state=state)


@photo_routes.get("/rejection", **documented("recognize", example="rejection"))
async def rejection(
    service: TheService,
    rate: Annotated[
        float | None, Query(gt=0, lt=1, description="Share of known photos; by default the present one.")
    ] = None,
) -> RejectionReply:
    """Return how many learned photos a rate of false rejections would call unknown, each left out in turn."""
    return await service.engine.rejected_at(rate)


@photo_routes.patch("/model", **documented("recognize", 415, example="rejection"))
async def change_model(service: TheService, wanted: ModelChange) -> RejectionReply:
    """Change the rate of false rejections or of wrong answers. Nothing is learned again; this can be undone."""
    return await service.engine.set_rate(
        false_rejection=wanted.false_rejection, wrong_answers=wanted.wrong_answers
    )


@status_routes.get("/v1/health", **documented("service", example="status"))
async def health() -> StatusReply:
    """Confirm that the process answers."""
    return StatusReply(status="ok")


@status_routes.get("/v1/ready", **documented("service", example="status"))
async def ready(service: TheService) -> StatusReply:
    """Say whether the service accepts photos: 503 while the model is being loaded or missing, and at shutdown."""
    await service.engine.ready()
    return StatusReply(status="ready")


@status_routes.get("/v1/model", **documented("service", example="model"))
async def model(service: TheService) -> ModelReply:
    """Describe the model and the limits of the service."""
    snapshot = service.engine.serving.snapshot
    limits = service.limits
    options, negatives = snapshot.manifest.options, snapshot.contents.negatives
    read_only = service.engine.settings.read_only
    undo = None if read_only else await service.engine.read(ModelReader.next_to_undo)
    sightings, *_ = await service.engine.read(ModelReader.count_sightings)
    return ModelReply(
        classes=len(snapshot.memory.labels),
        base_classes=len(snapshot.contents.base.labels),
        backbone=snapshot.manifest.backbone.name,
        rejection=snapshot.rejection.note,
        false_rejection=options.false_rejection,
        wrong_answers=options.wrong_answers,
        negatives=0 if negatives is None else len(negatives.photos.ids),
        thumbnails=options.thumbnails,
        keep_photos=options.keep_photos,
        names=options.names,
        limits={name: getattr(limits, name) for name in ("body_bytes", "photos", "pixels", "sorted_photos")},
        sightings=sightings,
        undo=None if undo is None else Undoable(action=undo.action, classes=list(undo.classes[:MOST_NAMES])),
        read_only=read_only,
        state=snapshot.state,
    )


@status_routes.get("/metrics", **documented("service", kind="text/plain"))
async def metrics(service: TheService) -> Response:
    """Count requests, photos and forward passes."""
    return Response(service.engine.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def page_routes(*, read_only: bool = False) -> APIRouter:
    """Return the routes of the page's files. They are read once: no path of a client is looked up on the disk.

    The page of a service that is ``read_only`` has a class that says so, for its scripts and its style.
    """
    routes = APIRouter()
    for file in (files("fiveshot.service") / "page").iterdir():
        kind = KINDS.get(PurePath(file.name).suffix)
        if kind is not None:
            path, data = f"/{file.name}", file.read_bytes()
            if file.name == "index.html":
                path, data = "/", data.replace(b"<html ", b'<html class="read-only" ') if read_only else data
            answer = _page_file(data, kind + ("" if kind == "image/svg+xml" else "; charset=utf-8"))
            routes.add_api_route(path, answer, include_in_schema=False, response_model=None)
    return routes


def _page_file(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return cacheable(request, data, kind, "no-cache")

    return answer


def cacheable(request: Request, data: bytes, kind: str, control: str) -> Response:
    """Return data with its tag, or 304 if the client has the data already."""
    tag = f'"{sha256(data).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": control, "Content-Type": kind}
    if names_tag(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers)


def picture_type(data: bytes) -> str:
    """Return the media type of a picture by its first bytes.

    >>> picture_type(b"\\x89PNG...")
    'image/png'
    """
    begins = {b"\xff\xd8": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp", b"GIF8": "image/gif"}
    return next((kind for start, kind in begins.items() if data.startswith(start)), "application/octet-stream")


def names_tag(header: str, tag: str) -> bool:
    """Return whether ``If-None-Match`` names a tag; a compressing proxy makes it a weak tag.

    >>> names_tag('"a", W/"b"', '"b"'), names_tag("*", '"b"'), names_tag('"a"', '"b"')
    (True, True, False)
    """
    return any(one.strip().removeprefix("W/") in ("*", tag) for one in header.split(","))
