from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fiveshot.benchmark import Protocol, get_protocol, listed_sessions, sessions
from fiveshot.data.sessions import match_names, official_shots, read_session_lists
from fiveshot.errors import InputError
from fiveshot.features import embedded_features

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

LISTS = Path(__file__).parents[3] / "shared" / "data" / "cub200" / "sessions"


@st.composite
def tasks(draw):
    n_classes = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shots = draw(st.integers(1, 4))
    train = rng.permutation(np.repeat(np.arange(n_classes), rng.integers(shots, 9, n_classes)))
    test = rng.permutation(np.repeat(np.arange(n_classes), rng.integers(1, 4, n_classes)))
    protocol = Protocol(
        "any",
        dataset="any",
        n_classes=n_classes,
        base_classes=draw(st.integers(1, n_classes)),
        increment=draw(st.integers(1, 5)),
        order_seed=draw(st.integers(0, 99)),
        shots=shots,
        shot_seed=draw(st.integers(0, 99)),
        shot_draw=draw(st.sampled_from(["random", "first"])),
    )
    return protocol, train, test, tuple(f"bird {label}" for label in range(n_classes))


@settings(deadline=None)
@given(tasks())
def test_sessions_learn_their_classes_and_test_all_seen(task):
    protocol, train, test, names = task
    seen: set[int] = set()
    found = sessions(protocol, train, test, names)
    assert [session.classes for session in found] == list(protocol.session_classes)
    for number, session in enumerate(found):
        assert session.number == number
        seen |= set(session.classes)
        for label in session.classes:
            own = session.train_indices[train[session.train_indices] == label]
            assert len(set(own.tolist())) == len(own)
            assert len(own) == (np.sum(train == label) if number == 0 else protocol.shots)
        assert set(train[session.train_indices].tolist()) == set(session.classes)
        assert session.test_indices.tolist() == [row for row, label in enumerate(test) if label in seen]
    assert len(found[-1].test_indices) == len(test)


@settings(deadline=None)
@given(tasks())
def test_the_same_arguments_give_the_same_sessions(task):
    for one, two in zip(sessions(*task), sessions(*task), strict=True):
        np.testing.assert_array_equal(one.train_indices, two.train_indices)


def shots_by_name(protocol, train, test, names) -> dict[str, list[int]]:
    found = sessions(protocol, train, test, names)[1:]
    return {
        names[label]: [row for row in session.train_indices.tolist() if train[row] == label]
        for session in found
        for label in session.classes
    }


@settings(deadline=None)
@given(tasks(), st.integers(0, 99))
def test_shots_of_a_class_do_not_depend_on_its_place_among_others(task, other_order):
    protocol, train, test, names = task
    one = shots_by_name(protocol, train, test, names)
    two = shots_by_name(protocol.replace(order_seed=other_order, increment=1), train, test, names)
    # The same classes, numbered the other way round.
    last = len(names) - 1
    three = shots_by_name(protocol, last - train, last - test, names[::-1])
    for name in one.keys() & two.keys():
        assert one[name] == two[name]
    for name in one.keys() & three.keys():
        assert one[name] == three[name]


@settings(deadline=None)
@given(tasks())
def test_fewer_shots_are_among_more(task):
    protocol, train, test, names = task
    more, fewer = shots_by_name(*task), shots_by_name(protocol.replace(shots=1), train, test, names)
    for name in more:
        assert set(fewer[name]) <= set(more[name])


@settings(deadline=None)
@given(tasks())
def test_first_draw_takes_the_first_images_of_each_class(task):
    protocol, train, test, names = task
    found = shots_by_name(protocol.replace(shot_draw="first"), train, test, names)
    for name, rows in found.items():
        assert rows == np.flatnonzero(train == names.index(name))[: protocol.shots].tolist()


