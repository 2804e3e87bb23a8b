"""Review and sort over HTTP: what the page and other clients build on."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from live import Live
from PIL import Image
from tiny import parts, photo

from fiveshot.service import RequestLimits

START = Callable[..., Live]


def sort(service: Live, *files: Any) -> str:
    begun = service.client.post("/v1/sort").json()
    if files:
        service.client.post(f"/v1/sort/{begun['id']}/photos", files=list(files)).raise_for_status()
    return str(begun["id"])


def refused(reply: httpx.Response, status: int) -> str:
    assert reply.status_code == status, reply.text
    return str(reply.json()["code"])


@pytest.fixture
def service(start: START) -> Live:
    """A service that knows three classes of five photos."""
    running = start()
    for name in ("red", "green", "blue"):
        running.learn(name, 5)
    return running


def test_classes_are_joined(service: Live) -> None:
    def move(**wanted: object) -> httpx.Response:
        return service.client.post("/v1/photos/move", json=wanted)

    taken = service.client.patch("/v1/classes/red", json={"name": "green"})
    assert refused(taken, 409) == "name_taken"
    assert taken.json()["hint"].endswith("or join the two: move all photos of 'red' to 'green'")
    done = move(all_of="red", to="green").json()
    assert (done["action"], len(done["ids"]), done["counts"]) == ("move", 5, {"red": 0, "green": 10})
    assert refused(move(all_of="red", to="blue"), 404) == "no_class"  # somebody else was first
    assert refused(move(all_of="blue", to="red"), 404) == "no_class"
    assert refused(move(all_of="blue", to="blue"), 409) == "same_class"
    for wrong in ({}, {"ids": ["p1"], "all_of": "green"}, {"all_of": "green", "of": "green"}):
        assert move(to="blue", **wrong).status_code == 422
    assert service.client.post("/v1/undo").json()["action"] == "move"
    assert {one["name"]: one["photos"] for one in service.client.get("/v1/classes").json()["classes"]} == {
        "red": 5, "green": 5, "blue": 5
    }  # fmt: skip


def test_what_was_moved_by_hand_is_not_suggested_again(service: Live) -> None:
    service.client.post("/v1/classes/green/photos", files=parts("red", 1, 70)).raise_for_status()
    service.client.post("/v1/photos/move", json={"ids": ["p16"], "to": "blue"}).raise_for_status()
    assert "p16" not in {one["photo"] for one in service.client.get("/v1/review").json()["suggestions"]}
    assert "p16" in {one["photo"] for one in service.client.get("/v1/review?kept=true").json()["suggestions"]}


def test_review_apply_keep_and_undo(service: Live) -> None:
    service.client.post("/v1/classes/green/photos", files=parts("red", 1, 70)).raise_for_status()
    found = service.client.get("/v1/review").json()
    assert found["judged"] == 16
    (mixed,) = [one for one in found["suggestions"] if one["kind"] == "mixed-up"]
    assert (mixed["photo"], mixed["label"], mixed["to"]) == ("p16", "green", "red")
    asked = {"finding": "mixed-up", "ids": ["p16"], "state": found["state"] - 1}
    assert refused(service.client.post("/v1/review/apply", json=asked), 409) == "changed"
    assert refused(service.client.post("/v1/review/apply", json=asked | {"state": None, "ids": ["p1"]}), 404)
    done = service.client.post("/v1/review/apply", json=asked | {"state": found["state"]}).json()
    assert done["counts"] == {"green": 5, "red": 6}
    assert service.client.get("/v1/review").json()["accuracy"] == 1.0
    assert service.client.post("/v1/undo").json()["action"] == "review"
    again = service.client.get("/v1/review").json()
    assert [one["photo"] for one in again["suggestions"] if one["kind"] == "mixed-up"] == ["p16"]
    kept = service.client.post("/v1/review/keep", json={"ids": ["p16"], "finding": "mixed-up"})
    assert kept.status_code == 200
    after = service.client.get("/v1/review").json()
    assert (after["kept"], [one for one in after["suggestions"] if one["kind"] == "mixed-up"]) == (1, [])
    assert service.client.get("/v1/review?kept=true").json()["kept"] == 0
    assert refused(service.client.post("/v1/review/keep", json={"ids": ["p99"], "finding": "mixed-up"}), 404)


def test_answers_say_why(service: Live) -> None:
    (one,) = service.client.post("/v1/predict?why=2", files=parts("red", 1)).json()["predictions"]
    assert [near["label"] for near in one["why"]] == ["red", "red"]
    assert one["why"][0]["likeness"] == pytest.approx(1.0, abs=1e-5)
    assert service.predict("red").json()["predictions"][0]["why"] == []


def test_a_folder_in_parts_is_sorted_and_named(service: Live) -> None:
    name = sort(service, *parts("red", 2, 60), *parts("gold", 5))
    bad = ("photos", ("notes.jpg", b"nothing", "image/jpeg"))
    added = service.client.post(f"/v1/sort/{name}/photos", files=[*parts("teal", 6), *parts("red", 1, 60), bad])
    assert added.json()["numbers"] == [7, 8, 9, 10, 11, 12, 0]  # the last one was there already
    assert [one["name"] for one in added.json()["refused"]] == ["notes.jpg"]
    found = service.client.get(f"/v1/sort/{name}").json()
    assert len(found["photos"]) == added.json()["total"] == 13
    assert {one["photo"]: one["label"] for one in found["known"]} == {0: "red", 1: "red"}
    groups = {one["id"]: sorted(one["photos"]) for one in found["groups"]}
    assert groups == {"g7": [7, 8, 9, 10, 11, 12], "g2": [2, 3, 4, 5, 6]}
    assert {number for one in found["queue"] for number in (one["photo"], *one["companions"])} >= set(range(2, 13))
    picture = service.client.get(f"/v1/sort/{name}/photos/7")
    assert Image.open(io.BytesIO(picture.content)).size == (64, 48)
    learned = service.client.post(f"/v1/sort/{name}/learn", json={"name": "teal", "group": "g7"}).json()
    assert (learned["name"], learned["added"], learned["created"]) == ("teal", 6, True)
    after = service.client.get(f"/v1/sort/{name}").json()
    assert {one["photo"] for one in after["known"]} | {n for one in after["groups"] for n in one["photos"]} == set(
        range(7)
    )
    home = service.client.get(f"/v1/sort/{name}/places").json()["places"]
    folders = {one["photo"]: "_unknown" if one["between"] else one["label"] for one in after["known"]}
    assert {one["photo"] for one in home if one["unsure"]} == {
        one["photo"] for one in after["known"] if one["between"]
    }
    folders |= {n: f"_unknown/{one['id']}" for one in after["groups"] for n in one["photos"]}
    folders |= dict.fromkeys(range(7, 13), "teal")
    assert {one["photo"]: one["place"].rpartition("/")[0] for one in home} == folders
    assert home[7]["place"] == "teal/teal-0.jpg"
    assert [one["learned"] for one in home] == [False] * 7 + [True] * 6
    again = {"name": "teal", "photos": [7]}
    assert refused(service.client.post(f"/v1/sort/{name}/learn", json=again), 409) == "named"
    assert (
        service.client.post(f"/v1/sort/{name}/learn", json={"name": "gold", "photos": [2, 3]}).status_code == 200
    )
    assert service.names() == ["blue", "gold", "green", "red", "teal"]
    assert service.client.delete(f"/v1/sort/{name}").status_code == 204
    assert refused(service.client.get(f"/v1/sort/{name}"), 404) == "not_found"


def test_a_first_folder_needs_no_class(start: START) -> None:
    service = start()
    name = sort(service, *parts("gold", 4), *parts("teal", 4))
    found = service.client.get(f"/v1/sort/{name}").json()
    assert (found["known"], [sorted(one["photos"]) for one in found["groups"]]) == (
        [],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    )
    service.client.post(f"/v1/sort/{name}/learn", json={"name": "gold", "group": "g0"}).raise_for_status()
    service.client.post("/v1/negatives", files=parts("teal", 1)).raise_for_status()

    def left() -> list[int]:
        after = service.client.get(f"/v1/sort/{name}").json()
        return sorted(
            [one["photo"] for one in after["known"]] + [n for one in after["groups"] for n in one["photos"]]
        )

    assert left() == [5, 6, 7]  # what shows none of the classes is learned, too
    service.client.post("/v1/undo").raise_for_status()
    service.client.post("/v1/undo").raise_for_status()
    assert left() == list(range(8))  # what is undone is there again
    empty = service.client.get(f"/v1/sort/{sort(service)}").json()
    assert (empty["photos"], empty["groups"], empty["queue"]) == ([], [], [])
    assert refused(service.client.get("/v1/review"), 409) == "no_classes"


CANNOT_BE_NAMED = (
    ({"name": "gold", "group": "g99"}, 404),
    ({"name": "gold", "photos": [99]}, 404),
    ({"name": "gold"}, 422),
    ({"name": "gold", "group": "g0", "photos": [1]}, 422),
    ({"name": "", "group": "g0"}, 422),
    ({"name": "unknown", "group": "g0"}, 422),
)


def test_what_cannot_be_named_is_refused(service: Live) -> None:
    name = sort(service, *parts("gold", 4))
    for asked, status in CANNOT_BE_NAMED:
        assert refused(service.client.post(f"/v1/sort/{name}/learn", json=asked), status), asked
        assert "gold" not in service.names(), asked


def test_sets_have_limits(start: START) -> None:
    service = start(limits=RequestLimits(rate=10_000, sortings=2, sorted_photos=5, sorting_seconds=600))
    name = sort(service, *parts("gold", 5))
    one = [("photos", ("more.jpg", photo("gold", 9), "image/jpeg"))]
    assert refused(service.client.post(f"/v1/sort/{name}/photos", files=one), 413)
    for _ in range(2):
        sort(service)
    assert refused(service.client.get(f"/v1/sort/{name}"), 404) == "not_found"
    short = start(limits=RequestLimits(rate=10_000, sorting_seconds=1e-6))
    assert refused(short.client.get(f"/v1/sort/{sort(short)}"), 404) == "not_found"
