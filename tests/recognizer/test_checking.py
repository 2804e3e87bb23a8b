from __future__ import annotations

import io
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from models import photos, picture
from PIL import Image

from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer, check_model, checking
from fiveshot.recognizer.recognition.snapshot import head_record
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest, Options
from fiveshot.recognizer.store.rows import Tables

NAMES = ("ani", "owl")


@pytest.fixture
def model(make: Callable[..., Recognizer]) -> Recognizer:
    model = make(base=NAMES)
    model.learn_features("wren", photos("wren"), thumbnails=[picture()] * 5)
    model.learn_features("rook", photos("rook"))
    model.learn_features("owl", photos("owl", 2, seed=1), add=True)
    model.forget("rook")
    return model


@contextmanager
def behind_its_back(model: Recognizer) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(model.path / "classes.sqlite", isolation_level=None)
    yield connection
    connection.close()


def errors(model: Recognizer) -> list[str]:
    return [one.text for one in model.check() if one.severity == "error"]


def test_a_sound_model_has_no_findings(model: Recognizer) -> None:
    assert model.check() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE classes SET mean = zeroblob(48) WHERE name = 'wren'", "'wren'.*damaged"),
        ("UPDATE classes SET count = 6 WHERE name = 'wren'", "'wren'.*damaged"),
        ("UPDATE classes SET name = ' wren' WHERE name = 'wren'", "normal form"),
        ("UPDATE classes SET base = 1 WHERE name = 'wren'", "wrongly marked as a base class"),
        ("DELETE FROM photos WHERE id = 11", "2 photos are counted, 1 are stored"),
        ("UPDATE images SET thumbnail = x'00' WHERE photo_id = 3", "photo 3 is damaged"),
        ("UPDATE photos SET class_id = 999 WHERE id = 1", "belongs to no row of classes"),
        (
            "DELETE FROM photos WHERE id = (SELECT MIN(id) FROM photos WHERE held_by IS NOT NULL)",
            "photos of the class are lost",
        ),
        ("UPDATE meta SET value = 'x' WHERE key = 'manifest'", "cannot be read"),
        ("DELETE FROM meta WHERE key = 'manifest'", "cannot be read"),
        ("UPDATE meta SET value = 'w' WHERE key = 'state'", "number of the model's state is damaged"),
    ],
)
def test_what_does_not_fit_is_found(model: Recognizer, change: str, said: str) -> None:
    with behind_its_back(model) as connection:
        connection.execute(change)
    (text,) = errors(model)
    assert re.search(said, text)


def test_a_damaged_number_of_the_state_is_refused_on_opening(model: Recognizer) -> None:
    with behind_its_back(model) as connection:
        connection.execute("UPDATE meta SET value = 'w' WHERE key = 'state'")
    with pytest.raises(StorageError, match=r"number of the model.s state is damaged.*restore it from a copy"):
        Recognizer.open(model.path)


def test_damage_of_a_forgotten_base_class_is_found(model: Recognizer) -> None:
    model.forget("ani")
    with behind_its_back(model) as connection:
        connection.execute("UPDATE changes SET before = x'00' WHERE before IS NOT NULL")
    (text,) = errors(model)
    assert "of the history cannot be undone" in text


def test_statistics_that_are_not_of_the_photos(model: Recognizer) -> None:
    """Check sums that fit, so that only the comparison with the photos can tell."""
    from fiveshot.core import ClassSummary

    summary = model.snapshot.memory.new["wren"]
    number = model.snapshot.contents.by_name["wren"].id
    with behind_its_back(model) as connection:
        Tables(connection, 12, state=2).update_class(number, ClassSummary(5, summary.mean * 1.01, summary.factor))
    assert errors(model) == ["class 'wren': its statistics do not match its photos"]
    with behind_its_back(model) as connection:
        Tables(connection, 12, state=2).update_class(number, ClassSummary(5, summary.mean, summary.factor * 1.01))
    assert errors(model) == ["class 'wren': its statistics do not match its photos"]