def test_seeds_draw_differently_and_evenly():
    train, test = np.repeat([0, 1], 20), np.array([0, 1])
    protocol = Protocol("p", "d", n_classes=2, base_classes=1, increment=1, order_seed=None)
    counts = np.zeros(40)
    for seed in range(600):
        counts[sessions(protocol.replace(shot_seed=seed), train, test, ("a", "b"))[1].train_indices] += 1
    assert counts[:20].sum() == 0
    # Each of 20 images is drawn with probability 1/4: 150 times of 600, with deviation 10.6.
    assert np.abs(counts[20:] - 150).max() < 5 * 10.6


def test_the_draw_is_the_same_on_every_machine_and_release():
    # Golden values of this code: with another draw, results of earlier releases cannot be repeated.
    train, test = np.repeat([0, 1], 30), np.array([0, 1])
    protocol = Protocol("p", "d", n_classes=2, base_classes=1, increment=1, order_seed=None, shot_seed=1)
    assert sessions(protocol, train, test, ("ani", "rook"))[1].train_indices.tolist() == [36, 39, 42, 45, 54]


def test_class_with_fewer_images_than_shots_is_named():
    protocol = Protocol("p", "d", n_classes=2, base_classes=1, increment=1, order_seed=None)
    with pytest.raises(
        InputError,
        match=r"class 'rook' has 3 training images of 5 needed, those held out for testing not counted; .*--shots",
    ):
        sessions(protocol, [0, 1, 1, 1], [0, 1], ("ani", "rook"))
    assert len(sessions(protocol.replace(shots=3), [0, 1, 1, 1], [0, 1], ("ani", "rook"))) == 2


@pytest.mark.parametrize(
    ("train", "test", "names", "message"),
    [
        ([0, 1], [0, 1], ("a", "b", "c"), "has 2 classes, the dataset 3"),
        ([1], [0, 1], ("a", "b"), "class 'a' has 0 training images of 1 needed"),
        ([0, 1], [0], ("a", "b"), r"session 1 \(b\) has no test images"),
        ([0, 2], [0, 1], ("a", "b"), "indices into the 2 class names"),
        (["a", "b"], [0, 1], ("a", "b"), "indices into the 2 class names"),
    ],
)
def test_datasets_that_do_not_fit_are_refused(train, test, names, message):
    protocol = Protocol("p", "d", n_classes=2, base_classes=1, increment=1, order_seed=None, shots=1)
    with pytest.raises(InputError, match=message):
        sessions(protocol, train, test, names)


def test_listed_sessions_take_the_rows_as_given():
    train, test = [0, 0, 1, 1, 2, 2], [2, 1, 0]
    base, new = listed_sessions([[3, 1, 0], [5]], train, test, ("a", "b", "c"))
    assert base.classes == (1, 0)
    assert base.train_indices.tolist() == [3, 1, 0]
    assert base.test_indices.tolist() == [1, 2]
    assert (new.classes, new.train_indices.tolist(), new.test_indices.tolist()) == ((2,), [5], [0, 1, 2])


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([], "no session lists"),
        ([[0], [1]], "class 'a' is listed in sessions 0 and 1"),
        ([[0, 0]], "names a row twice"),
        ([[0], []], "the list of session 1 must name rows from 0 to 2"),
        ([[3]], "must name rows from 0 to 2"),
    ],
)
def test_lists_that_contradict_the_data_are_refused(lists, message):
    with pytest.raises(InputError, match=message):
        listed_sessions(lists, [0, 0, 1], [0, 1], ("a", "b"))


@pytest.mark.real
@pytest.mark.skipif(not LISTS.is_dir(), reason="the real material is not beside the checkout")
def test_the_communitys_lists_fit_the_embedded_features():
    pack = embedded_features()
    lists = read_session_lists(LISTS)
    train, test = match_names(lists.train, pack.train_names), match_names(lists.test, pack.test_names)
    found = listed_sessions(train, pack.train_y, pack.test_y, pack.class_names)
    expected = get_protocol("cub200/big").replace(order_seed=None)
    assert [set(s.classes) for s in found] == [set(classes) for classes in expected.session_classes]
    assert [len(s.train_indices) for s in found] == [3000, *[50] * 10]
    assert len(found[-1].test_indices) == 5794
    for session, listed in zip(found, test, strict=True):
        new = session.test_indices[np.isin(pack.test_y[session.test_indices], session.classes)]
        assert sorted(listed.tolist()) == new.tolist()


