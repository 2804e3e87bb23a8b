from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES, Memory, class_statistics, summarize
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.recognizer.advice.insight import find_outliers, inspect_class
from fiveshot.recognizer.recognition import _held_out as held_out
from fiveshot.recognizer.recognition._held_out import HeldOutHeads
from fiveshot.recognizer.store.contents import KnownPhotos
from fiveshot.recognizer.store.rows import PhotoRecord
from fiveshot.values import Duplicate, LearnReport, to_json

WIDTH = 16

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class World:
    """Classes around random centers; ``at`` draws photos of one."""

    centers: dict[str, Floats]
    rng: np.random.Generator

    def at(self, name: str, count: int, spread: float = 0.3) -> Floats:
        rows = self.centers[name] + spread * self.rng.normal(size=(count, WIDTH)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)  # as the default head embeds them without a base


@pytest.fixture
def world() -> World:
    rng = np.random.default_rng(3)
    names = [f"bird {i}" for i in range(12)] + ["owl"]
    centers = {name: 3 * rng.normal(size=WIDTH).astype(np.float32) for name in names}
    centers["hawk owl"] = centers["owl"] + 0.05 * rng.normal(size=WIDTH).astype(np.float32)
    return World(centers, rng)


@pytest.fixture
def memory(world: World) -> Memory:
    names = [f"bird {i}" for i in range(12)]
    rows = np.concatenate([world.at(name, 6) for name in names])
    learned = class_statistics(rows, np.repeat(names, 6))
    return Memory(learned.restrict(names[:8]), learned.restrict(names[8:]))


@pytest.fixture(params=["ncm", "c-fecam", "unbiased-lda"])
def head(request: pytest.FixtureRequest, memory: Memory) -> Scorer:
    return make_scorer(request.param).adopt(memory)


def report(head: Scorer, memory: Memory, name: str, X: Floats, **more: Any) -> LearnReport:
    numbers = range(len(X))
    names = more.pop("photos", [f"{i}.jpg" for i in numbers])
    sha256s = more.pop("sha256s", [f"{name} {i}" for i in numbers])
    shots = [PhotoRecord(sha256, row, name=shown) for sha256, row, shown in zip(sha256s, X, names, strict=True)]
    earlier = more.get("earlier") or KnownPhotos((), (), X[:0])
    own = np.concatenate([earlier.of(name), X])
    asked = KnownPhotos((name,) * len(own), tuple(map(str, range(len(own)))), own)
    after = memory.learn(class_statistics(X, [name] * len(X)))
    of_base = {name: memory.base[name]} if name in memory.base else {}
    judged = HeldOutHeads(head, after, asked, of_base).judge()
    return inspect_class(head, memory, name, shots, judged, after.labels.tolist(), **more)


def test_a_class_far_from_all_others_is_clear(head: Scorer, memory: Memory, world: World) -> None:
    seen = report(head, memory, "owl", world.at("owl", 5))
    assert (seen.accuracy, seen.confusion) == (1.0, 0.0)
    assert (seen.photos, seen.added, seen.name) == (5, 5, "owl")
    assert (seen.duplicates, seen.outliers, seen.warnings) == ((), (), ())
    assert seen.nearest in memory.labels
    assert seen.separability is not None
    assert seen.separability > 0.5
    json.dumps(to_json(seen), allow_nan=False)


def test_a_class_where_another_one_is_will_be_confused_with_it(head: Scorer, memory: Memory, world: World) -> None:
    known = memory.learn(class_statistics(world.at("owl", 50), ["owl"] * 50))
    seen = report(head.adopt(known), known, "hawk owl", world.at("hawk owl", 5))
    assert seen.nearest == "owl"
    assert seen.accuracy is not None
    assert seen.confusion == pytest.approx(1 - seen.accuracy)
    assert seen.confusion > 0
    assert seen.separability is not None
    assert seen.separability < 0.6
    assert any("look more like 'owl' than like the others of 'hawk owl' (" in text for text in seen.warnings)
    assert len(seen.confused) == round(5 * seen.confusion)


