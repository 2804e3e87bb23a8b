"""Folders of an evaluation that are no class."""

from __future__ import annotations

from fiveshot.recognizer.advice.evaluation import COMPARED, other_folders


def likenesses(n_folders: int, n_classes: int) -> list[str | None]:
    """Return the findings for folders whose names differ by one letter from a class."""
    classes = [f"{number:06}" for number in range(n_classes)]
    return [one.like for one in other_folders([f"{name}x" for name in classes[:n_folders]], classes)]


def test_all_are_compared_with_few_classes() -> None:
    assert None not in likenesses(120, 120)


def test_the_comparisons_are_bounded() -> None:
    found = likenesses(100, COMPARED // 2)
    assert None not in found[:2]
    assert set(found[2:]) == {None}


def test_other_capitals_are_found_however_many_there_are() -> None:
    classes = [f"class {number}" for number in range(COMPARED + 1)]
    assert [one.like for one in other_folders(["CLASS 7", "clas 8"], classes)] == ["class 7", None]
