"""The client against the real service on a socket, and against connections that lose requests and replies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live import Live, live
from tiny import photo

from fiveshot import client as client_module
from fiveshot.client import Client, ServiceError
from fiveshot.data import BytesSource, Photo
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, keep_sighting, recognize_photos, sightings
from fiveshot.service import RequestLimits
from fiveshot.values import SightingLimits


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, model_path: Path) -> Iterator[Live]:
    with live(model_path) as running:
        yield running


@pytest.fixture
def client(service: Live) -> Iterator[Client]:
    """A client of a service that knows red and green; tests leave it so."""
    with Client(service.url) as opened:
        known = {one.name for one in opened.classes()}
        for name in {"red", "green"} - known:
            opened.learn(name, photos(name))
        yield opened


def photos(name: str, count: int = 3, first: int = 0) -> list[tuple[str, bytes]]:
    return [(f"{name} {number}.jpg", photo(name, number)) for number in range(first, first + count)]


def test_parts_of_photos(client: Client) -> None:
    boxes = [[(0, 0, 0.5, 0.5), (0.5, 0.5, 0.5, 0.5)], None]
    found = client.predict(photos("red", 2, 70), boxes=boxes)
    assert [(one.photo, one.box) for one in found] == [
        ("red 70.jpg", (0, 0, 0.5, 0.5)),
        ("red 70.jpg", (0.5, 0.5, 0.5, 0.5)),
        ("red 71.jpg", None),
    ]
    with pytest.raises(InputError):
        client.predict(photos("red", 2, 70), boxes=[None])


class Lossy:
    """A proxy in front of the service that drops chosen messages."""

    def __init__(self, port: int) -> None:
        self.lose_replies = self.refuse = self.requests = 0
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                self._forward(connection)

    def _forward(self, connection: socket.socket) -> None:
        request = _message(connection)
        if not request:
            return
        self.requests += 1
        if self.refuse:
            self.refuse -= 1
            body = b'{"code": "busy", "message": "later", "hint": "try again"}'
            head = f"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body)
            return
        with socket.create_connection(("127.0.0.1", self._port)) as upstream:
            upstream.sendall(request)
            reply = _message(upstream)
        if self.lose_replies:
            self.lose_replies -= 1
            return
        connection.sendall(reply)

    def close(self) -> None:
        self._server.close()


def _message(connection: socket.socket) -> bytes:
    """Read one request or reply that says how long it is."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def lossy(service: Live, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lossy, Client]]:
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.01)
    way = Lossy(service.port)
    with Client(way.url, retries=3) as opened:
        yield way, opened
    way.close()


