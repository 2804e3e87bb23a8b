"""Answers in files: read back with the csv, json and pyarrow libraries, interrupted anywhere, continued."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond

from fiveshot.data import Box, BytesSource, Photo
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, Snapshot
from fiveshot.recognizer.answers._table import open_table
from fiveshot.values import Candidate, Prediction

parquet = pytest.importorskip("pyarrow.parquet", reason="the extra 'parquet' is not installed")

WAYS = [".csv", ".jsonl", ".parquet"]


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    with Recognizer.create(tmp_path / "model", views=1) as model:
        features = np.random.default_rng(0).normal(size=(5, model.snapshot.contents.width))
        model.learn_features("owl", features)
        return model.snapshot


def answer(name: str, label: str | None = "owl", box: tuple[float, ...] | None = None) -> Prediction:
    candidates = (Candidate("owl", 0.9), Candidate("=HYPERLINK(1)", 0.1))
    return Prediction(name, label, 0.9, candidates, -3.25, 2.0, box=box)  # type: ignore[arg-type]


def photo(name: str, box: Box | None = None) -> Photo:
    return Photo(BytesSource(b"", name), box)


def read(path: Path) -> list[tuple[str, str | None]]:
    """Return path and label of all answers, with the library of the format."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [(row["path"], row["label"] or None) for row in csv.DictReader(file)]
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = parquet.read_table(path).to_pylist()
    return [(row["path"], row["label"]) for row in rows]


@pytest.mark.parametrize("suffix", WAYS)
def test_answers_come_back(tmp_path: Path, snapshot: Snapshot, suffix: str) -> None:
    names = ["a,b.jpg", 'quo"te.jpg', "line\nbreak.jpg", "ünï/日本.jpg", "\udcff.jpg"]
    table = open_table(tmp_path / f"out{suffix}", snapshot, top=2)
    table.add([answer(name) for name in names[:3]])
    table.add([answer(names[3], None), answer(names[4])])
    table.finish()
    found = read(tmp_path / f"out{suffix}")
    assert [label for _, label in found] == ["owl", "owl", "owl", None, "owl"]
    assert [path for path, _ in found[:4]] == names[:4]
    assert found[4][0] in ("\udcff.jpg", "\\udcff.jpg")
    assert not (tmp_path / f"out{suffix}.part").exists()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_file_that_was_cut_off_anywhere_is_continued(tmp_path: Path, snapshot: Snapshot, suffix: str) -> None:
    file, names = tmp_path / f"out{suffix}", ["a.jpg", "line\nbreak.jpg", "c.jpg"]
    table = open_table(file, snapshot, top=2)
    table.add([answer(name) for name in names])
    table.finish()
    whole = file.read_bytes()
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        table = open_table(file, snapshot, top=2)
        missing = [name for name in names if photo(name) not in table]
        assert table.earlier == len(names) - len(missing)
        table.add([answer(name) for name in missing])
        table.finish()
        assert file.read_bytes() == whole


def test_a_parquet_file_is_whole_or_not_there(tmp_path: Path, snapshot: Snapshot) -> None:
    file = tmp_path / "out.parquet"
    table = open_table(file, snapshot, top=2)
    table.add([answer("a.jpg", box=(1, 2, 3, 4))])
    table.close()
    assert not file.exists()
    table = open_table(file, snapshot, top=2)
    assert photo("a.jpg", Box(1, 2, 3, 4)) in table
    assert photo("a.jpg") not in table
    table.add([answer("b.jpg", None)])
    table.finish()
    (first, second) = parquet.read_table(file).to_pylist()
    assert (first["box"], second["box"], second["label"]) == ([1.0, 2.0, 3.0, 4.0], None, None)
    assert first["candidates"][1] == {"label": "=HYPERLINK(1)", "probability": 0.1}
    with pytest.raises(InputError) as caught:
        open_table(file, snapshot, top=2)
    assert caught.value.code == "other_answers"
    open_table(file, snapshot, top=2, overwrite=True).finish()
    assert read(file) == []


def test_nothing_in_a_spreadsheet_is_a_formula(tmp_path: Path, snapshot: Snapshot) -> None:
    evil = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\rx"]
    table = open_table(tmp_path / "out.csv", snapshot, top=2)
    table.add([answer(name, label="=1+1") for name in evil])
    table.finish()
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    for row in rows:
        for cell in row:
            assert not cell.startswith(("=", "+", "@", "\t", "\r"))
            assert not cell.startswith("-") or float(cell) < 0  # a number, such as a familiarity
    again = open_table(tmp_path / "out.csv", snapshot, top=2)
    assert all(photo(name) in again for name in evil)
    again.close()


def test_the_mark_of_utf_8_is_written_on_request(tmp_path: Path, snapshot: Snapshot) -> None:
    for mark in (False, True):
        open_table(tmp_path / "out.csv", snapshot, top=1, mark=mark, overwrite=True).finish()
        assert (tmp_path / "out.csv").read_bytes().startswith(b"\xef\xbb\xbf") == mark
    table = open_table(tmp_path / "out.csv", snapshot, top=1)
    table.add([answer("a.jpg")])
    table.finish()
    assert read(tmp_path / "out.csv") == [("a.jpg", "owl")]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize(
    "content",
    [b"something else\n", b"no line", b"{}", b"\xff\xfe\n", b"path,label\na,b\n", b"[1]\n", b'{"a": 1}\n'],
)
def test_a_file_of_others_is_not_touched(tmp_path: Path, snapshot: Snapshot, suffix: str, content: bytes) -> None:
    file = tmp_path / f"out{suffix}"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        open_table(file, snapshot, top=2)
    assert caught.value.code == "other_answers"
    assert file.read_bytes() == content


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_answers_of_another_state_are_not_mixed(tmp_path: Path, snapshot: Snapshot, suffix: str) -> None:
    file = tmp_path / f"out{suffix}"
    table = open_table(file, snapshot, top=2)
    table.add([answer("a.jpg")])
    table.finish()
    with Recognizer.open(tmp_path / "model") as model:
        model.rename("owl", "barn owl")
        with pytest.raises(InputError) as caught:
            open_table(file, model.snapshot, top=2)
    assert caught.value.code == "other_answers"


def test_names_that_say_no_format_are_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    for name in ("out.xlsx", "out"):
        with pytest.raises(InputError) as caught:
            open_table(tmp_path / name, snapshot, top=2)
        assert caught.value.code == "bad_suffix"
    with pytest.raises(StorageError):
        open_table(tmp_path / "nowhere" / "out.csv", snapshot, top=2)


def test_a_full_disk_is_said_and_gone_on_from(tmp_path: Path, snapshot: Snapshot) -> None:
    file, names = tmp_path / "out.csv", [f"{number:04}.jpg" for number in range(100)]
    table = open_table(file, snapshot, top=2)
    table.add([answer(name) for name in names[:10]])
    with no_file_may_grow_beyond(2000), pytest.raises(StorageError) as caught:
        table.add([answer(name) for name in names[10:]])
    assert caught.value.code == "not_written"
    table.close()
    table = open_table(file, snapshot, top=2)
    assert 0 < table.earlier < 100
    table.add([answer(name) for name in names if photo(name) not in table])
    table.finish()
    assert [path for path, _ in read(file)] == names
