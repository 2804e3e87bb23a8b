"""Label Studio's ML backend protocol: predictions for tasks, and learning from annotations when submitted."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree as ET

from fastapi import APIRouter, Body, Depends, Request

from fiveshot.data import MAX_PHOTO_BYTES, Box, BytesSource
from fiveshot.errors import FiveshotError, InputError
from fiveshot.extras import import_extra
from fiveshot.recognizer import Prediction
from fiveshot.recognizer.names import NONE, target_name
from fiveshot.recognizer.photos.photo import Photo
from fiveshot.recognizer.recognition.levels import levels_of, short_name
from fiveshot.service._engine import Engine
from fiveshot.service._errors import ApiError, busy, too_large
from fiveshot.service._requests import shown_name

MOST_WAITING = 10_000  # annotations that are still to be learned
MOST_TASKS = 1000  # of a request
LONGEST_CONFIG = 1 << 20  # characters
PAGE = 100  # tasks that are asked for at a time
SECONDS = 30.0  # for a photo
REDIRECTS = 4  # addresses that are tried for one photo
TRIES = 60  # to learn an annotation while the service is busy, a second apart
LEARNED_FROM = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
KINDS = {"Choices": "choices", "RectangleLabels": "rectanglelabels"}  # tags that can be filled in
UNKNOWN = ("unknown", "other")  # choices that stand for photos of none of the classes, beside "none of these"
log = logging.getLogger("fiveshot.label_studio")


@dataclass(frozen=True)
class StudioSettings:
    """Where Label Studio is, and what is fetched for it.

    Parameters
    ----------
    url : str
        Its address, as this machine reaches it.
    key : str, optional
        An access token of it. Left out, the one that it sends when it connects is used.
    hosts : tuple of str
        Other hosts that photos of tasks may be fetched from.

    Raises
    ------
    InputError
        If the address is not one.

    Examples
    --------
    >>> StudioSettings("localhost:8080")
    Traceback (most recent call last):
    fiveshot.errors.InputError: 'localhost:8080' is not the address of a Label Studio; ...
    """

    url: str = "http://localhost:8080"
    key: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).netloc:
            raise InputError(f"{self.url!r} is not the address of a Label Studio", hint="write http://HOST:PORT")


@dataclass(frozen=True)
class Control:
    """The tag of a labeling interface that is filled in: what it is called, its image, and its choices."""

    kind: str  # "choices" or "rectanglelabels"
    name: str
    image: str  # name of the image's tag
    key: str  # of a task's data, where the photo is
    labels: tuple[str, ...]

    @classmethod
    def of(cls, config: str) -> Control:
        """Read a labeling interface: the first tag with choices or with labels of rectangles for an image.

        >>> tags = '<View><Image name="img" value="$photo"/><Choices name="bird" toName="img">'
        >>> found = Control.of(tags + '<Choice value="owl"/><Choice value="wren"/></Choices></View>')
        >>> found.kind, found.name, found.image, found.key, found.labels
        ('choices', 'bird', 'img', 'photo', ('owl', 'wren'))
        """
        if len(config) > LONGEST_CONFIG or "<!" in config.replace("<!--", ""):
            raise _unusable("it is too long, or not plain tags")
        try:
            root = ET.fromstring(config)
        except ET.ParseError as error:
            raise _unusable(f"it is not XML ({error})") from error
        images = {tag.get("name"): str(tag.get("value", "")).removeprefix("$") for tag in root.iter("Image")}
        for tag in root.iter():
            if tag.tag in KINDS and tag.get("toName") in images:
                inner = [one for one in tag.iter() if one.tag in ("Choice", "Label")]
                labels = tuple(str(one.get("alias") or one.get("value")) for one in inner if one.get("value"))
                image = str(tag.get("toName"))
                return cls(KINDS[tag.tag], str(tag.get("name")), image, images[image], labels)
        raise _unusable("it has neither Choices nor RectangleLabels for an Image")

    def label_of(self, found: Prediction) -> tuple[str, float] | None:
        """Return the choice that stands for an answer, with its probability; None where there is none."""
        if found.label is None:
            other = next((label for label in self.labels if _class_of(label) == NONE), None)
            return None if other is None else (other, 1 - found.probability)
        named = {name: label for label in self.labels for name in (label, label.casefold())}
        for name, probability in ((found.label, found.probability), *found.candidates):
            for known in (name, short_name(name), *reversed(levels_of(name))):
                label = named.get(known) or named.get(known.casefold())
                if label is not None:
                    return label, probability
        return None

    def class_of(self, label: str, classes: Sequence[str]) -> str:
        """Return the class that a choice stands for: one that the model has, by its last name, or a new one."""
        if label not in classes:
            meant = [name for name in classes if short_name(name) == label]
            if len(meant) == 1:
                return meant[0]
        return _class_of(label)


def _class_of(label: str) -> str:
    return NONE if label.strip().casefold() in UNKNOWN else target_name(label)


def _unusable(why: str) -> ApiError:
    hint = "use the template Image Classification, or Object Detection with Bounding Boxes"
    return ApiError(422, "bad_config", f"this labeling interface cannot be used: {why}", hint)


class Studio:
    """A Label Studio: its photos are fetched, its annotations learned one after the other."""

    def __init__(self, engine: Engine, settings: StudioSettings) -> None:
        self._engine, self._settings = engine, settings
        self._httpx = import_extra("httpx", extra="label-studio")
        self._key = settings.key
        self._waiting: asyncio.Queue[tuple[Control, Mapping[str, Any]]] = asyncio.Queue(MOST_WAITING)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Learn what was submitted, until the service ends; what has come by then is still learned."""
        async with self._httpx.AsyncClient(timeout=SECONDS, follow_redirects=False) as self._client:
            learning = asyncio.create_task(self._keep_learning())
            try:
                yield
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._waiting.join(), self._engine.settings.drain)
            finally:
                learning.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await learning

    @property
    def version(self) -> str:
        """What predictions are marked with: Label Studio asks again once the model has changed."""
        return f"fiveshot state {self._engine.serving.snapshot.state}"

    def take_key(self, key: str | None) -> None:
        """Use the access token that Label Studio sends, unless one was given."""
        if self._settings.key is None and key is not None and key.isascii():
            self._key = key

    async def predict(
        self, control: Control, tasks: Sequence[Mapping[str, Any]], context: object
    ) -> list[dict[str, Any]]:
        """Return a prediction for each task; one whose photo cannot be had or used is empty."""
        if not len(self._engine.serving.snapshot.memory.labels):
            return [self._prediction(control, []) for _ in tasks]
        return [await self._predicted(control, task, context) for task in tasks]

    async def _predicted(self, control: Control, task: Mapping[str, Any], context: object) -> dict[str, Any]:
        boxes = _regions(context) if control.kind == "rectanglelabels" else [None]
        try:
            photo = await self._photo(control, task)
            parts = [photo if one is None else replace(photo, box=_box(one)) for one in boxes]
            found = (await self._engine.predict(parts, 20))[0] if parts else []
        except FiveshotError as error:
            log.warning("no prediction for task %s: %s", task.get("id"), error)
            return self._prediction(control, [])
        chosen = [(control.label_of(one), box) for one, box in zip(found, boxes, strict=True)]
        return self._prediction(control, [(*label, box) for label, box in chosen if label is not None])

    def _prediction(
        self, control: Control, chosen: Sequence[tuple[str, float, Mapping[str, Any] | None]]
    ) -> dict[str, Any]:
        result = [
            {
                "from_name": control.name,
                "to_name": control.image,
                "type": control.kind,
                "value": {**({} if box is None else box), control.kind: [label]},
                "score": probability,
            }
            for label, probability, box in chosen
        ]
        score = min((probability for _, probability, _ in chosen), default=0.0)
        return {"result": result, "score": score, "model_version": self.version}

    def submit(self, control: Control, task: Mapping[str, Any]) -> None:
        """Have the annotations of a task learned, when those before it are."""
        try:
            self._waiting.put_nowait((control, task))
        except asyncio.QueueFull as error:
            raise busy("very many annotations wait to be learned already") from error

    async def submit_project(self, number: int, control: Control) -> int:
        """Have all annotations of a project learned, also those from before it was connected; return how many."""
        tasks, page = 0, 1
        while True:
            query = f"/api/tasks?project={number}&page={page}&page_size={PAGE}&fields=all"
            found = json.loads(await self._get(query))["tasks"]
            for task in found:
                if task.get("annotations"):
                    self.submit(control, task)
                    tasks += 1
            if len(found) < PAGE:
                return tasks
            page += 1

    async def _keep_learning(self) -> None:
        while True:
            control, task = await self._waiting.get()
            try:
                for _ in range(TRIES):
                    try:
                        await self._learn(control, task)
                        break
                    except ApiError as error:
                        if error.status != 503:
                            raise
                    await asyncio.sleep(1)  # the model is being loaded, or very much is going on
            except FiveshotError as error:
                log.warning("task %s is not learned: %s", task.get("id"), error)
            except Exception:
                log.exception("task %s is not learned", task.get("id"))
            finally:
                self._waiting.task_done()

    async def _learn(self, control: Control, task: Mapping[str, Any]) -> None:
        wanted = _annotated(control, task)
        if not wanted:
            return
        photo = await self._photo(control, task)
        for label, box in wanted:
            classes = self._engine.serving.snapshot.classes
            name = control.class_of(label, classes)
            if name == NONE and not classes:
                log.warning("task %s is not learned: no class is known yet", task.get("id"))
                continue
            await self._engine.correct(name, [replace(photo, box=box)])
            log.info("task %s is learned as %r", task.get("id"), name)

    async def _photo(self, control: Control, task: Mapping[str, Any]) -> Photo:
        """Fetch the photo of a task: from Label Studio, from a host that is allowed, or out of the task itself."""
        data = task.get("data")
        address = data.get(control.key) if isinstance(data, Mapping) else None
        if not isinstance(address, str) or not address:
            raise InputError(f"its data have no {control.key!r}", hint="import photos under that name")
        if address.startswith("data:"):
            return Photo(BytesSource(_of_data(address), "photo"))
        return Photo(BytesSource(await self._get(address), shown_name(urlsplit(address).path, 1)))

    async def _get(self, address: str) -> bytes:
        """Fetch something; only Label Studio itself gets its token, and what it redirects to is checked, too."""
        home = urlsplit(self._settings.url)
        for _ in range(REDIRECTS):
            address = urljoin(self._settings.url.rstrip("/") + "/", address)
            parts = urlsplit(address)
            own = (parts.scheme, parts.netloc) == (home.scheme, home.netloc)
            if not own and (parts.scheme not in ("http", "https") or parts.netloc not in self._settings.hosts):
                raise InputError(
                    f"photos are not fetched from {parts.netloc!r}", hint="allow it with --allow-host"
                )
            try:
                headers = await self._login() if own else {}
                async with self._client.stream("GET", address, headers=headers) as reply:
                    if reply.is_redirect:
                        address = reply.headers["location"]
                        continue
                    reply.raise_for_status()
                    return await _body(reply, parts.path)
            except self._httpx.HTTPError as error:
                hint = (
                    "check --studio, and give an access token with --key" if own else "open the address yourself"
                )
                raise InputError(f"{parts.path} cannot be fetched ({error})", hint=hint) from error
        raise InputError(f"{address} redirects again and again", hint="open the address yourself")

    async def _login(self) -> dict[str, str]:
        """Return the header that says who asks; a personal access token is exchanged for a short-lived one."""
        if not self._key:
            return {}
        if self._key.count(".") != 2:
            return {"Authorization": f"Token {self._key}"}
        address = urljoin(self._settings.url.rstrip("/") + "/", "/api/token/refresh")
        reply = await self._client.post(address, json={"refresh": self._key})
        reply.raise_for_status()
        return {"Authorization": f"Bearer {reply.json()['access']}"}


