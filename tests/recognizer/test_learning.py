from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from models import WIDTH, chances, files_with, held, photos, picture, with_place

from fiveshot.core.scorers import make_scorer
from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer, import_file, thumbnails
from fiveshot.recognizer.store.manifest import Options
from fiveshot.values import Prediction, from_json, to_json

NAMES = ("ani", "owl", "rook", "wren")


def test_statistics_are_those_of_the_photos(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    parts = {name: [photos(name, 4, seed=seed) for seed in range(3)] for name in ("wren", "owl")}
    for seed in range(3):
        for name, sessions in parts.items():
            model.learn_features(name, sessions[seed], add=name == "owl" or seed > 0)
    for name, earlier in (("wren", []), ("owl", [photos("owl", 30)])):
        X = np.concatenate([*earlier, *parts[name]]).astype(np.float64)
        summary = model.snapshot.memory.statistics[name]
        centered = X - X.mean(axis=0)
        assert summary.count == len(X)
        np.testing.assert_allclose(summary.mean, X.mean(axis=0), rtol=1e-5, atol=1e-5)
        factor = summary.factor.astype(np.float64)
        np.testing.assert_allclose(factor.T @ factor, centered.T @ centered, rtol=1e-4, atol=1e-3)
    assert model.check() == []


def test_predictions_are_those_of_the_head_on_the_same_samples(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    for name in NAMES[2:]:
        model.learn_features(name, photos(name))
    head = make_scorer("c-fecam")
    head = head.learn(np.concatenate([photos(name, 30) for name in NAMES[:2]]), np.repeat(NAMES[:2], 30))
    head = head.learn(np.concatenate([photos(name) for name in NAMES[2:]]), np.repeat(NAMES[2:], 5))
    X = np.concatenate([photos(name, 5, seed=3) for name in NAMES])
    found = model.predict_features(X, top=4)
    assert [one.candidates[0].label for one in found] == head.classify(X).tolist()
    expected = head.probabilities(X)
    for one, row in zip(found, expected, strict=True):
        wanted = dict(zip(head.classes.tolist(), row.tolist(), strict=True))
        assert chances(one) == pytest.approx(wanted, rel=1e-5)  # single precision
        assert one.probability == pytest.approx(max(row), rel=1e-5)


def test_the_same_after_opening_again(make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    model.learn_features("wren", photos("wren"))
    model.learn_features("owl", photos("owl", 2, seed=1), add=True)
    X = np.concatenate([photos(name, 5, seed=3) for name in NAMES])
    again = reopen(model.path, readonly=True)
    assert held(again) == held(model)
    assert again.predict_features(X) == model.predict_features(X)


def test_a_known_name_needs_add(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    model.learn_features("wren", photos("wren"))
    before = held(model)
    for name in ("wren", " wren", "owl"):
        with pytest.raises(InputError, match=r"already; add photos to it with add=True \(--add\)"):
            model.learn_features(name, photos("wren", seed=1))
    assert held(model) == before
    assert model.learn_features("wren", photos("wren", 2, seed=1), add=True).photos == 7
    assert model.learn_features("rook", photos("rook"), add=True).photos == 5


def test_the_report_names_the_nearest_class(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:3])
    twin = photos("owl", 5, seed=0) + 0.3 * photos("wren", 5, seed=1) / 4
    report = model.learn_features("barn owl", twin)
    assert report.nearest == "owl"
    assert (report.photos, report.added) == (5, 5)
    again = model.learn_features("rook 2", photos("rook 2")[[0, 1, 2, 3, 0]], names=list("abcde"))
    assert [(one.photo, one.of, one.same_file) for one in again.duplicates] == [("e", "a", True)]
    copied = model.learn_features("copy", photos("rook 2")[:2])
    assert {one.label for one in copied.duplicates} == {"rook 2"}


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (np.zeros((3, WIDTH + 1)), rf"\(n, {WIDTH}\)"),
        (np.zeros(WIDTH), "shape"),
        (np.zeros((0, WIDTH)), "shape"),
        (np.full((2, WIDTH), np.nan), "row 0 hold NaN"),
        (np.full((2, WIDTH), 1e39), "row 0 hold NaN or infinity"),
        (np.full((2, WIDTH), "x"), "give numbers"),
    ],
)
def test_features_that_do_not_fit(make: Callable[..., Recognizer], features: np.ndarray, said: str) -> None:
    model = make()
    with pytest.raises(InputError, match=said):
        model.learn_features("wren", features)
    with pytest.raises(InputError, match=said):
        model.predict_features(features)


@pytest.mark.parametrize("given", ["sha256s", "thumbnails", "originals", "names"])
def test_as_many_digests_and_pictures_as_rows(make: Callable[..., Recognizer], given: str) -> None:
    for values in ([], ["0" * 64]):
        with pytest.raises(InputError, match="5 rows of features, but another number"):
            make(f"model {len(values)}").learn_features("wren", photos("wren"), **{given: values})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sha256s": ["X" * 64]}, "SHA-256 of photo 1 is not"),
        ({"sha256s": ["A" * 64]}, "SHA-256 of photo 1 is not"),
        ({"sha256s": ["0" * 63]}, "SHA-256 of photo 1 is not"),
        ({"sha256s": [7]}, "SHA-256 of photo 1 is not"),
        ({"thumbnails": [5]}, r"the thumbnail of photo 1 is not bytes, but 5 \(int\)"),
        ({"thumbnails": ["text"]}, r"the thumbnail of photo 1 is not bytes, but 'text' \(str\)"),
        ({"originals": [5]}, "the file of photo 1 is not bytes"),
        ({"originals": [Path("wren.jpg")]}, "the file of photo 1 is not bytes"),
        ({"thumbnails": b"x"}, "the thumbnail of photo 1 is not bytes"),
        ({"names": [5]}, r"the name of photo 1 is not text, but 5 \(int\)"),
        ({"thumbnails": [b""]}, "the thumbnail of photo 1 is"),
        ({"thumbnails": [b"junk"]}, "the thumbnail of photo 1 is"),
        ({"thumbnails": [picture(16, "PNG")]}, "the thumbnail of photo 1 is"),
        ({"thumbnails": [picture(16, "WEBP")]}, "the thumbnail of photo 1 is not a JPEG"),
        ({"thumbnails": [picture(64)[:200]]}, "the thumbnail of photo 1 is not a JPEG"),
        ({"thumbnails": [picture(64) + b"more"]}, "the thumbnail of photo 1 is not a JPEG without metadata"),
        ({"thumbnails": [picture(129)]}, "the thumbnail of photo 1 is not a JPEG .* of at most 128 x 128 pixels"),
        (
            {"thumbnails": [picture(64, comment="by me")]},
            "the thumbnail of photo 1 is not a JPEG without metadata",
        ),
        ({"thumbnails": [picture(64, icc_profile=b"p" * 99)]}, "photo 1 is not a JPEG without metadata"),
        ({"thumbnails": [with_place()]}, "the thumbnail of photo 1 is not a JPEG without metadata"),
        ({"originals": [b""]}, "file of photo 1 is empty"),
    ],
)
def test_what_could_not_be_imported_is_not_learned(
    make: Callable[..., Recognizer], given: dict[str, list], said: str
) -> None:
    model = make(options=Options(keep_photos=True))
    with pytest.raises(InputError, match=said):
        model.learn_features("wren", photos("wren", 1), **given)
    assert model.refresh().classes == ()