def jpeg(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((side, side), 40).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def keeping(make: Callable[..., Recognizer]) -> Recognizer:
    """A model that keeps photos: files as they were given, and copies as the service makes them."""
    model = make(options=Options(keep_photos=True))
    files = [jpeg(48 + number) for number in range(3)]
    model.learn_features(
        "file", photos("file", 3), sha256s=[sha256(data).hexdigest() for data in files], originals=files
    )
    given = [sha256(bytes([number])).hexdigest() for number in range(3)]
    model.learn_features("copy", photos("copy", 3), sha256s=given, thumbnails=[picture()] * 3, originals=files)
    return model


@pytest.mark.parametrize("photo", [2, 5])  # a file, a copy
@pytest.mark.parametrize("place", [0, 400, -1])
def test_one_bit_of_a_kept_photo(keeping: Recognizer, photo: int, place: int) -> None:
    assert keeping.check() == []
    with behind_its_back(keeping) as connection:
        (data,) = connection.execute("SELECT original FROM images WHERE photo_id = ?", (photo,)).fetchone()
        flipped = bytearray(data)
        flipped[place] ^= 1
        connection.execute("UPDATE images SET original = ? WHERE photo_id = ?", (bytes(flipped), photo))
    (text,) = errors(keeping)
    assert re.search(rf"photo {photo} is damaged", text)


def test_a_kept_photo_that_is_lost(keeping: Recognizer) -> None:
    with behind_its_back(keeping) as connection:
        connection.execute("UPDATE images SET original = NULL WHERE photo_id = 6")
    (text,) = errors(keeping)
    assert re.search("photo 6 is damaged", text)


def test_leftovers_are_noted_and_cleaned(model: Recognizer) -> None:
    (model.path / "base-0123456789abcdef.safetensors").write_bytes(b"old")
    (model.path / ".model.toml.abc.part").write_bytes(b"half")
    (model.path / ".tmpsQPTG5").write_bytes(b"half")  # by safetensors
    (model.path / "notes.txt").write_bytes(b"mine")
    assert [(one.severity, one.kind) for one in model.check()] == [("note", "leftover")] * 3
    model.close()
    assert all(one.repaired for one in check_model(model.path, repair=True))
    assert check_model(model.path) == []
    assert (model.path / "notes.txt").exists()


def test_a_lost_manifest_is_written_again(model: Recognizer) -> None:
    text = (model.path / "model.toml").read_text()
    (model.path / "model.toml").unlink()
    model.close()
    (found,) = check_model(model.path, repair=True)
    assert (found.severity, found.repaired) == ("error", True)
    assert (model.path / "model.toml").read_text() == text


def test_repair_claims_nothing_that_it_does_not_do(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.learn_features("model.toml left behind", photos("wren"))
    with behind_its_back(model) as connection:
        connection.execute("UPDATE classes SET count = 6")
    (found,) = check_model(model.path, repair=True)
    assert (found.severity, found.kind, found.repaired) == ("error", "class", False)


def test_repair_puts_no_older_manifest_over_a_newer_one(
    model: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renamed_meanwhile(_: Tables) -> Iterator[checking.Finding]:
        model.rename("ani", "smooth-billed ani")  # writes another base file, and so another manifest
        yield from ()

    (model.path / "model.toml").write_text("edited")
    monkeypatch.setattr(checking, "_history", renamed_meanwhile)
    (found,) = check_model(model.path, repair=True)
    assert (found.kind, found.repaired) == ("manifest", True)
    monkeypatch.undo()
    assert check_model(model.path) == []


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a fiveshot model"):
        check_model(tmp_path)


def test_what_was_repaired_asks_for_no_repair(model: Recognizer) -> None:
    (model.path / "model.toml").write_text("edited by hand")
    (before,) = model.check()
    (after,) = model.check(repair=True)
    assert "fiveshot check MODEL --repair" in before.hint
    assert after == replace(before, hint="", repaired=True)
    assert "damaged or was changed by hand" in after.text
    assert model.check() == []


def test_a_head_of_another_width_is_found_before_a_class_is_learned(tmp_path: Path) -> None:
    settings = {
        "center": [0.5],
        "n_random": 0,
        "seed": 0,
        "shortened": False,
        "choice": {"offset": 0.5, "sharpness": 9.0, "offset_spread": 0.1, "episodes": 6},
    }
    head = replace(head_record("unbiased-lda"), settings=settings)
    create_model(tmp_path / "model", Manifest(BackboneRecord("none", 12, "a" * 64), head))
    (found,) = check_model(tmp_path / "model")
    assert (found.severity, "settings of the 'unbiased-lda' head" in found.text) == ("error", True)