async def _body(reply: Any, path: str) -> bytes:
    """Return what a reply brings, unless that is too much."""
    found = bytearray()
    async for part in reply.aiter_bytes():
        found += part
        if len(found) > MAX_PHOTO_BYTES:
            raise InputError(f"{path} is too large", hint="make it smaller")
    return bytes(found)


def _of_data(address: str) -> bytes:
    """Return the photo that an address of the kind ``data:`` holds itself."""
    try:
        return base64.b64decode(address.partition(";base64,")[2], validate=True)
    except binascii.Error as error:
        raise InputError("the photo in the task is not base64", hint="import it as a file") from error


def _annotated(control: Control, task: Mapping[str, Any]) -> list[tuple[str, Box | None]]:
    """Return what the last annotation of a task says that was not skipped: labels, and the parts they are of."""
    given = [
        one for one in task.get("annotations") or () if isinstance(one, Mapping) and not one.get("was_cancelled")
    ]
    results = given[-1].get("result") if given else None
    found: list[tuple[str, Box | None]] = []
    for one in results if isinstance(results, list) else ():
        value = one.get("value") if isinstance(one, Mapping) else None
        if not isinstance(value, Mapping) or one.get("from_name") != control.name:
            continue
        labels = value.get(control.kind)
        if isinstance(labels, list) and len(labels) == 1 and isinstance(labels[0], str):  # one thing each
            found.append((labels[0], _box(value) if control.kind == "rectanglelabels" else None))
    return found


