from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond
from models import a_reader, chances, files_with, held, photos, picture
from numpy.typing import NDArray

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, check_model
from fiveshot.recognizer.change import NotErasedError
from fiveshot.recognizer.store import schema
from fiveshot.recognizer.store.folder import PASSING, PAUSE, ModelFolder
from fiveshot.recognizer.store.manifest import Options
from fiveshot.recognizer.store.schema import DATABASE

NAMES = ("ani", "owl", "rook")
SECRET = "Nachtigall-№7"
CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"
SMALL = picture(color="crimson")
Blocking = Callable[[Path], AbstractContextManager[None]]


def file_name(row: int) -> str:
    return f"Schlagschwirl {row}.jpg"


def traces(name: str, X: NDArray[np.float32], model: Recognizer) -> dict[str, bytes]:
    """Return what a class leaves in files: names, digests, features, mean and rows of its factor."""
    summary = model.snapshot.memory.statistics[name]
    found = {"name": name.encode(), "thumbnail": SMALL, "original": b"the large picture"}
    for row in range(len(X)):
        found[f"feature {row}"] = X[row].tobytes()[:16]
        found[f"digest {row}"] = sha256(X[row].tobytes()).hexdigest().encode()
        found[f"file name {row}"] = file_name(row).encode()
    found["mean"] = summary.mean.tobytes()
    for row, values in enumerate(summary.factor):
        found[f"factor {row}"] = values.tobytes()
    return found


def learn_secret(model: Recognizer, count: int = 6) -> dict[str, bytes]:
    X = photos(SECRET, count)
    pictures = {"thumbnails": [SMALL] * count, "originals": [b"the large picture"] * count}
    model.learn_features(SECRET, X, names=[f"album/{file_name(row)}" for row in range(count)], **pictures)
    return traces(SECRET, X, model)


def remaining(folder: Path, found: dict[str, bytes]) -> dict[str, list[str]]:
    return {what: files for what, needle in found.items() if (files := files_with(folder, needle))}


def test_no_byte_of_a_forgotten_class_remains(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2], options=Options(keep_photos=True))
    with a_reader(model.path):  # so that the log holds every state
        found = learn_secret(model)
        model.learn_features("rook", photos("rook"))
        more = photos(SECRET, 3, seed=8)
        model.learn_features(SECRET, more, add=True)
        found |= {f"later {key}": value for key, value in traces(SECRET, more, model).items()}
        model.rename(SECRET, "Nachtigall-№8")
        model.rename("Nachtigall-№8", SECRET)
        model.forget(SECRET)
        model.undo()
        assert set(found) == set(remaining(model.path, found)), "the search finds what is there"
    model.forget(SECRET, for_good=True)
    assert remaining(model.path, found) == {}
    assert files_with(model.path, "Nachtigall-№8".encode()) == []
    model.close()
    assert remaining(model.path, found) == {}


def test_an_undone_class_can_be_forgotten_out_of_the_history(make: Callable[..., Recognizer]) -> None:
    model = make()
    found = learn_secret(model)
    model.forget(SECRET)
    assert remaining(model.path, found)
    model.forget(SECRET, for_good=True)  # known to the history alone
    assert remaining(model.path, found) == {}
    with pytest.raises(InputError, match="no class"):
        model.forget(SECRET, for_good=True)


def test_no_byte_of_a_forgotten_base_class_remains(make: Callable[..., Recognizer]) -> None:
    model = make(base=(*NAMES, SECRET))
    found = traces(SECRET, photos(SECRET, 30), model)
    found = {key: value for key, value in found.items() if key == "name" or key.startswith(("mean", "factor"))}
    model.learn_features(SECRET, photos(SECRET, 2, seed=3), add=True)
    found |= {f"later {k}": v for k, v in traces(SECRET, photos(SECRET, 2, seed=3), model).items() if "fe" in k}
    model.rename(SECRET, "other")
    model.rename("other", SECRET)
    assert {"name", "mean", "factor 0", "later feature 0"} <= set(remaining(model.path, found))
    model.forget(SECRET, for_good=True)
    assert remaining(model.path, found) == {}
    assert model.snapshot.classes == NAMES
    assert model.check() == []