def test_learn_predict_and_list(client: Client, tmp_path: Path, service: Live, model_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(photo("red", 90))
    found = client.predict([file, photo("green", 91), ("named.jpg", photo("red", 92))], top=2)
    assert [one.photo for one in found] == ["a.jpg", "photo 2", "named.jpg"]
    with Recognizer.open(model_path, device="cpu", runtime="torch", readonly=True) as model:
        own = model.predict([file, photo("green", 91), photo("red", 92)], top=2)
    for one, other in zip(found, own, strict=True):
        assert (one.label, one.answer, one.levels) == (other.label, other.answer, other.levels)
        assert one.familiarity == pytest.approx(other.familiarity, rel=1e-3)
        assert [each.label for each in one.candidates] == [each.label for each in other.candidates]
    learned = client.learn("a/b ?#", photos("blue", 4))
    assert (learned.created, learned.photos, learned.added) == (True, 4, 4)
    assert learned.nearest in ("red", "green")
    assert {one.name: one.photos for one in client.classes()} == {"a/b ?#": 4, "green": 3, "red": 3}
    assert [one.name for one in client.classes("re")] == ["green", "red"]
    assert client.model().state == learned.state
    undone = client.undo(state=learned.state)
    assert (undone.action, undone.classes) == ("learn", ("a/b ?#",))
    with pytest.raises(ServiceError) as refused:
        client.undo(state=learned.state)
    assert (refused.value.status, refused.value.code) == (409, "changed")


def test_settings_are_changed_and_brought_back(client: Client, service: Live) -> None:
    def rates() -> tuple[float, float]:
        found = service.client.get("/v1/model").json()
        return found["false_rejection"], found["wrong_answers"]

    before = rates()
    assert client.set(false_rejection=0.2).rate == 0.2
    assert client.set(wrong_answers=0.1).photos == 6  # learned photos
    assert rates() == (0.2, 0.1)
    client.undo()
    client.undo()
    assert rates() == before
    with pytest.raises(ServiceError):
        client.set(false_rejection=2)


def test_photos_are_moved_removed_and_brought_back(client: Client) -> None:
    client.learn("blue", photos("blue", 4))
    ids = [one.id for one in client.photos("blue")]
    assert len(ids) == 4
    assert client.picture(ids[0]).startswith(b"\xff\xd8")
    moved = client.move(ids[:1], to="azure", of="blue")
    assert (moved.action, dict(moved.counts)) == ("move", {"blue": 3, "azure": 1})
    assert client.undo(state=moved.state).action == "move"
    removed = client.remove(ids[:2])
    assert dict(removed.counts) == {"blue": 2}
    renamed = client.rename("blue", "teal")
    assert renamed.classes == ("teal",)
    with pytest.raises(ServiceError) as refused:
        client.remove(["p999999"])
    assert refused.value.status == 404
    forgotten = client.forget("teal", for_good=True)
    assert forgotten is not None
    assert forgotten.action == "forget"
    assert {one.name for one in client.classes()} == {"green", "red"}
    with pytest.raises(ServiceError) as refused:
        client.forget("teal")
    assert (refused.value.status, refused.value.code) == (404, "not_found")


def test_answers_are_corrected(client: Client, lossy: tuple[Lossy, Client]) -> None:
    way, over = lossy
    way.lose_replies = 1
    corrected = over.correct(photos("blue", 2), "blue")  # done twice, and learned once
    assert dict(corrected.counts) == {"blue": 2}
    assert [one.photos for one in client.classes("blue")] == [2]
    assert dict(client.correct(photos("blue", 1), "teal").counts) == {"blue": 1, "teal": 1}
    way.lose_replies = 1
    none = over.learn_none(photos("grey", 2))
    assert {one.id for one in client.negatives()} == set(none.ids)
    client.remove(none.ids)
    assert client.negatives() == []
    for name in ("blue", "teal"):
        client.forget(name)


def test_why_and_a_second_look(client: Client) -> None:
    (seen,) = client.predict(photo("red", 0), why=2)
    assert [near.label for near in seen.why] == ["red", "red"]
    assert seen.why[0].id in {one.id for one in client.photos("red")}
    client.learn("blue", [*photos("blue", 4), *photos("blue", 1)])  # one of them twice
    review = client.review()
    assert review.state == client.model().state
    assert {one.name for one in review.classes} == {"blue", "green", "red"}
    twice = next(one for one in review.suggestions if (one.kind, one.label) == ("duplicates", "blue"))
    assert twice.action == "remove"
    kept = client.keep([twice.photo], "duplicates")
    found = [(one.photo, one.kind) for one in client.review().suggestions]
    assert (twice.photo, "duplicates") not in found
    assert (twice.photo, "duplicates") in [(one.photo, one.kind) for one in client.review(kept=True).suggestions]
    client.undo(state=kept.state)
    applied = client.apply("duplicates", [twice.photo], state=client.review().state)
    assert dict(applied.counts) == {"blue": 4}
    client.forget("blue")


def test_photos_without_labels(client: Client) -> None:
    unnamed = [*photos("blue", 4), *photos("violet", 4), ("bad.jpg", b"not a photo")]
    with client.sort(unnamed) as found:
        sorting = found.sorting()
        assert len(sorting.photos) == 8
        assert [one.name for one in sorting.bad] == ["bad.jpg"]
        everywhere = [number for group in sorting.groups for number in group.photos]
        everywhere += [one.photo for one in sorting.known]
        assert sorted(everywhere) == list(range(8))
        assert found.picture(0).startswith(b"\xff\xd8")
        assert found.add(photos("violet", 1, 9)) == [8]
        learned = found.learn("blue", photos=range(4))
        assert (learned.photos, learned.created) == (4, True)
        group = next(one for one in found.sorting().groups if 4 in one.photos) if found.sorting().groups else None
        if group is not None:
            assert found.learn("violet", group=group.id).photos == len(group.photos)
            client.forget("violet")
    with pytest.raises(ServiceError) as gone:
        found.sorting()
    assert gone.value.status == 404
    client.forget("blue")


def test_sightings_of_a_watch(
    start: Callable[..., Live], fresh_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAGE", 3)  # several pages
    with (
        Client(start().url) as client,
        Recognizer.open(fresh_path, device="cpu", runtime="torch") as watcher,
    ):
        for name in ("red", "green"):
            client.learn(name, photos(name, 5))
        for name, number in (("gold", 1), ("gold", 2), ("red", 7), ("gold", 3)):
            given = [Photo(BytesSource(photo(name, number), f"{name} {number}"))]
            (seen,) = recognize_photos(watcher, given, top=3, sure=None, keep=True)
            keep_sighting(watcher, seen, SightingLimits(), seen="2026-05-01T10:00:00.000Z", source="camera")
        found = client.sightings()
        assert found == sightings(watcher)
        assert [one.id for one in found.sightings] == ["s4", "s3", "s2", "s1"]
        assert client.sighting_picture("s4", kept=True) == photo("gold", 3)
        assert client.sighting_picture("s4")[:2] == b"\xff\xd8"
        assert client.confirm_sightings(["s3"], state=found.state).counts == {"red": 6}
        assert client.name_sightings(["s1", "s2"], "gold").counts == {"gold": 2}
        assert client.dismiss_sightings(["s4"]).ids == ("s4",)
        assert client.sightings().sightings == ()
        assert client.undo().action == "dismiss"
        client.dismiss_sightings(["s4"], for_good=True)
        assert client.sightings().groups == ()


def test_many_photos_take_several_requests(service: Live, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    send = client._json

    def counted(method: str, path: str, **request: object) -> object:
        asked.append(path)
        return send(method, path, **request)

    monkeypatch.setattr(client, "_json", counted)
    client._limits = {"photos": 3, "body_bytes": 10**6}
    found = client.predict([photo("red", number) for number in range(8)])
    assert len(found) == 8
    assert asked == ["/v1/predict"] * 3
    one = len(photo("red", 0))
    client._limits = {"photos": 50, "body_bytes": 3 * one}
    assert len(client.predict([photo("red", number) for number in range(8)])) == 8
    assert len(asked) > 6


def test_errors_say_what_the_service_says(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as refused:
        client.predict([("fine.jpg", photo("red")), ("bad.jpg", b"not a photo")])
    assert (refused.value.status, refused.value.code) == (422, "bad_photo")
    assert refused.value.details[0]["name"] == "bad.jpg"
    assert refused.value.hint
    with pytest.raises(InputError):
        client.predict([])
    with pytest.raises(StorageError):
        client.predict(tmp_path / "none.jpg")
    for url in ("localhost:8765", "ftp://localhost", "http://"):
        with pytest.raises(InputError):
            Client(url)


def test_a_token(start: Callable[..., Live]) -> None:
    service = start(token="a-token-of-some-length")
    with Client(service.url, token="a-token-of-some-length") as known, Client(service.url) as unknown:
        assert known.classes() == []
        with pytest.raises(ServiceError) as refused:
            unknown.classes()
    assert (refused.value.status, refused.value.code) == (401, "no_token")


def test_a_lost_reply_learns_once(lossy: tuple[Lossy, Client]) -> None:
    way, client = lossy
    way.lose_replies = 2
    learned = client.learn("blue", photos("blue"))
    assert way.requests >= 3
    assert (learned.photos, learned.added) == (3, 3)
    assert [one.photos for one in client.classes("blue")] == [3]
    again = client.learn("blue", photos("blue", 2, 10), key="one request")
    assert client.learn("blue", photos("blue", 2, 10), key="one request") == again
    assert [one.photos for one in client.classes("blue")] == [5]
    with pytest.raises(ServiceError) as refused:
        client.learn("blue", photos("blue", 1, 20), key="one request")
    assert refused.value.code == "key_reused"
    way.lose_replies = 1
    assert client.forget("blue") is None  # done by the request whose reply was lost
    assert client.classes("blue") == []


def test_questions_are_asked_again(lossy: tuple[Lossy, Client]) -> None:
    way, client = lossy
    client.model()
    for trouble in ("lose_replies", "refuse"):
        setattr(way, trouble, 2)
        assert len(client.predict(photo("red", 3))) == 1
        setattr(way, trouble, 1)
        assert len(client.classes()) == 2


def test_a_change_whose_reply_is_lost_is_not_sent_again(lossy: tuple[Lossy, Client]) -> None:
    way, client = lossy
    state = client.model().state
    before = way.requests
    way.lose_replies = 1
    with pytest.raises(ServiceError) as refused:
        client.rename("red", "crimson")
    assert (refused.value.code, refused.value.status) == ("reply_lost", 0)
    assert way.requests == before + 1
    assert client.model().state == state + 1  # done, once
    way.refuse = 2  # the service has done nothing, so that is sent again
    assert client.rename("crimson", "red").state == state + 2


def test_retries_come_to_an_end(lossy: tuple[Lossy, Client]) -> None:
    way, client = lossy
    way.refuse = 100
    before = way.requests
    with pytest.raises(ServiceError) as refused:
        client.classes()
    assert (refused.value.status, refused.value.code) == (503, "busy")
    assert way.requests == before + 4


def test_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", retries=1) as client:
        with pytest.raises(ServiceError) as refused:
            client.learn("red", photo("red"))
        assert refused.value.code == "no_reply"
        with pytest.raises(ServiceError):
            client.wait_until_ready(0.1)


@contextmanager
def other_server(reply: bytes) -> Iterator[str]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server.accept()[0] as connection:
            _message(connection)
            connection.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    with server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_server_that_is_not_ours() -> None:
    reply = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello"
    with other_server(reply) as url, Client(url) as client, pytest.raises(ServiceError) as refused:
        client.classes()
    assert (refused.value.code, refused.value.status) == ("no_service", 404)


def test_it_waits_until_the_model_is_loaded(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(rate=10_000), ready=False)
    with Client(service.url) as client:
        client.wait_until_ready(60)
        assert client.classes() == []
