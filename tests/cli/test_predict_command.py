"""``predict`` and ``evaluate`` on photos as people have them: some bad, parts of them, very many."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fiveshot import Recognizer
from fiveshot.errors import InputError
from fiveshot.recognizer import PhotoStream, evaluate

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of two colors, photos of them, and one photo of both side by side."""
    folder = tmp_path_factory.mktemp("colors")
    shades = {"red": ("red", "crimson", "firebrick"), "blue": ("blue", "navy", "mediumblue")}
    for name, tones in shades.items():
        (folder / "photos" / name).mkdir(parents=True)
        for number, tone in enumerate(tones):
            Image.new("RGB", (64, 48), tone).save(folder / "photos" / name / f"{number}.png")
    both = Image.new("RGB", (64, 32), "red")
    both.paste("blue", (32, 0, 64, 32))
    both.save(folder / "both.png")
    with Recognizer.create(folder / "model", false_rejection=0.01, views=1) as made:
        made.learn_many(folder / "photos")
    return folder


@pytest.fixture
def here(colors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the photos, and the model, in the working folder."""
    shutil.copytree(colors / "photos", tmp_path / "photos")
    shutil.copy(colors / "both.png", tmp_path)
    (tmp_path / "model").symlink_to(colors / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(run: Run) -> Callable[..., tuple[int, Any]]:
    """Run a command with --json; return its status, and its result or error."""

    def asked(*arguments: object) -> tuple[int, Any]:
        status, printed, _ = run(*arguments, "--json")
        reply = json.loads(printed)
        assert reply["ok"] == (status == 0)
        return status, reply.get("result") or reply["error"]

    return asked


def spoil(*names: str) -> None:
    for name in names:
        Path(name).write_bytes(Path(name).read_bytes()[:60])


def test_a_single_class_is_told_without_a_percentage(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    assert run("new", "alone")[0] == 0
    assert run("learn", "alone", "red", "photos/red")[0] == 0
    status, printed, said = run("predict", "alone", "both.png")
    assert (status, printed) == (0, "both.png: red\n")
    assert "to reject look-alikes, 19 photos in classes of two or more are needed; the model has 3" in said
    assert "until then look-alikes get" in said
    _, result = ask("predict", "alone", "both.png")
    (one,) = result["predictions"]
    assert (one["probability"], one["can_be_unknown"]) == (None, True)
    run("predict", "alone", "both.png", "--out", "answers.csv")
    with Path("answers.csv").open(newline="") as opened:
        (row,) = csv.DictReader(opened)
    assert (row["label"], row["probability"]) == ("red", "")
    run("predict", "alone", "both.png", "--out", "answers.parquet")
    table = pytest.importorskip("pyarrow.parquet").read_table("answers.parquet").to_pylist()
    assert (table[0]["probability"], table[0]["can_be_unknown"]) == (None, True)
    status, printed, _ = run("sort", "alone", "photos/blue")
    assert (status, "%" in printed) == (0, False)


def test_an_answer_between_two_classes_names_both(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    status, printed, _ = run("predict", "model", "both.png", "--sure", "0.999999")
    assert status == 0
    assert re.fullmatch(r"both.png: unsure: (red or blue|blue or red) \(.* %, .* %\)\n", printed)
    _, result = ask("predict", "model", "both.png", "--sure", "0.999999")
    (one,) = result["predictions"]
    assert (one["label"], one["answer"], set(one["between"])) == (None, "unsure", {"red", "blue"})
    run("predict", "model", "both.png", "--sure", "0.999999", "--out", "answers.parquet")
    (row,) = pytest.importorskip("pyarrow.parquet").read_table("answers.parquet").to_pylist()
    assert row["between"] == one["between"]


def test_one_bad_photo_does_not_cost_the_others(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    spoil("photos/red/1.png")
    Path("photos/blue/notes.txt").write_text("blue")
    status, result = ask("predict", "model", "photos")
    assert status == 3
    assert [(one["photo"], one["label"]) for one in result["predictions"]] == [
        *((f"photos/blue/{n}.png", "blue") for n in range(3)),
        *((f"photos/red/{n}.png", "red") for n in (0, 2)),
    ]
    assert [(one["name"], one["code"]) for one in result["left_out"]] == [("photos/red/1.png", "bad_image")]
    status, printed, said = run("predict", "model", "photos")
    assert (status, len(printed.splitlines())) == (3, 5)
    assert said.splitlines()[-2].startswith("left out: photos/red/1.png: ")
    assert run("predict", "model", "photos", "--bad", "skip")[0] == 0
    status, error = ask("predict", "model", "photos", "--bad", "refuse")
    assert (status, error["code"]) == (1, "bad_photos")


def test_evaluate_measures_what_can_be_read(here: Path, ask: Callable[..., Any]) -> None:
    spoil("photos/red/1.png", "photos/blue/0.png")
    status, result = ask("evaluate", "model", "photos")
    assert (status, result["photos"], result["accuracy"]) == (3, 4, 1.0)
    assert [one["name"] for one in result["left_out"]] == ["photos/blue/0.png", "photos/red/1.png"]
    assert ask("evaluate", "model", "photos", "--bad", "skip")[0] == 0
    assert ask("evaluate", "model", "photos", "--bad", "refuse")[1]["code"] == "bad_photos"


def test_where_nothing_can_be_read_there_is_no_answer(here: Path, ask: Callable[..., Any]) -> None:
    spoil(*(f"photos/{name}/{n}.png" for name in ("red", "blue") for n in range(3)))
    for command in ("predict", "evaluate"):
        status, error = ask(command, "model", "photos")
        assert (status, error["code"]) == (1, "bad_photos")


def test_one_answer_for_each_box(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    status, result = ask("predict", "model", "both.png", "--box", "0,0,32,32", "--box", "0.5,0,0.5,1")
    assert status == 0
    found = [(one["label"], one["box"]) for one in result["predictions"]]
    assert found == [("red", [0, 0, 32, 32]), ("blue", [0.5, 0, 0.5, 1])]
    _, printed, _ = run("predict", "model", "both.png", "--box", "0,0,32,32")
    assert printed.startswith("both.png [0,0,32,32]: red ")


def test_a_box_that_does_not_fit_is_refused_by_name(here: Path, ask: Callable[..., Any]) -> None:
    status, result = ask("predict", "model", "both.png", "photos", "--box", "0,0,60,40")
    assert (status, len(result["predictions"])) == (3, 6)
    assert [(one["name"], one["code"]) for one in result["left_out"]] == [("both.png", "bad_box")]
    for box in ("nan,0,5,5", "0,0,0,5", "red", "1,2,3"):
        status, error = ask("predict", "model", "both.png", "--box", box)
        assert (status, error["code"]) == (1, "bad_box")


def test_boxes_of_a_detector(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    detections = [
        {"conf": 0.9, "bbox": [0, 0, 0.5, 1], "category": "1"},
        {"conf": 0.8, "bbox": [0.5, 0, 0.5, 1], "category": "1"},
        {"conf": 0.8, "bbox": [0.9, 0.9, 0.5, 0.5], "category": "1"},
    ]
    images = [{"file": "cam/both.png", "detections": detections}, {"file": "gone.jpg", "detections": detections}]
    Path("boxes.json").write_text(json.dumps({"images": images}))
    status, result = ask("predict", "model", "both.png", "photos", "--box", "boxes.json")
    assert status == 3
    assert [(one["photo"], one["label"]) for one in result["predictions"]] == [
        ("both.png", "red"),
        ("both.png", "blue"),
    ]
    assert {(one["name"], one["code"]) for one in result["left_out"]} == {
        ("gone.jpg", "no_photo"),
        ("both.png", "bad_box"),
    }
    _, _, said = run("predict", "model", "both.png", "photos", "--box", "boxes.json")
    assert "note: skipped 6 photos without a box: photos/blue/0.png" in said
    assert ask("predict", "model", "both.png", "--box", "boxes.json", "--bad", "refuse")[0] == 1
    assert ask("predict", "model", "photos", "--box", "boxes.json")[1]["code"] == "bad_photos"
    for extra in (("--box", "nothing.json"), ("--box", "boxes.json", "--box", "0,0,1,1")):
        assert ask("predict", "model", "both.png", *extra)[0] == 1


def test_parts_are_learned_and_measured(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    assert run("new", "halves")[0] == 0
    assert run("learn", "halves", "red", "both.png", "--box", "0,0,32,32")[0] == 0
    Path("boxes.csv").write_text("photo,x,y,width,height\nboth.png,32,0,32,32\n")
    assert run("learn", "halves", "blue", "both.png", "photos/red", "--box", "boxes.csv")[0] == 0
    Path("test/red").mkdir(parents=True)
    Path("test/blue").mkdir()
    for name in ("red", "blue"):
        shutil.copy("both.png", f"test/{name}/{name}.png")
    Path("boxes.csv").write_text("photo,x,y,width,height\nred/red.png,0,0,30,30\nblue/blue.png,33,0,30,30\n")
    status, result = ask("evaluate", "halves", "test", "--box", "boxes.csv")
    assert (status, result["accuracy"], result["photos"]) == (0, 1.0, 2)
    status, error = ask("learn", "halves", "green", "photos/red", "--box", "boxes.csv")
    assert (status, error["code"]) == (1, "no_box")
    Path("boxes.csv").write_text("photo,x,y,width,height\nboth.png,32,0,nan,32\nboth.png,0,0,9,9\n")
    assert ask("learn", "halves", "green", "both.png", "--box", "boxes.csv")[0] == 1
    assert [one["name"] for one in ask("show", "halves")[1]["classes"]] == ["blue", "red"]


def rows(file: str) -> list[dict[str, str]]:
    with Path(file).open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_answers_go_to_a_file_that_is_continued(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    spoil("photos/red/1.png")
    status, result = ask("predict", "model", "photos/red", "--out", "answers.csv")
    assert (status, result["answers"], result["earlier"], len(result["left_out"])) == (3, 2, 0, 1)
    data = Path("answers.csv").read_bytes()
    Path("answers.csv").write_bytes(data[:-5])  # as a kill leaves it
    status, result = ask("predict", "model", "photos", "--out", "answers.csv")
    assert (status, result["answers"], result["earlier"]) == (3, 4, 1)
    assert {(row["path"], row["label"]) for row in rows("answers.csv")} == {
        ("photos/red/0.png", "red"),
        ("photos/red/2.png", "red"),
        *((f"photos/blue/{n}.png", "blue") for n in range(3)),
    }
    assert len(rows("answers.csv")) == 5
    assert (
        ask("predict", "model", "photos/blue", "--out", "answers.csv", "--top", "2")[1]["code"] == "other_answers"
    )
    Path("answers.csv").unlink()
    assert ask("predict", "model", "photos/blue", "--out", "answers.csv")[0] == 0
    assert len(rows("answers.csv")) == 3
    _, printed, _ = run("predict", "model", "photos/blue", "--out", "answers.csv")
    assert printed == "answers.csv: 0 answers, after 3 earlier answers\n"
    assert ask("predict", "model", "photos/blue", "--out", "answers.txt")[1]["code"] == "bad_suffix"


def test_boxes_go_out_and_come_back(here: Path, ask: Callable[..., Any]) -> None:
    shutil.copy("both.png", "=both.png")
    halves = ("--box", "0,0,32,32", "--box", "0.5,0,0.5,1")
    assert ask("predict", "model", "both.png", "=both.png", *halves, "--out", "answers.csv")[1]["answers"] == 4
    assert [row["box"] for row in rows("answers.csv")] == ["0,0,32,32", "0.5,0,0.5,1"] * 2
    assert rows("answers.csv")[2]["path"] == "'=both.png"
    status, result = ask("predict", "model", "both.png", "=both.png", "--box", "answers.csv")
    assert (status, [one["label"] for one in result["predictions"]]) == (0, ["red", "blue"] * 2)


def test_photos_go_into_class_folders_and_back(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    before = sorted(map(str, Path("photos").rglob("*")))
    _, printed, _ = run("predict", "model", "photos", "--into", "sorted", "--by", "move", "--dry-run")
    assert "sorted/red: 3 photos would be moved" in printed
    assert not Path("sorted").exists()
    status, result = ask("predict", "model", "photos", "--into", "sorted", "--by", "move", "--xmp")
    assert (status, result["into"]["folders"], result["sidecars"]) == (0, {"blue": 3, "red": 3}, 6)
    assert sorted(path.name for path in Path("sorted/red").iterdir()) == [
        *(f"{n}.png{end}" for n in range(3) for end in ("", ".xmp")),
    ]
    for sidecar in Path("sorted").rglob("*.xmp"):
        sidecar.unlink()
    status, result = ask("put-back", "sorted")
    assert (status, result) == (0, {"undone": 6, "left": []})
    assert sorted(map(str, Path("photos").rglob("*"))) == before
    assert ask("put-back", "sorted")[1]["code"] == "no_journal"
    assert ask("predict", "model", "photos", "--by", "link")[1]["code"] == "unused_option"
    boxed = ("--box", "0,0,9,9", "--into", "sorted", "--by", "move")
    assert ask("predict", "model", "photos", *boxed)[1]["code"] == "unused_option"


def test_pictures_are_annotated(here: Path, ask: Callable[..., Any]) -> None:
    halves = ("--box", "0,0,32,32", "--box", "0.5,0,0.5,1")
    status, result = ask("predict", "model", "both.png", "photos/red", *halves, "--annotate", "drawn")
    assert (status, result["pictures"]) == (0, 4)
    assert sorted(path.name for path in Path("drawn").iterdir()) == [
        *(f"{n}.png.jpg" for n in range(3)),
        "both.png.jpg",
    ]
    with Image.open("drawn/both.png.jpg") as picture, Image.open("both.png") as plain:
        assert picture.size == plain.size
        assert picture.convert("RGB").tobytes() != plain.convert("RGB").tobytes()
    ask("predict", "model", "both.png", "--annotate", "drawn")
    assert Path("drawn/both.png (2).jpg").exists()


def names_below(folder: str) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.*") if path.is_file())
    return sorted(name for name in found if not name.startswith("."))


@pytest.mark.parametrize("way", ["copy", "link", "move"])
@pytest.mark.parametrize("into", ["photos", "photos/sorted"])
def test_a_second_run_leaves_alone_what_the_first_one_has_placed(
    here: Path, run: Run, ask: Callable[..., Any], way: str, into: str
) -> None:
    for path in list(Path("photos").rglob("*.png")):
        path.rename(f"photos/{path.parent.name}{path.name}")
    before = names_below("photos")
    place = ("predict", "model", "photos", "--into", into, "--by", way)
    assert ask(*place)[1]["into"]["folders"] == {"blue": 3, "red": 3}
    once = names_below("photos")
    for _ in range(2):
        run(*place)
        assert names_below("photos") == once
    Image.new("RGB", (64, 48), "darkred").save("photos/new.png")
    status, result = ask(*place)
    assert (status, result["into"]["folders"]) == (0, {"red": 1})
    assert ask("put-back", into) == (0, {"undone": 7, "left": []})
    assert names_below("photos") == sorted([*before, "new.png"])


def test_a_run_does_not_take_up_what_it_has_just_placed(here: Path, ask: Callable[..., Any]) -> None:
    """Photos are listed while others are placed, into folders that are listed later."""
    Image.new("RGB", (64, 48), "darkred").save("photos/blue/wrong.png")
    assert ask("predict", "model", "photos", "--into", "photos")[1]["into"]["folders"] == {"red": 1}


def test_pictures_of_an_earlier_run_are_no_photos(here: Path, ask: Callable[..., Any]) -> None:
    for _ in range(2):
        assert ask("predict", "model", "photos", "--annotate", "photos/drawn")[1]["pictures"] == 6


def test_a_folder_whose_photos_were_all_placed_below_says_so(here: Path, ask: Callable[..., Any]) -> None:
    place = ("predict", "model", "photos", "--into", "photos/sorted", "--by", "move")
    ask(*place)
    assert ask(*place)[1]["message"] == "no photos in photos apart from photos/sorted"


@pytest.mark.parametrize("into", ["photos", "photos/sorted"])
def test_sorting_leaves_alone_what_was_placed(here: Path, ask: Callable[..., Any], into: str) -> None:
    Path("photos/red").rename("photos/monday")
    Path("photos/blue").rename("photos/tuesday")
    place = ("sort", "model", "photos", "--no-resume", "--into", into, "--by", "move")
    assert ask(*place)[1]["into"]["folders"] == {"blue": 3, "red": 3}
    once = names_below("photos")
    assert ask(*place)[0] == 1
    assert names_below("photos") == once
    Image.new("RGB", (64, 48), "darkred").save("photos/new.png")
    assert ask(*place)[1]["into"]["folders"] == {"red": 1}


def test_a_model_among_the_photos_is_passed_over(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    shutil.copytree(Path("model").resolve(), "photos/birds")
    shutil.copytree(Path("model").resolve(), "photos/models/birds")
    for command in ("predict", "evaluate"):
        status, _, said = run(command, "model", "photos")
        assert (status, "sqlite" in said) == (0, False)
    assert len(ask("sort", "model", "photos", "--no-resume")[1]["sorting"]["known"]) == 6
    shutil.copytree("photos/birds", "again")
    status, result = ask("learn", "again", "photos", "--add")
    assert (status, [one["name"] for one in result["classes"]]) == (0, ["blue", "red"])
    Path("photos/birds/model.toml").unlink()
    damaged = ask("learn", "again", "photos", "--add")[1]
    assert damaged["message"].startswith("no photos in photos/birds (seen: 1 .sqlite")
    assert "remove" not in damaged["hint"]


def test_a_flat_folder_is_not_measured_and_not_to_be_learned(here: Path, ask: Callable[..., Any]) -> None:
    Path("photos/red").rename("my photos")
    found = ask("evaluate", "model", "my photos")[1]
    assert found["message"] == "my photos has no class folders, but 3 photos of its own"
    assert found["hint"].endswith("to see what they show: fiveshot predict model 'my photos'")
    with Recognizer.open("model") as model, pytest.raises(InputError, match=r"fiveshot predict .* 'my photos'"):
        evaluate(model, "my photos")
    assert ask("learn", "model", "my photos")[1]["hint"].endswith("fiveshot learn MODEL NAME 'my photos'")


def test_folders_inside_of_class_folders_are_named(here: Path, run: Run) -> None:
    shutil.copytree("photos/red", "photos/red/dark red")
    Path("photos/blue").rename("camera")
    Path("photos/blue").mkdir()
    Path("camera").rename("photos/blue/2024")
    _, _, said = run("evaluate", "model", "photos")
    note = "folders in class folders belong to the class: red/dark red (3 photos)"
    assert f"note: {note}; with --nested each becomes a class\n" in said
    assert note not in run("evaluate", "model", "photos", "--nested")[2]
    assert note in run("new", "birds", "--base", "photos", "--quick")[2]


def test_any_number_of_photos_in_little_memory(here: Path) -> None:
    """Photos are listed while they are used, not before, so memory does not grow with their number."""
    for number in range(4_000):
        path = Path(f"many/{number // 500}/{number:05}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link("both.png", path)
    stream, seen = PhotoStream("many"), []
    for number, photo in enumerate(stream, 1):
        seen.append(weakref.ref(photo))
        if number % 1000 == 0:
            assert sum(one() is not None for one in seen) < 10
    assert (number, stream.total) == (4_000, 4_000)


IN_SMALL_PARTS = """
from fiveshot.cli.app import main
from fiveshot.recognizer.answers import delivery
from fiveshot.recognizer.photos import embedding
delivery.CHUNK, embedding.STREAMED = 8, 1
main()
"""


def test_a_run_that_is_stopped_goes_on(here: Path, ask: Callable[..., Any]) -> None:
    """A real interrupt, after the first answers; the file ends somewhere, and is continued without repeats."""
    Path("many").mkdir()
    for number in range(600):
        os.link("both.png", f"many/{number:04}.png")
    command = [sys.executable, "-c", IN_SMALL_PARTS, "predict", "model", "many", "--out", "answers.jsonl"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until = time.monotonic() + 60
    out = Path("answers.jsonl")
    while time.monotonic() < until and not (out.exists() and out.stat().st_size):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, "answers.jsonl has the answers so far" in said) == (130, True)
    lines = Path("answers.jsonl").read_text().splitlines()
    assert 0 < len(lines) < 600
    for path in Path("many").iterdir():
        if int(path.stem) >= len(lines) + 6:
            path.unlink()
    status, result = ask("predict", "model", "many", "--out", "answers.jsonl")
    assert (status, result["answers"], result["earlier"]) == (0, 6, len(lines))
    paths = [json.loads(line)["path"] for line in Path("answers.jsonl").read_text().splitlines()]
    assert paths == [f"many/{number:04}.png" for number in range(len(lines) + 6)]
