"""Routes about classes: learn, list, rename, forget, undo."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from fiveshot.recognizer.change import NotErasedError
from fiveshot.recognizer.conflict import ConflictError
from fiveshot.recognizer.forgetting import NotUndoableError
from fiveshot.service.engine import Learned
from fiveshot.service.errors import ApiError, library_text, not_found
from fiveshot.service.idempotency import check_key, request_digest
from fiveshot.service.names import PathName, checked_name
from fiveshot.service.replies import PENDING, PHOTOS, replies
from fiveshot.service.request_checks import as_documented, json_body
from fiveshot.service.schemas import ChangeReply, ClassPage, LearnReply, Rename
from fiveshot.service.state import TheService
from fiveshot.service.tagged import tagged
from fiveshot.service.uploads import checked_uploads, read_uploads

MOST_CLASSES = 500  # of a page
LAST = 2**63 - 1  # state that a database can count to
FAR = 2**31  # more than any model has classes or a class photos

routes = APIRouter(prefix="/v1", tags=["classes"], dependencies=[Depends(as_documented)])


@routes.get("/classes", responses=replies())
async def list_classes(
    service: TheService,
    search: Annotated[str, Query(max_length=200, description="Text that the name holds.")] = "",
    offset: Annotated[int, Query(ge=0, le=FAR)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_CLASSES)] = 100,
) -> ClassPage:
    """List classes by name, a page at a time."""
    snapshot = service.engine.serving.snapshot
    classes, total = service.listings.of(snapshot).page(search, offset, limit)
    shown = await service.pictures.counted(snapshot, classes)
    return ClassPage(classes=shown, total=total, offset=offset, state=snapshot.state)


@routes.post("/classes/{name}/photos", responses=replies(404, 415), openapi_extra=PHOTOS)
async def learn(
    service: TheService,
    name: PathName,
    request: Request,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(description="Any text, new for each request: sent again, the request is not done again."),
    ] = None,
) -> LearnReply:
    """Learn a class from about five photos, or add photos to it. With the reply it is on the disk."""
    key = check_key(idempotency_key)
    uploads = list(checked_uploads(await read_uploads(request, service.limits)))
    if key is None:
        learned = await service.engine.learn(name, uploads)
    else:
        digest = request_digest(name, uploads)
        learned, replayed = await service.keys.once(
            key, name, digest, lambda: service.engine.learn(name, uploads, repeated=True)
        )
        if replayed:
            response.headers["Idempotency-Replayed"] = "true"
    return _reply(learned)


@routes.get(
    "/classes/{name}/photos/{number}",
    response_class=Response,
    responses={**replies(404), 200: {"content": {"image/jpeg": {}}, "description": "A small copy."}},
)
async def thumbnail(
    service: TheService,
    name: PathName,
    number: Annotated[int, Path(ge=0, le=FAR)],
    request: Request,
    v: Annotated[str, Query(description="Anything: another address for a picture that has changed.")] = "",
) -> Response:
    """Return a small copy, 128 pixels, of a photo that a class was learned from."""
    return tagged(request, await service.pictures.one(name, number), "image/jpeg", "private, no-cache")


@routes.patch("/classes/{name}", responses=replies(404, 409, 415), dependencies=[Depends(json_body)])
async def rename(service: TheService, name: PathName, wanted: Rename) -> ChangeReply:
    """Give a class another name."""
    new = checked_name(wanted.name)

    def change() -> int:
        contents = service.engine.recognizer.snapshot.contents
        if name not in contents:
            raise not_found(f"there is no class {name!r}")
        if new in contents:
            raise ApiError(409, "name_taken", f"there is a class {new!r} already", "choose another name")
        service.engine.recognizer.rename(name, new)
        return service.engine.recognizer.snapshot.state

    return ChangeReply(action="rename", classes=[new], state=await service.engine.change(change))


@routes.delete("/classes/{name}", responses={**replies(404), 202: PENDING})
async def forget(
    service: TheService,
    name: PathName,
    response: Response,
    purge: Annotated[bool, Query(description="Leave no trace: it cannot be undone.")] = False,
) -> ChangeReply:
    """Forget a class. It can be undone, unless ``purge`` asks that nothing of it stays on the disk."""
    recognizer = service.engine.recognizer

    def change() -> ChangeReply:
        pending = None
        try:  # a class that was forgotten before can still be purged from the history
            recognizer.forget(name, keep_history=not purge)
        except NotErasedError as error:
            pending = library_text(error, recognizer.path)
        except ValueError as error:
            raise not_found(f"there is no class {name!r}") from error
        return ChangeReply(action="forget", classes=[name], state=recognizer.snapshot.state, pending=pending)

    reply = await service.engine.change(change)
    if purge:
        service.keys.forget(name)
        service.pictures.forget(name)
    if reply.pending is not None:  # done, but not all of it: nobody should send it again
        response.status_code = 202
    return reply


@routes.post("/undo", responses=replies(409))
async def undo(
    service: TheService,
    past_forget: Annotated[bool, Query(description="Pass over classes forgotten without trace.")] = False,
    state: Annotated[
        int | None,
        Query(ge=0, le=LAST, description="The state the client has seen: 409 if the model was changed since."),
    ] = None,
) -> ChangeReply:
    """Take back the last change that stands; whose it is, only ``state`` makes sure."""
    recognizer = service.engine.recognizer

    def change() -> ChangeReply:
        try:
            undone = recognizer.undo(past_forget=past_forget, state=state)
        except ValueError as error:
            raise _not_undone(error) from error
        return ChangeReply(action=undone.action, classes=list(undone.classes), state=recognizer.snapshot.state)

    return await service.engine.change(change)


def _not_undone(error: ValueError) -> ApiError:
    message, _, hint = str(error).partition("; ")
    if isinstance(error, ConflictError):
        return ApiError(409, "changed", message, hint)
    if isinstance(error, NotUndoableError):
        if error.action == "forget":
            hint = "POST /v1/undo?past_forget=true takes back what came before it"
        return ApiError(409, "not_undoable", message, hint or "go back to an exported copy of the model")
    return ApiError(409, "nothing_to_undo", message, hint or "there is nothing to do")


def _reply(learned: Learned) -> LearnReply:
    report = asdict(learned.report)
    return LearnReply(**report, created=learned.created, state=learned.state)