def test_the_confused_photos_are_named(head: Scorer, memory: Memory, world: World) -> None:
    # Two photos of another class among owls, one of them learned earlier: only the new one has a name.
    early = np.concatenate([world.at("bird 4", 1), world.at("owl", 3)])
    known = memory.learn(class_statistics(early, ["owl"] * 4))
    earlier = KnownPhotos(("owl",) * 4, ("w", "x", "y", "z"), early)
    X = np.concatenate([world.at("owl", 3), world.at("bird 4", 1)])
    seen = report(head.adopt(known), known, "owl", X, earlier=earlier)
    assert (seen.nearest, seen.confusion, seen.confused) == ("bird 4", 0.25, ("3.jpg",))
    assert seen.warnings[0].startswith(
        "25 % of the photos look more like 'bird 4' than like the others of 'owl' (3"
    )
    many = report(head, memory, "owl", np.concatenate([world.at("owl", 9), world.at("bird 4", 4)]))
    assert many.confused == ("9.jpg", "10.jpg", "11.jpg", "12.jpg")
    assert "(9.jpg, 10.jpg, 11.jpg and 1 more);" in many.warnings[0]


@pytest.mark.parametrize("count", [2, 5, 23])
def test_photos_are_asked_of_heads_that_never_saw_them(memory: Memory, world: World, count: int) -> None:
    X = world.at("owl", count)
    after = memory.learn(class_statistics(X, ["owl"] * count))
    in_order = sorted(range(count), key=lambda row: X[row].tobytes())
    for name in ("ncm", "fecam", "unbiased-lda"):
        leaving = HeldOutHeads(
            make_scorer(name).adopt(memory), after, KnownPhotos(("owl",) * count, ("",) * count, X)
        )
        judged = leaving.judge(["owl"])
        for turn in range(min(count, 10)):
            left = in_order[turn::10]
            rest = np.delete(X, left, axis=0)
            learned = make_scorer(name).adopt(memory.learn(class_statistics(rest, ["owl"] * len(rest))))
            chances = learned.probabilities(X[left])
            own = learned.classes.tolist().index("owl")
            assert np.allclose(judged.own[left], chances[:, own], rtol=1e-3, atol=1e-4)
            others = np.delete(chances, own, axis=1)
            assert np.allclose(judged.rival[left], others.max(axis=1), rtol=1e-3, atol=1e-4)


def test_the_head_and_the_memory_stay_as_they_are(head: Scorer, memory: Memory, world: World) -> None:
    probes = world.at("owl", 4)
    before, labels = head.scores(probes), memory.labels.tolist()
    report(head, memory, "owl", world.at("owl", 5))
    assert head.memory is memory
    assert np.array_equal(head.scores(probes), before)
    assert memory.labels.tolist() == labels


def test_the_first_class_has_nothing_to_be_compared_with(world: World) -> None:
    nothing = Memory(NO_CLASSES, NO_CLASSES)
    seen = report(make_scorer("ncm"), nothing, "owl", world.at("owl", 5))
    assert (seen.accuracy, seen.nearest, seen.separability, seen.verdict) == (None, None, None, "unknown")
    assert seen.warnings == ()


def test_one_photo_cannot_be_left_out(head: Scorer, memory: Memory, world: World) -> None:
    seen = report(head, memory, "owl", world.at("owl", 1))
    assert (seen.accuracy, seen.verdict, seen.photos) == (None, "unknown", 1)
    assert seen.warnings == ("one photo tells little about 'owl'; five are better",)


def test_photos_added_to_a_learned_class_are_judged_with_the_earlier_ones(
    head: Scorer, memory: Memory, world: World
) -> None:
    early = world.at("owl", 3)
    known = memory.learn(class_statistics(early, ["owl"] * 3))
    earlier = KnownPhotos(("owl",) * 3, ("x", "y", "z"), early)
    seen = report(head.adopt(known), known, "owl", world.at("owl", 2), earlier=earlier)
    assert (seen.photos, seen.added, seen.accuracy) == (5, 2, 1.0)
    assert seen.nearest != "owl"


def test_photos_added_to_a_base_class_are_judged_by_what_it_was(
    head: Scorer, memory: Memory, world: World
) -> None:
    seen = report(head, memory, "bird 3", world.at("bird 3", 2))
    assert (seen.photos, seen.added, seen.accuracy) == (8, 2, 1.0)
    wrong = report(head, memory, "bird 3", world.at("bird 4", 2))
    assert (wrong.accuracy, wrong.nearest, wrong.confusion) == (0.0, "bird 4", 1.0)
    assert wrong.verdict == "confused"


