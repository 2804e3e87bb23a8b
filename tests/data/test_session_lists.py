from __future__ import annotations

import pytest

from fiveshot.data.sessions import match_names, read_session_lists
from fiveshot.errors import InputError


def write_lists(folder, lists):
    folder.mkdir(exist_ok=True)
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_sessions_come_in_numerical_order_and_keep_the_order_of_their_files(tmp_path):
    lists = {f"session_{n}.txt": [f"{n}/b.jpg", f"{n}/a.jpg"] for n in range(1, 12)}
    lists |= {f"test_{n}.txt": [f"{n}/t.jpg"] for n in range(1, 12)}
    read = read_session_lists(write_lists(tmp_path / "s", {**lists, "train.txt": ["x"], "test.txt": ["y"]}))
    assert [session[0] for session in read.train] == [f"{n}/b.jpg" for n in range(1, 12)]
    assert read.train[10] == ("11/b.jpg", "11/a.jpg")
    assert read.test[9] == ("10/t.jpg",)


def test_test_lists_may_be_absent(tmp_path):
    assert read_session_lists(write_lists(tmp_path / "s", {"session_1.txt": ["1"]})).test == ()


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ({}, "found sessions none"),
        ({"session_1.txt": ["a"], "session_3.txt": ["b"]}, "without a gap; found sessions 1, 3"),
        ({"session_1.txt": ["a"], "test_2.txt": ["b"]}, r"1 session lists, but test lists for \[2\]"),
        ({"session_1.txt": [""]}, r"session_1\.txt is empty"),
    ],
)
def test_incomplete_lists_are_refused(tmp_path, lists, says):
    with pytest.raises(InputError, match=says):
        read_session_lists(write_lists(tmp_path / "s", lists))


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such folder of session lists"):
        read_session_lists(tmp_path / "none")


def test_leading_folders_separators_and_extensions_do_not_matter():
    names = ["train/001.Owl/x.webp", "train/002.Jay/x.webp", "train/002.Jay/y.1.webp"]
    lists = [["CUB/images/002.Jay/x.jpg"], ["002.Jay\\y.1.JPG", "/data/001.Owl/x.jpg"]]
    assert [found.tolist() for found in match_names(lists, names)] == [[1], [2, 0]]


def test_the_class_folder_does_matter():
    with pytest.raises(InputError, match=r"1 of 2 listed images are not in the dataset: images/003.Emu/x.jpg"):
        match_names([["images/003.Emu/x.jpg", "images/001.Owl/x.jpg"]], ["train/001.Owl/x.webp"])


def test_indices_match_official_names_never_positions():
    names = ["train/00004", "train/00002", "train/00000"]
    assert [found.tolist() for found in match_names([["2", "4"], ["0"]], names)] == [[1, 0], [2]]
    with pytest.raises(InputError, match="1 of 1 listed images are not in the dataset: 1;"):
        match_names([["1"]], names)
    with pytest.raises(InputError, match="2 of 2"):
        match_names([["0", "1"]], ["train/apple-00000", "train/apple-00001"])


def test_names_in_both_splits_are_told_apart_by_more_folders_or_refused():
    names = ["train/owl/1.jpg", "test/owl/1.jpg"]
    assert match_names([["data/test/owl/1.jpg"]], names)[0].tolist() == [1]
    with pytest.raises(InputError, match=r"matches several images: train/owl/1.jpg, test/owl/1.jpg; give"):
        match_names([["images/owl/1.jpg"]], names)
    with pytest.raises(InputError, match="matches several"):
        match_names([["3"]], ["train/00003", "test/00003"])


def test_many_missing_images_are_counted_and_cut():
    with pytest.raises(InputError, match=r"9 of 9 .*: a/0.jpg, a/1.jpg, a/2.jpg, a/3.jpg, a/4.jpg and 4 more;"):
        match_names([[f"a/{i}.jpg" for i in range(9)]], [])