# Test images of the ten later sessions, counted in the official lists test_2.txt to test_11.txt.
CUB_TESTS = (279, 287, 298, 300, 298, 288, 297, 295, 288, 300)


def test_the_communitys_cub200_has_its_own_shots_and_counts():
    pack = embedded_features("cub200")
    base, *later = sessions(
        get_protocol("cub200/cec"), pack.train_y, pack.test_y, pack.class_names, pack.train_names
    )
    assert base.classes == tuple(range(100))
    assert (len(base.train_indices), len(base.test_indices)) == (3000, 2864)
    assert [len(session.train_indices) for session in later] == [50] * 10
    assert np.diff([len(session.test_indices) for session in (base, *later)]).tolist() == list(CUB_TESTS)
    assert later[0].classes == tuple(range(100, 110))
    # The first lines of the official session_2.txt.
    named = [Path(pack.train_names[row]).stem for row in later[0].train_indices[:2]]
    assert named == ["White_Pelican_0081_96148", "White_Pelican_0075_96422"]


@pytest.mark.real
@pytest.mark.skipif(not LISTS.is_dir(), reason="the official lists are not beside the checkout")
def test_the_shots_in_the_package_are_those_of_the_official_files():
    lists = read_session_lists(LISTS).train
    pack = embedded_features("cub200")
    found = sessions(get_protocol("cub200/cec"), pack.train_y, pack.test_y, pack.class_names, pack.train_names)
    official = match_names(lists, pack.train_names)
    for session, rows in zip(found, official, strict=True):
        assert sorted(session.train_indices.tolist()) == sorted(rows.tolist())


def test_indices_of_cifar100_are_found_by_name_in_any_order():
    rng = np.random.default_rng(0)
    listed = [int(line) for line in official_shots("cifar100")]
    assert len(set(listed)) == 200
    labels = {index: 60 + place // 5 for place, index in enumerate(listed)}
    spare = [index for index in range(50_000) if index not in labels][:300]
    labels |= {index: place % 100 for place, index in enumerate(spare)}
    order = rng.permutation(sorted(labels))
    names, train = [f"train/{index:05d}" for index in order], np.array([labels[index] for index in order])
    protocol = get_protocol("cifar100/cec")
    classes = tuple(f"class {label:02}" for label in range(100))
    found = sessions(protocol, train, np.arange(100), classes, names)
    assert [order[row] for row in found[1].train_indices] == listed[:25]
    assert len(found[0].train_indices) == 180  # all that base classes have


@pytest.mark.parametrize("changes", [{"base_classes": 90}, {"shots": 6}, {"order_seed": 1993}])
def test_lists_are_for_their_own_classes_and_shots(changes):
    pack = embedded_features("cub200")
    protocol = get_protocol("cub200/cec").replace(**changes)
    with pytest.raises(InputError, match="official lists"):
        sessions(protocol, pack.train_y, pack.test_y, pack.class_names, pack.train_names)


def test_lists_need_names_and_a_dataset_that_has_some():
    pack = embedded_features("cub200")
    with pytest.raises(InputError, match="have no image names"):
        sessions(get_protocol("cub200/cec"), pack.train_y, pack.test_y, pack.class_names)
    with pytest.raises(InputError, match="'cars' has no official lists of shots"):
        official_shots("cars")


def test_a_stream_brings_one_class_after_the_other_and_may_begin_with_one():
    train, test = np.repeat(np.arange(6), 5), np.arange(6)
    protocol = Protocol("stream", "any", n_classes=6, base_classes=1, increment=1)
    found = sessions(protocol, train, test, tuple("abcdef"))
    assert [len(session.classes) for session in found] == [1] * 6
    assert [len(session.test_indices) for session in found] == [1, 2, 3, 4, 5, 6]