def test_duplicates_of_every_kind_are_named(head: Scorer, memory: Memory, world: World) -> None:
    X = world.at("owl", 5)
    X[3] = 2 * X[0]  # the same direction: almost identical
    earlier = KnownPhotos(("bird 9", "bird 10"), ("file", "other"), np.stack([world.at("bird 9", 1)[0], X[4]]))
    seen = report(head, memory, "owl", X, sha256s=["a", "a", "file", "d", "e"], earlier=earlier)
    assert seen.duplicates == (
        Duplicate("1.jpg", "owl", same_file=True, of="0.jpg"),
        Duplicate("3.jpg", "owl", same_file=False, of="0.jpg"),
        Duplicate("2.jpg", "bird 9", same_file=True),
        Duplicate("4.jpg", "bird 10", same_file=False),
    )
    assert "1.jpg is the same file as 0.jpg; it teaches nothing new" in seen.warnings
    for photo, other in (("2.jpg is the same file as", "bird 9"), ("4.jpg is almost identical to", "bird 10")):
        told = f"{photo} a photo of '{other}'; one of the two classes has it by mistake: "
        assert any(text.startswith(told) for text in seen.warnings)


def test_many_duplicates_are_told_in_one_sentence(head: Scorer, memory: Memory, world: World) -> None:
    X = world.at("owl", 5)
    earlier = KnownPhotos(("bird 9",) * 5, tuple("abcde"), X)
    seen = report(head, memory, "owl", X, sha256s=list("abcde"), earlier=earlier)
    (told,) = [text for text in seen.warnings if "same file" in text]
    many = "5 photos are the same files as photos of 'bird 9' (0.jpg, 1.jpg, 2.jpg and 2 more); "
    assert told.startswith(f"{many}one of the two classes has them by mistake")
    assert len(seen.duplicates) == 5  # all of them are in the report
    again = report(head, memory, "owl", X[[0] * 5], sha256s=["a"] * 5)
    (told,) = [text for text in again.warnings if "same file" in text]
    many = "4 photos are the same files as photos of 'owl' (1.jpg, 2.jpg, 3.jpg and 1 more); "
    assert told == f"{many}they teach nothing new"


def test_a_photo_that_is_there_twice_is_still_told_to_be_of_another_class(
    head: Scorer, memory: Memory, world: World
) -> None:
    X = world.at("owl", 3)
    X[1] = X[0]
    earlier = KnownPhotos(("bird 9",), ("file",), X[:1])
    seen = report(head, memory, "owl", X, photos=["a", "a", "b"], sha256s=["file", "file", "c"], earlier=earlier)
    assert seen.duplicates == (
        Duplicate("a", "owl", same_file=True, of="a"),
        Duplicate("a", "bird 9", same_file=True),
    )


def test_a_strange_photo_is_an_outlier(head: Scorer, memory: Memory, world: World) -> None:
    X = np.concatenate([world.at("owl", 2), world.at("bird 2", 1), world.at("owl", 2)])
    seen = report(head, memory, "owl", X)
    assert seen.outliers == ("2.jpg",)
    assert "2.jpg is unlike the other photos of 'owl'; is it one?" in seen.warnings


@pytest.mark.parametrize("count", [4, 5, 9])
def test_outliers_by_the_formula_spelled_out(count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(50):
        X = rng.normal(size=(count, 3)) + np.array([1.5, 0, 0])
        center = rng.normal(size=3) * 0.2
        unit = (X - center) / np.linalg.norm(X - center, axis=1, keepdims=True)
        wanted = []
        for i in range(count):
            rest = [j for j in range(count) if j != i]

            def likeness(j: int, among: list[int], unit: np.ndarray = unit) -> float:
                other = sum(unit[k] for k in among if k != j)
                return float(unit[j] @ other / np.linalg.norm(other))

            if np.mean([likeness(j, rest) for j in rest]) - likeness(i, list(range(count))) > 0.4:
                wanted.append(i)
        assert find_outliers(X, center=center) == wanted


def test_three_photos_have_no_outlier() -> None:
    assert find_outliers(np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]])) == []


@pytest.mark.parametrize("size", [3, 40])
def test_summaries_of_folds_join_to_the_whole(size: int, world: World) -> None:
    X = world.at("owl", size)
    folds = held_out.fold_numbers(size)
    for fold in range(folds.max() + 1):
        rest = held_out.without_fold(X, folds, fold, None)
        whole = rest.merge(summarize(X[folds == fold]))
        assert whole.count == size
        assert np.allclose(whole.mean, X.mean(axis=0), atol=1e-5)
