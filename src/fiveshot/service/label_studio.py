"""Label Studio's ML backend protocol: predictions for tasks, and learning from annotations when submitted."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from traceback import format_tb
from typing import Annotated, Any, TypeVar
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree as ET

from fastapi import APIRouter, Body, Depends, Request

from fiveshot.data import Box, BytesSource, Photo
from fiveshot.errors import FiveshotError, InputError, is_number, one_line
from fiveshot.recognizer import NONE, levels_of, short_name, target_name
from fiveshot.service._engine import Engine
from fiveshot.service._errors import ApiError, busy, too_large
from fiveshot.service._requests import shown_name
from fiveshot.values import Candidate, Prediction
from fiveshot.web import Fetcher, FetchLimits

MOST_WAITING = 10_000  # annotations waiting to be learned
MOST_TASKS = 1000  # of a request
LONGEST_CONFIG = 1 << 20  # characters
PAGE = 100  # tasks in one request
MOST_PAGES = 10_000  # of a project
PHOTO_SECONDS = 30.0  # for a photo
REDIRECTS = 3  # redirects followed for one photo
PLACE = ("x", "y", "width", "height")  # of a rectangle
FARTHEST = 1000  # percent; a rectangle that begins or ends farther outside is refused
TRIES = 60  # tries to learn an annotation while the service is busy, one second apart
LEARNED_FROM = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
KINDS = {"Choices": "choices", "RectangleLabels": "rectanglelabels"}  # supported tags
UNKNOWN_CHOICES = ("unknown", "other")  # choices for photos of no class, in addition to "none of these"
log = logging.getLogger("fiveshot.label_studio")
Found = TypeVar("Found")


@dataclass(frozen=True)
class StudioSettings:
    """The address of Label Studio, and the hosts of its photos.

    Parameters
    ----------
    url : str
        Its address, as seen from this machine.
    key : str, optional
        An access token. By default the token that Label Studio sends when it connects.
    hosts : tuple of str
        Other hosts that photos of tasks may be fetched from.

    Raises
    ------
    InputError
        If the address is not valid.

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
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.netloc)
        except ValueError:
            usable = False
        if not usable:
            raise InputError(f"{self.url!r} is not the address of a Label Studio", hint="write http://HOST:PORT")


@dataclass(frozen=True)
class Control:
    """The tag of a labeling interface to fill in: its name, its image, and its choices."""

    kind: str  # "choices" or "rectanglelabels"
    name: str
    image: str  # name of the image's tag
    key: str  # key of the photo in a task's data
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
        except (ET.ParseError, UnicodeError) as error:
            raise _unusable(f"it is not XML ({error})") from error
        images = {tag.get("name"): str(tag.get("value", "")).removeprefix("$") for tag in root.iter("Image")}
        for tag in root.iter():
            if tag.tag in KINDS and tag.get("toName") in images:
                inner = [one for one in tag.iter() if one.tag in ("Choice", "Label")]
                labels = tuple(str(one.get("alias") or one.get("value")) for one in inner if one.get("value"))
                image = str(tag.get("toName"))
                return cls(KINDS[tag.tag], str(tag.get("name")), image, images[image], labels)
        raise _unusable("it has neither Choices nor RectangleLabels for an Image")

    def label_of(self, found: Prediction) -> tuple[str, float | None] | None:
        """Return the choice for an answer, with its probability; None if no choice fits."""
        if found.label is None:
            other = next((label for label in self.labels if _class_of(label) == NONE), None)
            chance = None if found.probability is None else 1 - found.probability
            return None if other is None else (other, chance)
        named = {name: label for label in self.labels for name in (label, label.casefold())}
        for one in (Candidate(found.label, found.probability), *found.candidates):
            for known in (one.label, short_name(one.label), *reversed(levels_of(one.label))):
                label = named.get(known) or named.get(known.casefold())
                if label is not None:
                    return label, one.probability
        return None

    def class_of(self, label: str, classes: Sequence[str]) -> str:
        """Return the class of a choice: a known class, found by its last name, or a new one."""
        if label not in classes:
            meant = [name for name in classes if short_name(name) == label]
            if len(meant) == 1:
                return meant[0]
        return _class_of(label)