def test_no_byte_of_a_base_class_remains_under_a_former_name(make: Callable[..., Recognizer]) -> None:
    """A class that was added and undone has its own history, which renaming the base class does not change."""
    model = make(base=(*NAMES, SECRET))
    model.learn_features("wren", photos("wren"))
    model.learn_features(SECRET, photos(SECRET, 3), add=True)
    model.learn_features(SECRET, photos(SECRET, 3, seed=1), add=True)
    model.undo()
    model.undo()
    model.rename(SECRET, "other")
    assert files_with(model.path, SECRET.encode())
    model.forget("other", for_good=True)
    assert files_with(model.path, SECRET.encode()) == []
    assert [entry.action for entry in model.history()] == ["forget", "learn", "create"]
    assert model.undo(past_forget=True).classes == ("wren",), "other classes keep their history"


def test_a_new_class_of_a_former_name_keeps_its_history(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "owl"))
    model.rename("ani", "zz")
    model.learn_features("ani", photos("rook"))
    model.forget("ani")
    model.forget("zz", for_good=True)
    assert model.undo(past_forget=True).action == "forget"
    assert model.snapshot.classes == ("ani", "owl")
    assert model.check() == []


def test_a_base_class_keeps_its_history_when_one_of_its_former_name_goes(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "owl"))
    before = held(model)["classes"]
    model.learn_features("ani", photos("ani", 2), add=True)
    model.rename("ani", "zz")
    found = learn_secret(model)
    model.rename(SECRET, "ani")
    model.forget("ani", for_good=True)
    assert remaining(model.path, found) == {}
    assert [model.undo(past_forget=True).action for _ in range(2)] == ["rename", "add"]
    assert held(model)["classes"] == before
    assert model.check() == []


def test_a_former_name_forgets_no_class_in_force(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "owl"))
    model.rename("ani", "zz")
    with pytest.raises(InputError, match="no class 'ani'"):
        model.forget("ani", for_good=True)
    assert model.undo().action == "rename"


