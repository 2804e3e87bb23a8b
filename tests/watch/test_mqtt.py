"""A real broker on this machine: discovery, state, availability, reconnecting, passwords and TLS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from watching import CURVE, Broker, broker, free_port, jpeg, needs_broker, subscriber, until, watching

from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.watch import mqtt
from fiveshot.watch.mqtt import MqttSettings, Publisher, discovery_messages
from fiveshot.watch.sources import FolderSource, Notices
from fiveshot.watch.watching import Watching

Messages = list[tuple[str, str, bool]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def last(messages: Messages, topic: str) -> str:
    return next((text for of, text, _ in reversed(messages) if of == topic), "")


def states(messages: Messages, name: str) -> list[str]:
    return [json.loads(text)["state"] for topic, text, _ in messages if topic == f"fiveshot/{name}/state"]


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every trouble with a broker, also what nobody is told again; tries follow each other ten times as fast."""
    paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    trouble, delay = Notices.trouble, paho.Client.reconnect_delay_set
    found: list[str] = []

    def noted(notices: Notices, about: str, message: str) -> None:
        found.append(message)
        trouble(notices, about, message)

    monkeypatch.setattr(Notices, "trouble", noted)
    monkeypatch.setattr(paho.Client, "reconnect_delay_set", lambda one, low, high: delay(one, low / 10, high / 10))
    return found


@needs_broker
def test_home_assistant_finds_what_is_seen(recognizer: Recognizer, inbox: Path, running: Broker) -> None:
    settings = MqttSettings(f"mqtt://127.0.0.1:{running.port}", "Garden feeder")
    source = FolderSource(inbox, settle=0.1)
    with subscriber(running.port) as messages:
        with watching(recognizer, source, Watching(mqtt=settings)) as watched:
            until(lambda: last(messages, "fiveshot/garden_feeder/availability") == "online")
            (inbox / "a.jpg").write_bytes(jpeg("red"))
            until(lambda: states(messages, "garden_feeder") == ["red"])
            away = inbox.rename(inbox.with_name("away"))
            until(lambda: last(messages, "fiveshot/garden_feeder/availability") == "offline")
            away.rename(inbox)
            until(lambda: last(messages, "fiveshot/garden_feeder/availability") == "online")
        until(lambda: last(messages, "fiveshot/garden_feeder/availability") == "offline")
    with subscriber(running.port) as kept:  # what one who comes later finds
        until(lambda: len(kept) >= 4)
    assert all(retained for _, _, retained in kept)
    found = {topic: json.loads(text) for topic, text, _ in kept if topic.endswith("config")}
    assert found == discovery_messages(settings)
    seen = found["homeassistant/sensor/garden_feeder/seen/config"]
    assert seen["state_topic"] == "fiveshot/garden_feeder/state"
    assert seen["availability"] == [{"topic": "fiveshot/garden_feeder/availability"}]
    assert len({one["unique_id"] for one in found.values()}) == len(found)
    assert all(one["device"]["identifiers"] == ["fiveshot_garden_feeder"] for one in found.values())
    state = json.loads(last(kept, "fiveshot/garden_feeder/state"))
    assert state["label"] == watched.seen[0].prediction.label
    assert state["probability"] == watched.seen[0].prediction.probability


@needs_broker
def test_a_broker_that_goes_and_comes_back(
    recognizer: Recognizer, inbox: Path, tmp_path: Path, tries: list[str]
) -> None:
    with broker(tmp_path) as own:
        settings = MqttSettings(f"mqtt://127.0.0.1:{own.port}", "camera")
        source = FolderSource(inbox, settle=0.1)
        with watching(recognizer, source, Watching(mqtt=settings)) as watched:
            (inbox / "a.jpg").write_bytes(jpeg("red"))
            until(lambda: watched.seen)
            own.stop()
            until(lambda: watched.notices)
            (inbox / "b.jpg").write_bytes(jpeg("blue"))
            until(lambda: len(watched.seen) == 2)  # watching goes on
            until(lambda: len(tries) >= 3)
            assert watched.events("broker") == ["trouble"]
            own.start()  # it has forgotten everything
            until(lambda: watched.events("broker") == ["trouble", "recovered"], 40)
            with subscriber(own.port) as messages:
                until(lambda: states(messages, "camera") == ["blue"])
                assert last(messages, "fiveshot/camera/availability") == "online"
                assert sum(topic.startswith("homeassistant/") for topic, _, _ in messages) == 2


@needs_broker
def test_a_short_run_tells_what_it_saw(recognizer: Recognizer, inbox: Path, running: Broker) -> None:
    (inbox / "a.jpg").write_bytes(jpeg("red"))
    settings = MqttSettings(f"mqtt://127.0.0.1:{running.port}", "short")
    source = FolderSource(inbox, existing=True, settle=0.01)
    with watching(recognizer, source, Watching(mqtt=settings, limit=1)) as watched:
        until(lambda: watched.seen)
    with subscriber(running.port) as messages:
        until(lambda: states(messages, "short") == ["red"])
        until(lambda: last(messages, "fiveshot/short/availability") == "offline")


