"""A service whose model is removed or replaced while it runs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from live import Live, live, wait_until_ready
from tiny import tiny_model

from fiveshot.recognizer import Recognizer, check_model


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def refusals(service: Live) -> set[tuple[int, str]]:
    client = service.client
    answers = [
        client.get("/v1/ready"),
        service.learn("green"),
        client.delete("/v1/classes/red"),
        client.delete("/v1/classes/red?for_good=true"),
        client.patch("/v1/classes/red", json={"name": "rouge"}),
        client.post("/v1/undo"),
    ]
    return {code(answer) for answer in answers}


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_model_that_is_gone(fresh_path: Path) -> None:
    with live(fresh_path, refresh=3600) as service:
        service.learn("red")
        shutil.rmtree(fresh_path)
        assert refusals(service) == {(503, "model_gone")}
        assert str(fresh_path) not in service.client.get("/v1/ready").text
        assert not fresh_path.exists()


def test_a_model_that_is_gone_answers_nothing_and_comes_back(fresh_path: Path, tmp_path: Path) -> None:
    with live(fresh_path, refresh=0.05) as service:
        service.learn("red")
        fresh_path.rename(tmp_path / "away")
        until(lambda: service.predict("red").status_code == 503)
        assert code(service.predict("red")) == (503, "model_gone")
        assert service.client.get("/v1/health").status_code == 200
        (tmp_path / "away").rename(fresh_path)
        wait_until_ready(service.client)
        assert service.names() == ["red"]


def test_a_model_that_was_replaced_is_untouched(fresh_path: Path, tmp_path: Path, tiny_file: Path) -> None:
    other = tiny_model(tmp_path / "other", tiny_file)
    before = {file.name: file.read_bytes() for file in other.iterdir()}
    with live(fresh_path, refresh=3600) as service:
        service.learn("red")
        shutil.rmtree(fresh_path)
        shutil.copytree(other, fresh_path)
        assert refusals(service) == {(503, "model_replaced")}
    assert {file.name: file.read_bytes() for file in fresh_path.iterdir()} == before
    assert check_model(fresh_path) == []


def test_the_model_that_took_the_place_is_served(fresh_path: Path, tmp_path: Path, tiny_file: Path) -> None:
    other = tiny_model(tmp_path / "other", tiny_file)
    with live(other, refresh=3600) as service:
        service.learn("red", first=10)
    with live(fresh_path, refresh=0.05) as service:
        learned = service.learn("red", **{"Idempotency-Key": "one"}).json()
        small = service.client.get("/v1/classes/red/photos/0").content
        shutil.rmtree(fresh_path)
        shutil.copytree(other, fresh_path)
        until(lambda: service.client.get("/v1/ready").status_code == 503 or service.names() == ["red"])
        wait_until_ready(service.client)
        assert service.client.get("/v1/classes/red/photos/0").content != small  # of the same number and state
        again = service.learn("red", **{"Idempotency-Key": "one"})
        assert "Idempotency-Replayed" not in again.headers
        assert again.json()["photos"] == learned["photos"] + 3
    with Recognizer.open(fresh_path) as model:
        assert model.show().classes[0].photos == 6
        assert model.check() == []


def test_what_cannot_be_opened_is_not_served(fresh_path: Path) -> None:
    with live(fresh_path, refresh=0.05) as service:
        service.learn("red")
        shutil.rmtree(fresh_path)
        fresh_path.mkdir()
        (fresh_path / "classes.sqlite").write_bytes(b"not a database")
        until(lambda: code(service.predict("red")) == (503, "model_replaced") if _refused(service) else False)
        time.sleep(0.3)
        assert code(service.client.get("/v1/ready")) == (503, "model_replaced")
        assert (fresh_path / "classes.sqlite").read_bytes() == b"not a database"


def _refused(service: Live) -> bool:
    return service.predict("red").status_code == 503