def test_another_class_that_once_had_the_name_is_kept(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.learn_features("x", photos("rook"))
    model.rename("x", "y")
    model.forget("y")
    model.learn_features("x", photos("wren"))
    model.forget("x", for_good=True)
    assert [model.undo(past_forget=True).action for _ in range(3)] == ["forget", "rename", "learn"]


def test_all_that_ended_with_the_name_is_forgotten(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", SECRET))
    found = {"base": model.snapshot.memory.statistics[SECRET].mean.tobytes()[:16]}
    model.forget(SECRET)
    found |= learn_secret(model)
    model.undo()
    model.learn_features("x", photos(SECRET, 2, seed=1))
    model.rename("x", SECRET)
    assert {"name", "base"} <= set(remaining(model.path, found))
    model.forget(SECRET, for_good=True)
    assert remaining(model.path, found) == {}
    with pytest.raises(InputError, match="nothing to undo"):
        model.undo(past_forget=True)


def test_a_former_name_forgets_what_is_no_more(make: Callable[..., Recognizer]) -> None:
    model = make()
    found = learn_secret(model)
    model.rename(SECRET, "other")
    model.forget("other")
    model.forget(SECRET, for_good=True)
    assert remaining(model.path, found) == {}
    assert [entry.action for entry in model.history()] == ["forget", "create"]


@pytest.mark.parametrize("head", ["c-fecam", "unbiased-lda"])
@pytest.mark.parametrize("base", [(), NAMES[:2]])
def test_the_model_equals_one_that_never_saw_the_class(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], base: tuple[str, ...], head: str
) -> None:
    X = np.concatenate([photos(name, 6, seed=9) for name in (*NAMES, SECRET)])
    never, saw = make("never", base=base, head=head), make("saw", base=base, head=head)
    learn_secret(saw)
    for name in NAMES:
        if name not in base:
            for model in (never, saw):
                model.learn_features(name, photos(name, 12))
    saw.predict_features(X)
    saw.forget(SECRET, for_good=True)
    assert held(saw)["classes"] == held(never)["classes"]
    for after, before in zip(saw.predict_features(X), never.predict_features(X), strict=True):
        assert chances(after) == pytest.approx(chances(before), rel=1e-3, abs=1e-6)
    # What is on the disk is the model, and it gives the same to the bit; sums in memory differ by their order.
    never, saw = reopen(never.path), reopen(saw.path)
    assert saw.predict_features(X) == never.predict_features(X)
    assert saw.snapshot.rejection == never.snapshot.rejection


def test_the_last_base_class_may_go(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    model.learn_features("rook", photos("rook"))
    for name in NAMES[:2]:
        model.forget(name, for_good=True)
    assert model.snapshot.classes == ("rook",)
    assert model.predict_features(photos("rook", 1))[0].candidates[0].label == "rook"
    assert sorted(file.suffix for file in model.path.glob("*.safetensors")) == []


def test_a_kill_before_the_erasing_is_made_up_for(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(base=(*NAMES, SECRET))
    found = {"mean": model.snapshot.memory.statistics[SECRET].mean.tobytes()[:16]}
    monkeypatch.setattr(ModelFolder, "settle", lambda self: None)  # as if killed right after the commit
    model.forget(SECRET, for_good=True)
    model.close()
    monkeypatch.undo()
    assert remaining(model.path, found), "nothing was erased yet"
    again = reopen(model.path)
    assert remaining(model.path, found) == {}
    assert again.snapshot.classes == NAMES
    assert again.check() == []


def test_a_failure_after_the_commit_says_that_the_change_is_stored(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    model = make(base=(*NAMES, SECRET))
    with closing(sqlite3.connect(model.path / DATABASE)) as other, other:
        other.execute("CREATE TRIGGER full BEFORE DELETE ON meta BEGIN SELECT raise(ABORT, 'no room left'); END")
    with pytest.raises(StorageError, match=r"gone from the model, but .*no room left.*next opened") as caught:
        model.forget(SECRET, for_good=True)
    assert "the model is unchanged" not in str(caught.value)
    model.close()
    with closing(sqlite3.connect(model.path / DATABASE)) as other, other:
        other.execute("DROP TRIGGER full")
    again = reopen(model.path)
    assert again.snapshot.classes == NAMES
    assert again.check() == []


@pytest.fixture
def in_the_way(reopen: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch) -> Blocking:
    """A reader that looks at one state for long, as another process may."""
    monkeypatch.setattr("fiveshot.recognizer.store.folder.TIMEOUT", 0.2)

    @contextmanager
    def reading(path: Path) -> Iterator[None]:
        with reopen(path, readonly=True).live.folder.reading() as connection:
            connection.execute("SELECT count(*) FROM classes").fetchone()
            yield

    return reading


def test_a_reader_in_the_way_is_named(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], in_the_way: Blocking
) -> None:
    model = make()
    found = learn_secret(model)
    with in_the_way(model.path):
        with pytest.raises(StorageError) as caught:
            model.forget(SECRET, for_good=True)
        assert str(caught.value) == (
            "the data are gone from the model, but traces of forgotten or replaced data remain in "
            f"the files of {model.path} (another process is reading); "
            "they are removed when the model is next opened or changed"
        )
        assert SECRET not in model.snapshot.classes
    model.close()
    reopen(model.path)
    assert remaining(model.path, found) == {}


def test_an_erase_that_waits_stops_nothing_else(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], in_the_way: Blocking, caplog: Any
) -> None:
    model = make(base=NAMES)
    found = learn_secret(model)
    done: list[str] = []
    model.live.folder.connection.set_trace_callback(done.append)
    with in_the_way(model.path):
        with pytest.raises(StorageError, match="another process"):
            model.forget(SECRET, for_good=True)
        tries = done.count(CHECKPOINT)
        for number in range(3):
            model.learn_features(f"kite {number}", photos("kite", seed=number))
        most = 3 * (PASSING / 0.01 + 2)
        assert 3 <= done.count(CHECKPOINT) - tries <= most, "a change of something else does not wait for long"
        assert "VACUUM" not in done, "and the log that the reader needs does not grow by the whole database"
        other = reopen(model.path)
        other.rename("owl", "tawny")  # has files of its own to clear away
        assert "another process is reading" in caplog.text
        assert other.snapshot.classes == ("ani", "kite 0", "kite 1", "kite 2", "rook", "tawny")
        assert [(one.severity, one.kind) for one in other.check()] == [("note", "erase")]
        assert remaining(model.path, found)
    model.learn_features("wren", photos("wren"))
    assert "VACUUM" in done
    assert remaining(model.path, found) == {}
    assert model.check() == []


def test_a_pending_erase_is_done_by_repair(make: Callable[..., Recognizer], in_the_way: Blocking) -> None:
    model = make()
    found = learn_secret(model)
    with in_the_way(model.path):
        with pytest.raises(StorageError, match="another process"):
            model.forget(SECRET, for_good=True)
        (model.path / "model.toml").write_text("edited by hand")
        manifest, erase = check_model(model.path, repair=True)
        assert (manifest.kind, manifest.repaired) == ("manifest", True)
        assert (erase.kind, erase.repaired) == ("erase", False)
        assert "not repaired: " in erase.hint
        assert "another process is reading" in erase.hint
    assert [(one.kind, one.repaired) for one in check_model(model.path, repair=True)] == [("erase", True)]
    assert remaining(model.path, found) == {}
    assert check_model(model.path) == []


class Clock:
    """A clock that only advances in sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.on_sleep: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


def test_both_waits_of_an_erase_share_one_limit(
    make: Callable[..., Recognizer], in_the_way: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    learn_secret(model)
    clock, first, second = Clock(), ExitStack(), ExitStack()
    monkeypatch.setattr("fiveshot.recognizer.store.folder.time", clock)
    monkeypatch.setattr("fiveshot.recognizer.store.folder.TIMEOUT", 10.0)

    def vacuum(connection: sqlite3.Connection, path: Path) -> None:
        second.enter_context(in_the_way(path.parent))  # comes while the database is rewritten
        schema.vacuum(connection, path)

    monkeypatch.setattr("fiveshot.recognizer.store.folder.vacuum", vacuum)
    first.enter_context(in_the_way(model.path))
    clock.on_sleep = lambda: first.close() if clock.now > 1006 else None
    with first, second, pytest.raises(StorageError, match="has been reading for more than 4 s"):
        model.forget(SECRET, for_good=True)
    assert 1009.9 < clock.now < 1010.1


def test_an_erase_that_fails_is_not_tried_again_by_every_change(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(options=Options(keep_photos=True))
    model.learn_features("large", photos("large", 1), originals=[bytes(2_000_000)])
    found = learn_secret(model)
    clock, done = Clock(), list[str]()
    monkeypatch.setattr("fiveshot.recognizer.store.folder.time", clock)
    model.live.folder.connection.set_trace_callback(done.append)
    model.live.folder._truncate_log(0)
    with no_file_may_grow_beyond(model.path.joinpath(DATABASE).stat().st_size // 2):
        with pytest.raises(NotErasedError, match=r"no room to rewrite it.* 2 MB in .*SQLITE_TMPDIR.*5 minutes"):
            model.forget(SECRET, for_good=True)
        assert done.count("VACUUM") == 1
        for number in range(3):
            model.learn_features(f"kite {number}", photos("kite", seed=number))
        assert done.count("VACUUM") == 1
        clock.now += PAUSE
        model.learn_features("wren", photos("wren"))
        assert done.count("VACUUM") == 2, "it is tried again after a while"
        model.learn_features("rook", photos("rook"))
        assert done.count("VACUUM") == 2
    assert [one.kind for one in model.check()] == ["erase"]
    reopen(model.path)
    assert remaining(model.path, found) == {}
    assert model.check() == []


def test_the_note_of_another_forgetting_is_kept(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that erases may meet another one that forgets and is killed before it has erased."""
    model = make()
    found = learn_secret(model)
    model.learn_features("wren", photos("wren"))
    other = reopen(model.path)
    erase = ModelFolder._erase

    def meanwhile(folder: ModelFolder, patience: float) -> None:
        erase(folder, patience)
        monkeypatch.setattr(ModelFolder, "settle", lambda self: None)
        other.forget(SECRET, for_good=True)

    monkeypatch.setattr(ModelFolder, "_erase", meanwhile)
    model.forget("wren", for_good=True)
    monkeypatch.undo()
    assert [one.kind for one in model.check()] == ["erase"]
    assert reopen(model.path).check() == []
    assert remaining(model.path, found) == {}


def test_unknown_names_are_suggested(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    with pytest.raises(InputError, match="did you mean 'owl'"):
        model.forget("owll", for_good=True)
    with pytest.raises(InputError, match="did you mean 'owl'"):
        model.rename("owll", "x")
    with pytest.raises(InputError, match="there is a class 'ani' already"):
        model.rename("owl", "ani")
    with pytest.raises(InputError, match="called 'owl' already"):
        model.rename("owl", " owl ")
