"""Votes over the last photos, lines in a file, and programs that are called without a shell."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from watching import jpeg, until, watching

from fiveshot.data import BytesSource, FileSource, Photo
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer
from fiveshot.values import Candidate, Prediction
from fiveshot.watch.sources import FolderSource, Notices, credentials
from fiveshot.watch.watching import Command, LinesFile, RecentVotes, Report, Vote, Watching, json_line

HOSTILE = (
    "$(touch pwned).jpg",
    "; touch pwned;.jpg",
    "--help.jpg",
    "a'b\"c `id`.jpg",
    "line\nbreak.jpg",
    "{label}.jpg",
)
REPORT = "import json, sys; print(json.dumps([sys.argv[1:], sys.stdin.read()]), file=open('calls', 'a'))"


class Told(list[tuple[str, str, str]]):
    """Notices that were told."""

    def notices(self) -> Notices:
        return Notices(lambda notice: self.append((notice.event, notice.about, notice.message)))


def report(file: Path | None = None, *, label: str | None = "owl", familiarity: float | None = 2.0) -> Report:
    photo = Photo(BytesSource(b"photo", "http://camera/a.jpg") if file is None else FileSource(file, str(file)))
    prediction = Prediction(photo.name, label, 0.9, (Candidate("owl", 0.9),), familiarity, None)
    return Report(photo, prediction, Vote(label, 1, 1, True), True, "2026-01-01T00:00:00.000Z", "inbox")


def python(*words: str, code: str = REPORT) -> str:
    return shlex.join([sys.executable, "-c", code, *words])


def test_a_vote_needs_more_than_half_of_all_frames() -> None:
    ballot = RecentVotes(4)
    votes = [ballot.add(label) for label in ("owl", "owl", "wren", "owl", "wren", "wren", "wren")]
    assert [(vote.label, vote.votes, vote.decided) for vote in votes] == [
        (None, 0, False),
        (None, 0, False),
        (None, 0, False),
        ("owl", 3, True),
        ("owl", 2, True),
        ("wren", 3, True),
        ("wren", 3, True),
    ]


def test_unknown_is_a_vote_and_classes_vote_for_their_groups() -> None:
    ballot = RecentVotes(3)
    labels = ("bird/owl/barn", "bird/owl/tawny", "bird/wren", "bird/kite", None, None)
    votes = [ballot.add(label).label for label in labels]
    assert votes == [None, "bird/owl", "bird/owl", "bird", "bird", None]
    for wrong in (0, 1.5, True, 5000):
        with pytest.raises(InputError):
            RecentVotes(wrong)


def test_lines_hold_any_name_and_no_infinity() -> None:
    line = json_line(report(Path("a\udcff\n\x7f.jpg"), familiarity=None).as_dict())
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["photo"] == "a\udcff\n\x7f.jpg"
    assert json.loads(line)["familiarity"] is None


def test_lines_are_appended_and_a_full_disk_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, file = Told(), tmp_path / "seen.jsonl"
    notices, lines = told.notices(), LinesFile(file)
    lines.write({"number": 1}, notices)
    opened = LinesFile._open
    monkeypatch.setattr(LinesFile, "_open", lambda _: Path("/dev/full").open("a"))  # noqa: SIM115
    for number in (2, 3):
        lines.write({"number": number}, notices)
    monkeypatch.setattr(LinesFile, "_open", opened)
    lines.write({"number": 4}, notices)
    assert [json.loads(line)["number"] for line in file.read_text().splitlines()] == [1, 4]
    assert [(event, about) for event, about, _ in told] == [("trouble", "out"), ("recovered", "out")]
    assert os.strerror(errno.ENOSPC) in told[0][2]
    with pytest.raises(StorageError):
        LinesFile(tmp_path / "no" / "folder.jsonl")


def test_hostile_names_are_one_argument(
    recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    names = [*map(os.fsencode, HOSTILE), b"odd\xff.jpg"]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(inbox), name))).write_bytes(jpeg("red"))  # noqa: PTH118
    how = Watching(command=Command(python("{photo}", "saw={label} {answer}", "{x y}")), limit=len(names))
    source = FolderSource(inbox, existing=True, settle=0.1)
    with watching(recognizer, source, how) as watched:
        until(lambda: len(watched.seen) == len(names), 60)
    calls = [json.loads(line) for line in Path("calls").read_text().splitlines()]
    assert sorted(call[0][0] for call in calls) == sorted(str(inbox / os.fsdecode(name)) for name in names)
    assert {tuple(call[0][1:]) for call in calls} == {("saw=red class", "{x y}")}
    assert all(json.loads(call[1])["photo"] == call[0][0] for call in calls)
    assert not (tmp_path / "pwned").exists()
    assert watched.notices == []


def test_placeholders_are_not_filled_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Command(python("{label}")).run(report(label="{photo}"), Told().notices())
    assert json.loads(Path("calls").read_text())[0] == ["{photo}"]


def test_a_snapshot_has_a_file_while_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copy = "import pathlib, sys; pathlib.Path('copy').write_bytes(pathlib.Path(sys.argv[1]).read_bytes())"
    Command(python("{photo}", code=f"{copy}; pathlib.Path('name').write_text(sys.argv[1])")).run(
        report(), Told().notices()
    )
    assert Path("copy").read_bytes() == b"photo"
    assert not Path(Path("name").read_text()).exists()


def test_a_program_that_fails_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = Told()
    notices = told.notices()
    command = Command(python(code="import pathlib, sys; sys.exit(3 * pathlib.Path('fail').exists())"))
    Path("fail").touch()
    for _ in range(3):
        command.run(report(), notices)
    Path("fail").unlink()
    command.run(report(), notices)
    command.run(report(), notices)
    assert [(event, about) for event, about, _ in told] == [("trouble", "command"), ("recovered", "command")]


def test_a_program_that_hangs_is_stopped_with_all_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = Told()
    program = shlex.join(["sh", "-c", "sleep 600 & echo $! > pid; sleep 600"])
    Command(program, timeout=3).run(report(), told.notices())
    assert [event for event, _, _ in told] == ["trouble"]
    pid = int(Path("pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


@pytest.mark.parametrize("text", ["", "echo 'a", "echo {lable}", "echo {}", "no-such-program-anywhere {label}"])
def test_programs_that_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        Command(text)


def test_only_a_change_calls_the_program(
    recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbox").mkdir()
    how = Watching(command=Command(python("{vote}")), on_change=True, out=Path("seen.jsonl"))
    with watching(recognizer, FolderSource(tmp_path / "inbox", settle=0.1), how) as watched:
        for number, name in enumerate(["red", "red", "blue", "blue", "red"], 1):
            (tmp_path / "inbox" / f"{number}.jpg").write_bytes(jpeg(name, number))
            until(lambda number=number: len(watched.seen) == number)
    calls = [json.loads(line)[0] for line in Path("calls").read_text().splitlines()]
    assert calls == [["red"], ["blue"], ["red"]]
    lines = [json.loads(line) for line in Path("seen.jsonl").read_text().splitlines()]
    assert [line["changed"] for line in lines] == [True, False, True, False, True]


def test_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("ann:a:b \nmore\n")
    assert credentials(None, "NAME") is None
    monkeypatch.setenv("NAME", "x:y")
    assert credentials(str(file), "NAME") == ("ann", "a:b")
    assert credentials(None, "NAME") == ("x", "y")
    for text in (b"ann", b":b", b"\xff:\xff"):
        file.write_bytes(text)
        with pytest.raises(InputError):
            credentials(str(file), "NAME")
    with pytest.raises(StorageError):
        credentials(str(tmp_path / "none"), "NAME")