def test_what_comes_one_by_one_is_taken(make: Callable[..., Recognizer]) -> None:
    model = make(options=Options(keep_photos=True))
    digests = ["0a" * 32, "0b" * 32]
    model.learn_features(
        "wren",
        photos("wren", 2),
        sha256s=iter(digests),
        thumbnails=iter([bytearray(picture()), memoryview(picture())]),
        originals=(data for data in (b"a", bytearray(b"b"))),
        names=map(str, range(2)),
    )
    assert thumbnails(model, "wren") == [picture()] * 2
    assert [photo.sha256 for photo in model.photos("wren")] == digests
    assert model.check() == []


def test_what_is_learned_can_be_imported(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    model = make(options=Options(keep_photos=True))
    pictures = [picture(128), picture(64), None]
    model.learn_features(
        "wren", photos("wren", 3), sha256s=["0a" * 32] * 3, thumbnails=pictures, originals=[b"a", b"b", None]
    )
    with import_file(model.export(tmp_path / "file", photos=True), tmp_path / "there") as there:
        assert thumbnails(there, "wren") == pictures[:2]


def test_features_of_another_backbone_are_not_learned(make: Callable[..., Recognizer]) -> None:
    """The backbone may be replaced between the look at the photos and the transaction."""
    model = make(fingerprint="a" * 64)
    with pytest.raises(InputError, match="it was tuned since"):
        model.learn_features("wren", photos("wren"), fingerprint="b" * 64)
    assert model.refresh().classes == ()
    model.learn_features("wren", photos("wren"), fingerprint="a" * 64)
    assert model.refresh().classes == ("wren",)


@pytest.mark.parametrize("name", ["a/b", "/x", "-rf", "🦉", "é" * 200, "'; DROP TABLE classes; --", "%s", "NUL"])
def test_any_name_is_a_name(make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], name: str) -> None:
    model = make()
    model.learn_features(name, photos(name))
    model.learn_features("wren", photos("wren"))
    again = reopen(model.path)
    assert name in again.snapshot.classes
    assert again.predict_features(photos(name, 1))[0].candidates[0].label == name
    again.forget(name, for_good=True)
    assert again.snapshot.classes == ("wren",)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 10_000, "\x00", "../../x"])
