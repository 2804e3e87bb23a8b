from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fiveshot.benchmark import OverallFigures, RunRecord, get_protocol, read_published, run, shipped_figures
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet, Provenance, embedded_features

# Counted in the official session lists: 3,000 and 2,864 images of the base classes, then 50 and these.
TESTS = (279, 287, 298, 300, 298, 288, 297, 295, 288, 300)
SETTING = {
    "source": "A paper",
    "dataset": "cub200",
    "class_order": "dataset",
    "base_classes": 100,
    "increment": 10,
    "shots": 5,
    "shot_draw": "listed",
    "images": [[3000, 2864], *([50, tests] for tests in TESTS)],
    "methods": {"Theirs": [75.85, 71.94, 68.5, 63.5, 62.43, 58.27, 57.73, 55.81, 54.83, 53.52, 52.28]},
}


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return run(get_protocol("cub200/cec"), embedded_features("cub200"), "ncm")


@pytest.fixture
def differences(tmp_path: Path, record: RunRecord):
    def found(record: RunRecord = record, **changes: object) -> tuple[str, ...]:
        values = {**SETTING, **changes}
        file = tmp_path / "paper.json"
        file.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
        return read_published(file).differences(record)

    return found


def test_the_same_setting_has_no_difference(differences) -> None:
    assert differences() == ()
    assert differences(images=[[3000, 2864]]) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "cars"}, "dataset: cars there, cub200 here"),
        (
            {"dataset": "cifar100", "base_classes": 60, "increment": 5, "shots": 1},
            "dataset: cifar100 there, cub200 here",
        ),
        ({"class_order": 1993}, "class order: other classes in the base session"),
        ({"increment": 20}, "sessions: 100 + 5 x 20 classes there, 100 + 10 x 10 here"),
        ({"shots": 1}, "shots of a new class: 1 there, 5 here"),
        ({"shot_draw": "random"}, "choice of the shots: drawn at random there, those of the official lists here"),
        (
            {"images": [[4693, 1171]]},
            "split: 4,693 images to learn and 1,171 to test in the base session there, 3,000 and 2,864 here",
        ),
        ({"methods": {"Theirs": [75.85]}}, "sessions: 1 figures of Theirs there, 11 sessions here"),
        ({"class_order": None}, "class order: not said there (class_order)"),
        ({"images": None}, "split: not said there (images)"),
        ({"shots": None}, "shots of a new class: not said there (shots)"),
        ({"base_classes": None, "increment": None}, "sessions: not said there (base_classes)"),
    ],
)
def test_what_differs_or_is_not_said_is_named(differences, changes: dict, said: str) -> None:
    assert differences(**changes) == (said,)


def test_an_order_by_names_is_compared_session_by_session(differences, record: RunRecord) -> None:
    names = list(record.class_names)
    within = [*names[:100][::-1], *names[100:]]
    assert differences(class_order=within) == ()
    crossing = [*names[:105], names[115], *names[106:115], names[105], *names[116:]]
    assert differences(class_order=crossing) == ("class order: other classes in session 1",)


def test_the_papers_order_and_drawn_shots_match_their_own(differences) -> None:
    drawn = run(get_protocol("cub200/big"), embedded_features("cub200"), "ncm")
    said = differences(drawn)
    assert [line.split(":")[0] for line in said] == ["class order", "choice of the shots", "split"]
    own = [list(counts) for counts in drawn.images]
    assert differences(drawn, class_order=1993, shot_draw="random", images=own) == ()
    listed = replace(drawn, config={**drawn.config, "sessions": "sha256:0"})
    assert "choice of the shots" not in " ".join(differences(listed, class_order=1993, images=own))


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": {}},
        {"methods": {"Theirs": 5}},
        {"methods": {"Theirs": [101]}},
        {"methods": {"Theirs": ["x"]}},
        {"shots": 0},
        {"shots": "5"},
        {"base_classes": None},
        {"class_order": "sorted"},
        {"shot_draw": "some"},
        {"images": [[1, 2, 3]]},
        {"images": 5},
        {"sauce": "x"},
        {"source": ""},
    ],
)
def test_a_file_that_makes_no_sense_is_refused(differences, changes: dict) -> None:
    with pytest.raises(InputError):
        differences(**changes)


