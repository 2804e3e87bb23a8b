"""Groups of classes: their probabilities against sums spelled out, and answers at the level that is sure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models import photos

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, group_classes
from fiveshot.recognizer.advice.evaluation import evaluate_features
from fiveshot.recognizer.recognition.levels import Groups, full_names, grouped_names, levels_of, read_parents
from fiveshot.values import to_json

CLASSES = (
    "bird/owl/barn owl",
    "bird/owl/tawny owl",
    "bird/wren",
    "fish",
    "fish/carp",
    "moss/only one",
    "not//a path",
)


def spelled_out(row: np.ndarray) -> list[tuple[str, float]]:
    """Return the chain of one row by plain sums over names that begin with a group's."""
    chance = dict(zip(CLASSES, row, strict=True))
    tree: dict[str, list[str]] = {
        "": ["bird", "fish", "moss/only one", "not//a path"],
        "bird": ["bird/owl", "bird/wren"],
        "bird/owl": ["bird/owl/barn owl", "bird/owl/tawny owl"],
    }

    def total(name: str) -> float:
        return sum(p for one, p in chance.items() if one == name or one.startswith(f"{name}/"))

    chain, above = [], ""
    while above in tree:
        above = max(tree[above], key=total)
        chain.append((above, total(above)))
    if above == "fish":  # a class and a group
        chain.append(max([(one, chance[one]) for one in ("fish", "fish/carp")], key=lambda one: one[1]))
    return chain


def test_chains_equal_sums_over_the_classes() -> None:
    P = np.random.default_rng(0).dirichlet(np.full(len(CLASSES), 0.4), size=300)
    found = Groups.of(CLASSES).chains(P)
    assert {chain[0].label for chain in found} == {"bird", "fish", "moss/only one", "not//a path"}
    for chain, row in zip(found, P, strict=True):
        expected = spelled_out(row)
        assert [one.label for one in chain] == [name for name, _ in expected]
        assert [one.probability for one in chain] == pytest.approx([chance for _, chance in expected])


def test_the_order_of_classes_does_not_matter() -> None:
    P = np.random.default_rng(1).dirichlet(np.full(len(CLASSES), 0.4), size=50)
    order = np.random.default_rng(2).permutation(len(CLASSES))
    shuffled = Groups.of([CLASSES[number] for number in order]).chains(P[:, order])
    for one, other in zip(Groups.of(CLASSES).chains(P), shuffled, strict=True):
        assert [level.label for level in one] == [level.label for level in other]


def test_names_without_groups_have_no_levels() -> None:
    assert levels_of("a / b") == ("a", "a / b")
    assert levels_of("a/ /b") == ("a/ /b",)
    assert Groups.of(["owl", "AC/DC", "wren"]).chains(np.eye(3)) == [(), (), ()]


@pytest.fixture
def owls(make: Callable[..., Recognizer]) -> Recognizer:
    """Two owls that are hard to tell apart, and a wren."""
    model = make()
    owl = photos("owl", 10)
    model.learn_features("owl/barn owl", owl[:5])
    model.learn_features("owl/tawny owl", owl[5:])
    model.learn_features("wren", photos("wren"))
    return model


def test_the_answer_is_the_group_where_no_class_is_sure(owls: Recognizer) -> None:
    found = owls.predict_features(np.concatenate([photos("owl", 20, seed=3), photos("wren", 5, seed=3)]))
    kinds = {one.answer for one in found[:20]}
    assert kinds == {"group", "class"}
    for one in found[:20]:
        (group, of_group), (name, of_class) = ((each.label, each.probability) for each in one.levels)
        assert group == "owl"
        assert of_group == pytest.approx(
            sum(each.probability for each in one.candidates if each.label.startswith("owl/"))
        )
        sure = of_class >= owls.snapshot.sure
        assert (one.label, one.probability) == ((name, of_class) if sure else (group, of_group))
    assert [(one.label, one.answer, one.levels[0].label) for one in found[20:]] == [("wren", "class", "wren")] * 5


def test_as_sure_as_asked_for_or_no_answer(owls: Recognizer) -> None:
    between = (photos("owl", 1) + photos("wren", 1)) / 2
    (asked,) = owls.predict_features(between, sure=0.999999)
    (plain,) = owls.predict_features(between)
    assert plain.label is not None
    assert (asked.label, asked.unsure, asked.unknown, asked.answer) == (None, True, False, "unsure")
    assert (asked.between, plain.between) == (tuple(one.label for one in plain.candidates[:2]), ())
    assert asked.candidates == plain.candidates
    assert asked.probability == asked.candidates[0].probability
    (narrow,) = owls.snapshot.predict_features(between, 1, sure=0.999999)
    assert (len(narrow.candidates), narrow.between) == (1, asked.between)
    for wrong in (0, -1, 1.5, True, "0.8"):
        with pytest.raises(InputError):
            owls.predict_features(between, sure=wrong)


