"""Regions of a camera that stands still: each has its answers and votes, and a still picture costs nothing."""

from __future__ import annotations

import io
import json
import shutil
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance
from watching import broker, draw, needs_broker, subscriber, until

from fiveshot.backbones import Embedder, Preprocessing
from fiveshot.data import BytesSource, Photo, decoders, draw_samples
from fiveshot.errors import InputError
from fiveshot.features import decode_photos
from fiveshot.recognizer import Recognizer, name_sightings, sighting_picture, sightings
from fiveshot.watch import Report, Watching, parse_regions, watch
from fiveshot.watch.mqtt import MqttSettings, discovery_messages
from fiveshot.watch.regions import Stillness

HALVES = parse_regions(["gate=0,0,0.5,1", "Food bowl=64,0,64,48"])


@dataclass
class Frames:
    """A camera that sends these pictures, one after the other."""

    pictures: Iterable[bytes]
    name: str = "camera"
    bad: list[str] = field(default_factory=list)

    def frames(self, stop: threading.Event, notices: Any) -> Iterator[Photo]:
        for data in self.pictures:
            yield Photo(BytesSource(data, "camera.jpg"))

    def unreadable(self, photo: Photo, reason: str, notices: Any) -> None:
        self.bad.append(reason)

    def postpone(self, photo: Photo) -> None:
        raise AssertionError("the model answers")


@dataclass
class Watched:
    seen: list[Report] = field(default_factory=list)
    notices: list[tuple[str, str, str]] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    @property
    def told(self) -> list[tuple[str, str | None, str | None, bool]]:
        """Region, answer, vote, and whether it has changed."""
        return [(one.region, one.prediction.label, one.vote.label, one.changed) for one in self.seen]


def look(recognizer: Recognizer, pictures: Iterable[bytes], how: Watching) -> Watched:
    """Watch a camera until it has sent these pictures."""
    source = Frames(pictures)
    found = Watched(bad=source.bad)
    watch(
        recognizer,
        source,  # type: ignore[arg-type]  # what a source must have
        how,
        stop=threading.Event(),
        on_report=found.seen.append,
        on_notice=lambda one: found.notices.append((one.event, one.about, one.message)),
    )
    return found


def png(photo: Image.Image) -> bytes:
    buffer = io.BytesIO()
    photo.save(buffer, "PNG")
    return buffer.getvalue()


