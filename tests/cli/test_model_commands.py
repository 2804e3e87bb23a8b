from __future__ import annotations

import hashlib
import html
import io
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_vit import TINY

COLOURS = {"owl": (200, 40, 40), "wren": (40, 200, 40), "kite": (40, 40, 200)}
PHONE = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)  # how a photo of a phone begins
Run = Callable[..., tuple[int, str, str]]


def draw(path: Path, colour: tuple[int, int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = rng.integers(-40, 40, (6, 8, 3)) + np.array(colour)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise.clip(0, 255).astype(np.uint8)).resize((170, 165)).save(path)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path) -> Path:
    """Weights of timm's tiny test ViT, photos to learn and to test, and a model of three classes."""
    folder = tmp_path_factory.mktemp("material")
    shutil.copy(tiny_file, folder / "tiny.safetensors")
    for number, (name, colour) in enumerate(COLOURS.items()):
        for i in range(7):
            draw(folder / "photos" / name / f"{i}.png", colour, seed=10 * number + i)
        for i in range(2):
            draw(folder / "test" / name / f"{i}.png", colour, seed=100 + 10 * number + i)
    for i in range(5):
        draw(folder / "strange" / f"{i}.png", (128, 128, 128), seed=1000 + i)
    return folder


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    """Run a command with --json and return its result; anything but success fails the test."""

    def ask(*arguments: object) -> Any:
        status, printed, said = run(*arguments, "--json")
        assert status == 0, printed + said
        found = json.loads(printed)
        assert list(found) == ["command", "model", "ok", "result"]
        assert (found["command"], found["ok"]) == (arguments[0], True)
        return found["result"]

    return ask


@pytest.fixture(scope="module")
def three_classes(material: Path) -> Path:
    """A model that has learned the three classes."""
    from fiveshot.recognizer import Recognizer

    path = material / "model"
    weights = material / "tiny.safetensors"
    with Recognizer.create(path, backbone=TINY, weights=weights, views=1, device="cpu") as made:
        made.learn_many(material / "photos")
    return path


