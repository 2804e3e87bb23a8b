from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fiveshot.benchmark import PROTOCOLS, Protocol, get_protocol
from fiveshot.benchmark._paper_results import TABLES
from fiveshot.errors import InputError

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

# The paper's settings, written down from its text: classes, base classes, later sessions, classes in each.
SETTINGS = {
    "cifar100/small": (100, 10, 9, 10),
    "cub200/small": (200, 20, 9, 20),
    "cub200/big": (200, 100, 10, 10),
    "cars/small": (196, 28, 6, 28),
    "cars/big": (196, 98, 7, 14),
    "aircraft/small": (100, 10, 9, 10),
    "aircraft/big": (100, 50, 10, 5),
}


# Others, from the publications that use them: classes, base classes, later sessions, classes in each.
COMMUNITY = {
    "cub200/cec": (200, 100, 10, 10),
    "cifar100/cec": (100, 60, 8, 5),
    "miniimagenet/cec": (100, 60, 8, 5),
    "imagenet-r/asp": (200, 100, 10, 10),
    "cub200/stream": (200, 100, 100, 1),
    "cifar100/stream": (100, 60, 40, 1),
    "cars/stream": (196, 98, 98, 1),
    "aircraft/stream": (100, 50, 50, 1),
    "miniimagenet/stream": (100, 60, 40, 1),
    "imagenet-r/stream": (200, 100, 100, 1),
}


@st.composite
def protocols(draw) -> Protocol:
    n_classes = draw(st.integers(1, 60))
    return Protocol(
        "any",
        dataset="any",
        n_classes=n_classes,
        base_classes=draw(st.integers(1, n_classes)),
        increment=draw(st.integers(1, 20)),
        order_seed=draw(st.none() | st.integers(0, 2**32 - 1)),
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_named_protocols_are_the_papers(name):
    n_classes, base, later, increment = SETTINGS[name]
    protocol = get_protocol(name)
    assert protocol.session_sizes == (base, *[increment] * later)
    assert (protocol.n_classes, protocol.dataset) == (n_classes, name.split("/")[0])
    assert (protocol.shots, protocol.order_seed) == (5, 1993)
    assert protocol.is_papers


@pytest.mark.parametrize("name", COMMUNITY)
def test_protocols_of_others_are_theirs_and_not_the_papers(name):
    n_classes, base, later, increment = COMMUNITY[name]
    protocol = get_protocol(name)
    assert protocol.session_sizes == (base, *[increment] * later)
    assert (protocol.n_classes, protocol.dataset, protocol.shots) == (n_classes, name.split("/")[0], 5)
    assert not protocol.is_papers
    if name.endswith(("/cec", "/asp")):
        assert protocol.class_order == tuple(range(n_classes))
        assert protocol.shot_draw == ("listed" if name.endswith("/cec") else "random")


def test_there_are_no_other_protocols():
    assert set(PROTOCOLS) == {*SETTINGS, *COMMUNITY}


def test_the_papers_sessions_are_those_of_its_tables():
    tables = json.loads(Path(TABLES).read_text())["main"]
    assert {name for name, protocol in PROTOCOLS.items() if protocol.is_papers} == set(SETTINGS) == set(tables)
    for name, table in tables.items():
        assert list(PROTOCOLS[name].paper_sessions) == table["hm_tasks"]


@pytest.mark.parametrize("n_classes", [100, 196, 200])
def test_order_1993_is_the_published_one_and_leaves_the_global_generator_alone(n_classes):
    protocol = Protocol("p", "d", n_classes, base_classes=1, increment=1)
    np.random.seed(1993)  # noqa: NPY002 - the published code's own two lines
    expected = np.random.permutation(n_classes).tolist()  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert list(protocol.class_order) == expected
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@settings(deadline=None)
@given(protocols())
def test_sessions_hold_every_class_once_in_the_class_order(protocol):
    parts = protocol.session_classes
    assert [label for part in parts for label in part] == list(protocol.class_order)
    assert sorted(protocol.class_order) == list(range(protocol.n_classes))
    assert tuple(len(part) for part in parts) == protocol.session_sizes
    assert len(parts[0]) == protocol.base_classes
    assert all(len(part) == protocol.increment for part in parts[1:-1])
    assert len(parts[-1]) >= 1


def test_a_last_session_of_one_class_is_kept():
    protocol = Protocol("p", "d", n_classes=8, base_classes=3, increment=2, order_seed=None)
    assert protocol.session_classes == ((0, 1, 2), (3, 4), (5, 6), (7,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_classes": 0}, "n_classes must be an integer of at least 1, not 0"),
        ({"increment": 0}, "increment must be an integer of at least 1"),
        ({"shots": 2.5}, "shots must be an integer of at least 1, not 2.5"),
        ({"shots": True}, "shots must be an integer"),
        ({"base_classes": 201}, "201 base classes of 200; choose at most 200"),
        ({"shot_seed": -1}, "shot_seed must be an integer of at least 0"),
        ({"order_seed": 2**32}, f"order_seed must be an integer from 0 to {2**32 - 1}"),
        ({"shot_draw": "frist"}, "no shot draw 'frist'; did you mean 'first'"),
        ({"paper_sessions": (11,)}, "has sessions 0 to 10; paper_sessions names"),
        ({"shot": 3}, "no protocol option 'shot'; did you mean 'shots'"),
    ],
)
def test_protocols_that_cannot_be_run_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        get_protocol("cub200/big").replace(**changes)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(InputError, match="no protocol 'cub200/bgi'; did you mean 'cub200/big'"):
        get_protocol("cub200/bgi")


def test_only_the_draw_of_shots_may_differ_from_the_papers_setting():
    named = get_protocol("cars/small")
    assert named.replace(shot_seed=4, shot_draw="first").is_papers
    for change in ({"shots": 1}, {"order_seed": 7}, {"increment": 14}, {"name": "mine"}):
        assert not named.replace(**change).is_papers
    assert named.replace(shots=1).paper_sessions == (1, 2, 4, 6)
    assert named.replace(increment=14).paper_sessions == ()
    assert named.replace(increment=14, paper_sessions=(12,)).paper_sessions == (12,)
