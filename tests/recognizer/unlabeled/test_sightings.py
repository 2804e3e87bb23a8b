"""Sightings: kept within limits, named, undone, exactly erased; with kills, a full disk and clocks that jump."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond
from models import a_reader, files_with, photos, picture
from sighting_worker import keep, sighted

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import (
    NONE,
    ConflictError,
    Recognizer,
    confirm_sightings,
    dismiss_sightings,
    forget_sightings,
    import_file,
    learn_sightings,
    name_sightings,
    sightings,
)
from fiveshot.recognizer.store.manifest import Options
from fiveshot.values import Candidate, Prediction, SightingLimits

Make = Callable[..., Recognizer]
DAY = 86_400.0
WORKER = Path(__file__).parents[1] / "sighting_worker.py"
# A large photo of random bytes is found in a file by any of its parts.
LARGE = np.random.default_rng(0).bytes(100_000)


def ids(model: Recognizer) -> list[str]:
    return [one.id for one in sightings(model).sightings]


def learned(model: Recognizer) -> Recognizer:
    for name in ("owl", "wren", "crow"):
        model.learn_features(name, photos(name))
    return model


def test_sightings_are_the_newest_first_and_in_groups(make: Make) -> None:
    model = learned(make())
    state = model.snapshot.state
    keep(model, "owl", 0)
    for name, number in (("heron", 1), ("heron", 2), ("owl", 5), ("heron", 4)):
        keep(model, name, number, region="gate")
    found = sightings(model)
    assert [one.id for one in found.sightings] == ["s5", "s4", "s3", "s2", "s1"]
    assert [one.region for one in found.sightings] == ["gate"] * 4 + [""]
    assert found.sightings[0].prediction.photo == "heron 4"
    assert found.sightings[0].source == "camera"
    owls = next(group for group in found.groups if group.label == "owl")
    assert owls.ids == ("s4", "s1")
    others = [one for group in found.groups if group.label != "owl" for one in group.ids]
    assert sorted(others) == ["s2", "s3", "s5"]
    assert found.groups[0].ids[0] == "s5"
    assert (found.state, model.refresh().state) == (state, state)  # nothing was learned
    assert model.check() == []


def test_a_name_learns_them_in_one_change_and_undo_brings_them_back(make: Make) -> None:
    model = learned(make())
    for number in range(3):
        keep(model, "heron", number)
    before = sightings(model)
    made = name_sightings(model, ["s1", "s3"], "heron")
    assert made.counts == {"heron": 2}
    assert ids(model) == ["s2"]
    assert "heron" in model.snapshot.classes
    with pytest.raises(InputError, match="there is no sighting s1: it has a name by now"):
        name_sightings(model, ["s2", "s1"], "owl")
    assert ids(model) == ["s2"]
    assert model.check() == []
    model.undo()
    assert sightings(model).sightings == before.sightings
    assert "heron" not in model.snapshot.classes
    assert model.check() == []


def test_none_of_these_and_photos_that_were_learned_before(make: Make) -> None:
    model = learned(make())
    for number in range(2):
        keep(model, "heron", number)
    assert name_sightings(model, "s1", NONE).counts == {NONE: 1}
    forget_sightings(model, "s1")
    assert keep(model, "heron", 0) == "s3"  # the same photo again
    assert name_sightings(model, "s3", NONE).ids == ("p16",)
    assert ids(model) == ["s2"]
    assert len(model.snapshot.contents.negatives.photos.ids) == 1


def test_the_same_photo_is_kept_once_also_if_it_was_named_or_dismissed(make: Make) -> None:
    model = learned(make())
    for number in range(3):
        keep(model, "heron", number)
    name_sightings(model, "s1", "heron")
    dismiss_sightings(model, "s2")
    assert [keep(model, "heron", number) for number in range(4)] == ["s1", "s2", "s3", "s4"]
    assert ids(model) == ["s4", "s3"]
    model.undo()
    assert ids(model) == ["s4", "s3", "s2"]


def test_right_is_what_the_model_takes_them_for_in_one_change(make: Make) -> None:
    model = learned(make())
    for name, number in (("owl", 5), ("wren", 1), ("owl", 6), ("heron", 3)):
        keep(model, name, number)
    found = sightings(model)
    assert [one.suggestion for one in found.sightings] == [None, "owl", "wren", "owl"]
    with pytest.raises(InputError, match="no class is suggested for s4"):
        confirm_sightings(model, ["s1", "s4"])
    with pytest.raises(ConflictError, match="the model was changed since state 1"):
        confirm_sightings(model, ["s1"], state=1)
    made = confirm_sightings(model, ["s3", "s2", "s1"], state=found.state)
    assert made.counts == {"owl": 7, "wren": 6}
    assert (ids(model), model.snapshot.state) == (["s4"], found.state + 1)
    assert model.check() == []
    model.undo()
    assert sightings(model).sightings == found.sightings
    assert model.check() == []


def test_a_class_that_is_learned_is_suggested_for_the_rest(make: Make) -> None:
    model = learned(make())
    for number in range(6):
        keep(model, "heron", number)
    name_sightings(model, ids(model)[1:], "heron")
    (rest,) = sightings(model).sightings
    assert (rest.prediction.label, rest.suggestion) == (None, "heron")
    assert confirm_sightings(model, rest.id).counts == {"heron": 6}


def test_several_names_in_one_change(make: Make) -> None:
    model = learned(make())
    for number in range(3):
        keep(model, "heron", number)
    with pytest.raises(InputError, match="heron 0 is one photo, and cannot be 'heron' and 'gull'"):
        learn_sightings(model, {"heron": ["s1"], "gull": ["s1"]})
    made = learn_sightings(model, {"heron": ["s1"], "gull": ["s2"], NONE: ["s3"]})
    assert made.counts == {"heron": 1, "gull": 1, NONE: 1}
    forget_sightings(model, "s1")
    assert keep(model, "heron", 0) == "s4"  # the same photo again
    # A learned photo moves, and no class is left empty by a change that names several.
    with pytest.raises(InputError, match="'heron' would have no photos left"):
        learn_sightings(model, {"gull": ["s4"], "owl": [keep(model, "owl", 9)]})
    assert name_sightings(model, "s4", "gull").counts == {"heron": 0, "gull": 2}
    model.undo()
    model.undo()
    assert ids(model) == ["s5", "s4", "s3", "s2"]
    assert model.snapshot.classes == ("crow", "owl", "wren")
    assert model.check() == []


def test_dismissed_ones_come_back_with_undo(make: Make) -> None:
    model = learned(make())
    for number in range(3):
        keep(model, "heron", number, original=LARGE)
    before = sightings(model)
    assert dismiss_sightings(model, ["s3", "s1"]).ids == ("s3", "s1")
    assert ids(model) == ["s2"]
    with pytest.raises(InputError, match="there is no sighting s1"):
        dismiss_sightings(model, ["s2", "s1"])
    model.forget("crow", for_good=True)  # erases what it must, and not what was only dismissed
    model.undo(past_forget=True)
    assert sightings(model).sightings == before.sightings
    dismiss_sightings(model, ["s3", "s2", "s1"])
    assert forget_sightings(model) == 3
    assert files_with(model.path, LARGE[5_000:5_032]) == []
    model.undo(past_forget=True)
    assert ids(model) == []
    assert model.check() == []


@pytest.mark.parametrize("given", [[], ["p1"], ["s0"], [""], ["s" + 30 * "9"]])
def test_what_is_not_an_id_is_refused(make: Make, given: list[str]) -> None:
    model = make()
    for verb in (
        confirm_sightings,
        dismiss_sightings,
        forget_sightings,
        lambda model, ids: name_sightings(model, ids, "owl"),
    ):
        with pytest.raises(InputError):
            verb(model, given)


@pytest.mark.parametrize(
    "wrong", [{"number": 0}, {"number": 2.5}, {"megabytes": 0.5}, {"megabytes": float("nan")}, {"days": 0}]
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="cannot keep"):
        SightingLimits(**wrong)


def test_the_oldest_go_first_and_leave_no_trace(make: Make) -> None:
    model = learned(make())
    parts = [LARGE[start : start + 32] for start in range(0, len(LARGE), 9_973)]
    keep(model, "heron", 0, original=LARGE)
    assert files_with(model.path, parts[5]) == ["classes.sqlite"]
    feature = sighted("heron", 0).feature.tobytes()
    for number in range(1, 5):
        keep(model, "heron", number, limits=SightingLimits(number=3))
    assert ids(model) == ["s5", "s4", "s3"]
    for part in (*parts, feature[:16], feature[-16:], b"heron 0"):
        assert files_with(model.path, part) == []
    # A limit on bytes counts what was learned, too: it can be undone, so it is still there.
    name_sightings(model, "s3", "heron")
    for number in range(5, 15):
        keep(model, "heron", number, original=LARGE, limits=SightingLimits(megabytes=1))
    size = sightings(model).bytes
    assert 900_000 < size <= 1_000_000
    assert ids(model) == [f"s{number}" for number in range(15, 6, -1)]
    model.undo()
    assert ids(model) == [f"s{number}" for number in range(15, 6, -1)]  # the learned one was beyond the limit
    with pytest.raises(InputError, match="too large to be kept"):
        keep(model, "heron", 99, original=11 * LARGE, limits=SightingLimits(megabytes=1))
    assert len(ids(model)) == 9


def test_a_clock_that_jumps_back_erases_nothing_too_early(make: Make) -> None:
    model, limits = make(), SightingLimits(days=30)
    noon = 1_800_000_000.0
    # The clock of a machine that starts without a network: 1970, then the right time.
    for number, now in enumerate((noon, noon + DAY, 10.0, 20.0, noon + 2 * DAY)):
        keep(model, "heron", number, now=now, limits=limits)
    assert ids(model) == ["s5", "s4", "s3", "s2", "s1"]
    keep(model, "heron", 5, now=noon + 30.5 * DAY, limits=limits)
    assert ids(model) == ["s6", "s5", "s4", "s3", "s2"]
    keep(model, "heron", 6, now=noon + 31.5 * DAY, limits=limits)
    assert ids(model) == ["s7", "s6", "s5"]
    # A clock that was ahead: they stay until the number of sightings erases them.
    keep(model, "heron", 7, now=noon + 3650 * DAY, limits=SightingLimits(days=36_500))
    for number in range(8, 12):
        keep(model, "heron", number, now=noon + 40 * DAY, limits=SightingLimits(number=6, days=30))
    assert ids(model) == [f"s{number}" for number in range(12, 6, -1)]


def test_forgetting_erases_them_exactly(make: Make) -> None:
    model = learned(make())
    keep(model, "heron", 0, original=LARGE)
    keep(model, "heron", 1)
    with pytest.raises(InputError, match="there is no sighting s9"):
        forget_sightings(model, ["s1", "s9"])
    assert forget_sightings(model, "s1") == 1
    assert ids(model) == ["s2"]
    assert files_with(model.path, LARGE[5_000:5_032]) == []
    assert files_with(model.path, b"heron 0") == []
    name_sightings(model, "s2", "heron")
    assert forget_sightings(model) == 1  # a learned one cannot come back then
    model.undo()
    assert ids(model) == []


def test_a_class_that_is_forgotten_for_good_takes_its_sightings_along(make: Make) -> None:
    model = learned(make())
    for number in range(2):
        keep(model, "heron", number, original=LARGE if number == 0 else picture())
    name_sightings(model, "s1", "heron")
    heron = Prediction("x", "heron", 0.9, (Candidate("heron", 0.9), Candidate("owl", 0.1)), 2.0, 1.0)
    keep(model, "wren", 2, prediction=heron)
    model.forget("heron", for_good=True)
    assert files_with(model.path, LARGE[5_000:5_032]) == []
    assert ids(model) == ["s3", "s2"]
    kept = sightings(model).sightings[0]
    assert (kept.prediction.label, [one.label for one in kept.prediction.candidates]) == (None, ["owl"])
    assert files_with(model.path, b'"heron"') == []
    assert model.check() == []


def test_check_finds_a_damaged_sighting_and_it_can_be_forgotten(make: Make) -> None:
    model = make()
    keep(model, "heron", 0)
    with model.live.aside() as connection:
        connection.execute("UPDATE sighting_images SET original = x'00'")
    (found,) = model.check()
    assert (found.kind, found.text) == ("sighting", "sighting s1: it is damaged (its checksum differs)")
    forget_sightings(model, "s1")
    assert model.check() == []


def test_sightings_do_not_travel(make: Make, tmp_path: Path) -> None:
    model = learned(make(options=Options(keep_photos=True)))
    keep(model, "heron", 0, original=LARGE)
    model.export(tmp_path / "one.fiveshot")
    assert LARGE[5_000:5_032] not in (tmp_path / "one.fiveshot").read_bytes()
    with import_file(tmp_path / "one.fiveshot", tmp_path / "copy") as copy:
        assert ids(copy) == []
    with_classes = make("other")
    with_classes.merge(model.path)
    assert ids(with_classes) == []


def test_vectors_of_another_backbone_are_refused(make: Make) -> None:
    model = make()
    with pytest.raises(ConflictError):
        keep(model, "heron", 0, made_by="b" * 64)
    assert ids(model) == []
    assert keep(model, "heron", 0) == "s1"


def test_a_full_disk_keeps_what_is_there(make: Make) -> None:
    model = make()
    keep(model, "heron", 0)
    with no_file_may_grow_beyond(60_000), pytest.raises(StorageError):
        keep(model, "heron", 1, original=LARGE)
    assert ids(model) == ["s1"]
    assert model.check() == []
    assert keep(model, "heron", 1, original=LARGE) == "s2"


def test_a_reader_hinders_nobody(make: Make) -> None:
    model = learned(make())
    with a_reader(model.path):
        for number in range(3):
            keep(model, "heron", number, original=LARGE, limits=SightingLimits(number=1))
        assert ids(model) == ["s3"]
    keep(model, "heron", 3, limits=SightingLimits(number=1))
    assert files_with(model.path, LARGE[5_000:5_032]) == []


def test_two_processes_keep_and_learn_at_the_same_time(make: Make, tmp_path: Path) -> None:
    """Everything that a watcher was told is kept is there, while somebody teaches and names sightings."""
    model = learned(make())
    with subprocess.Popen(
        [sys.executable, WORKER, model.path, "40"], stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        confirmed = [watcher.stdout.readline().strip() for _ in range(5)]
        named = list[str]()
        while watcher.poll() is None:
            found = ids(model)
            if found:
                name_sightings(model, found[-1], "heron")
                named.append(found[-1])
            model.learn_features("owl", photos("owl", 1, seed=1 + len(named)), add=True)
        confirmed += watcher.stdout.read().split()
    assert watcher.returncode == 0
    assert named
    assert sorted([*named, *ids(model)]) == sorted(confirmed)
    assert len(confirmed) == 40
    assert model.check() == []


def test_a_kill_loses_nothing_and_leaves_nothing_half_written(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "killed"
    learned(make()).close()
    rng = np.random.default_rng(0)
    for number in range(4):
        shutil.copytree(tmp_path / "model", path)
        with subprocess.Popen([sys.executable, WORKER, path, "1000"], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline().split()
            time.sleep(float(rng.uniform(0, 0.1)))  # spreads the kills
            writer.kill()
            confirmed = first + writer.stdout.read().split()
        assert writer.returncode == -signal.SIGKILL
        with Recognizer.open(path) as model:
            found = ids(model)[::-1]
            assert found[: len(confirmed)] == confirmed, f"kill {number}"
            assert len(found) <= len(confirmed) + 1
            assert [one for one in model.check() if one.severity == "error"] == []
        shutil.rmtree(path)


def test_a_kill_while_they_are_named_leaves_each_a_sighting_or_learned(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "killed"
    learned(make()).close()
    rng = np.random.default_rng(1)
    for number in range(4):
        shutil.copytree(tmp_path / "model", path)
        command = [sys.executable, WORKER, path, "1000", "name"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline().split()
            time.sleep(float(rng.uniform(0, 0.2)))  # spreads the kills
            writer.kill()
            told = first + writer.stdout.read().split()
        assert writer.returncode == -signal.SIGKILL
        with Recognizer.open(path) as model:
            known = "heron" in model.snapshot.classes
            named = len(model.photos("heron")) if known else 0
            kept, confirmed = len(set(told)), sum(told.count(one) == 2 for one in set(told))
            assert named in (confirmed, confirmed + 1), f"kill {number}"
            assert len(ids(model)) + named in (kept, kept + 1), f"kill {number}"
            assert [one for one in model.check() if one.severity == "error"] == []
            if named:
                model.undo()
                assert f"s{named}" in ids(model)
        shutil.rmtree(path)


def test_a_full_disk_while_they_are_named_changes_nothing(make: Make) -> None:
    model = learned(make(options=Options(keep_photos=True)))
    keep(model, "heron", 0, original=LARGE)
    before, classes = sightings(model), model.snapshot.classes
    with no_file_may_grow_beyond(60_000), pytest.raises(StorageError):
        name_sightings(model, "s1", "heron")
    assert (sightings(model), model.snapshot.classes) == (before, classes)
    assert model.check() == []
    assert name_sightings(model, "s1", "heron").counts == {"heron": 1}