def _class_of(label: str) -> str:
    return NONE if label.strip().casefold() in UNKNOWN_CHOICES else target_name(label)


def _unusable(why: str) -> ApiError:
    hint = "use the template Image Classification, or Object Detection with Bounding Boxes"
    return ApiError(422, "bad_config", f"this labeling interface cannot be used: {why}", hint)


@dataclass(frozen=True)
class Lesson:
    """What to learn from a task: the address of its photo, and the labels of the photo or its parts."""

    control: Control
    task: str  # its id, for the log
    address: str
    labels: Mapping[str, tuple[Box | None, ...]]

    @classmethod
    def of(cls, control: Control, task: object, most: int) -> Lesson:
        """Read a task with its annotations; refuse more than ``most`` rectangles."""
        labels = _annotated(control, task, most)
        # If there is nothing to learn, the photo does not matter.
        return cls(control, _id(task), photo_address(control, task) if labels else "", labels)

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes: an address may contain a whole photo."""
        return len(self.address) + sum(len(label) + 200 * len(parts) for label, parts in self.labels.items())


class Studio:
    """A Label Studio: fetches its photos and learns its annotations one after the other."""

    def __init__(self, engine: Engine, settings: StudioSettings) -> None:
        self._engine, self._settings = engine, settings
        limits = engine.settings.limits
        fetching = FetchLimits(limits.body_bytes, PHOTO_SECONDS, REDIRECTS)
        self._web = Fetcher(fetching, extra="label-studio", proxies=True)
        self._home = self._web.url(settings.url)
        for host in settings.hosts:
            self._web.url(f"http://{host}")  # refused at the start, not at the first photo
        self._key = settings.key
        self._waiting: asyncio.Queue[Lesson] = asyncio.Queue(MOST_WAITING)
        self._held = 0  # bytes in the queue
        # Photos may take as much memory as the bodies of requests.
        self._room = asyncio.Semaphore(max(1, limits.held_bytes // limits.body_bytes))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Learn submitted annotations until the service stops, including those that wait at that time."""
        async with self._web:
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
        """The version of predictions: Label Studio asks again after the model has changed."""
        return f"fiveshot state {self._engine.serving.snapshot.state}"

    def take_key(self, key: str | None) -> None:
        """Use the access token that Label Studio sends, if none was configured."""
        if self._settings.key is None and key is not None and key.isascii():
            self._key = key

    async def predict(self, control: Control, tasks: Sequence[object], context: object) -> list[dict[str, Any]]:
        """Return a prediction for each task; it is empty if the photo cannot be fetched or used."""
        boxes = _regions(context) if control.kind == "rectanglelabels" else [None]
        most = self._engine.settings.limits.photos
        if len(boxes) > 1 and len(boxes) * len(tasks) > most:
            raise too_large(f"more than {most} rectangles in one request", "draw fewer, or send fewer tasks")
        if not len(self._engine.serving.snapshot.memory.labels):
            return [self._prediction(control, []) for _ in tasks]
        return [await self._predicted(control, task, boxes) for task in tasks]

    async def _predicted(
        self, control: Control, task: object, boxes: Sequence[Mapping[str, Any] | None]
    ) -> dict[str, Any]:
        """Return the prediction of a task. Raise errors of the service; errors of the task give an empty
        prediction."""
        if not boxes:
            return self._prediction(control, [])
        try:
            parts = [None if one is None else _box(one) for one in boxes]
            async with self._room:
                photo = await self._photo(photo_address(control, task))
                found, _, _ = await self._engine.predict([replace(photo, box=part) for part in parts], 20)
        except (InputError, ApiError) as error:
            if isinstance(error, ApiError) and error.status >= 500:
                raise
            log.warning("no prediction for task %s: %s", _id(task), one_line(error))
            return self._prediction(control, [])
        chosen = [(control.label_of(one), box) for one, box in zip(found, boxes, strict=True)]
        return self._prediction(control, [(*label, box) for label, box in chosen if label is not None])

    def _prediction(
        self, control: Control, chosen: Sequence[tuple[str, float | None, Mapping[str, Any] | None]]
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
        score = min((probability for _, probability, _ in chosen if probability is not None), default=0.0)
        return {"result": result, "score": score, "model_version": self.version}

    def submit(self, control: Control, tasks: Sequence[object]) -> int:
        """Queue the annotations of tasks for learning; return the number of tasks.

        Tasks that cannot be learned are skipped, and the log says why.
        """
        limits, taken = self._engine.settings.limits, 0
        for task in tasks:
            try:
                lesson = Lesson.of(control, task, limits.photos)
            except InputError as error:
                log.warning("task %s was not learned: %s", _id(task), one_line(error))
                continue
            if self._waiting.full() or self._held + lesson.size > limits.held_bytes:
                raise busy("too many annotations are waiting to be learned")
            self._held += lesson.size
            self._waiting.put_nowait(lesson)
            taken += 1
        return taken

    async def submit_project(self, number: int, control: Control) -> int:
        """Queue all annotations of a project for learning, including earlier ones; return their number."""
        submitted = 0
        for page in range(1, MOST_PAGES + 1):
            query = f"/api/tasks?project={number}&page={page}&page_size={PAGE}&fields=all"
            found = _parsed(await self._get(query), "tasks", list)
            annotated = [task for task in found if isinstance(task, Mapping) and task.get("annotations")]
            submitted += self.submit(control, annotated)
            if len(found) < PAGE:
                break
        return submitted

    async def _keep_learning(self) -> None:
        while True:
            lesson = await self._waiting.get()
            try:
                await self._learned(lesson)
            except Exception as error:
                # Only file names and lines of a traceback: the text of an error may come from outside.
                places = "" if isinstance(error, FiveshotError) else "".join(format_tb(error.__traceback__))
                log.warning("task %s failed: %s%s", lesson.task, one_line(error), places and f"\n{places}")
            finally:
                self._held -= lesson.size
                self._waiting.task_done()

    async def _learned(self, lesson: Lesson) -> None:
        """Learn one lesson; try again while the model is being loaded or the service is busy."""
        for left in range(TRIES - 1, -1, -1):
            try:
                await self._learn(lesson)
                break
            except ApiError as error:
                if error.status != 503 or not left:
                    raise
            await asyncio.sleep(1)

    async def _learn(self, lesson: Lesson) -> None:
        if not lesson.labels:
            return
        async with self._room:
            photo = await self._photo(lesson.address)
            for label, boxes in lesson.labels.items():
                classes = self._engine.serving.snapshot.classes
                name = lesson.control.class_of(label, classes)
                if name == NONE and not classes:
                    log.warning("task %s was not learned: no class is known yet", lesson.task)
                    continue
                await self._engine.correct(name, [replace(photo, box=box) for box in boxes])
                log.info("task %s was learned as %r", lesson.task, name)

    async def _photo(self, address: str) -> Photo:
        """Fetch a photo: from Label Studio, from an allowed host, or from a ``data:`` address."""
        if address.startswith("data:"):
            return Photo(BytesSource(_of_data(address), "photo"))
        data = await self._get(address)
        return Photo(BytesSource(data, shown_name(address.partition("?")[0], 1)))

    async def _get(self, address: str) -> bytes:
        """Fetch an address. Only Label Studio itself gets its token, and redirects are checked, too."""
        try:
            whole = urljoin(f"{self._settings.url.rstrip('/')}/", address)
            return await self._web.fetch(whole, permit=self._permit)
        except InputError as error:
            hint = error.hint or "check --studio, and give an access token with --key"
            raise InputError(f"{address[:200]!r} cannot be fetched: {error.message}", hint=hint) from error
        except ValueError as error:
            raise InputError(f"{address[:200]!r} is not an address", hint="check it in a browser") from error

    async def _permit(self, url: Any) -> Mapping[str, str]:
        if (url.scheme, url.netloc) == (self._home.scheme, self._home.netloc):
            return await self._login()
        allowed = [self._web.url(f"{url.scheme}://{host}").netloc for host in self._settings.hosts]
        if url.netloc not in allowed:
            host = url.netloc.decode("ascii", "backslashreplace")
            raise InputError(f"photos are not fetched from {host!r}", hint="allow it with --allow-host")
        return {}

    async def _login(self) -> dict[str, str]:
        """Return the authorization header; a personal access token is exchanged for a short-lived one."""
        if not self._key:
            return {}
        if self._key.count(".") != 2:
            return {"Authorization": f"Token {self._key}"}
        address = urljoin(self._settings.url.rstrip("/") + "/", "/api/token/refresh")
        access = _parsed(await self._web.fetch(address, post={"refresh": self._key}), "access", str)
        return {"Authorization": f"Bearer {access}"}


def _parsed(reply: bytes, key: str, kind: type[Found]) -> Found:
    """Return an entry of a JSON object that Label Studio sent."""
    try:
        found = json.loads(reply)[key]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _not_a_studio(key) from error
    if not isinstance(found, kind):
        raise _not_a_studio(key)
    return found


def _not_a_studio(key: str) -> InputError:
    return InputError(f"Label Studio's answer has no {key!r}", hint="check the address in --studio")


def _id(task: object) -> str:
    return one_line(task.get("id") if isinstance(task, Mapping) else task, 100)


def photo_address(control: Control, task: object) -> str:
    """Return the address of a task's photo."""
    data = task.get("data") if isinstance(task, Mapping) else None
    address = data.get(control.key) if isinstance(data, Mapping) else None
    if not isinstance(address, str) or not address:
        raise InputError(f"its data have no {control.key!r}", hint="import photos under that name")
    return address


def _of_data(address: str) -> bytes:
    """Return the photo in a ``data:`` address."""
    try:
        return base64.b64decode(address.partition(";base64,")[2], validate=True)
    except ValueError as error:
        raise InputError("the photo in the task is not base64", hint="import it as a file") from error


def _annotated(control: Control, task: object, most: int) -> dict[str, tuple[Box | None, ...]]:
    """Return the labels of the last annotation that was not skipped, with the parts that they belong to."""
    annotations = task.get("annotations") if isinstance(task, Mapping) else None
    listed = annotations if isinstance(annotations, list) else []
    given = [one for one in listed if isinstance(one, Mapping) and not one.get("was_cancelled")]
    results = given[-1].get("result") if given else None
    found: dict[str, dict[Box | None, None]] = {}
    count = 0
    for one in results if isinstance(results, list) else ():
        value = one.get("value") if isinstance(one, Mapping) else None
        if not isinstance(value, Mapping) or one.get("from_name") != control.name:
            continue
        labels = value.get(control.kind)
        if isinstance(labels, list) and len(labels) == 1 and isinstance(labels[0], str):  # one label each
            count += 1
            if count > most:
                raise InputError(f"it has more than {most} labels or rectangles", hint="annotate fewer of them")
            part = _box(value) if control.kind == "rectanglelabels" else None
            found.setdefault(labels[0], {})[part] = None
    return {label: tuple(parts) for label, parts in found.items()}


def _regions(context: object) -> list[Mapping[str, Any] | None]:
    """Return the rectangles that the user has drawn and that need labels; pass over polygons and other shapes."""
    results = context.get("result") if isinstance(context, Mapping) else None
    values = [one.get("value") for one in results if isinstance(one, Mapping)] if isinstance(results, list) else []
    drawn = [one for one in values if isinstance(one, Mapping) and all(key in one for key in PLACE)]
    return [{key: one[key] for key in (*PLACE, "rotation") if key in one} for one in drawn]


def _box(value: Mapping[str, Any]) -> Box:
    """Return a rectangle; Label Studio gives it in percent."""
    if value.get("rotation"):
        raise InputError("a rectangle is rotated", hint="draw it upright")
    numbers = [value.get(key) for key in PLACE]
    shares = [min(1.0, max(0.0, one / 100)) for one in numbers if is_number(one) and abs(one) <= FARTHEST]
    if len(shares) < len(numbers):  # also false for NaN
        raise InputError("a rectangle has no valid position", hint="draw it again")
    return Box(*shares)


async def _studio(request: Request) -> Studio:
    studio: Studio = request.app.state.studio
    return studio


TheStudio = Annotated[Studio, Depends(_studio)]
Tasks = Annotated[list[Any], Body()]
Config = Annotated[str, Body()]
studio_routes = APIRouter(include_in_schema=False)


@studio_routes.get("/health")
async def health() -> dict[str, str]:
    """Confirm that the backend answers."""
    return {"status": "UP", "model_class": "fiveshot"}


@studio_routes.get("/versions")
async def versions(studio: TheStudio) -> dict[str, list[str]]:
    """Return the state of the model as its version."""
    return {"versions": [studio.version]}


@studio_routes.post("/setup")
async def setup(
    studio: TheStudio,
    config: Annotated[str, Body(alias="schema")] = "",
    access_token: Annotated[str | None, Body()] = None,
) -> dict[str, str]:
    """Connect a project, if its labeling interface is supported."""
    if config:
        Control.of(config)
    studio.take_key(access_token)
    return {"model_version": studio.version}


@studio_routes.post("/predict")
async def predict(
    studio: TheStudio,
    tasks: Tasks,
    label_config: Config = "",
    params: Annotated[Any, Body()] = None,
) -> dict[str, Any]:
    """Predict tasks."""
    if len(tasks) > MOST_TASKS:
        raise too_large(f"more than {MOST_TASKS} tasks", "send fewer at once")
    context = params.get("context") if isinstance(params, Mapping) else None
    results = await studio.predict(Control.of(label_config), tasks, context)
    return {"results": results, "model_version": studio.version}


@studio_routes.post("/train", status_code=201)
async def train(studio: TheStudio, annotations: Tasks, label_config: Config = "") -> dict[str, int]:
    """Learn from tasks with annotations, as older releases of Label Studio send them."""
    return {"submitted": studio.submit(Control.of(label_config), annotations)}


@studio_routes.post("/webhook", status_code=201)
async def webhook(
    studio: TheStudio,
    action: Annotated[str, Body()] = "",
    project: Annotated[dict[str, Any] | None, Body()] = None,
    task: Annotated[Any, Body()] = None,
    annotation: Annotated[Any, Body()] = None,
) -> dict[str, int]:
    """Learn from a submitted annotation, or from all annotations of a project."""
    if project is None or action not in (*LEARNED_FROM, "START_TRAINING"):
        return {"submitted": 0}
    control = Control.of(str(project.get("label_config", "")))
    if action == "START_TRAINING":
        number = str(project.get("id"))
        if not (number.isascii() and number.isdigit() and len(number) < 20):
            raise ApiError(422, "bad_project", f"there is no project {number[:50]!r}", "send the id of one")
        return {"submitted": await studio.submit_project(int(number), control)}
    tasks, annotations = (one if isinstance(one, list) else [one] for one in (task, annotation))
    pairs = zip(tasks, annotations, strict=False)
    submitted = [{**one, "annotations": [said]} if isinstance(one, Mapping) else one for one, said in pairs]
    return {"submitted": studio.submit(control, submitted)}