def test_unknown_comes_before_the_level(make: Callable[..., Recognizer]) -> None:
    model = make(base=tuple(f"base {number}" for number in range(12)))
    for name in ("owl/barn owl", "owl/tawny owl"):
        model.learn_features(name, photos(name))
    far = 100 * np.ones((1, 12), np.float32)
    (one,) = model.predict_features(far)
    assert (one.label, one.answer, one.unknown, one.unsure) == (None, "unknown", True, False)
    assert one.levels


def test_evaluation_of_both_levels(owls: Recognizer) -> None:
    X = np.concatenate([photos("owl", 20, seed=3), photos("wren", 5, seed=3), photos("owl", 4, seed=4)])
    names = ["barn owl"] * 20 + ["wren"] * 5 + ["owl/snowy owl"] * 4
    measured = evaluate_features(owls.snapshot, X, names)
    found = owls.predict_features(X)
    assert (measured.photos, measured.unknown_photos) == (25, 4)
    known = found[:25]
    assert measured.levels is not None
    assert measured.levels.group_accuracy == 1.0
    by_group = [one for one in known if one.answer == "group"]
    assert measured.levels.by_group.share == len(by_group) / 25
    assert measured.levels.by_group.right == 1.0
    right = [one for one in known[:20] if one.label == "owl/barn owl"] + known[20:]
    by_class = [one for one in known if one.answer == "class"]
    assert measured.levels.by_class.share == len(by_class) / 25
    assert measured.levels.by_class.right == len(right) / len(by_class)
    # The group of a class that is not known is a right answer, one of its classes is not.
    wrong = [one for one in found[25:] if one.answer == "class"]
    assert sum(one.name == "owl/snowy owl" for one in measured.wrong) == len(wrong)
    assert to_json(evaluate_features(owls.snapshot, X[:1], ["owl/barn owl"]))["levels"]["by_class"]


def test_a_model_without_groups_is_measured_without_them(make: Callable[..., Recognizer]) -> None:
    model = make(base=("ani", "jay"))
    assert evaluate_features(model.snapshot, photos("ani", 2), ["ani", "ani"]).levels is None


def test_names_may_lack_groups_where_one_class_is_called_so() -> None:
    classes = ["owl/barn", "door/barn", "owl/tawny", "wren"]
    assert full_names(["barn", "tawny", "wren", "kite"], classes) == ["barn", "owl/tawny", "wren", "kite"]


@pytest.mark.parametrize("base", [(), ("barn owl", "tawny owl")])
def test_classes_get_the_path_of_their_parents(make: Callable[..., Recognizer], base: tuple[str, ...]) -> None:
    model = make(base=base)
    for name in {"barn owl", "tawny owl", "wren"} - set(base):
        model.learn_features(name, photos(name))
    answers = model.predict_features(photos("barn owl", 3, seed=5))
    parents = {"barn owl": "owl", "tawny owl": "owl", "owl": "bird", "kite": "bird"}
    renamed = {"barn owl": "bird/owl/barn owl", "tawny owl": "bird/owl/tawny owl"}
    assert group_classes(model, parents) == renamed
    assert model.snapshot.classes == ("bird/owl/barn owl", "bird/owl/tawny owl", "wren")
    after = model.predict_features(photos("barn owl", 3, seed=5))
    for one, other in zip(answers, after, strict=True):
        assert [(renamed.get(each.label, each.label), each.probability) for each in one.candidates] == [
            (each.label, each.probability) for each in other.candidates
        ]
    state = model.snapshot.state
    assert group_classes(model, parents) == {}
    assert model.snapshot.state == state
    assert group_classes(model, {"tawny owl": ""}) == {"bird/owl/tawny owl": "tawny owl"}
    model.undo()
    assert model.undo().action == "rename"
    assert model.snapshot.classes == ("barn owl", "tawny owl", "wren")
    assert model.predict_features(photos("barn owl", 3, seed=5)) == answers


@pytest.mark.parametrize(
    "parents",
    [
        {"barn owl": "owl", "owl": "bird", "bird": "owl"},
        {"barn owl": "barn owl"},
        {"barn owl": "x" * 300},
    ],
)
def test_parents_that_cannot_be(parents: dict[str, str]) -> None:
    with pytest.raises(InputError):
        grouped_names(["barn owl"], parents)


def test_two_classes_never_get_one_name() -> None:
    with pytest.raises(InputError):
        grouped_names(["a/barn owl", "b/barn owl"], {"barn owl": "owl"})


def test_a_taxonomy_file(tmp_path: Path) -> None:
    file = tmp_path / "taxonomy.csv"
    file.write_text('\ufeffName,Parent\r\nbarn owl,owl\r\n"owl, snowy",owl\r\n\r\nowl,\r\n', encoding="utf-8")
    assert read_parents(file) == {"barn owl": "owl", "owl, snowy": "owl", "owl": ""}


@pytest.mark.parametrize(
    "text",
    ["", "barn owl,owl\n", "name,parent\na,b,c\n", "name,parent\na,b\na,c\n", "name,parent\na/b,c\n", b"\xff\xfe"],
)
def test_a_file_that_is_no_taxonomy(tmp_path: Path, text: str | bytes) -> None:
    file = tmp_path / "taxonomy.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError):
        read_parents(file)


def test_a_taxonomy_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_parents(tmp_path / "none.csv")
