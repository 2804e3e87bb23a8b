"""Many clients at once: forward passes are shared, learning blocks nobody, an end loses nothing."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from live import Live, live
from prometheus_client.parser import text_string_to_metric_families

from fiveshot.backbones import Embedder
from fiveshot.errors import StorageError
from fiveshot.features import Seen
from fiveshot.recognizer import Recognizer
from fiveshot.service import Settings, _engine
from fiveshot.service import _photos as photos
from fiveshot.service._engine import Engine
from fiveshot.service._gate import Metrics
from fiveshot.service._photos import Batcher


def metric(service: Live, name: str) -> float:
    text = service.client.get("/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return sum(sample.value for sample in samples if sample.name == name)


def test_learning_does_not_block_prediction(start: Callable[..., Live]) -> None:
    service = start()
    service.learn("red")
    engine = service.app.state.service.engine
    go_on = threading.Event()
    engine._writer.submit(go_on.wait)  # as a slow disk would
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(service.learn, "green")
        for _ in range(5):
            found = service.predict("red").json()
            assert [one["label"] for one in found["predictions"][0]["candidates"]] == ["red"]
        assert service.names() == ["red"]
        assert not learning.done()
        go_on.set()
        assert learning.result().status_code == 200
    assert service.names() == ["green", "red"]
    assert service.predict("green").json()["predictions"][0]["candidates"][0]["label"] == "green"


def test_nothing_that_is_read_waits_for_a_writer(start: Callable[..., Live]) -> None:
    """An erasure holds the model for as long as other processes read."""
    service = start()
    service.learn("red")
    folder = service.app.state.service.engine.recognizer.live.folder
    with folder.writing():
        for path in ("/v1/classes", "/v1/classes/red/photos/0", "/v1/model"):
            assert service.client.get(path).status_code == 200, path
        assert service.predict("red").status_code == 200
        (entry,) = service.client.get("/v1/classes").json()["classes"]
        assert entry["thumbnails"] == 3


@pytest.mark.parametrize("failure", [StorageError("the adapter cannot be read; look"), RuntimeError("no memory")])
def test_what_is_stored_is_answered_as_such(
    start: Callable[..., Live],
    failure: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client that sends its request again would teach the same photos twice."""
    service = start(refresh=0.05)
    publish, fails = Engine._publish, threading.Event()
    fails.set()

    def refuse(engine: Engine) -> None:
        if fails.is_set():
            raise failure
        publish(engine)

    monkeypatch.setattr(Engine, "_publish", refuse)
    reply = service.learn("red")
    assert (reply.status_code, reply.json()["photos"]) == (200, 3)
    assert service.client.patch("/v1/classes/red", json={"name": "rouge"}).status_code == 200
    refused = service.client.patch("/v1/classes/nobody", json={"name": "x"})
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    assert service.names() == []
    assert str(failure) in caplog.text
    fails.clear()
    for _ in range(400):
        if service.names():
            break
        time.sleep(0.02)
    assert service.names() == ["rouge"]


def test_clients_share_forward_passes(start: Callable[..., Live]) -> None:
    service = start(latency=0.05)
    service.learn("red")
    photos, passes = metric(service, "fiveshot_batch_photos_sum"), metric(service, "fiveshot_batch_photos_count")
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda number: service.predict("red", number), range(64)))
    assert {reply.status_code for reply in replies} == {200}
    photos = metric(service, "fiveshot_batch_photos_sum") - photos
    passes = metric(service, "fiveshot_batch_photos_count") - passes
    assert photos == 64
    assert passes <= 48


def test_learning_and_predicting_together(start: Callable[..., Live], fresh_path: Path) -> None:
    service = start()
    service.learn("first")
    done = threading.Event()

    def predict() -> set[int]:
        seen = set()
        while not done.is_set():
            reply = service.predict("first")
            states.append(reply.json()["state"])
            seen.add(reply.status_code)
        return seen

    states: list[int] = []
    with ThreadPoolExecutor(9) as pool:
        predicting = [pool.submit(predict) for _ in range(3)]
        learned = list(pool.map(lambda number: service.learn(f"class {number}"), range(24)))
        done.set()
        assert all(future.result() == {200} for future in predicting)
    assert {reply.status_code for reply in learned} == {200}
    assert len({reply.json()["state"] for reply in learned}) == 24
    assert len(set(states)) > 3  # predictions went on from one state to the next
    with Recognizer.open(fresh_path) as model:
        assert set(model.snapshot.classes) == {"first", *(f"class {number}" for number in range(24))}
        assert model.check() == []


def test_the_same_key_at_the_same_time_learns_once(start: Callable[..., Live]) -> None:
    service = start()
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: service.learn("red", **{"Idempotency-Key": "k"}), range(8)))
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.text for reply in replies}) == 1
    assert service.client.get("/v1/classes").json()["classes"][0]["photos"] == 3