@pytest.mark.parametrize("known", [{"first": 80}, {"base": 101}, {"base": "80"}, {}])
def test_figures_without_sessions_are_base_last_and_average(differences, known: dict) -> None:
    assert differences(methods={"Theirs": {"base": 80, "average": 75.5}}) == ()
    with pytest.raises(InputError):
        differences(methods={"Theirs": known})


NOT_FOUND = {"asp-cub200": {"images"}, "sec-prompt-cub200": {"images", "shot_draw"}}


@pytest.mark.parametrize("name", shipped_figures())
def test_shipped_figures_say_where_they_were_read_and_how_they_were_measured(name: str) -> None:
    published = read_published(name)
    assert "https://" in published.origin
    assert "not read from the paper" in published.origin or "measured again" in published.origin
    needed = {"class_order", "base_classes", "increment", "shots", "shot_draw", "images"}
    assert set(published.setting) == needed - NOT_FOUND.get(name, set())
    for known in published.overall.values():
        assert known.last < known.average < known.base
    assert all(len(values) == 11 and values[0] > values[-1] for values in published.accuracy.values())


@pytest.mark.parametrize("name", shipped_figures())
def test_the_page_of_published_figures_lists_each_with_its_images(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "published.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page
    counts = [f"{count:,}" for pair in read_published(name).setting.get("images", ()) for count in pair]
    assert [count for count in counts if count not in page] == []


def test_figures_of_unknown_splits_fit_no_protocol(record: RunRecord) -> None:
    drawn = run(get_protocol("cub200/cec").replace(shot_draw="random"), embedded_features("cub200"), "ncm")
    assert read_published("asp-cub200").differences(drawn) == ("split: not said there (images)",)
    assert "split: not said there (images)" in read_published("sec-prompt-cub200").differences(record)


def test_figures_of_drawn_shots_fit_the_whole_of_cifar100() -> None:
    """Labels alone decide, so one number stands for an image."""
    train, test = np.repeat(np.arange(100), 500), np.repeat(np.arange(100), 100)
    names = tuple(f"class {label}" for label in range(100))
    pixels = [labels[:, None].astype(np.float32) for labels in (train, test)]
    cifar = FeatureSet(pixels[0], train, pixels[1], test, names, Provenance.unknown("cifar100"))
    drawn = run(get_protocol("cifar100/cec").replace(shot_draw="random"), cifar, "ncm")
    assert read_published("asp-cifar100").differences(drawn) == ()
    part = run(get_protocol("cifar100/small"), cifar, "ncm")
    assert [line.split(":")[0] for line in read_published("asp-cifar100").differences(part)] == [
        "sessions",
        "split",
    ]


def test_shipped_figures_fit_the_protocol_of_the_official_lists_and_no_other(record: RunRecord) -> None:
    published = read_published("privilege-cub200")
    assert published.overall == {"PriViLege": OverallFigures(base=0.8221, last=0.7508, average=0.775)}
    assert published.differences(record) == ()
    drawn = run(get_protocol("cub200/big"), embedded_features("cub200"), "ncm")
    assert [line.split(":")[0] for line in published.differences(drawn)] == [
        "class order",
        "choice of the shots",
        "split",
    ]


def test_figures_are_read_as_fractions(tmp_path: Path) -> None:
    file = tmp_path / "paper.json"
    file.write_text(json.dumps(SETTING))
    published = read_published(file)
    np.testing.assert_allclose(published.accuracy["Theirs"][:2], [0.7585, 0.7194])
    file.write_text("[")
    with pytest.raises(InputError):
        read_published(file)
