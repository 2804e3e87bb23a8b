"""A backend for Label Studio: the protocol over real sockets, and the real Label Studio where it is installed."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from live import Live, running
from local_server import Quiet, listening
from tiny import encoded, photo, picture

from fiveshot.data import decoders
from fiveshot.errors import FiveshotError
from fiveshot.recognizer import Recognizer
from fiveshot.service import RequestLimits
from fiveshot.service.label_studio import Control, StudioSettings
from fiveshot.values import Candidate, Prediction

# Its dependencies fit nobody else's: an environment of its own, named here or on the path.
PROGRAM = os.environ.get("FIVESHOT_LABEL_STUDIO") or shutil.which("label-studio")
KEY = "0123456789abcdef0123456789abcdef01234567"
CHOICES = (
    '<View><Image name="img" value="$image"/><Choices name="what" toName="img">'
    '<Choice value="red"/><Choice value="blue"/><Choice value="unknown"/></Choices></View>'
)
BOXES = (
    '<View><Image name="img" value="$image"/><RectangleLabels name="where" toName="img">'
    '<Label value="red"/><Label value="blue"/></RectangleLabels></View>'
)


class _Photos(Quiet, BaseHTTPRequestHandler):
    """As much of Label Studio as a backend asks for: photos behind a token, and the tasks of a project."""

    asked: ClassVar[list[str]]
    tasks: ClassVar[list[dict[str, Any]]]

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers.get('Authorization')}")
        if self.path.startswith("/api/tasks?project=7&page=1&"):
            return self.say(httpx.Response(200, json={"tasks": self.tasks}).content)
        if self.path.startswith("/packed/"):
            return self.say(gzip.compress(gzip.compress(photo("red", 1))), Content_Encoding="gzip, gzip")
        if self.path == "/moved":  # nobody knows where
            return self.say(b"", 302)
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved/"))
            return self.end_headers()
        name, _, number = self.path.removeprefix("/data/upload/").removesuffix(".jpg").partition("-")
        good = self.path.startswith("/data/upload/") and self.headers.get("Authorization") == f"Token {KEY}"
        return self.say(photo(name, int(number)) if good else b"", 200 if good else 401)


@pytest.fixture
def studio() -> Iterator[Any]:
    handler = type("Studio", (_Photos,), {"asked": [], "tasks": []})
    with listening(handler) as address:
        handler.url = f"http://{address}"
        yield handler


@contextmanager
def backend(path: Path, url: str, *, key: str | None = KEY, **given: Any) -> Iterator[Live]:
    def open_model() -> Recognizer:
        return Recognizer.open(path, device="cpu", runtime="torch")

    with running(open_model, studio=StudioSettings(url, key), **given) as service:
        yield service


def task(name: str, number: int, label: str | None = None, **given: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"id": number, "data": {"image": f"/data/upload/{name}-{number}.jpg"}, **given}
    if label is not None:
        made["annotations"] = [{"result": [choice(label)]}]
    return made


def choice(label: str) -> dict[str, Any]:
    return {"from_name": "what", "to_name": "img", "type": "choices", "value": {"choices": [label]}}


def submit(service: Live, name: str, number: int, label: str, action: str = "ANNOTATION_CREATED") -> None:
    said = {
        "action": action,
        "annotation": {"id": number, "result": [choice(label)]},
        "task": task(name, number),
        "project": {"id": 7, "label_config": CHOICES},
    }
    assert service.client.post("/webhook", json=said).json() == {"submitted": 1}


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def counts(service: Live) -> dict[str, int]:
    classes = service.client.get("/v1/classes").json()["classes"]
    return {one["name"]: one["photos"] for one in classes}


def predicted(service: Live, config: str, *tasks: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
    said = {"tasks": list(tasks), "label_config": config, "project": "7.1", "params": params}
    headers = {"Content-Type": "application/json"}  # httpx itself sends no lone surrogate
    reply = service.client.post("/predict", content=json.dumps(said), headers=headers)
    assert reply.status_code == 200, reply.text
    assert len(reply.json()["results"]) == len(tasks)
    return reply.json()["results"]


def test_it_predicts_and_learns_from_what_is_submitted(fresh_path: Path, studio: Any) -> None:
    with backend(fresh_path, studio.url) as service:
        assert service.client.get("/health").json()["status"] == "UP"
        first = service.client.post("/setup", json={"project": "7.1", "schema": CHOICES, "hostname": studio.url})
        assert predicted(service, CHOICES, task("red", 50))[0]["result"] == []  # it knows nothing yet
        for number in range(3):
            submit(service, "red", number, "red")
            submit(service, "blue", number, "blue")
        submit(service, "green", 4, "unknown")
        until(lambda: service.client.get("/v1/model").json()["negatives"] == 1)
        assert counts(service) == {"red": 3, "blue": 3}
        red, blue = predicted(service, CHOICES, task("red", 50), task("blue", 51))
        assert red["result"][0] == {**choice("red"), "score": red["score"]}
        assert blue["result"][0]["value"] == {"choices": ["blue"]}
        assert 0.5 < red["score"] <= 1
        version = service.client.get("/versions").json()["versions"]
        assert version == [red["model_version"]] != [first.json()["model_version"]]
        # Somebody thinks better of it: the photo is moved, not learned twice.
        submit(service, "red", 0, "blue", action="ANNOTATION_UPDATED")
        until(lambda: counts(service) == {"red": 2, "blue": 4})


def test_what_was_annotated_before_is_learned_when_training_is_started(fresh_path: Path, studio: Any) -> None:
    skipped = {**task("red", 9), "annotations": [{"was_cancelled": True, "result": [choice("red")]}]}
    studio.tasks[:] = [task("red", 1, "red"), task("red", 2, "red"), task("blue", 3), skipped]
    with backend(fresh_path, studio.url) as service:
        said = {"action": "START_TRAINING", "project": {"id": 7, "label_config": CHOICES}}
        assert service.client.post("/webhook", json=said).json() == {"submitted": 3}
        until(lambda: counts(service) == {"red": 2})
        older = {"annotations": [task("blue", 3, "blue")], "label_config": CHOICES, "project": "7.1"}
        assert service.client.post("/train", json=older).status_code == 201
        until(lambda: counts(service) == {"red": 2, "blue": 1})


def test_rectangles_are_learned_and_labeled_when_drawn(fresh_path: Path, studio: Any) -> None:
    place = {"x": 10, "y": 20, "width": 50, "height": 60, "rotation": 0}
    with backend(fresh_path, studio.url) as service:
        for number, name in enumerate(("red", "blue", "red", "blue")):
            region = {
                "from_name": "where",
                "type": "rectanglelabels",
                "value": {**place, "rectanglelabels": [name]},
            }
            done = {**task(name, number), "annotations": [{"result": [region]}]}
            assert (
                service.client.post("/train", json={"annotations": [done], "label_config": BOXES}).status_code
                == 201
            )
        until(lambda: counts(service) == {"red": 2, "blue": 2})
        assert predicted(service, BOXES, task("red", 50))[0]["result"] == []  # nobody has drawn a rectangle
        (found,) = predicted(service, BOXES, task("red", 50), context={"result": [{"value": place}]})
        assert found["result"][0]["value"] == {**place, "rectanglelabels": ["red"]}


def test_photos_are_fetched_from_label_studio_alone(fresh_path: Path, studio: Any, tmp_path: Path) -> None:
    elsewhere = (
        "http://127.0.0.1:9/x.jpg",
        "file:///etc/passwd",
        "/moved/http://127.0.0.1:9/x.jpg",
        "/moved/moved",
    )
    with backend(fresh_path, studio.url) as service:
        own = {"image": "data:image/jpeg;base64," + base64.b64encode(photo("red", 1)).decode()}
        moved = {"image": "/moved//data/upload/blue-2.jpg"}
        for number, data in enumerate((own, moved, *({"image": one} for one in elsewhere), {})):
            done = {"id": number, "data": data, "annotations": [{"result": [choice("red")]}]}
            service.client.post("/train", json={"annotations": [done], "label_config": CHOICES})
        submit(service, "blue", 1, "blue")
        until(lambda: counts(service) == {"red": 2, "blue": 1})
    fetched = [asked for asked in studio.asked if not asked.startswith("/moved")]
    assert fetched == [f"/data/upload/blue-{number}.jpg Token {KEY}" for number in (2, 1)]


PLACE = {"x": 10, "y": 20, "width": 50, "height": 60, "rotation": 0}
BAD_ADDRESSES = (
    "http://[", "/data/\ud800.jpg", "http://\ud800/", "/moved", "/moved/http://[", "/packed/1.jpg", "\n", "?",
    "data:image/jpeg;base64,\u00e9", "data:image/jpeg,x", "http://127.0.0.1:99999/", "//", 7, None, [], {},
)  # fmt: skip


def test_a_bad_task_has_an_empty_prediction_and_the_others_are_answered(fresh_path: Path, studio: Any) -> None:
    bad = [{"id": number, "data": {"image": address}} for number, address in enumerate(BAD_ADDRESSES)]
    bad += [{}, {"data": 3}, {"data": []}, None, 3, "task", []]
    with backend(fresh_path, studio.url) as service:
        service.learn("red"), service.learn("blue")
        first, *others, last = predicted(service, CHOICES, task("red", 50), *bad, task("blue", 51))
        assert [one["result"] for one in others] == [[]] * len(bad)
        assert [one["result"][0]["value"]["choices"] for one in (first, last)] == [["red"], ["blue"]]


@pytest.mark.parametrize(
    "context",
    ["odd", 3, [], {"result": 5}, {"result": "x"}, {"result": [None, 3]}, {"result": [{"value": 3}]},
     {"result": [{"value": {}}]}, {"result": [{"value": {**PLACE, "x": None}}]},
     {"result": [{"value": {**PLACE, "x": "\ud800"}}]}, {"result": [{"value": {**PLACE, "width": 0}}]},
     {"result": [{"value": {**PLACE, "x": 10**400}}]}, {"result": [{"value": {**PLACE, "rotation": 5}}]}],
)  # fmt: skip
def test_an_odd_context_has_an_empty_prediction(fresh_path: Path, studio: Any, context: Any) -> None:
    with backend(fresh_path, studio.url) as service:
        service.learn("red")
        assert predicted(service, BOXES, task("red", 50), context=context)[0]["result"] == []


OTHER_SHAPES = (
    {"points": [[1, 1], [2, 2], [3, 1]], "closed": True, "polygonlabels": ["red"]},
    {"format": "rle", "rle": [0, 1], "brushlabels": ["red"]},
    {"x": 1, "y": 1, "radiusX": 3, "radiusY": 3, "rotation": 0, "ellipselabels": ["red"]},
    {"x": 1, "y": 1, "width": 0.3, "keypointlabels": ["red"]},
    {"choices": ["red"]},
)


def test_rectangles_beside_other_shapes_are_labeled_and_learned(fresh_path: Path, studio: Any) -> None:
    drawn = [{"from_name": "where", "value": one} for one in (*OTHER_SHAPES, PLACE)]
    with backend(fresh_path, studio.url) as service:
        service.learn("red")
        (found,) = predicted(service, BOXES, task("red", 50), context={"result": drawn})
        assert [one["value"] for one in found["result"]] == [{**PLACE, "rectanglelabels": ["red"]}]
        drawn[-1]["value"] = {**PLACE, "rectanglelabels": ["blue"]}
        done = {**task("blue", 1), "annotations": [{"result": drawn}]}
        service.client.post("/train", json={"annotations": [done], "label_config": BOXES})
        until(lambda: counts(service) == {"red": 3, "blue": 1})


def test_a_number_that_is_not_one_has_an_empty_prediction(fresh_path: Path, studio: Any) -> None:
    said = (
        b'{"tasks": [{"data": {"image": "/data/upload/red-1.jpg"}}], "label_config": %s, "params": {"context": '
        b'{"result": [{"value": {"x": NaN, "y": 1, "width": Infinity, "height": 9}}]}}}'
    ) % json.dumps(BOXES).encode()
    with backend(fresh_path, studio.url) as service:
        service.learn("red")
        reply = service.client.post("/predict", content=said, headers={"Content-Type": "application/json"})
        assert reply.status_code == 200, reply.text
        assert reply.json()["results"][0]["result"] == []


@pytest.mark.parametrize("number", ["abc", None, [], {}, 1e400, -1, True, "\ud800"])
def test_an_odd_project_is_refused_in_a_sentence(fresh_path: Path, studio: Any, number: Any) -> None:
    said = {"action": "START_TRAINING", "project": {"id": number, "label_config": CHOICES}}
    with backend(fresh_path, studio.url) as service:
        headers = {"Content-Type": "application/json"}
        reply = service.client.post("/webhook", content=json.dumps(said), headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (422, "bad_project")


def rectangles(count: int) -> list[dict[str, Any]]:
    return [
        {"from_name": "where", "value": {**PLACE, "x": number / count, "rectanglelabels": ["red"]}}
        for number in range(count)
    ]


def test_rectangles_are_limited_as_parts_of_photos_are(
    fresh_path: Path, studio: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with backend(fresh_path, studio.url) as service:
        service.learn("red")
        for tasks, count, status in ((1, 50, 200), (1, 51, 413), (1, 3000, 413), (2, 26, 413)):
            said = {
                "tasks": [task("red", number) for number in range(tasks)],
                "label_config": BOXES,
                "params": {"context": {"result": rectangles(count)}},
            }
            reply = service.client.post("/predict", json=said)
            assert reply.status_code == status, (tasks, count)
            if status == 200:
                assert len(reply.json()["results"][0]["result"]) == count
        done = [
            {**task("red", number), "annotations": [{"result": rectangles(count)}]}
            for number, count in ((1, 3000), (2, 50))
        ]
        reply = service.client.post("/train", json={"annotations": done, "label_config": BOXES})
        assert reply.json() == {"submitted": 1}
        until(lambda: counts(service) == {"red": 53})
    assert "task 1 was not learned: it has more than 50 labels or rectangles" in caplog.text


def test_a_service_that_is_busy_says_so(fresh_path: Path, studio: Any) -> None:
    large = {"photos": ("a", encoded(picture("red", 1, (6000, 4200)), "BMP"))}
    limits = RequestLimits(pending=2, body_bytes=90_000_000, rate=10_000)
    with backend(fresh_path, studio.url, limits=limits) as service, ThreadPoolExecutor(1) as pool:
        service.learn("red", 1)
        with decoders()._aside:  # as if a large photo were being decoded
            waiting = pool.submit(service.client.post, "/v1/predict", files=large)
            until(lambda: "fiveshot_pending_photos 1.0" in service.client.get("/metrics").text)
            said = {"tasks": [task("red", 50)], "label_config": CHOICES}
            reply = service.client.post("/predict", json=said)
            assert (reply.status_code, reply.json()["code"]) == (503, "busy")
        assert waiting.result(30).status_code == 200
        assert predicted(service, CHOICES, task("red", 50))[0]["result"] != []


def test_what_comes_from_outside_is_one_line_of_the_log(
    fresh_path: Path, studio: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fiveshot.label_studio")
    hostile = "7\nno error\r\x1b[31m\x9b\u202e\ud800"
    bad = {"id": hostile, "data": {"image": hostile}}
    with backend(fresh_path, studio.url) as service:
        service.learn("red")
        predicted(service, CHOICES, bad)
        other = '<View><Image name="i" value="$\n\x9b"/><Choices name="c" toName="i"/></View>'
        predicted(service, other, bad)
        bad["annotations"] = [{"result": [choice("red")]}]
        good = {**task("red", 60, "red"), "id": hostile}
        said = json.dumps({"annotations": [bad, good], "label_config": CHOICES})
        service.client.post("/train", content=said, headers={"Content-Type": "application/json"})
        until(lambda: counts(service) == {"red": 4})
    told = [one.getMessage() for one in caplog.records if one.name == "fiveshot.label_studio"]
    assert len(told) == 4
    assert all(one.isprintable() for one in told), told


def test_the_token_of_the_connection_is_used_where_none_is_given(fresh_path: Path, studio: Any) -> None:
    with backend(fresh_path, studio.url, key=None) as service:
        service.client.post("/setup", json={"schema": CHOICES, "access_token": KEY})
        submit(service, "red", 1, "red")
        until(lambda: counts(service) == {"red": 1})


def test_a_token_may_come_as_a_password(fresh_path: Path, studio: Any) -> None:
    token = "a-token-of-some-length"
    with backend(fresh_path, studio.url, token=token) as service:
        said = {"tasks": [], "label_config": CHOICES}
        for path in ("/predict", "/setup", "/train", "/webhook"):
            with httpx.Client(base_url=service.url, verify=False, trust_env=False) as stranger:
                assert stranger.post(path, json=said).status_code == 401
                assert stranger.post(path, json=said, auth=("me", "wrong")).status_code == 401
                assert stranger.get("/v1/model", auth=("me", token)).status_code == 401
        with httpx.Client(
            base_url=service.url, verify=False, trust_env=False, auth=("me", token)
        ) as studio_itself:
            assert studio_itself.get("/health").status_code == 200
            assert studio_itself.post("/predict", json=said).json()["results"] == []


DOES_NOT_FIT = (
    ("/predict", b"{"),
    ("/predict", b"[]"),
    ("/predict", b'{"tasks": 3, "label_config": "<View/>"}'),
    ("/predict", b'{"tasks": [], "label_config": "<View><Text name=\\"t\\"/></View>"}'),
    ("/setup", b'{"schema": "<!DOCTYPE x [<!ENTITY a \\"b\\">]><View/>"}'),
    ("/setup", b'{"schema": "<View>"}'),
    ("/train", b'{"annotations": [1], "label_config": ""}'),
)


def test_what_does_not_fit_is_refused(model_path: Path) -> None:
    with backend(model_path, "http://127.0.0.1:9") as service:
        for path, said in DOES_NOT_FIT:
            reply = service.client.post(path, content=said, headers={"Content-Type": "application/json"})
            assert 400 <= reply.status_code < 500, (path, said)
            assert set(reply.json()) >= {"code", "message", "hint"}, (path, said)


def test_the_plain_service_is_no_backend(model_path: Path) -> None:
    from live import live

    with live(model_path) as service:
        assert [service.client.post(path).status_code for path in ("/predict", "/webhook")] == [404, 404]


def test_choices_and_classes_find_each_other() -> None:
    control = Control("choices", "what", "img", "image", ("Barn owl", "wren", "Other"))

    def answer(label: str | None, *others: str) -> Prediction:
        candidates = tuple(Candidate(name, 0.5) for name in (*([label] if label else []), *others))
        return Prediction("photo", label, 0.9, candidates, 1.0, None)

    assert control.label_of(answer("owl/barn owl")) == ("Barn owl", 0.9)
    assert control.label_of(answer("stork", "wren")) == ("wren", 0.5)  # the best that can be chosen
    assert control.label_of(answer("stork")) is None
    assert control.label_of(answer(None, "wren"))[0] == "Other"
    assert control.class_of("wren", ("bird/wren", "owl")) == "bird/wren"
    assert control.class_of("Other", ("owl",)) == "none of these"
    with pytest.raises(FiveshotError):
        StudioSettings("ftp://here")


@pytest.mark.skipif(PROGRAM is None, reason="Label Studio is not installed (name it in FIVESHOT_LABEL_STUDIO)")
def test_the_real_label_studio(fresh_path: Path, tmp_path: Path) -> None:
    with real_studio(tmp_path) as url, backend(fresh_path, url) as service:
        login = {"Authorization": f"Token {KEY}"}
        with httpx.Client(base_url=url, headers=login, timeout=60, verify=False, trust_env=False) as studio:
            project = asked(studio.post("/api/projects", json={"title": "Colors", "label_config": CHOICES}))["id"]
            files = [
                (f"{name}-{number}.jpg", photo(name, number)) for name in ("red", "blue") for number in range(4)
            ]
            for name, data in files:
                asked(studio.post(f"/api/projects/{project}/import", files={"file": (name, data, "image/jpeg")}))
            asked(studio.post("/api/ml", json={"project": project, "url": service.url, "title": "fiveshot"}))
            tasks = asked(studio.get(f"/api/tasks?project={project}&page_size=100&fields=all"))["tasks"]
            names = {one["id"]: "red" if "red-" in one["data"]["image"] else "blue" for one in tasks}
            assert len(names) == 8
            by_hand = sorted(names)[1:4] + sorted(names)[5:8]
            for number in by_hand:
                said = {"result": [choice(names[number])]}
                asked(studio.post(f"/api/tasks/{number}/annotations/", json=said))
            until(lambda: counts(service) == {"red": 3, "blue": 3}, 60)
            rest = sorted(set(names) - set(by_hand))
            action = f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}"
            asked(studio.post(action, json={"selectedItems": {"all": False, "included": rest}}))
            for number in rest:
                (found,) = asked(studio.get(f"/api/tasks/{number}/"))["predictions"]
                assert found["result"][0]["value"] == {"choices": [names[number]]}
                assert found["model_version"].startswith("fiveshot state ")


def asked(reply: httpx.Response) -> Any:
    assert reply.status_code < 300, reply.text
    return reply.json()


@contextmanager
def real_studio(folder: Path) -> Iterator[str]:
    """Run Label Studio with data of its own; a backend on the loopback has to be allowed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        "LABEL_STUDIO_BASE_DATA_DIR": str(folder / "studio"), "ML_BLOCK_LOCAL_IP": "false",
        "SSRF_PROTECTION_ENABLED": "false", "LATEST_VERSION_CHECK": "false", "COLLECT_ANALYTICS": "false",
        "SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": "",
    }  # fmt: skip
    words = [str(PROGRAM), "start", "--no-browser", "--port", str(port), "--internal-host", "127.0.0.1"]
    words += ["--username", "me@example.org", "--password", "only-for-a-test-1", "--user-token", KEY]
    with (folder / "studio.log").open("w") as log:
        words.append("--enable-legacy-api-token")
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 900  # it makes its database first
            while True:
                assert process.poll() is None, (folder / "studio.log").read_text()[-3000:]
                assert time.monotonic() < end
                try:
                    if httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(30)