def _regions(context: object) -> list[Mapping[str, Any] | None]:
    """Return the rectangles that somebody has just drawn and wants labeled."""
    results = context.get("result") if isinstance(context, Mapping) else None
    values = [one.get("value") for one in results or () if isinstance(one, Mapping)]
    keep = ("x", "y", "width", "height", "rotation")
    return [{key: one[key] for key in keep if key in one} for one in values if isinstance(one, Mapping)]


def _box(value: Mapping[str, Any]) -> Box:
    """Return a rectangle, which Label Studio gives in percent."""
    if value.get("rotation"):
        raise InputError("a rectangle is turned", hint="draw it upright")
    try:
        return Box(*(min(1.0, max(0.0, float(value[key]) / 100)) for key in ("x", "y", "width", "height")))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("a rectangle has no place", hint="draw it again") from error


async def _studio(request: Request) -> Studio:
    studio: Studio = request.app.state.studio
    return studio


TheStudio = Annotated[Studio, Depends(_studio)]
Tasks = Annotated[list[dict[str, Any]], Body()]
Config = Annotated[str, Body()]
studio_routes = APIRouter(include_in_schema=False)


@studio_routes.get("/health")
async def health() -> dict[str, str]:
    """Tell that the backend answers."""
    return {"status": "UP", "model_class": "fiveshot"}