def pair(left: str, right: str, number: int = 0) -> Image.Image:
    """Return a photo of two halves."""
    both = Image.new("RGB", (128, 48))
    both.paste(draw(left, number), (0, 0))
    both.paste(draw(right, number), (64, 0))
    return both


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures went through the network, for each time it ran."""
    found: list[int] = []
    features = Embedder.features

    def counted(embedder: Embedder, pixels: Any) -> Any:
        found.append(len(pixels))
        return features(embedder, pixels)

    monkeypatch.setattr(Embedder, "features", counted)
    return found


def test_each_region_has_its_answers_and_its_votes(recognizer: Recognizer, passes: list[int]) -> None:
    shots = [png(pair("red", right, number)) for number, right in enumerate(("blue", "blue", "red"))]
    watched = look(recognizer, shots, Watching(regions=HALVES, frames=2))
    assert watched.told == [
        ("gate", "red", None, False),
        ("Food bowl", "blue", None, False),
        ("gate", "red", "red", True),
        ("Food bowl", "blue", "blue", True),
        ("gate", "red", "red", False),
        ("Food bowl", "red", "blue", False),
    ]
    line = watched.seen[5].as_dict()
    assert (line["region"], line["box"]) == ("Food bowl", [64, 0, 64, 48])
    assert passes == [2, 2, 2]  # both regions go through the network together


def test_a_photo_is_decoded_once_for_all_regions(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts: list[int] = []
    pool = decoders()
    cut = pool.cut

    def counted(source: Any, boxes: Any, *given: Any, **named: Any) -> Any:
        cuts.append(len(boxes))
        return cut(source, boxes, *given, **named)

    monkeypatch.setattr(pool, "cut", counted)
    many = parse_regions([f"r{n}={0 if n < 4 else 64},0,{60 + n % 4},48" for n in range(8)])
    watched = look(recognizer, [png(pair("red", "blue"))], Watching(regions=many))
    assert cuts == [8]
    assert [one.prediction.label for one in watched.seen] == 4 * ["red"] + 4 * ["blue"]


def test_a_region_outside_of_the_photo_is_said_once_and_the_others_go_on(recognizer: Recognizer) -> None:
    shots = [png(one) for one in (draw("red", 1), draw("red", 2), pair("red", "blue"))]
    watched = look(recognizer, shots, Watching(regions=HALVES))
    assert [one[:2] for one in watched.notices] == [
        ("trouble", "region Food bowl"),
        ("recovered", "region Food bowl"),
    ]
    assert "outside of the picture, which is 64 x 48 pixels" in watched.notices[0][2]
    assert [one[:2] for one in watched.told] == 3 * [("gate", "red")] + [("Food bowl", "blue")]


def test_nonsense_of_a_camera_is_one_unreadable_photo_and_no_answer(recognizer: Recognizer) -> None:
    photo = png(pair("red", "blue"))
    pictures = [b"<html>busy</html>", b"", photo[:300], photo]
    watched = look(recognizer, pictures, Watching(regions=HALVES, when_changed=True))
    assert (len(watched.bad), watched.notices) == (3, [])
    assert [one.region for one in watched.seen] == ["gate", "Food bowl"]


def test_a_still_picture_costs_nothing_and_votes_again(recognizer: Recognizer, passes: list[int]) -> None:
    rng = np.random.default_rng(0)

    def seen_again(photo: Image.Image) -> bytes:
        """Return a photo with the noise of a camera, as the JPEG that it sends."""
        noisy = np.asarray(photo.resize((640, 240)), np.int16) + rng.integers(-15, 16, (240, 640, 3))
        buffer = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        return buffer.getvalue()

    shots = [seen_again(pair("red", right)) for right in 3 * ["blue"] + 3 * ["red"]]
    halves = parse_regions(["gate=0,0,0.5,1", "Food bowl=320,0,320,240"])
    watched = look(recognizer, shots, Watching(regions=halves, frames=3, when_changed=True))
    assert passes == [2, 1]
    assert watched.told == [
        ("gate", "red", None, False),
        ("Food bowl", "blue", None, False),
        ("gate", "red", "red", True),  # the second photo was still; its vote decides
        ("Food bowl", "blue", "blue", True),
        ("Food bowl", "red", "blue", False),  # the fourth photo: computed
        ("Food bowl", "red", "red", True),
    ]


def test_what_was_learned_meanwhile_is_used_for_a_still_picture(colors: Path, tmp_path: Path) -> None:
    model = shutil.copytree(colors, tmp_path / "model")
    still = png(pair("red", "blue"))

    def shots() -> Iterator[bytes]:
        yield still
        yield still
        with Recognizer.open(model) as teacher:
            teacher.rename("red", "open")
        yield still

    with Recognizer.open(model, readonly=True) as watcher:
        watched = look(watcher, shots(), Watching(regions=HALVES[:1], when_changed=True))
    assert [one.prediction.label for one in watched.seen] == ["red", "open"]


def scene(folder: Path) -> Image.Image:
    """Return a drawn still life as a camera of a yard may see it."""
    draw_samples(folder / "drawn", seed=1)
    photo = Image.open(folder / "drawn" / "test" / "house" / "1.jpg").convert("RGB").resize((640, 480))
    return photo.copy()


def test_the_threshold_tells_a_change_from_noise_and_light(tmp_path: Path) -> None:
    """Noise and JPEG of a camera are no change; a thing of a tenth of the side is, and so is the dusk, in time."""
    preprocessing, still = Preprocessing(size=224, resize=224), Stillness()
    photo, rng = scene(tmp_path), np.random.default_rng(3)

    def differs(picture: Image.Image) -> bool:
        noisy = np.asarray(picture, np.float64) + rng.normal(0, 6, (480, 640, 3))
        buffer = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=80)
        (seen,) = decode_photos([Photo(BytesSource(buffer.getvalue(), "a.jpg"))], preprocessing)
        return still.differs(seen.pixels, short_side=480, state=1)  # type: ignore[union-attr]

    assert differs(photo)
    assert not any(differs(photo) for _ in range(10))
    with_bird = photo.copy()
    ImageDraw.Draw(with_bird).ellipse((300, 300, 364, 364), fill=(30, 30, 30))
    assert differs(with_bird)
    assert not differs(with_bird)
    assert differs(photo)  # it flew away
    dusk = [differs(ImageEnhance.Brightness(photo).enhance(1 - step / 100)) for step in range(1, 21)]
    assert not dusk[0]
    assert 1 <= sum(dusk) <= 8  # a slow change is noticed, and not at every step


@pytest.mark.parametrize("side", [16, 24, 48, 64, 96, 128, 480])
def test_noise_is_no_change_of_a_small_region_either(
    recognizer: Recognizer, passes: list[int], tmp_path: Path, side: int
) -> None:
    photo, rng = scene(tmp_path), np.random.default_rng(side)
    changed = photo.copy()
    ImageDraw.Draw(changed).rectangle((200, 0, 200 + side // 3, side // 3), fill=(0, 0, 0))

    def seen(picture: Image.Image, quality: int) -> bytes:
        noisy = np.asarray(picture, np.float64) + rng.normal(0, 6, (480, 640, 3))
        buffer = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=quality)
        return buffer.getvalue()

    still = [seen(photo, quality) for quality in (85, 85, 95, 70, 85, 85)]
    how = Watching(regions=parse_regions([f"bowl={200 if side < 480 else 0},0,{side},{side}"]), when_changed=True)
    look(recognizer, [*still, seen(changed, 85)], how)
    assert passes == [1, 1]


def test_a_still_picture_is_not_computed_again_after_one_that_cannot_be_read(
    recognizer: Recognizer, passes: list[int]
) -> None:
    photo = png(pair("red", "blue"))
    pictures = [photo, photo[:300], photo, b"", photo]
    watched = look(recognizer, pictures, Watching(regions=HALVES, when_changed=True))
    assert (len(watched.bad), len(watched.seen)) == (2, 2)
    assert passes == [2]


def test_a_picture_of_another_size_is_computed(recognizer: Recognizer, passes: list[int]) -> None:
    photo = pair("red", "blue").resize((640, 240))
    sizes = [photo, photo.resize((320, 120)), photo]
    watched = look(recognizer, [png(one) for one in sizes], Watching(regions=HALVES[:1], when_changed=True))
    assert [one.prediction.label for one in watched.seen] == 3 * ["red"]
    assert passes == [1, 1, 1]


def test_regions_are_kept_as_photos_of_their_own(colors: Path, tmp_path: Path) -> None:
    model = shutil.copytree(colors, tmp_path / "model")
    with Recognizer.open(model) as opened:
        still = png(pair("red", "blue"))
        watched = look(opened, [still, still], Watching(regions=HALVES, when_changed=True, keep="all"))
        assert len(watched.seen) == 2
        found = sightings(opened).sightings
        assert [(one.id, one.region) for one in found] == [("s2", "Food bowl"), ("s1", "gate")]
        kept = sighting_picture(opened, "s2", kept=True)
        assert kept is not None
        assert Image.open(io.BytesIO(kept)).size == (64, 48)
        assert name_sightings(opened, ["s2"], "empty").counts == {"empty": 1}
        (again,) = opened.predict(kept)
        assert again.candidates[0].label == "empty"


@needs_broker
def test_each_region_is_an_entity_of_home_assistant(recognizer: Recognizer, tmp_path: Path) -> None:
    with broker(tmp_path) as running, subscriber(running.port) as messages:
        settings = MqttSettings(f"mqtt://127.0.0.1:{running.port}", "Yard")
        topics = [f"fiveshot/yard/{region}/state" for region in ("gate", "food_bowl")]

        def of_bowl() -> list[str]:
            return [text for topic, text, _ in messages if topic == "fiveshot/yard/food_bowl/availability"]

        def shots() -> Iterator[bytes]:
            until(lambda: of_bowl() == ["online"])
            yield png(draw("red"))  # too small for both regions
            until(lambda: of_bowl() == ["online", "offline"])
            yield png(pair("red", "blue"))
            until(lambda: of_bowl() == ["online", "offline", "online"])

        look(recognizer, shots(), Watching(regions=HALVES, mqtt=settings))
        until(lambda: {topic for topic, *_ in messages} >= set(topics))
        states = {topic: json.loads(text) for topic, text, _ in messages if topic in topics}
        assert [(states[topic]["state"], states[topic]["region"]) for topic in topics] == [
            ("red", "gate"),
            ("blue", "Food bowl"),
        ]
        described = {topic: json.loads(text) for topic, text, _ in messages if topic.startswith("homeassistant/")}
    assert described == discovery_messages(settings, [one.name for one in HALVES])
    bowl = described["homeassistant/sensor/yard/food_bowl/config"]
    assert (bowl["name"], bowl["state_topic"], bowl["json_attributes_topic"]) == (
        "Food bowl",
        topics[1],
        topics[1],
    )
    assert [one["topic"] for one in bowl["availability"]] == [
        "fiveshot/yard/availability",
        "fiveshot/yard/food_bowl/availability",
    ]
    assert len({one["unique_id"] for one in described.values()}) == len(described) == 2


@needs_broker
def test_a_region_that_is_gone_is_removed_from_the_broker(recognizer: Recognizer, tmp_path: Path) -> None:
    def topics(device: str, *regions: str) -> set[str]:
        """Return what describes a device and its regions, without the sensors of whole photos."""
        described = {f"homeassistant/sensor/{device}/{region}/config" for region in regions}
        own = {f"fiveshot/{device}/{region}/{last}" for region in regions for last in ("state", "availability")}
        return {*described, *own, f"fiveshot/{device}/availability"}

    with broker(tmp_path) as running:

        def run(name: str, *regions: str) -> None:
            settings = MqttSettings(f"mqtt://127.0.0.1:{running.port}", name)
            how = Watching(regions=parse_regions([f"{one}=0,0,0.5,1" for one in regions]), mqtt=settings)
            look(recognizer, [png(pair("red", "blue"))], how)

        def holds(expected: set[str]) -> None:
            with subscriber(running.port) as kept:
                until(lambda: {topic for topic, *_ in kept} >= expected)
            assert {topic for topic, *_ in kept} == expected

        run("Yard", "gate", "Tür")
        run("Yard 2", "Tür")  # another device
        other = topics("yard_2", "tur")
        holds(topics("yard", "gate", "tur") | other)
        run("Yard", "gate")
        holds(topics("yard", "gate") | other)
        run("Yard")
        sensors = {f"homeassistant/sensor/yard/{one}/config" for one in ("seen", "probability")}
        holds({*topics("yard"), *sensors, "fiveshot/yard/state"} | other)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["0,0,1,1"], "is not NAME=X,Y,W,H"),
        (["=0,0,1,1"], "is not NAME=X,Y,W,H"),
        (["gate=0,0,1"], "is not four numbers"),
        (["gate=0,0,0,1"], "is empty"),
        (["gate=0.9,0,0.5,1"], "lies outside of every picture"),
        (["gate=-40,0,200,100"], "lies outside of every picture"),
        (["gate=0,0,1,1", "Gate!=0,0,0.5,1"], "the regions 'gate' and 'Gate!' have the same name in topics"),
        (["gate=0,0,1,1", "gate=0,0,1,1"], "have the same name in topics"),
        ([f"r{n}=0,0,1,1" for n in range(33)], "33 regions are too many"),
    ],
)
def test_regions_that_make_no_sense_are_refused(given: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_regions(given)
