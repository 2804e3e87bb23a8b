"""Photos as things: removed, moved, and put back, to the bit of a model that had learned them so at once."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models import files_with, held, new_model, photos, picture

from fiveshot.errors import InputError, command
from fiveshot.recognizer import (
    ConflictError,
    NotUndoableError,
    PhotoRecord,
    Recognizer,
    correct_seen,
    import_file,
    thumbnails,
)
from fiveshot.recognizer._learning import feature_records
from fiveshot.recognizer.store.manifest import Options
from fiveshot.values import to_json

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

BASE = ("ani", "jay")
LEARNED = ("owl", "rook", "wren")
QUERIES = np.concatenate([photos(name, 2, seed=9) for name in ("ani", "owl", "rook", "wren")])


def ids(model: Recognizer, name: str) -> list[str]:
    return [photo.id for photo in model.photos(name)]


def answers(model: Recognizer) -> list[object]:
    """Return all that a model says of some photos, thresholds included; equal values mean equal bits."""
    return [to_json(prediction) for prediction in model.predict_features(QUERIES)]


def contents(model: Recognizer) -> dict[str, object]:
    """Return the classes to the bit, without numbers of rows."""
    now = held(model)
    return {"classes": now["classes"], "photos": {name: row[1:] for name, row in now["photos"].items()}}


@pytest.mark.parametrize("head", ["unbiased-lda", "c-fecam", "ncm"])
@pytest.mark.parametrize("base", [(), BASE])
def test_a_corrected_model_equals_one_that_learned_so(
    make: Callable[..., Recognizer], head: str, base: tuple[str, ...]
) -> None:
    options = Options(false_rejection=0.2)
    owls, rooks, wrens = (photos(name, 6) for name in ("owl", "rook", "wren"))
    model = make(head=head, base=base, options=options)
    model.learn_features("owl", np.concatenate([owls[:4], rooks[:1]]))  # p1 to p5, the last by mistake
    model.learn_features("rook", rooks[1:5])  # p6 to p9
    answers(model)  # so that later heads are derived from this one
    model.learn_features("owl", owls[4:], add=True)  # p10, p11
    model.move("p5", to="rook")
    model.remove(["p10", "p6"])
    model.learn_features("hawk", wrens[:3])  # p12 to p14
    model.move(["p14", "p12"], to="wren")
    model.move(["p13"], to="wren")  # the last one: nothing is left of it
    assert model.snapshot.classes == (*base, "owl", "rook", "wren")
    if base:
        model.move(ids(model, "wren")[:2], to=base[0])
    kept = 2 if base else 0
    fresh = make("fresh", head=head, base=base, options=options)
    fresh.learn_features("wren", wrens[kept:3])
    fresh.learn_features("rook", np.concatenate([rooks[2:5], rooks[:1]]))  # in another order, too
    fresh.learn_features("owl", np.concatenate([owls[5:], owls[:4]]))
    if base:
        fresh.learn_features(base[0], wrens[:kept], add=True)
    assert contents(model) == contents(fresh)
    assert answers(model) == answers(fresh)
    assert model.check() == []


@pytest.mark.parametrize("head", ["unbiased-lda", "c-fecam", "ncm"])
@pytest.mark.parametrize("to", ["rook", "jay"])
def test_joined_classes_equal_one_that_learned_all(make: Callable[..., Recognizer], head: str, to: str) -> None:
    owls, rooks = photos("owl", 6), photos("rook", 5)
    model = make(head=head, base=BASE)
    model.learn_features("owl", owls)
    model.learn_features("rook", rooks)
    before, said = held(model), answers(model)
    done = model.move(all_of="owl", to=to)
    assert (len(done.ids), done.counts) == (6, {"owl": 0, to: 11 if to == "rook" else 36})
    fresh = make("fresh", head=head, base=BASE)
    fresh.learn_features("rook", rooks)
    fresh.learn_features(to, owls, add=True)
    assert contents(model) == contents(fresh)
    assert answers(model) == answers(fresh)
    assert model.history(1)[0].action == "move"
    model.undo()
    assert held(model) == before
    assert answers(model) == said
    assert model.check() == []


def test_what_cannot_be_joined_is_refused(make: Callable[..., Recognizer]) -> None:
    model = make(base=BASE)
    model.learn_features("owl", photos("owl"))
    model.learn_features("rook", photos("rook"))
    before = held(model)
    for wanted, code in (
        ({"all_of": "owl", "to": "owl"}, "same_class"),
        ({"all_of": "owl", "to": "kite"}, "no_class"),
        ({"all_of": "kite", "to": "owl"}, "no_class"),
        ({"all_of": "jay", "to": "owl"}, "base_photos"),
        ({"all_of": "jay", "to": "ani"}, "base_photos"),
        ({"all_of": "owl", "to": "none of these"}, "reserved_name"),
        ({"ids": ["p1"], "all_of": "owl", "to": "rook"}, "bad_input"),
    ):
        with pytest.raises(InputError) as refused:
            model.move(**wanted)
        assert refused.value.code == code, wanted
    with pytest.raises(InputError) as taken:
        model.rename("owl", "rook")
    assert taken.value.hint.endswith(command("move", model.path, "--all-of", "owl", "--to", "rook"))
    assert held(model) == before


def test_two_people_join_at_once(make: Callable[..., Recognizer]) -> None:
    model = make()
    for name in ("owl", "rook", "wren"):
        model.learn_features(name, photos(name))
    with Recognizer.open(model.path) as elsewhere:
        elsewhere.move(all_of="owl", to="rook")
        with pytest.raises(InputError) as gone:
            model.move(all_of="owl", to="wren")
        assert gone.value.code == "no_class"
        model.move(all_of="rook", to="wren")
        assert len(elsewhere.photos("wren")) == 15
        elsewhere.undo()
        model.undo()
    assert [len(model.photos(name)) for name in ("owl", "rook", "wren")] == [5, 5, 5]
    assert model.check() == []


def test_each_change_is_undone_to_the_bit(make: Callable[..., Recognizer]) -> None:
    model = make(base=BASE, options=Options(keep_photos=True))
    model.learn_features("owl", photos("owl"), thumbnails=[picture()] * 5, originals=[picture()] * 5)
    model.learn_features("rook", photos("rook"))
    model.learn_features("jay", photos("jay", 2, seed=3), add=True)
    states, said = [held(model)], [answers(model)]
    for change in (
        lambda: model.remove(["p1", "p7"]),
        lambda: model.move(["p2", "p8"], to="wren"),
        lambda: model.move("p3", to="rook", of="owl"),
        lambda: model.move(["p11", "p12"], to="ani"),
        lambda: model.rename("wren", "hen"),
        lambda: model.move(ids(model, "hen"), to="owl"),
        lambda: model.remove(["p11", "p12"]),
        lambda: model.forget("owl"),
    ):
        change()
        assert model.check() == []
        states.append(held(model))
        said.append(answers(model))
    assert [entry.action for entry in model.history(8)] == [
        "forget", "remove", "move", "rename", "move", "move", "move", "remove"
    ]  # fmt: skip
    for state, before in zip(reversed(states[:-1]), reversed(said[:-1]), strict=True):
        model.undo()
        assert held(model) == state
        assert answers(model) == before
        assert model.check() == []
    assert len(thumbnails(model, "owl")) == 5


Held = dict[str, dict[str, np.ndarray]]  # features by class and id


def copied(held_photos: Held) -> Held:
    return {name: dict(own) for name, own in held_photos.items()}


def corrected_at_random(data: st.DataObject, model: Recognizer, before: Held) -> Held:
    """Move or remove some photos, or see it refused; return what the model should hold then."""
    after, to = copied(before), data.draw(st.sampled_from((*LEARNED, "jay", None)))
    every = sorted((one, name) for name, own in before.items() for one in own)
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    for one, name in chosen:
        row = after[name].pop(one)
        if to is not None:
            after.setdefault(to, {})[one] = row
    picked = [one for one, _ in chosen]
    ended = [name for name, own in after.items() if not own and name in LEARNED]
    if any(name == to for _, name in chosen) or (to is None and ended):
        state = held(model)
        with pytest.raises(InputError) as caught:
            model.remove(picked) if to is None else model.move(picked, to=to)
        assert caught.value.code == ("last_photo" if to is None else "same_class")
        assert held(model) == state
        return before
    model.remove(picked) if to is None else model.move(picked, to=to)
    return {name: own for name, own in after.items() if own}


@given(st.data())
@settings(suppress_health_check=[hypothesis.HealthCheck.too_slow], max_examples=10, deadline=None)
def test_any_sequence_equals_learning_the_outcome(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as folder,
        new_model(Path(folder) / "model", base=BASE) as model,
    ):
        now: Held = {}
        stack: list[Held] = []
        for step in range(data.draw(st.integers(2, 12))):
            before = copied(now)
            verb = data.draw(st.sampled_from(["learn", "correct", "correct", "undo", "forget"]))
            if verb == "undo" and stack:
                model.undo()
                now = stack.pop()
                continue
            if verb == "correct" and now:
                now = corrected_at_random(data, model, now)
            elif verb == "forget" and now.keys() & set(LEARNED):
                name = data.draw(st.sampled_from(sorted(now.keys() & set(LEARNED))))
                model.forget(name)
                del now[name]
            else:
                name = data.draw(st.sampled_from((*LEARNED, "ani")))
                X = photos(f"{name} {step}", data.draw(st.integers(1, 3)))
                model.learn_features(name, X, add=True)
                now.setdefault(name, {}).update(zip(ids(model, name)[-len(X) :], X, strict=True))
            if now.keys() != before.keys() or any(now[name].keys() != before[name].keys() for name in now):
                stack.append(before)
        assert {name: set(ids(model, name)) for name in now} == {name: set(own) for name, own in now.items()}
        assert model.check() == []
        with new_model(Path(folder) / "fresh", base=BASE) as fresh:
            for name, own in now.items():
                fresh.learn_features(name, np.stack(list(own.values())), add=True)
            assert contents(model) == contents(fresh)


def test_photos_have_ids_scores_and_dates(make: Callable[..., Recognizer]) -> None:
    model = make(base=BASE)
    model.learn_features("owl", np.concatenate([photos("owl", 4), photos("rook", 1)]), thumbnails=[picture()] * 5)
    model.learn_features("rook", photos("rook", 5, seed=2))
    *owls, stranger = model.photos("owl")
    assert [photo.id for photo in owls] == ["p1", "p2", "p3", "p4"]
    assert (stranger.id, stranger.label, stranger.taken_for, stranger.thumbnail, stranger.kept) == (
        "p5", "owl", "rook", True, False
    )  # fmt: skip
    assert stranger.score < 0.5 < min(photo.score for photo in owls)
    assert all(photo.taken_for is None for photo in owls)
    assert model.photos("ani") == []
    alone = make("alone")
    alone.learn_features("owl", photos("owl"))
    assert [photo.score for photo in alone.photos("owl")] == [None] * 5
    with pytest.raises(InputError):
        alone.photos("rook")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["p99"], "no_photo"),
        (["p1", "p99"], "no_photo"),
        ([], "no_photos"),
        (["1e3"], "bad_id"),
        (["p0"], "bad_id"),
        (["p99999999999999999999"], "bad_id"),
        ([17], "bad_id"),
        (["owl"], "bad_id"),
        (["ani"], "base_photos"),
        (["p1", "p2", "p3", "p4", "p5"], "last_photo"),
    ],
)
def test_ids_that_cannot_be_removed(make: Callable[..., Recognizer], given: list[str], code: str) -> None:
    model = make(base=BASE)
    model.learn_features("owl", photos("owl"))
    before, entries = held(model), model.history()
    for for_good in (False, True):
        with pytest.raises(InputError) as caught:
            model.remove(given, for_good=for_good)
        assert caught.value.code == code
    assert held(model) == before
    assert model.history() == entries


def test_a_move_that_cannot_be(make: Callable[..., Recognizer]) -> None:
    model = make(base=BASE)
    model.learn_features("owl", photos("owl"))
    model.learn_features("rook", photos("rook"))
    before = held(model)
    for arguments, code in (
        ({"ids": ["p6", "p1"], "to": "owl"}, "same_class"),
        ({"ids": "p1", "to": ""}, "bad_name"),
        ({"ids": "p1", "to": "Unknown"}, "reserved_name"),
        ({"ids": "p1", "to": "rook", "of": "wren"}, "other_class"),
        ({"ids": "p77", "to": "rook"}, "no_photo"),
    ):
        with pytest.raises(InputError) as caught:
            model.move(**arguments)
        assert caught.value.code == code
    assert held(model) == before
    model.remove("p1")
    with pytest.raises(InputError) as caught:
        model.move("p1", to="rook")
    assert caught.value.code == "removed_photo"


def test_two_people_correct_the_same_photo(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    model = make()
    model.learn_features("owl", photos("owl"))
    others = [reopen(model.path) for _ in range(2)]
    together, outcomes = threading.Barrier(2), []

    def correct(mine: Recognizer, to: str) -> None:
        together.wait()
        try:
            outcomes.append(mine.move("p1", to=to, of="owl").action)
        except ConflictError as error:
            outcomes.append(error.code)

    people = [threading.Thread(target=correct, args=pair) for pair in zip(others, ("rook", "wren"), strict=True)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert sorted(outcomes) == ["move", "other_class"]
    model.refresh()
    assert len(model.snapshot.classes) == 2
    assert model.check() == []
    model.undo()
    assert ids(model, "owl") == ["p1", "p2", "p3", "p4", "p5"]


def test_removing_for_good_leaves_no_byte(make: Callable[..., Recognizer]) -> None:
    model = make(options=Options(keep_photos=True))
    X, small, large = photos("owl"), picture(color="tomato"), picture(48, color="purple")
    pictures = [picture(), small, picture(), picture(), picture()]
    model.learn_features("owl", X[:1], thumbnails=pictures[:1])
    model.learn_features("owl", X[1:], thumbnails=pictures[1:], originals=[large, None, None, None], add=True)
    model.learn_features("rook", photos("rook"))
    model.move("p2", to="rook")
    model.remove("p2")  # the history alone has it now
    assert files_with(model.path, X[1].tobytes())
    assert model.remove("p2", for_good=True).counts == {}
    for needle in (X[1].tobytes(), small, large):
        assert files_with(model.path, needle) == []
    assert model.check() == []
    with pytest.raises(NotUndoableError) as caught:
        model.undo()
    assert caught.value.action == "remove"
    # What was done to the photo is gone from the history with it; the rest of it stands.
    assert [entry.action for entry in model.history()] == ["remove", "learn", "add", "learn", "create"]
    assert model.undo(past_forget=True).classes == ("rook",)
    assert model.undo(past_forget=True).action == "add"
    assert ids(model, "owl") == ["p1"]
    assert model.check() == []


def test_erasing_one_side_of_a_move_leaves_the_photos_where_they_are(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.learn_features("owl", photos("owl"))
    model.learn_features("jay", photos("jay"))
    model.move(["p1", "p2"], to="rook")
    model.forget("owl", for_good=True)
    assert files_with(model.path, b"owl") == []
    assert model.undo(past_forget=True).classes == ("jay",)
    assert model.snapshot.classes == ("rook",)
    assert ids(model, "rook") == ["p1", "p2"]
    assert model.check() == []
    model.move("p1", to="hen")
    model.forget("hen", for_good=True)  # the photo was one of it
    assert files_with(model.path, photos("owl")[0].tobytes()) == []
    with pytest.raises(InputError) as caught:
        model.undo(past_forget=True)
    assert caught.value.code == "nothing_to_undo"
    assert ids(model, "rook") == ["p2"]
    assert model.check() == []


def seen(X: np.ndarray) -> list[PhotoRecord]:
    return feature_records(X, X.shape[1])


def test_correcting_learns_or_moves(make: Callable[..., Recognizer]) -> None:
    owls, rooks = photos("owl"), photos("rook")
    model = make(base=BASE)
    model.learn_features("owl", np.concatenate([owls[:4], rooks[:1]]))
    states = [held(model)]
    mixed = np.concatenate([rooks[:3], rooks[1:2]])  # one is learned as an owl, one comes twice
    done = correct_seen(model, seen(mixed), "rook")
    assert (done.action, sorted(done.ids), done.counts) == ("correct", ["p5", "p6", "p7"], {"owl": 4, "rook": 3})
    states.append(held(model))
    state = model.snapshot.contents.state
    again = correct_seen(model, seen(rooks[:3]), "rook")
    assert (sorted(again.ids), again.counts) == (sorted(done.ids), {"rook": 3})
    assert [entry.action for entry in model.history(2)] == ["correct", "learn"]
    fresh = make("fresh", base=BASE)
    fresh.learn_features("owl", owls[:4])
    fresh.learn_features("rook", rooks[:3])
    assert contents(model) == contents(fresh)
    assert state <= model.snapshot.contents.state
    model.undo()
    assert held(model) == states[0]
    with pytest.raises(InputError) as caught:
        correct_seen(model, seen(owls[:1]), "unknown")
    assert caught.value.code == "reserved_name"


def test_photos_of_none_of_the_classes_are_kept_apart(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    model = make(options=Options(keep_photos=True))
    strange = photos("stranger", 4)
    with pytest.raises(InputError) as caught:
        correct_seen(model, seen(strange), "none of these")
    assert caught.value.code == "no_classes"
    assert model.history(1)[0].action == "create"
    model.learn_features("owl", photos("owl"))
    done = correct_seen(model, seen(strange[:3]), "None of these")
    assert (done.action, done.counts) == ("none", {"none of these": 3})
    assert [photo.id for photo in model.photos("none of these")] == list(done.ids)
    assert model.snapshot.classes == ("owl",)
    assert (model.show().negatives, len(model.show().classes)) == (3, 1)
    # A learned photo of none of the classes leaves its class; a learned one is no longer of none of the classes.
    assert model.move("p1", to="none").counts == {"owl": 4, "none of these": 4}
    model.learn_features("rook", strange[:1])
    assert len(model.photos("none of these")) == 3
    assert correct_seen(model, seen(strange[1:2]), "wren").counts == {"none of these": 2, "wren": 1}
    assert model.check() == []

    file = model.export(tmp_path / "model.fiveshot")
    with import_file(file, tmp_path / "copy") as copy:
        assert [photo.sha256 for photo in copy.photos("none of these")] == [
            photo.sha256 for photo in model.photos("none of these")
        ]
        assert copy.check() == []
        assert answers(copy) == answers(model)
    other = make("other")
    other.learn_features("jay", photos("jay"))
    report = other.merge(model.path)
    assert (report.added, report.negatives) == (("owl", "rook", "wren"), 2)
    assert other.merge(file).negatives == 0
    assert other.undo().action == "merge"
    assert other.photos("none of these") == []

    left = [photo.id for photo in model.photos("none of these")]
    assert model.remove(left).counts == {"none of these": 0}
    assert model.photos("none of these") == []
    for _ in range(4):
        model.undo()
    assert [photo.id for photo in model.photos("none of these")] == list(done.ids)
    assert ids(model, "owl") == ["p1", "p2", "p3", "p4", "p5"]
    model.undo()
    assert (model.photos("none of these"), model.snapshot.classes) == ([], ("owl",))
    assert model.check() == []


def test_the_rate_can_be_changed_and_undone(make: Callable[..., Recognizer]) -> None:
    many = tuple(f"base {number}" for number in range(12))
    for base in ((), many):
        model = make(f"of {len(base)}", base=base)
        for name in LEARNED:
            model.learn_features(name, photos(name, 9))
        before, said, head = held(model), answers(model), model.snapshot.head
        rates = (0.05, 0.2, 0.5)
        rejected = [model.snapshot.rejected_at(rate).rejected for rate in rates]
        assert rejected == sorted(rejected)
        now = model.set(false_rejection=0.5)
        assert (now.photos, now.rejected) == (27, rejected[-1])
        assert model.snapshot.head is head  # nothing is derived again
        assert model.show().false_rejection == 0.5
        thresholds = [one["threshold"] for one in answers(model)]
        assert all(new > old["threshold"] for new, old in zip(thresholds, said, strict=True))
        assert model.history(1)[0].detail == {
            "options": {"false_rejection": 0.5},
            "before": {"false_rejection": 0.05},
        }
        assert model.undo().action == "set"
        assert held(model) == before
        assert answers(model) == said
        with pytest.raises(InputError):
            model.set(false_rejection=2)
        assert held(model) == before
        assert model.check() == []


def test_negatives_take_part_in_rejection(make: Callable[..., Recognizer]) -> None:
    model = make(head="unbiased-lda")
    for name in LEARNED:
        model.learn_features(name, photos(name, 4))
    strange = photos("stranger", 8)
    assert all(not one.unknown for one in model.predict_features(strange[4:]))  # too few photos for a rate of 5 %
    before = answers(model)
    correct_seen(model, seen(strange[:4]), "none of these")
    found = model.predict_features(strange[4:])
    assert all(one.unknown for one in found)
    assert "4 photos of none of these" in model.show().rejection
    assert model.snapshot.rejected_at(0.05).negatives == 4
    assert [one.label for one in model.predict_features(photos("owl", 3, seed=4))].count("owl") >= 2
    model.undo()
    assert answers(model) == before