def test_an_end_finishes_what_is_in_flight(fresh_path: Path) -> None:
    with live(fresh_path) as service, ThreadPoolExecutor(4) as pool:
        go_on = threading.Event()
        service.app.state.service.engine._writer.submit(go_on.wait)
        learning = [pool.submit(service.learn, f"class {number}") for number in range(4)]
        while len(service.server.server_state.tasks) < len(learning):  # until all have arrived
            time.sleep(0.01)
        service.server.should_exit = True
        time.sleep(0.3)
        assert not any(future.done() for future in learning)
        go_on.set()
        replies = [future.result() for future in learning]
    assert {reply.status_code for reply in replies} == {200}
    with Recognizer.open(fresh_path) as model:
        assert len(model.snapshot.classes) == 4


@pytest.fixture(scope="module")
def runner(model_path: Path) -> Embedder:
    with Recognizer.open(model_path, device="cpu", runtime="torch") as model:
        return model.embedder


def test_batches_give_what_single_photos_give(runner: Embedder) -> None:
    size = runner.preprocessing.size
    pixels = list(np.random.default_rng(0).integers(0, 256, (20, 2, 3, size, size), np.uint8))
    batcher = Batcher(runner, Settings(latency=0.01, batch_size=8), Metrics())
    photos = [Seen(f"{number}.jpg", one) for number, one in enumerate(pixels)]
    found = [future.result() for future in batcher.submit(runner, photos)]
    alone = np.concatenate([runner.features(one[None]) for one in pixels])
    np.testing.assert_allclose(np.stack(found), alone, rtol=1e-3, atol=1e-4)
    batcher.close()
    with pytest.raises(RuntimeError):
        batcher.submit(runner, photos)


def test_a_photo_does_not_wait_for_a_full_batch(runner: Embedder) -> None:
    size = runner.preprocessing.size
    photos = [Seen("black.jpg", np.zeros((2, 3, size, size), np.uint8))]
    batcher = Batcher(runner, Settings(latency=0.1, batch_size=8), Metrics())
    batcher.submit(runner, photos)[0].result(60)
    batcher.close()


def test_an_error_of_the_backbone_reaches_those_who_wait(runner: Embedder) -> None:
    batcher = Batcher(runner, Settings(latency=0.0, batch_size=8), Metrics())
    wrong = [Seen("small.jpg", np.zeros((2, 3, 7, 7), np.uint8))]
    with pytest.raises(Exception, match=r".+"):
        batcher.submit(runner, wrong)[0].result()
    size = runner.preprocessing.size
    good = batcher.submit(runner, [Seen("black.jpg", np.zeros((2, 3, size, size), np.uint8))])
    assert good[0].result().shape == (runner.width,)
    batcher.close()


def test_a_backbone_replaced_in_the_last_moment(
    start: Callable[..., Live], fresh_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may tune the model between our look at it and the transaction that learns."""
    service = start()
    learn = _engine.learn_seen

    def learn_late(*given: object, **more: object) -> object:
        with Recognizer.open(fresh_path, device="cpu") as elsewhere, elsewhere.live.change() as change:
            before = change.before.manifest
            change.manifest = replace(before, backbone=replace(before.backbone, fingerprint="b" * 64))
        return learn(*given, **more)

    monkeypatch.setattr(_engine, "learn_seen", learn_late)
    reply = service.learn("red")
    assert (reply.status_code, reply.json()["code"]) == (503, "busy")
    assert "backbone was replaced" in reply.json()["message"]
    with Recognizer.open(fresh_path, device="cpu", readonly=True) as model:
        assert model.snapshot.classes == ()


def backbone_threads() -> int:
    return sum(thread.name.startswith("backbone-") for thread in threading.enumerate())


def test_a_start_that_fails_is_tried_again_with_nothing_left_of_it(
    fresh_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    publish = Engine._publish

    def refuse_twice(engine: Engine) -> None:
        tries.append(backbone_threads())
        if len(tries) < 3:
            raise StorageError("the model cannot be read; try again")
        publish(engine)

    before = backbone_threads(), torch.get_num_threads()
    monkeypatch.setattr(Engine, "_publish", refuse_twice)
    with live(fresh_path, refresh=0.1) as service:
        assert service.client.get("/v1/ready").status_code == 200
    assert len(tries) >= 3
    assert len(set(tries)) == 1
    assert (backbone_threads(), torch.get_num_threads()) == before


def test_a_backbone_that_fails_at_the_start_leaves_the_process_as_it_was(
    fresh_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Embedder, "features", out_of_memory)
    before = backbone_threads(), list(warnings.filters), torch.get_num_threads()
    with Recognizer.open(fresh_path, device="cpu", runtime="torch") as model:
        started = photos.PhotoPipeline(Settings(), Metrics())
        with pytest.raises(RuntimeError, match="out of memory"):
            started.start(model.embedder)
        assert (backbone_threads(), list(warnings.filters), torch.get_num_threads()) == before
        started.close()