@needs_broker
@pytest.mark.usefixtures("tries")
def test_no_broker_at_first(recognizer: Recognizer, inbox: Path, tmp_path: Path) -> None:
    own = Broker(tmp_path)
    settings = MqttSettings(f"mqtt://127.0.0.1:{own.port}", "camera", discovery=False)
    with watching(recognizer, FolderSource(inbox, settle=0.1), Watching(mqtt=settings)) as watched:
        until(lambda: watched.events("broker") == ["trouble"])
        (inbox / "a.jpg").write_bytes(jpeg("red"))
        until(lambda: watched.seen)
        try:
            own.start()
            with subscriber(own.port) as messages:
                until(lambda: states(messages, "camera") == ["red"], 40)
                assert not any(topic.startswith("homeassistant/") for topic, _, _ in messages)
        finally:
            own.stop()


@needs_broker
@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
def test_a_broker_that_asks_for_a_password(
    recognizer: Recognizer, inbox: Path, tmp_path: Path, tries: list[str]
) -> None:
    subprocess.run(["mosquitto_passwd", "-b", "-c", tmp_path / "users", "ann", "secret"], check=True)
    (tmp_path / "users").chmod(0o644)  # mosquitto reads it as a user of its own
    with broker(tmp_path, "allow_anonymous false", f"password_file {tmp_path}/users", "user root") as own:
        url = f"mqtt://127.0.0.1:{own.port}"
        wrong = Watching(mqtt=MqttSettings(url, "camera", ("ann", "wrong")))
        with watching(recognizer, FolderSource(inbox, settle=0.1), wrong) as watched:
            until(lambda: watched.notices and len(tries) >= 3)
        assert watched.events("broker") == ["trouble"]
        assert "wrong" not in watched.notices[0][2]
        right = Watching(mqtt=MqttSettings(url, "camera", ("ann", "secret")))
        with (
            subscriber(own.port, ("ann", "secret")) as messages,
            watching(recognizer, FolderSource(inbox, settle=0.1), right) as watched,
        ):
            until(lambda: last(messages, "fiveshot/camera/availability") == "online")
        assert watched.notices == []


# paho-mqtt leaves the socket of a handshake that failed to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@needs_broker
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed, which makes certificates")
@pytest.mark.usefixtures("tries")
def test_tls_with_certificates_of_both_sides(
    recognizer: Recognizer, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("broker", "ours"):
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"]
        command = ["openssl", "req", "-x509", *CURVE, "-nodes", "-days", "2", *subject, *files]
        subprocess.run(command, check=True, capture_output=True)
    lines = [
        "allow_anonymous true",
        "user root",
        f"certfile {tmp_path}/broker.pem",
        f"keyfile {tmp_path}/broker.key",
        f"cafile {tmp_path}/ours.pem",
        "require_certificate true",
    ]
    with broker(tmp_path, *lines) as own:
        url, ca = f"mqtts://127.0.0.1:{own.port}", str(tmp_path / "broker.pem")
        own_file = tmp_path / "own.pem"
        own_file.write_text((tmp_path / "ours.pem").read_text() + (tmp_path / "ours.key").read_text())
        trusted = Watching(mqtt=MqttSettings(url, "camera", None, ca, str(own_file)))
        source = FolderSource(inbox, settle=0.1)
        with watching(recognizer, source, trusted) as watched:
            (inbox / "a.jpg").write_bytes(jpeg("red"))
            until(lambda: watched.seen)
            time.sleep(0.5)
        assert watched.notices == []
        monkeypatch.setattr(mqtt, "CONNECTING", 0.5)  # who was hung up on waits as long before it leaves
        for settings in (MqttSettings(url, "camera"), MqttSettings(url, "camera", None, ca)):
            with watching(recognizer, FolderSource(inbox, settle=0.1), Watching(mqtt=settings)) as watched:
                until(lambda watched=watched: watched.notices)
            assert watched.events("broker") == ["trouble"]


@needs_broker
def test_the_last_will_of_a_process_that_is_killed(colors: Path, inbox: Path, running: Broker) -> None:
    command = [sys.executable, "-m", "fiveshot", "watch", colors, inbox, "--settle", "0.1", "--name", "doomed"]
    command += ["--mqtt", f"mqtt://127.0.0.1:{running.port}"]
    with subscriber(running.port) as messages:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: last(messages, "fiveshot/doomed/availability") == "online", 60)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        until(lambda: last(messages, "fiveshot/doomed/availability") == "offline")


@pytest.mark.parametrize(
    "given",
    [
        {"url": "localhost"},
        {"url": "http://localhost"},
        {"url": "mqtt://"},
        {"url": "mqtt://ann:secret@localhost"},
        {"url": "mqtt://localhost/topic"},
        {"url": "mqtt://localhost", "ca": "ca.pem"},
        {"url": "mqtt://localhost", "certificate": "a.pem"},
    ],
)
def test_settings_that_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InputError) as refused:
        MqttSettings(name="camera", **given)
    assert "secret" not in str(refused.value)


def test_certificates_that_are_not_there(inbox: Path) -> None:
    settings = MqttSettings(f"mqtts://127.0.0.1:{free_port()}", "camera", ca=str(inbox / "none.pem"))
    threads = threading.active_count()
    with pytest.raises(InputError):
        Publisher(settings, Notices(lambda *_: None))
    assert threading.active_count() == threads


def test_names_become_topics() -> None:
    for name, id_ in (
        ("Garden feeder #1/+", "garden_feeder_1"),
        ("Eule", "eule"),
        ("鳥", "camera"),
        ("../x", "x"),
    ):
        assert MqttSettings("mqtt://localhost", name).id == id_
    assert os.sep not in MqttSettings("mqtt://localhost", "a/b").id