def test_what_is_no_name(make: Callable[..., Recognizer], name: str) -> None:
    with pytest.raises(InputError, match="class name"):
        make().learn_features(name, photos("x"))


def test_a_class_of_an_earlier_release_can_be_renamed_and_forgotten(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    """Release 0.2 took any text for a name."""
    made = make()
    for name in ("owl", "wren"):
        made.learn_features(name, photos(name))
    made.close()
    with closing(sqlite3.connect(made.path / "classes.sqlite")) as connection, connection:
        connection.execute("UPDATE classes SET name = '../' || name")
    model = reopen(made.path)
    model.rename("../owl", "owl")
    with pytest.raises(InputError, match="has a part that is"):
        model.rename("../wren", "../owl")
    model.forget("../wren")
    assert model.snapshot.classes == ("owl",)


def test_an_empty_model_says_what_to_do(make: Callable[..., Recognizer]) -> None:
    model = make()
    with pytest.raises(InputError, match="knows no class yet"):
        model.predict_features(photos("x"))
    assert model.show().classes == ()
    assert "no class" in model.show().rejection


def test_a_single_class_has_no_probability(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.learn_features("owl", photos("owl"))
    (alone,) = model.predict_features(photos("owl")[:1], sure=0.9)
    assert (alone.label, alone.answer, alone.probability) == ("owl", "class", None)
    assert [one.probability for one in alone.candidates] == [None]
    assert from_json(Prediction, to_json(alone)) == alone
    model.learn_features("wren", photos("wren"))
    (beside,) = model.predict_features(photos("owl")[:1])
    assert beside.probability is not None
    assert sum(one.probability or 0 for one in beside.candidates) == pytest.approx(1)


def test_answers_say_whether_anything_can_be_unknown(make: Callable[..., Recognizer]) -> None:
    model = make()
    for number, name in enumerate(NAMES):  # five photos each: 19 are needed
        model.learn_features(name, photos(name))
        (found,) = model.predict_features(photos(name)[:1])
        assert found.can_be_unknown == to_json(found)["can_be_unknown"] == (5 * (number + 1) >= 19)


def test_show_lists_what_is_there(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2], options=Options(thumbnails=True))
    model.learn_features("wren", photos("wren"), thumbnails=[*map(picture, range(1, 5)), None])
    model.learn_features("owl", photos("owl", 2, seed=1), add=True)
    shown = model.show()
    assert [
        (one.name, one.photos, one.base, one.features, one.thumbnails, one.kept_photos) for one in shown.classes
    ] == [
        ("ani", 30, True, 0, 0, 0),
        ("owl", 32, True, 2, 0, 0),
        ("wren", 5, False, 5, 4, 0),
    ]
    assert (shown.base_classes, shown.new_classes) == (2, 1)
    assert shown.bytes_per_class == (5 + 4 + 1) * WIDTH * 4
    assert to_json(shown)["classes"][0]["name"] == "ani"
    assert thumbnails(model, "wren") == [*map(picture, range(1, 5))]
    assert thumbnails(model, "ani") == []
    with pytest.raises(InputError, match="no class 'wrem'; did you mean 'wren'"):
        thumbnails(model, "wrem")


def test_only_what_the_owner_wants_is_kept(make: Callable[..., Recognizer]) -> None:
    model = make(options=Options(thumbnails=False))
    model.learn_features("wren", photos("wren"), thumbnails=[picture()] * 5, originals=[b"a large one"] * 5)
    assert thumbnails(model, "wren") == []
    model.close()
    assert files_with(model.path, picture()) == files_with(model.path, b"a large one") == []


def test_a_snapshot_never_changes(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    X = photos("wren", 4, seed=2)
    early = model.snapshot
    before = early.predict_features(X)
    model.learn_features("wren", photos("wren"))
    model.forget("ani", for_good=True)
    late = model.snapshot
    assert early.classes == NAMES[:2]
    assert early.predict_features(X) == before
    assert late.predict_features(X)[0].candidates[0].label == "wren"
    assert late.state == early.state + 2


def test_a_learned_class_leaves_the_others_as_they_were(make: Callable[..., Recognizer]) -> None:
    model = make(base=NAMES[:2])
    model.learn_features("rook", photos("rook"))
    before = {label: summary for label, summary, _ in model.snapshot.memory}
    model.learn_features("wren", photos("wren"))
    after = {label: summary for label, summary, _ in model.snapshot.memory}
    assert all(after[label] is summary for label, summary in before.items())


def test_what_fails_on_the_way_is_not_stored(make: Callable[..., Recognizer]) -> None:
    model = make()
    for name in NAMES[:2]:
        model.learn_features(name, photos(name))
    model.predict_features(photos("ani"))
    before = held(model)

    def fails(*_: object) -> None:
        raise RuntimeError("no model of these classes")

    model.snapshot.head.derive = fails  # type: ignore[method-assign]  # copies of the head fail with it
    with pytest.raises(RuntimeError, match="no model of these classes"):
        model.learn_features("wren", photos("wren"))
    assert held(model) == before
    assert model.check() == []


@pytest.mark.parametrize("base", [0, 2, 40])
def test_the_default_head_keeps_statistics_of_what_it_makes_of_features(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], base: int
) -> None:
    names = tuple(f"b{number:02d}" for number in range(base))
    model = make(base=names, head="unbiased-lda", width=24)
    for name in ("owl", "wren"):
        model.learn_features(name, photos(name, width=24))
        model.learn_features(name, photos(name, 3, width=24, seed=1), add=True)
    X = photos("wren", 8, width=24, seed=1)
    head = make_scorer()
    if base:
        head = head.learn(np.concatenate([photos(name, 30, width=24) for name in names]), np.repeat(names, 30))
    both = {
        name: np.concatenate([photos(name, width=24), photos(name, 3, width=24, seed=1)])
        for name in ("owl", "wren")
    }
    for name, rows in both.items():
        expected = head.embed(rows).mean(axis=0)
        stored = model.snapshot.memory.statistics[name].mean
        np.testing.assert_allclose(stored, expected, rtol=1e-5, atol=1e-5)
    found = model.predict_features(X)
    assert [one.candidates[0].label for one in found] == ["wren"] * 8
    assert model.check() == []
    again = reopen(model.path).predict_features(X)
    for after, before in zip(again, found, strict=True):
        assert chances(after) == pytest.approx(chances(before), rel=1e-3, abs=1e-5)


def test_the_settings_of_a_base_outlive_its_classes(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    """A class learned when all base classes are gone must lie in the space it is read in later."""
    model = make(base=NAMES[:2], head="unbiased-lda")
    for name in NAMES[:2]:
        model.forget(name, for_good=True)
    assert model.snapshot.classes == ()
    model.learn_features("wren", photos("wren"))
    model.learn_features("rook", photos("rook"))
    again = reopen(model.path)
    assert again.check() == []
    X = np.concatenate([photos("wren", 3, seed=1), photos("rook", 3, seed=1)])
    assert [one.candidates[0].label for one in again.predict_features(X)] == ["wren"] * 3 + ["rook"] * 3


def test_nothing_is_written_through_a_reader(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    model = make()
    reader = reopen(model.path, readonly=True)
    with pytest.raises(InputError, match="opened read-only"):
        reader.learn_features("wren", photos("wren"))


def test_a_closed_model_says_so(make: Callable[..., Recognizer]) -> None:
    model = make()
    model.close()
    with pytest.raises(InputError, match="is closed; open it again"):
        model.learn_features("wren", photos("wren"))


def test_a_change_does_not_read_all_classes(make: Callable[..., Recognizer]) -> None:
    model, asked = make(), list[str]()
    for name in NAMES[:3]:
        model.learn_features(name, photos(name))
    connection = model.live.folder.connection
    connection.set_trace_callback(asked.append)
    model.learn_features("wren", photos("wren"))
    model.learn_features("owl", photos("owl", 2, seed=1), add=True)
    connection.set_trace_callback(None)
    queries = {text for text in asked if text.startswith("SELECT") and "FROM classes" in text}
    plans = {text: connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall() for text in queries}
    read_whole = [text for text, plan in plans.items() if any(row[3] == "SCAN classes" for row in plan)]
    assert any("changed >" in text for text in queries)
    assert read_whole == []
