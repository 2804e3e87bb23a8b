"""Sightings over HTTP: listed in groups, named, confirmed, dismissed and undone, while a watch keeps more."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import Live, live
from PIL import Image
from tiny import encoded, picture
from watcher import Keep, shots, watching

from fiveshot.values import SightingLimits


@pytest.fixture
def service(fresh_path: Path) -> Iterator[Live]:
    """A service that knows three classes of five photos."""
    with live(fresh_path) as running:
        for name in ("red", "green", "blue"):
            running.learn(name, 5)
        yield running


@pytest.fixture
def keep(service: Live, fresh_path: Path) -> Iterator[Keep]:
    """A watch of the same model: it keeps photos as sightings and returns their ids."""
    with watching(fresh_path) as kept:
        yield kept


def listed(service: Live, **params: Any) -> dict[str, Any]:
    reply = service.client.get("/v1/sightings", params=params)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def ids(service: Live) -> list[str]:
    return [one["id"] for one in listed(service)["sightings"]]


def said(service: Live, verb: str, **body: Any) -> httpx.Response:
    return service.client.post(f"/v1/sightings/{verb}", json=body)


def refused(reply: httpx.Response, status: int) -> str:
    assert reply.status_code == status, reply.text
    return str(reply.json()["code"])


def test_they_are_the_newest_first_in_pages_and_groups(service: Live, keep: Keep) -> None:
    assert listed(service) | {"state": 0} == {"sightings": [], "groups": [], "total": 0, "bytes": 0, "state": 0}
    keep(*shots("gold", 1, 2, 3), *shots("red", 7), *shots("gold", 4))
    found = listed(service)
    assert [one["id"] for one in found["sightings"]] == ["s5", "s4", "s3", "s2", "s1"]
    assert found["groups"] == [
        {"id": "g1", "label": None, "ids": ["s5", "s3", "s2", "s1"]},
        {"id": "g4", "label": "red", "ids": ["s4"]},
    ]
    assert [one["suggestion"] for one in found["sightings"]] == [None, "red", None, None, None]
    assert found["sightings"][1]["prediction"]["label"] == "red"
    assert found["sightings"][0]["prediction"]["photo"] == "gold-4.jpg"
    assert service.client.get("/v1/model").json()["sightings"] == found["total"] == 5
    page = listed(service, limit=1)
    assert ([one["id"] for one in page["sightings"]], len(page["groups"]), page["total"]) == (["s5"], 1, 5)
    keep(*shots("teal", 1))  # does not move the next page
    page = listed(service, limit=2, before="s5")
    assert [one["id"] for one in page["sightings"]] == ["s4", "s3"]
    assert [group["id"] for group in page["groups"]] == ["g1", "g4"]  # whole groups, with what other pages show
    assert page["groups"][0]["ids"] == ["s5", "s3", "s2", "s1"]


def test_pictures_are_a_small_copy_and_the_photo_itself(service: Live, keep: Keep) -> None:
    large = encoded(picture("gold", 1, (640, 480)), "PNG")
    keep(("gold.png", large))
    small = service.client.get("/v1/sightings/s1")
    assert Image.open(io.BytesIO(small.content)).size == (128, 96)
    tag = {"If-None-Match": small.headers["etag"]}
    assert service.client.get("/v1/sightings/s1", headers=tag).status_code == 304
    kept = service.client.get("/v1/sightings/s1", params={"kept": True})
    assert (kept.content, kept.headers["content-type"]) == (large, "image/png")
    assert refused(service.client.get("/v1/sightings/s2"), 404) == "no_sighting"


def test_several_are_named_in_one_change_that_undo_takes_back(service: Live, keep: Keep) -> None:
    keep(*shots("gold", 1, 2, 3, 4), *shots("teal", 1))
    before = listed(service)
    made = said(service, "name", ids=["s1", "s2", "s3"], name="gold").json()
    assert (made["action"], made["counts"], len(made["ids"])) == ("correct", {"gold": 3}, 3)
    assert ids(service) == ["s5", "s4"]
    assert service.predict("gold", 9).json()["predictions"][0]["label"] == "gold"
    assert listed(service)["sightings"][1]["suggestion"] == "gold"  # what was learned helps with the rest
    assert refused(said(service, "name", ids=["s4", "s1"], name="gold"), 404) == "no_sighting"
    none = said(service, "name", ids=["s5"], name="None of these").json()
    assert (none["action"], none["counts"]) == ("none", {"none of these": 1})
    assert ids(service) == ["s4"]
    for _ in range(2):
        service.client.post("/v1/undo").raise_for_status()
    after = listed(service)
    assert after["sightings"] == before["sightings"]
    assert "gold" not in service.names()


def test_right_learns_several_classes_in_one_change(service: Live, keep: Keep) -> None:
    keep(*shots("red", 7, 8), *shots("green", 7), *shots("gold", 1))
    found = listed(service)
    state = found["state"]
    assert [one["suggestion"] for one in found["sightings"]] == [None, "green", "red", "red"]
    assert refused(said(service, "confirm", ids=["s1", "s4"]), 409) == "no_suggestion"
    assert refused(said(service, "confirm", ids=["s1"], state=state - 1), 409) == "changed"
    made = said(service, "confirm", ids=["s1", "s2", "s3"], state=state).json()
    assert (made["action"], made["counts"], made["state"]) == ("correct", {"red": 7, "green": 6}, state + 1)
    assert ids(service) == ["s4"]
    undone = service.client.post("/v1/undo").json()
    assert (undone["action"], sorted(undone["classes"])) == ("correct", ["green", "red"])
    assert ids(service) == ["s4", "s3", "s2", "s1"]
    assert {one["name"]: one["photos"] for one in service.client.get("/v1/classes").json()["classes"]} == {
        "red": 5, "green": 5, "blue": 5
    }  # fmt: skip


def test_dismissed_ones_come_back_unless_they_were_erased(service: Live, keep: Keep, fresh_path: Path) -> None:
    pictures = shots("gold", 1, 2, 3)
    keep(*pictures)
    made = said(service, "dismiss", ids=["s1", "s3"]).json()
    assert (made["action"], made["ids"], made["counts"]) == ("dismiss", ["s1", "s3"], {})
    assert ids(service) == ["s2"]
    assert refused(said(service, "dismiss", ids=["s1"]), 404) == "no_sighting"
    assert service.client.post("/v1/undo").json()["action"] == "dismiss"
    assert ids(service) == ["s3", "s2", "s1"]
    erased = said(service, "dismiss", ids=["s3"], for_good=True)
    assert erased.status_code in (200, 202)  # 202: another process reads the model just now
    assert ids(service) == ["s2", "s1"]
    assert refused(said(service, "dismiss", ids=["s3"], for_good=True), 404) == "no_sighting"
    service.client.post("/v1/undo")
    assert ids(service) == ["s2", "s1"]


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("name", {"ids": [], "name": "gold"}),
        ("name", {"ids": ["p1"], "name": "gold"}),
        ("name", {"ids": ["s1"], "name": ""}),
        ("name", {"ids": ["s1"], "name": "gold", "nmae": "x"}),
        ("confirm", {"ids": ["s0"]}),
        ("dismiss", {"ids": "s1"}),
    ],
)
def test_what_cannot_be_meant_is_refused(service: Live, keep: Keep, verb: str, body: dict[str, Any]) -> None:
    keep(*shots("gold", 1))
    assert said(service, verb, **body).status_code == 422
    assert ids(service) == ["s1"]


def test_limits_hold_while_the_page_is_open(service: Live, keep: Keep) -> None:
    keep(*shots("gold", 1, 2, 3))
    assert ids(service) == ["s3", "s2", "s1"]
    keep(*shots("gold", 4), limits=SightingLimits(number=2))
    assert ids(service) == ["s4", "s3"]
    assert refused(said(service, "name", ids=["s3", "s2"], name="gold"), 404) == "no_sighting"
    assert ids(service) == ["s4", "s3"]