@pytest.fixture
def model(three_classes: Path, tmp_path: Path, material: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the model; the photos are in the working folder."""
    shutil.copytree(three_classes, tmp_path / "birds")
    for name in ("photos", "test", "strange"):
        (tmp_path / name).symlink_to(material / name)
    monkeypatch.chdir(tmp_path)
    return Path("birds")


def names(answer: Callable[..., Any], model: Path) -> list[str]:
    return [one["name"] for one in answer("show", model)["classes"]]


def test_a_model_from_nothing_to_a_prediction(run: Run, answer: Any, model: Path, material: Path) -> None:
    status, printed, _ = run("new", "fresh", "--backbone", TINY, "--weights", material / "tiny.safetensors")
    assert status == 0
    assert printed.startswith(f"fresh: no classes yet, {TINY}")
    assert "fiveshot learn fresh NAME PHOTOS" in printed

    status, printed, said = run("learn", "fresh", "owl", "photos/owl")
    assert (status, printed.splitlines()[0]) == (0, "owl: 7 photos")
    assert (
        "note: nothing can be called unknown yet: 19 photos in classes of two or more are needed; the model has 7;"
        in said
    )
    status, printed, _ = run("learn", "fresh", "wren", "photos/wren/[0-4].png")
    assert status == 0
    assert printed.startswith("wren: 5 photos; ")
    assert "nearest class owl" in printed

    status, printed, _ = run("predict", "fresh", "test/owl", "test/wren/0.png")
    lines = printed.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["test/owl/0.png", "test/owl/1.png", "test/wren/0.png"]
    assert [line.split()[1] for line in lines] == ["owl", "owl", "wren"]
    assert "then wren" in lines[0]

    status, printed, _ = run("show", "fresh")
    assert printed.splitlines()[3] == "2 classes"
    assert "      7  owl" in printed
    assert [entry["action"] for entry in answer("history", "fresh")["entries"]] == ["learn", "learn", "create"]


@pytest.mark.parametrize(("option", "views"), [((), 2), (("--quick",), 1), (("--careful",), 4)])
def test_a_model_keeps_the_views_it_was_made_with(
    option: tuple[str, ...], views: int, run: Run, answer: Any, model: Path, material: Path
) -> None:
    made = answer("new", "fresh", "--backbone", TINY, "--weights", material / "tiny.safetensors", *option)
    assert made["views"] == views
    answer("learn", "fresh", "owl", "photos/owl")
    answer("learn", "fresh", "wren", "photos/wren")
    status, printed, _ = run("predict", "fresh", "test/owl/0.png")
    assert (status, printed.split()[1]) == (0, "owl")
    assert f"{views} view" in run("show", "fresh")[1]


def test_quick_and_careful_exclude_each_other(run: Run, model: Path) -> None:
    status, _, said = run("new", "fresh", "--quick", "--careful")
    assert (status, "give one of them" in said) == (1, True)
    assert not Path("fresh").exists()


def test_a_base_makes_many_classes_at_once(answer: Any, model: Path, material: Path) -> None:
    weights = material / "tiny.safetensors"
    made = answer("new", "based", "--base", "photos", "--backbone", TINY, "--weights", weights, "--seed", 3)
    assert (made["base_classes"], made["new_classes"]) == (3, 0)
    (report,) = answer("learn", "based", "grey", "strange")["classes"]
    assert (report["name"], report["photos"], report["nearest"] in COLOURS) == ("grey", 5, True)


def test_bad_photos_of_a_base_are_named_and_left_out_on_request(run: Run, material: Path, tmp_path: Path) -> None:
    shutil.copytree(material / "photos", tmp_path / "base")
    whole = (tmp_path / "base" / "owl" / "0.png").read_bytes()
    (tmp_path / "base" / "owl" / "0.png").write_bytes(whole[: len(whole) // 2])
    weights = ("--backbone", TINY, "--weights", material / "tiny.safetensors")
    arguments = ("new", tmp_path / "made", "--base", tmp_path / "base", *weights)
    status, _, said = run(*arguments)
    assert (status, "leave them out with --skip-bad" in said) == (1, True)
    status, printed, said = run(*arguments, "--skip-bad")
    assert (status, "3 base classes" in printed) == (0, True)
    assert "note: left out 1 photo: " in said
    assert "owl/0.png (damaged or truncated" in said


def test_what_is_weak_in_a_base_is_noted(run: Run, material: Path, tmp_path: Path) -> None:
    for name in COLOURS:
        shutil.copytree(material / "test" / name, tmp_path / "base" / name)
    (tmp_path / "base" / "kite" / "1.png").unlink()
    (tmp_path / "base" / "owl" / "2.mov").write_bytes(PHONE)
    weights = ("--backbone", TINY, "--weights", material / "tiny.safetensors")
    status, _, said = run("new", tmp_path / "made", "--base", tmp_path / "base", *weights)
    assert status == 0
    assert said.splitlines()[:2] == [
        "note: skipped 1 file that is not a photo by name: .mov (1)",
        "note: 1 base class with a single photo, which cannot show how a class varies: kite",
    ]


@pytest.mark.parametrize(
    "command", [("show", "birds"), ("history", "birds"), ("set", "birds", "false-rejection", "3%")]
)
def test_the_database_is_opened_once(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    from fiveshot.recognizer.store.schema import open_database

    opened: list[Path] = []

    def counted(path: Path, **how: Any) -> Any:
        opened.append(path)
        return open_database(path, **how)

    for module in ("store.folder", "glance"):
        monkeypatch.setattr(f"fiveshot.recognizer.{module}.open_database", counted)
    assert run(*command)[0] == 0
    assert len(opened) == 1


def test_errors_of_retune_come_without_an_empty_line(run: Run, model: Path) -> None:
    status, printed, said = run("retune", "birds")
    assert (status, printed) == (1, "")
    assert said.startswith("error: tuning needs the photos themselves, and those of 3 classes were not kept")
    assert said.count("\n") == 1


def test_a_folder_of_folders_is_learned_in_one_go(run: Run, answer: Any, model: Path, material: Path) -> None:
    run("new", "fresh", "--backbone", TINY, "--weights", material / "tiny.safetensors")
    (material / "photos" / "owl" / "notes.txt").write_text("hoo")
    status, printed, said = run("learn", "fresh", "photos")
    (material / "photos" / "owl" / "notes.txt").unlink()
    assert status == 0
    told = [line.split(":")[0] for line in printed.splitlines() if not line.startswith("  look again")]
    assert told[:3] == ["kite", "owl", "wren"]
    assert "learned 3 classes from 21 photos" in printed
    assert "note: skipped 1 file that is not a photo by name: .txt (1)" in said
    assert len(answer("history", "fresh")["entries"]) == 2  # one change for all classes


def test_one_bar_shows_all_classes(
    material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_all: Callable[[int], bytes]
) -> None:
    from fiveshot.recognizer import Recognizer

    monkeypatch.chdir(tmp_path)
    Recognizer.create("birds", views=1, device="cpu").close()  # no process has to import PyTorch for this one
    for name in COLOURS:
        for number in range(2):
            (tmp_path / "few" / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(material / "photos" / name / f"{number}.png", tmp_path / "few" / name)
    terminal, child = pty.openpty()
    code = "from fiveshot.cli import app, output; output.BAR_DELAY = 0; app.main()"
    command = [sys.executable, "-c", code, "learn", "birds", "few"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=child, env={**os.environ, "TERM": "xterm"}
    ) as run:
        os.close(child)
        shown = read_all(terminal)  # while it runs: a terminal that nobody reads stops who writes to it
        assert run.stdout is not None
        printed = run.stdout.read().decode()
    assert run.returncode == 0, shown
    assert b"6/6" in shown
    assert "learned 3 classes from 6 photos" in printed


def test_a_known_name_needs_add(run: Run, answer: Any, model: Path) -> None:
    status, printed, said = run("learn", model, "owl", "strange")
    assert (status, printed) == (1, "")
    assert "error: there is a class 'owl' already" in said
    assert "--add" in said
    status, _, said = run("learn", model, "photos")
    assert status == 1
    assert "already" in said
    assert "known already: 3 of 3 classes ('kite', 'owl', 'wren'); add photos" in said
    (report,) = answer("learn", model, "owl", "test/owl", "--add")["classes"]
    assert (report["added"], report["photos"]) == (2, 9)
    status, printed, _ = run("learn", model, "wren", "test/wren/0.png", "--add")
    assert "wren: 1 photo more, 8 in all" in printed


def test_only_new_classes_of_a_folder_are_learned(run: Run, answer: Any, model: Path) -> None:
    Path("more").mkdir()
    for name, place in {"owl": "photos/owl", "wren": "photos/wren", "grey": "strange"}.items():
        (Path("more") / name).symlink_to(Path(place).resolve())
    found = answer("learn", model, "more", "--new-only")
    assert ([one["name"] for one in found["classes"]], found["passed_over"]) == (["grey"], ["owl", "wren"])
    status, printed, _ = run("learn", model, "more", "--new-only")
    assert (status, printed) == (0, "skipped, already known: grey, owl, wren\n")


def test_a_folder_of_classes_is_not_swallowed(run: Run, model: Path, material: Path) -> None:
    status, _, said = run("learn", model, "things", "photos")
    assert status == 1
    assert "3 subfolders (kite, owl, wren)" in said
    assert "fiveshot learn MODEL photos" in said
    assert run("learn", model, "things", "photos/*/")[0] == 0
    Path("mixed").mkdir()
    for name in ("photos", "test", "strange"):
        (Path("mixed") / name).symlink_to(material / name)
    status, _, said = run("new", "other", "--base", "mixed")
    assert status == 1
    assert "photos are only in subfolders of mixed/photos, mixed/test; " in said
    assert not Path("other").exists()


def test_photos_that_repeat_are_told(run: Run, model: Path) -> None:
    status, printed, _ = run("learn", model, "copy", "photos/owl/0.png", "photos/owl/0.png", "photos/owl/1.png")
    assert status == 0
    assert "look again: photos/owl/0.png is the same file as photos/owl/0.png; it teaches nothing new" in printed
    assert "photos/owl/1.png is the same file as a photo of 'owl'; one of the two classes has it" in printed


def test_predictions_for_programs(answer: Any, model: Path) -> None:
    first, second = answer("predict", model, "test/kite", "--top", 2)["predictions"]
    assert (first["photo"], first["label"], first["unknown"]) == ("test/kite/0.png", "kite", False)
    assert len(second["candidates"]) == 2
    assert second["candidates"][0] == {"label": "kite", "probability": second["probability"]}


def test_photos_from_standard_input(answer: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path("test/kite/0.png").read_bytes()
    for command in (("predict", model, "-"), ("learn", model, "piped", "-")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        found = answer(*command)
        if command[0] == "predict":
            assert found["predictions"][0]["photo"] == "standard input"
            assert found["predictions"][0]["label"] == "kite"
    assert "piped" in names(answer, model)


@pytest.mark.parametrize("name", ["bird/of/prey", "/etc/passwd", "🦉", "snowy owl", "Ωmega", "x" * 200])
def test_unusual_names(answer: Any, model: Path, name: str) -> None:
    before = sorted(path.name for path in Path().iterdir())
    (report,) = answer("learn", model, name, "strange")["classes"]
    assert report["name"] == name
    assert name in names(answer, model)
    answer("forget", model, name)
    assert name not in names(answer, model)
    assert sorted(path.name for path in Path().iterdir()) == before


def test_a_name_that_begins_with_a_dash_comes_after_two(run: Run, answer: Any, model: Path) -> None:
    status, printed, _ = run("learn", model, "--json", "--", "--odd", "strange")
    assert (status, json.loads(printed)["result"]["classes"][0]["name"]) == (0, "--odd")
    assert run("rename", model, "--", "--odd", "-even")[0] == 0
    assert "-even" in names(answer, model)
    assert run("forget", model, "--", "-even")[0] == 0
    assert run("learn", model, "--odd", "strange")[0] == 2  # an option that does not exist


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("learn", "birds", "x" * 10_000, "strange"), "10,000 characters"),
        (("learn", "birds", "a\nb", "strange"), "control character (U+000A)"),
        (("learn", "birds", "", "strange"), "a class name is empty"),
        (("learn", "birds", "new"), "there are no photos for 'new', and no folder has this name"),
        (("learn", "birds", "new", "nowhere.jpg"), "no such file or folder: nowhere.jpg"),
        (("learn", "birds", "new", "*.gif"), "nothing matches the pattern *.gif"),
        (("learn", "birds", "new", "void"), "no photos in void"),
        (
            ("learn", "birds", "strange/0.png", "strange/1.png"),
            "strange/0.png is a photo: the name",
        ),
        (
            ("learn", "birds", "photos/owl", "photos/wren"),
            "every folder in photos as a class: fiveshot learn",
        ),
        (("learn", "birds", "new", "bad/empty.jpg"), "bad/empty.jpg: the file is empty"),
        (("learn", "birds", "new", "bad/text.jpg"), "bad/text.jpg: not a photo"),
        (("learn", "birds", "new", "bad", "strange"), "4 of 9 photos cannot be used"),
        (("learn", "birds", "new", "bad/bomb.bmp"), "bad/bomb.bmp: too large"),
        (("learn", "birds", "strange"), "strange has no class folders, but 5 photos of its own"),
        (("learn", "birds", "strange"), "as one class: fiveshot learn MODEL NAME strange"),
        (("correct", "birds", "owl", "strange/0.png"), "strange/0.png is a photo: the photo comes first, then"),
        (("predict", "birds", "nowhere.jpg"), "no such file or folder: nowhere.jpg"),
        (("predict", "birds", "bad/text.jpg"), "bad/text.jpg: not a photo"),
        (("predict", "birds", "strange", "--top", "0"), "top=0"),
        (("predict", "birds", "strange", "--device", "banana"), "no device 'banana'; choose auto"),
        (("predict", "birds", "bad/phone.jpg"), "bad/phone.jpg: damaged or truncated"),
        (("predict", "nothing", "strange"), "no such model: nothing; make one with"),
        (("predict", "brids", "strange"), "no such model: brids; did you mean birds? make one with"),
        (("predict", "photos", "strange"), "photos is not a fiveshot model"),
        (("forget", "birds", "eagle"), "no class 'eagle'"),
        (("rename", "birds", "eagle", "hawk"), "no class 'eagle'"),
        (("rename", "birds", "owl", "wren"), "'wren'"),
        (("merge", "birds", "nowhere"), "nowhere"),
        (("evaluate", "birds", "void"), "no class folders"),
        (("import", "strange/0.png", "other"), "strange/0.png"),
        (("export", "birds", "nowhere/b.fiveshot"), "nowhere"),
        (("export", "birds", "b.bin", "--onnx"), "must end in .onnx"),
        (("export", "birds", "b.onnx", "--onnx", "--photos"), "exclude each other"),
        (("export", "birds", "b.fiveshot", "--all-views"), "--all-views is for --onnx"),
        (("export", "birds", "--web", "site", "--all-views"), "--all-views has no effect on an export to a page"),
        (("export", "birds"), "give a FILE or --web FOLDER"),
        (("export", "birds", "b.fiveshot", "--web", "site"), "give a FILE or --web FOLDER"),
        (("export", "birds", "--web", "site", "--onnx"), "--onnx has no effect on an export to a page"),
        (("export", "birds", "b.fiveshot", "--title", "Birds"), "--title has no effect on an export to a file"),
        (("export", "birds", "-", "--onnx"), "standard output takes one; name a FILE that ends in .onnx"),
        (("new", "birds"), "birds exists already; to teach this model more, use fiveshot learn"),
        (("new", "photos"), "photos exists already; choose another name"),
        (("set", "birds", "false-rejection", "10"), "for 10 % give 0.1"),
        (
            ("import", "birds", "other"),
            "birds is a folder, not an exported file; if it is a model, copy",
        ),
        (("new", "other", "--head", "ranpak"), "did you mean 'ranpac'?"),
        (("new", "other", "--base", "void"), "no class folders"),
        (("new", "other", "--tune"), "base=DIR"),
        (("new", "other", "--false-rejection", "2"), "between 0 and 1"),
        (("new", "other", "--false-rejection", "much"), "'much' is not a share; give one such as 2% or 0.02"),
    ],
)
def test_wrong_input_is_one_sentence_and_changes_nothing(
    run: Run, answer: Any, model: Path, arguments: tuple[str, ...], message: str
) -> None:
    Path("void").mkdir()
    Path("bad").mkdir()
    Path("bad/empty.jpg").touch()
    Path("bad/text.jpg").write_text("no photo")
    Path("bad/phone.jpg").write_bytes(PHONE)
    header = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54, 0, 54, 40, 50_000, 50_000, 1, 24, 0, 0, 0, 0, 0, 0)
    Path("bad/bomb.bmp").write_bytes(header)
    state = answer("show", model)["state"]
    around = sorted(path.name for path in Path().iterdir())
    status, printed, said = run(*arguments)
    assert (status, printed) == (1, "")
    assert said.startswith("error: ")
    assert message in said
    assert "Traceback" not in said
    status, printed, said = run(*arguments, "--json")
    found = json.loads(printed)
    assert status == 1
    assert list(found) == ["command", "model", "ok", "error"]
    assert (found["command"], found["ok"], list(found["error"])) == (
        arguments[0],
        False,
        ["code", "message", "hint"],
    )
    assert message in "; ".join(filter(None, (found["error"]["message"], found["error"]["hint"])))
    assert found["error"]["code"]
    assert answer("show", model)["state"] == state
    assert sorted(path.name for path in Path().iterdir()) == around


def test_wrong_usage_ends_with_status_2(run: Run, model: Path) -> None:
    assert run("predict", model)[0] == 2
    assert run("learn", model, "owl", "strange", "--oops")[0] == 2


def test_groups_of_classes(run: Run, answer: Any, model: Path, material: Path, tmp_path: Path) -> None:
    taxonomy = tmp_path / "taxonomy.csv"
    taxonomy.write_text("name,parent\nowl,bird\nwren,bird\nkite,toy\n")
    assert run("group", model, taxonomy)[:2] == (
        0,
        "kite is now toy/kite\nowl is now bird/owl\nwren is now bird/wren\n",
    )
    assert answer("group", model, taxonomy) == {"renamed": []}
    assert "note" not in run("group", model, taxonomy)[2]
    misspelled = tmp_path / "misspelled.csv"
    misspelled.write_text("name,parent\nowl,bird\nwern,bird\nkite,toy\n")
    _, _, said = run("group", model, misspelled)
    assert said == f"note: {misspelled} does not name 1 of 3 classes, so it stays as it is: bird/wren\n"
    (seen,) = answer("predict", model, material / "test" / "owl" / "0.png")["predictions"]
    assert seen["levels"][0]["label"] in ("bird", "toy/kite")
    (asked,) = answer("predict", model, material / "test" / "owl" / "0.png", "--sure", 1)["predictions"]
    assert asked["answer"] in ("unsure", "unknown", "class", "group")
    assert (asked["label"] is None) == (asked["answer"] in ("unsure", "unknown"))
    measured = answer("evaluate", model, material / "test")
    assert measured["photos"] == 6
    levels = measured["levels"]
    unknown = measured["false_rejection"]
    assert levels["by_class"]["share"] + levels["by_group"]["share"] == pytest.approx(1 - unknown)
    assert "answered with a group" in run("evaluate", model, material / "test")[1]
    assert run("predict", model, material / "test" / "owl" / "0.png", "--sure", 2)[0] == 1
    answer("undo", model)


def test_nested_folders(run: Run, answer: Any, model: Path, material: Path, tmp_path: Path) -> None:
    for group, name in (("bird", "owl"), ("bird", "wren")):
        shutil.copytree(material / "photos" / name, tmp_path / "all" / group / name)
    shutil.copytree(material / "photos" / "kite", tmp_path / "all" / "kite")
    assert run("learn", model, tmp_path / "all")[0] == 1
    learned = answer("learn", model, tmp_path / "all", "--nested", "--new-only")
    assert [one["name"] for one in learned["classes"]] == ["bird/owl", "bird/wren"]
    assert answer("evaluate", model, tmp_path / "all", "--nested")["photos"] == 21
    assert run("learn", model, "moss", tmp_path / "all" / "kite", "--nested")[0] == 1


def test_forget_rename_and_undo(run: Run, answer: Any, model: Path) -> None:
    assert run("rename", model, "owl", "barn owl")[1] == "owl is now barn owl\n"
    assert names(answer, model) == ["barn owl", "kite", "wren"]
    assert run("undo", model)[1] == "undone: rename barn owl\n"
    assert names(answer, model) == ["kite", "owl", "wren"]
    assert (
        run(
            "forget",
            model,
            "wren",
        )[1]
        == "forgot wren; bring it back with: fiveshot undo birds\n"
    )
    assert answer("undo", model)["undone"]["action"] == "forget"
    assert "wren" in names(answer, model)
    assert run("forget", model, "wren", "--for-good")[1] == "forgot wren\n"
    assert run("undo", model)[0] == 1
    assert "wren" not in names(answer, model)
    latest = answer("history", model, "--limit", 1)["entries"]
    assert len(latest) == 1
    assert run("history", model, "--limit", 0)[0] == 2


def test_evaluation(run: Run, answer: Any, model: Path) -> None:
    Path("mixed").mkdir()
    for name in COLOURS:
        (Path("mixed") / name).symlink_to(Path("test").resolve() / name)
    (Path("mixed") / "stranger").symlink_to(Path("strange").resolve())
    found = answer("evaluate", model, "mixed")
    assert (found["photos"], found["unknown_photos"]) == (6, 5)
    assert found["accuracy"] == 1.0
    _, printed, _ = run("evaluate", model, "mixed")
    assert "accuracy                   100.0 %" in printed
    assert "known from unknown, AUROC" in printed
    assert "class  photos  accuracy  called unknown" in printed
    assert found["false_rejection"] + found["unsure"] + found["named"]["share"] == pytest.approx(1)
    assert f"unsure between two         {100 * found['unsure']:.1f} %" in printed
    assert f"answered with a name       {100 * found['named']['share']:.1f} %, of these right 100.0 %" in printed


def test_evaluation_names_the_worst_classes_and_the_wrong_photos(run: Run, answer: Any, model: Path) -> None:
    Path("mixed/owl").mkdir(parents=True)
    for number in range(2):
        shutil.copy(f"test/owl/{number}.png", f"mixed/owl/{number}.png")
    for number in range(12):
        Path("mixed/kite").mkdir(exist_ok=True)
        draw(Path(f"mixed/kite/{number:02}.png"), COLOURS["wren"], seed=300 + number)
    wrong = answer("evaluate", model, "mixed")["wrong"]
    kites = [one for one in wrong if one["name"] == "kite"]
    assert {one["photo"] for one in kites} == {f"mixed/kite/{number:02}.png" for number in range(12)}
    assert {one["most_like"] for one in kites} == {"wren"}
    lines = run("evaluate", model, "mixed")[1].splitlines()
    rows = [line.split() for line in lines[lines.index("class  photos  accuracy  called unknown") + 1 :]]
    assert [row[:3] for row in rows[:2]] == [["kite", "12", "0.0"], ["owl", "2", "100.0"]]
    assert any(line.endswith(": shown as wren") for line in lines)
    assert lines[-1] == f"and {len(wrong) - 10} more photos without the right answer; --json names all"


def test_a_model_travels(run: Run, answer: Any, model: Path, material: Path) -> None:
    status, printed, _ = run("export", model, "birds.fiveshot")
    assert status == 0
    assert printed.startswith("birds.fiveshot: ")
    assert len(answer("import", "birds.fiveshot", "there")["classes"]) == 3
    status, _, said = run("learn", "there", "grey", "strange")
    assert (status, "--weights FILE" in said) == (1, True)  # the file of the weights stayed behind
    weights = ("--weights", material / "tiny.safetensors")
    answer("learn", "there", "grey", "strange", *weights)
    assert answer("merge", model, "there")["added"] == ["grey"]
    here, there = (answer("predict", place, "test/owl", *weights)["predictions"] for place in (model, "there"))
    assert here == there
    status, printed, _ = run("merge", model, "there")
    assert printed == "birds: 0 classes from there, 0 photos; 4 were the same in both\n"
    for name in ("kite", "owl", "wren"):
        answer("forget", "there", name)
    status, printed, _ = run("merge", model, "there")
    assert printed == "birds: 0 classes from there, 0 photos; 1 was the same in both\n"


def test_a_model_travels_through_a_pipe(run: Run, answer: Any, model: Path, monkeypatch: Any) -> None:
    assert run("export", model, "named.fiveshot")[0] == 0
    pipe = io.TextIOWrapper(io.BytesIO())
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", pipe)
        assert run("export", model, "-") == (0, "", "")
        patched.setattr(pipe, "isatty", lambda: True)
        status, _, said = run("export", model, "-")
    assert (status, "a model cannot be written to a terminal" in said) == (1, True)
    assert pipe.buffer.getvalue() == Path("named.fiveshot").read_bytes()
    assert not Path("-").exists()
    status, printed, _ = run("export", model, "-", "--json")
    assert (status, "both write to standard output" in json.loads(printed)["error"]["message"]) == (1, True)


def test_export_as_a_page(run: Run, answer: Any, model: Path) -> None:
    found = answer("export", model, "--web", "site", "--title", "Birds & co")
    assert (found["folder"], "index.html" in found["files"]) == ("site", True)
    assert "<title>Birds &amp; co</title>" in Path("site/index.html").read_text(encoding="utf-8")
    assert json.loads(Path("site/model.json").read_text(encoding="utf-8"))["classes"] == ["kite", "owl", "wren"]
    assert "--directory site" in run("export", model, "--web", "site")[1]


def test_export_to_onnx(answer: Any, model: Path) -> None:
    import onnxruntime

    wanted = ["birds.onnx", "birds.json", "labels.txt"]
    assert answer("export", model, "birds.onnx", "--onnx")["files"] == wanted
    labels = Path("labels.txt").read_text(encoding="utf-8").splitlines()
    assert labels == ["kite", "owl", "wren"]
    pixels = np.asarray(Image.open("test/kite/0.png").convert("RGB"), np.float32)[2:162, 5:165]
    images = (pixels / 255).transpose(2, 0, 1)[None]
    session = onnxruntime.InferenceSession("birds.onnx")
    probabilities, _, _ = session.run(None, {"images": images})
    assert labels[int(probabilities[0].argmax())] == "kite"
    answer("export", model, "birds.onnx", "--onnx", "--all-views")
    (taken,) = onnxruntime.InferenceSession("birds.onnx").get_inputs()
    assert taken.shape == ["n", 1, 3, 160, 160]


def test_a_backbone_is_adapted_later(run: Run, answer: Any, model: Path, material: Path) -> None:
    status, _, said = run("retune", model)
    assert status == 1
    assert "kept" in said
    answer("new", "kept", "--backbone", TINY, "--weights", material / "tiny.safetensors", "--keep-photos")
    answer("learn", "kept", "photos")
    done = answer("retune", "kept", "--set", "epochs=1", "--set", "batch_size=8", "--device", "cpu")
    assert (done["classes"], done["epochs"]) == (3, 1)
    assert answer("show", "kept")["adapter"] is True
    assert answer("predict", "kept", "test/owl/0.png")["predictions"][0]["label"] == "owl"


def test_photos_are_shown_removed_and_moved(run: Run, answer: Any, model: Path) -> None:
    shown = answer("show", model, "owl")
    ids = [photo["id"] for photo in shown["photos"]]
    assert (shown["class"]["name"], shown["class"]["photos"]) == ("owl", len(ids))
    status, printed, _ = run("show", model, "owl")
    assert status == 0
    assert [line.split()[0] for line in printed.splitlines()[1:]] == ids
    assert "when left out" in printed
    assert answer("move", model, *ids[:2], "--to", "barn owl")["counts"] == {"owl": len(ids) - 2, "barn owl": 2}
    assert "barn owl" in names(answer, model)
    status, printed, _ = run("remove", model, ids[2])
    assert (status, printed.splitlines()[-1]) == (0, f"bring it back with: fiveshot undo {model}")
    assert [photo["id"] for photo in answer("show", model, "owl")["photos"]] == ids[3:]
    assert run("move", model, ids[0], "--to", "wren", "--of", "owl")[0] == 1
    answer("undo", model)
    answer("undo", model)
    assert answer("show", model, "owl") == shown
    assert answer("remove", model, ids[0], "--for-good")["for_good"]
    assert run("undo", model)[0] == 1
    assert run("remove", model, *ids[1:])[0] == 1  # the last ones
    assert run("remove", model, "owl")[0] == 1
    assert run("show", model, "eagle")[0] == 1
    assert run("learn", model, "none of these", "strange")[0] == 1


def test_a_class_may_be_called_as_a_folder_is(answer: Any, model: Path, tmp_path: Path) -> None:
    shutil.copytree("strange", tmp_path / "gray" / "dark")
    for name, photos in (("gray/dark", "gray/dark"), ("gray", "gray/dark/1.png"), ("strange", "gray/dark")):
        assert answer("learn", model, name, photos)["classes"][0]["name"] == name


def test_photos_are_named_by_the_files_that_were_learned(run: Run, answer: Any, model: Path) -> None:
    before = {photo["sha256"]: photo["id"] for photo in answer("show", model, "owl")["photos"]}
    file = Path("photos/owl/3.png")
    own = before[hashlib.sha256(file.read_bytes()).hexdigest()]
    assert answer("move", model, file, "--to", "wren")["ids"] == [own]
    assert answer("remove", model, file, "p1")["ids"] == [own, "p1"]
    status, _, said = run("remove", model, "strange/0.png")
    assert status == 1
    assert "strange/0.png was never learned" in said
    assert run("remove", model, "photos/owl/99.png")[0] == 1
    shutil.copy(file, "p2")  # an id is an id, whatever files there are
    assert answer("remove", model, "p2")["ids"] == ["p2"]


@pytest.mark.parametrize(
    "change",
    [
        ("correct", "strange/0.png", "Kitte"),
        ("move", "p8", "--to", "Kitte"),
        ("learn", "Kitte", "strange/0.png", "--add"),
        ("sort", "strange", "--name", "0=Kitte"),
    ],
)
def test_a_class_that_a_misspelled_name_has_made_is_noted(
    run: Run, answer: Any, model: Path, change: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    verb, *arguments = change
    status, _, said = run(verb, model, *arguments)
    assert status == 0
    assert f"'Kitte' is a new class; if you meant 'kite', undo it with: fiveshot undo {model}" in said
    answer("undo", model)
    for name in ("kite", "magpie"):  # known, or not like any that is
        _, _, said = run(verb, model, *[part.replace("Kitte", name) for part in arguments])
        assert "is a new class" not in said
        answer("undo", model)


def test_answers_are_corrected(run: Run, answer: Any, model: Path) -> None:
    photo = "strange/0.png"
    assert run("show", model, "none of these")[1] == "none of these: 0 photos\n"
    first = answer("correct", model, photo, "barn owl")
    assert (first["action"], first["counts"]) == ("correct", {"barn owl": 1})
    assert answer("correct", model, photo, "wren")["counts"] == {"barn owl": 0, "wren": 8}
    said = run("correct", model, photo, "wren")[1]
    assert said == "1 photo (p22): wren already, so nothing was changed\nwren: 8 photos now\n"
    assert answer("learn", model, "--none", photo, "strange/1.png")["counts"] == {"none of these": 2, "wren": 7}
    assert answer("show", model)["negatives"] == 2
    assert answer("show", model, "None of these")["class"]["photos"] == 2
    listed = run("show", model, "none of these")[1].splitlines()
    assert (listed[0], [line.split()[0] for line in listed[1:]]) == ("none of these: 2 photos", ["p22", "p23"])
    assert names(answer, model) == ["kite", "owl", "wren"]
    assert answer("learn", model, "--none", "strange")["counts"] == {"none of these": 5}
    assert [entry["action"] for entry in answer("history", model, "--limit", 4)["entries"]] == [
        "none", "none", "correct", "correct"
    ]  # fmt: skip
    assert run("undo", model)[1] == "undone: learn none of these (3 photos)\n"
    for _ in range(3):
        answer("undo", model)
    assert answer("show", model)["negatives"] == 0
    assert run("learn", model, "--none", "--add", photo)[0] == 1
    assert run("learn", model, "owl", photo, "--none")[0] == 1  # no such photo


def test_a_review_shows_asks_and_applies(run: Run, answer: Any, model: Path) -> None:
    answer("learn", model, "wren", "test/owl/0.png", "--add")
    found = answer("review", model)["review"]
    (mixed,) = [one for one in found["suggestions"] if one["kind"] == "mixed-up"]
    assert (mixed["label"], mixed["to"]) == ("wren", "owl")
    status, printed, _ = run("review", model)
    assert status == 0
    assert f"{mixed['photo']} ({mixed['name']}) of wren: move to owl" in printed
    (head,) = [line for line in printed.splitlines() if line.startswith("class ")]
    assert head.split("   (")[0].split("  ")[-5:] == ["left out", "expected", "with 1 more", "2 more", "5 more"]
    for one in found["classes"]:
        (row,) = [line for line in printed.splitlines() if line.startswith(f"{one['name']} ")]
        shares = [one["accuracy"], *one["expected"]]
        assert row.split()[2::2] == [f"{100 * share:.0f}" for share in shares]
    assert f"fiveshot review {model} --apply mixed-up" in printed
    status, printed, said = run("review", model, "--apply", "mixed-up")  # nobody to ask
    assert (status, "--yes" in said) == (1, True)
    assert answer("show", model, "wren")["class"]["photos"] == 8
    assert answer("review", model, "--apply", "mixed-up", "--yes")["applied"]["counts"] == {"wren": 7, "owl": 8}
    assert answer("review", model, "--apply", "mixed-up", "--yes")["applied"] is None
    answer("undo", model)
    assert answer("review", model, "--keep", mixed["photo"])["kept"] == [mixed["photo"]]
    assert mixed["photo"] not in [one["photo"] for one in answer("review", model)["review"]["suggestions"]]
    assert run("review", model, "--keep", "p1")[0] == 1
    answer("undo", model)
    status, printed, said = run("review", model, "--keep", mixed["photo"], "--keep", "p1")  # all or none
    assert (status, printed, "nothing was kept" in said) == (1, "", True)
    assert mixed["photo"] in [one["photo"] for one in answer("review", model)["review"]["suggestions"]]
    assert run("review", model, "--apply", "boring")[0] == 1


def test_what_is_not_firm_is_shown_and_not_applied(run: Run, answer: Any, model: Path) -> None:
    for photo in answer("show", model, "owl")["photos"][2:]:
        answer("remove", model, photo["id"])
    answer("learn", model, "wren", "test/owl/0.png", "--add")  # two owls are too few to be sure
    (mixed,) = [one for one in answer("review", model)["review"]["suggestions"] if one["kind"] == "mixed-up"]
    assert (mixed["to"], mixed["firm"]) == ("owl", False)
    printed = run("review", model)[1]
    advice = "look at this, perhaps move to owl; 2 of the 5 nearest photos are of "
    assert f"{mixed['photo']} ({mixed['name']}) of wren: {advice}" in printed
    assert "--apply mixed-up" not in printed
    status, printed, said = run("review", model, "--apply", "mixed-up", "--yes")
    assert (status, "the model did not change" in printed, "left for you to decide" in said) == (0, True, True)
    assert answer("show", model, "wren")["class"]["photos"] == 8


def test_what_was_moved_by_hand_is_not_suggested_again(answer: Any, model: Path) -> None:
    answer("learn", model, "wren", "test/owl/0.png", "--add")
    (mixed,) = [one for one in answer("review", model)["review"]["suggestions"] if one["kind"] == "mixed-up"]
    answer("move", model, mixed["photo"], "--to", "kite")
    suggested = answer("review", model)["review"]["suggestions"]
    assert mixed["photo"] not in [one["photo"] for one in suggested]
    again = answer("review", model, "--kept")["review"]["suggestions"]
    assert mixed["photo"] in [one["photo"] for one in again]


def test_classes_are_joined(run: Run, answer: Any, model: Path) -> None:
    status, _, said = run("rename", model, "owl", "wren")
    assert (status, "--all-of owl --to wren" in said) == (1, True)
    done = answer("move", model, "--all-of", "owl", "--to", "wren")
    assert (len(done["ids"]), done["counts"]) == (7, {"owl": 0, "wren": 14})
    assert names(answer, model) == ["kite", "wren"]
    printed = run("move", model, "--all-of", "kite", "--to", "wren")[1].splitlines()
    assert printed[1:] == ["kite: gone, as it has no photos left", "wren: 21 photos now", printed[-1]]
    assert printed[-1] == f"take it back with: fiveshot undo {model}"
    answer("undo", model)
    answer("undo", model)
    assert names(answer, model) == ["kite", "owl", "wren"]
    assert run("move", model, "--all-of", "owl", "--to", "hawk")[0] == 1
    assert run("move", model, "p1", "--all-of", "owl", "--to", "wren")[0] == 1
    assert run("move", model, "--to", "wren")[0] == 1


def test_predictions_say_why(run: Run, answer: Any, model: Path) -> None:
    (one,) = answer("predict", model, "photos/owl/0.png", "--why")["predictions"]
    assert [near["label"] for near in one["why"]] == ["owl"] * 3
    assert one["why"][0]["likeness"] == pytest.approx(1.0, abs=1e-5)
    assert answer("predict", model, "photos/owl/0.png")["predictions"][0]["why"] == []
    printed = run("predict", model, "photos/owl/0.png", "--why")[1]
    assert f"  like {one['why'][0]['id']} (0.png) of owl: 1.00" in printed.splitlines()


def test_a_folder_without_labels_is_sorted_and_named(
    run: Run, answer: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mixed").mkdir()
    shutil.copytree("test/owl", "mixed/owl")
    shutil.copytree("strange", "mixed/strange")
    (tmp_path / "mixed" / "notes.jpg").write_text("nothing")
    found = answer("sort", model, "mixed")["sorting"]
    assert {found["photos"][one["photo"]]: one["label"] for one in found["known"]}.items() >= {
        ("mixed/owl/0.png", "owl"),
        ("mixed/owl/1.png", "owl"),
    }
    assert [one["name"] for one in found["bad"]] == ["mixed/notes.jpg"]
    strange = [n for n, name in enumerate(found["photos"]) if "strange" in name]
    status, printed, said = run("sort", model, "mixed")
    assert status == 0
    assert "7 photos: " in printed
    assert "left out: mixed/notes.jpg" in said
    assert answer("sort", model, "mixed", "--page", "sorted.html")["page"] == "sorted.html"
    assert Path("sorted.html").read_text(encoding="utf-8").count("data:image/jpeg") >= 7
    assert run("sort", model, "mixed", "--page", "nowhere/sorted.html")[0] == 1
    given = [option for number in strange for option in ("--name", f"{number}=gray")]
    learned = answer("sort", model, "mixed", *given)["learned"]
    assert [(one["name"], one["photos"]) for one in learned] == [("gray", 5)]
    assert "gray" in names(answer, model)
    answer("undo", model)
    placed = answer("sort", model, "mixed", "--into", "sorted", *given)["into"]
    assert (placed["way"], placed["folders"]["gray"]) == ("copy", 5)
    assert len(list(Path("sorted/gray").iterdir())) == 5
    assert len(list(Path("mixed/strange").iterdir())) == 5
    answer("undo", model)
    assert run("sort", model, "mixed", "--by", "move")[0] == 1  # for nothing
    assert run("sort", model, "mixed", "--name", "g99=gray")[0] == 1
    assert run("sort", model, "mixed", "--name", "gray")[0] == 1
    assert run("sort", model, "mixed", "--ask")[0] == 1  # nobody to ask
    assert run("sort", model, "nowhere")[0] == 1


def test_mistakes_are_shown_as_pictures(run: Run, answer: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "exam" / "<b>wren").mkdir(parents=True)
    shutil.copytree("test/owl", "exam/owl")
    for number in range(2):
        shutil.copy(f"test/owl/{number}.png", f"exam/<b>wren/{number}.png")
    answer("rename", model, "wren", "<b>wren")
    found = answer("evaluate", model, "exam", "--mistakes", "mistakes.html")
    assert found["mistakes"] == "mistakes.html"
    assert [one["shown_as"] for one in found["wrong"]] == ["owl", "owl"]
    assert found["wrong"][0]["why"][0]["label"] == "owl"
    page = Path("mistakes.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/jpeg;base64,') == 4  # two mistakes, each beside a learned photo
    assert "<b>wren" not in page
    assert "&lt;b&gt;wren" in page
    assert run("evaluate", model, "exam", "--mistakes", "nowhere/mistakes.html")[0] == 1


def test_a_word_in_the_place_of_a_number_names_the_option(run: Run, model: Path) -> None:
    status, _, said = run("predict", model, "test/owl/0.png", "--top", "many")
    assert status == 2
    assert "Invalid value for '--top'" in said


def test_a_second_look_is_shown_as_pictures(run: Run, answer: Any, model: Path) -> None:
    answer("learn", model, "wren", "test/owl/0.png", "--add")
    answer("rename", model, "owl", "<b>it's an owl")
    found = answer("review", model, "--page", "review.html")
    assert found["page"] == "review.html"
    (mixed,) = [one for one in found["review"]["suggestions"] if one["kind"] == "mixed-up"]
    page = Path("review.html").read_text(encoding="utf-8")
    beside = [one["beside"] for one in found["review"]["suggestions"]]
    told = [one["beside"] for pair in found["review"]["pairs"] for one in pair["photos"]]
    figures = [*beside, *told]
    assert page.count('<img src="data:image/jpeg;base64,') == 2 * len(figures) - figures.count(None)
    assert "<b>" not in page
    commands = [re.sub("</?span>", "", one) for one in re.findall("<code>(.*?)</code>", page)]
    typed = [shlex.split(html.unescape(one))[1:] for one in commands]
    assert ["move", str(model), mixed["photo"], "--to", mixed["to"]] in typed
    assert f"{mixed['photo']} ({mixed['name']})" in page
    _, printed, _ = run("review", model)
    assert f"fiveshot review {model} --page review.html" in printed
    assert run("review", model, "--page", "nowhere/review.html")[0] == 1


def test_names_of_files_are_shown_and_can_be_left_out(run: Run, answer: Any, model: Path) -> None:
    photos = answer("show", model, "owl")["photos"]
    assert [Path(one["name"]).suffix for one in photos] == [".png"] * len(photos)
    _, printed, _ = run("show", model, "owl")
    assert f"{photos[0]['id']}  {photos[0]['name']}  " in printed
    assert "file names are kept" in run("show", model)[1]
    (said,) = answer("predict", model, "test/owl/0.png", "--why")["predictions"]
    near = said["why"][0]
    assert (
        f"  like {near['id']} ({near['name']}) of {near['label']}: "
        in run("predict", model, "test/owl/0.png", "--why")[1]
    )
    assert answer("set", model, "names", "off") == {"name": "names", "names": False}
    assert run("history", model, "--limit", 1)[1].endswith(" set names off (before: on)\n")
    assert {one["name"] for one in answer("show", model, "owl")["photos"]} == {None}
    assert "file names are not kept" in run("show", model)[1]
    assert run("set", model, "names", "perhaps")[0] == 1
    assert answer("new", "without", "--no-names")["names"] is False


def test_the_rate_of_false_rejections_is_changed(run: Run, answer: Any, model: Path) -> None:
    assert answer("new", "other", "--false-rejection", "2.5 %")["false_rejection"] == 0.025
    assert answer("new", "usual")["false_rejection"] == 0.05
    now = answer("set", model, "false-rejection", "20%")
    assert (now["rate"], now["photos"]) == (0.2, 21)
    assert answer("show", model)["false_rejection"] == 0.2
    status, printed, _ = run("set", model, "false-rejection", "0.02")
    assert (status, printed.splitlines()[0]) == (0, f"{model}: 2.0 % false rejections")
    assert run("history", model, "--limit", 1)[1].endswith(" set false-rejection 2.0 % (before: 20.0 %)\n")
    assert run("undo", model)[1] == "undone: set false-rejection 2.0 % (before: 20.0 %)\n"
    assert answer("show", model)["false_rejection"] == 0.2
    assert answer("set", model, "wrong-answers", "10%")["rate"] == answer("show", model)["wrong_answers"] == 0.1
    assert run("undo", model)[1] == "undone: set wrong-answers 10.0 % (before: 5.0 %)\n"
    assert run("set", model, "false-rejection", "much")[0] == 1
    assert run("set", model, "false-rejection", "200%")[0] == 1
    assert run("set", model, "colour", "2%")[0] == 2