@studio_routes.get("/versions")
async def versions(studio: TheStudio) -> dict[str, list[str]]:
    """Name the state of the model."""
    return {"versions": [studio.version]}


@studio_routes.post("/setup")
async def setup(
    studio: TheStudio,
    config: Annotated[str, Body(alias="schema")] = "",
    access_token: Annotated[str | None, Body()] = None,
) -> dict[str, str]:
    """Connect a project, if its labeling interface can be filled in."""
    if config:
        Control.of(config)
    studio.take_key(access_token)
    return {"model_version": studio.version}


@studio_routes.post("/predict")
async def predict(
    studio: TheStudio,
    tasks: Tasks,
    label_config: Config = "",
    params: Annotated[dict[str, Any] | None, Body()] = None,
) -> dict[str, Any]:
    """Predict tasks."""
    if len(tasks) > MOST_TASKS:
        raise too_large(f"more than {MOST_TASKS} tasks", "send fewer at once")
    results = await studio.predict(Control.of(label_config), tasks, (params or {}).get("context"))
    return {"results": results, "model_version": studio.version}


@studio_routes.post("/train", status_code=201)
async def train(studio: TheStudio, annotations: Tasks, label_config: Config = "") -> dict[str, int]:
    """Learn from tasks with their annotations, as older releases send them."""
    control = Control.of(label_config)
    for task in annotations:
        studio.submit(control, task)
    return {"submitted": len(annotations)}


@studio_routes.post("/webhook", status_code=201)
async def webhook(
    studio: TheStudio,
    action: Annotated[str, Body()] = "",
    project: Annotated[dict[str, Any] | None, Body()] = None,
    task: Annotated[Any, Body()] = None,
    annotation: Annotated[Any, Body()] = None,
) -> dict[str, int]:
    """Learn from an annotation that was submitted, or from all of a project."""
    if project is None or action not in (*LEARNED_FROM, "START_TRAINING"):
        return {"submitted": 0}
    control = Control.of(str(project.get("label_config", "")))
    if action == "START_TRAINING":
        return {"submitted": await studio.submit_project(int(project.get("id", 0)), control)}
    tasks, annotations = (one if isinstance(one, list) else [one] for one in (task, annotation))
    for one, said in zip(tasks, annotations, strict=False):
        if isinstance(one, Mapping):
            studio.submit(control, {**one, "annotations": [said]})
    return {"submitted": len(tasks)}
