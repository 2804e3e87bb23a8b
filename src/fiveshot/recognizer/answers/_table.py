"""Answers in a file: CSV for spreadsheets, lines of JSON for programs, Parquet for data frames.

A file grows while photos are answered. After an interruption it is continued: its photos are not answered again,
and an incomplete last line is removed first.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from fiveshot.data import Box, Photo
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.storage import FilePath, atomic_path
from fiveshot.values import Prediction, to_json

MARK = b"\xef\xbb\xbf"  # by which some spreadsheets know that text is UTF-8
# What begins a formula in a spreadsheet: a file called =cmd|... must not become one.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GROUP = 20_000  # rows of one part of a Parquet file
Key = int


def model_mark(snapshot: Snapshot) -> str:
    """Return the mark of answers: the model and its state."""
    text = json.dumps([snapshot.manifest.backbone.fingerprint, snapshot.state, snapshot.classes])
    return f"{snapshot.state}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def open_table(
    file: FilePath, snapshot: Snapshot, *, top: int, overwrite: bool = False, mark: bool = False
) -> AnswerTable:
    """Open a file for answers in the format of its suffix; continue an existing file.

    Parameters
    ----------
    file : str or path
        A name that ends in ``.csv``, ``.jsonl`` or ``.parquet``.
    snapshot : Snapshot
        The state of the model that answers.
    top : int
        How many candidates are named.
    overwrite : bool
        Whether to replace an existing file.
    mark : bool
        Whether CSV begins with the mark of UTF-8 that some spreadsheets need.

    Returns
    -------
    AnswerTable
        The file, to be closed.

    Raises
    ------
    InputError
        If the file was not written by this model in this state (code ``other_answers``), or is not one of these.
    """
    path = Path(file)
    kinds = {".csv": CsvTable, ".jsonl": LineTable, ".parquet": ParquetTable}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise InputError(
            f"answers cannot be written to {path}", hint=f"end its name in {', '.join(kinds)}", code="bad_suffix"
        )
    if mark and kind is not CsvTable:
        raise InputError("a mark of UTF-8 is for .csv", hint="leave it out (--utf8-mark)", code="unused_option")
    return kind(path, model_mark(snapshot), top, overwrite=overwrite, mark=mark)


class AnswerTable:
    """A file of answers, one row for each photo or part of one."""

    def __init__(self, path: Path, model: str, top: int, *, overwrite: bool, mark: bool) -> None:
        self.path, self.model, self.top = path, model, top
        self.grows = self.place()
        self.done: set[Key] = set()
        self.earlier = 0  # rows that were there before
        self._end = 0  # of what is read of the file
        try:
            if overwrite:
                self.grows.unlink(missing_ok=True)
            existed = self.grows.exists()
            self._file: IO[bytes] = self.grows.open("r+b" if existed else "x+b")
        except OSError as error:
            raise self._failed(error) from error
        try:
            if existed:
                self._end = self._whole()
                for key in self.keys():
                    self.done.add(key)
                    self.earlier += 1
                self._file.truncate(self._end)  # after its whole content was found to be ours
            self._file.seek(0, os.SEEK_END)
            if not self._file.tell():
                self._write((MARK if mark else b"") + self.head())
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, photo: Photo) -> bool:
        return _key(photo.name, "" if photo.box is None else str(photo.box)) in self.done

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Write answers; when this returns, they are with the operating system."""
        self._write(b"".join(self.row(one) for one in predictions))

    def close(self) -> None:
        """Close the file, so that it can be continued."""
        self._file.close()

    def finish(self) -> None:
        """Close the complete file."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self._file.close()

    def place(self) -> Path:
        """Return the file that grows."""
        return self.path

    def head(self) -> bytes:
        """Return the beginning of a file."""
        return b""

    def beginnings(self) -> tuple[bytes, ...]:
        """Return the possible beginnings of a file."""
        return self.head(), MARK + self.head()

    def row(self, one: Prediction) -> bytes:
        """Return one answer."""
        raise NotImplementedError

    def keys(self) -> Iterator[Key]:
        """Yield the photos of the answers in the file; refuse answers of another model."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """Yield the text of the file."""
        self._file.seek(0)
        while self._file.tell() < self._end and (line := self._file.readline()):
            try:
                yield line.decode("utf-8-sig")
            except UnicodeDecodeError:
                raise self.not_ours("it is not text") from None

    def of_this_model(self, mark: object) -> None:
        """Refuse answers of another model, or of another state of this one."""
        if mark != self.model:
            raise InputError(
                f"{self.grows} has answers of the model in another state ({str(mark)[:40]}, not {self.model})",
                hint="name another file, or delete this one (overwrite=True in Python)",
                code="other_answers",
            )

    def not_ours(self, seen: str) -> InputError:
        """Return the error for a file that was not written here."""
        return InputError(
            f"{self.grows} exists already, and does not contain such answers ({seen})",
            hint="name another file, or delete this one (overwrite=True in Python)",
            code="other_answers",
        )

    def _whole(self) -> int:
        """Return the end of the last complete row; a row may have several lines, in quotes."""
        self._file.seek(0)
        end = position = quotes = 0
        for line in self._file:
            position += len(line)
            quotes += line.count(b'"') if self.path.suffix.lower() == ".csv" else 0
            if line.endswith(b"\n") and quotes % 2 == 0:
                end = position
        if not end and position:  # only a part of the first line: it must be how our files begin
            self._file.seek(0)
            start = self._file.read(1000)
            if not any(begin.startswith(start) or start.startswith(begin) for begin in self.beginnings()):
                raise self.not_ours(f"it begins with {start[:20]!r}")
        return end

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"cannot write {self.grows}: {error.strerror or error}",
            hint="its content is kept; repeat the command to continue",
            code="not_written",
        )


class CsvTable(AnswerTable):
    """CSV, as a spreadsheet opens it; text that would be a formula begins with an apostrophe."""

    FIRST = ("path", "box", "label", "answer", "probability", "familiarity", "most_like")

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        others = (f"runner_up_{n}{part}" for n in range(1, self.top) for part in ("", "_probability"))
        return [*self.FIRST, *others, "model"]

    def head(self) -> bytes:
        """Return the names of the columns."""
        return _csv_line(self.columns)

    def row(self, one: Prediction) -> bytes:
        """Return one answer."""
        candidates = list(one.candidates[: self.top])
        others = [cell for other in candidates[1:] for cell in (other.label, _number(other.probability))]
        others += [""] * (2 * (self.top - 1) - len(others))
        box = "" if one.box is None else str(Box(*one.box))
        numbers = (_number(one.probability), _number(one.familiarity))
        return _csv_line(
            [one.photo, box, one.label or "", one.answer, *numbers, candidates[0].label, *others, self.model]
        )

    def keys(self) -> Iterator[Key]:
        """Yield the photos of the answers in the file."""
        rows = csv.DictReader(self.lines(), strict=True)
        try:
            if rows.fieldnames is None:
                return
            if rows.fieldnames != self.columns:
                seen = ", ".join(rows.fieldnames)
                raise self.not_ours(f"columns {seen[:80]}, wanted are those of top={self.top}")
            for row in rows:
                self.of_this_model(row["model"])
                yield _key(_plain(row["path"]), _plain(row["box"]))
        except csv.Error as error:
            raise self.not_ours(str(error)) from error


class LineTable(AnswerTable):
    """Lines of JSON, one for each answer."""

    def beginnings(self) -> tuple[bytes, ...]:
        """Return the possible beginnings of a file."""
        return (b'{"path": ',)

    def row(self, one: Prediction) -> bytes:
        """Return one answer."""
        values = to_json(one)
        about = {"path": values.pop("photo"), "box": values.pop("box"), **values, "model": self.model}
        return (json.dumps(about) + "\n").encode()

    def keys(self) -> Iterator[Key]:
        """Yield the photos of the answers in the file."""
        for values in self.values():
            self.of_this_model(values["model"])
            yield _key(values["path"], "" if values["box"] is None else str(Box(*values["box"])))

    def values(self) -> Iterator[dict[str, Any]]:
        """Yield the answers in the file."""
        for line in self.lines():
            try:
                values = json.loads(line)
            except ValueError:
                values = None
            if not isinstance(values, dict) or not {"path", "box", "model", "candidates"} <= set(values):
                raise self.not_ours(f"a line {line[:40]!r}")
            yield values


class ParquetTable(LineTable):
    """Parquet, which cannot grow: lines of JSON in a second file until all answers are there."""

    def __init__(self, path: Path, model: str, top: int, *, overwrite: bool, mark: bool) -> None:
        self._arrow = import_extra("pyarrow", extra="parquet")
        if path.exists() and not overwrite:
            raise InputError(
                f"{path} exists already",
                hint="name another file, or delete this one (overwrite=True in Python)",
                code="other_answers",
            )
        super().__init__(path, model, top, overwrite=overwrite, mark=mark)

    def place(self) -> Path:
        """Return the file that grows."""
        return self.path.with_name(f"{self.path.name}.part")

    def finish(self) -> None:
        """Turn the lines into columns; the file is written completely or not at all."""
        parquet, arrow = import_extra("pyarrow.parquet", extra="parquet"), self._arrow
        candidate = arrow.struct([("label", arrow.string()), ("probability", arrow.float64())])
        schema = arrow.schema(
            [
                ("path", arrow.string()),
                ("box", arrow.list_(arrow.float64())),
                ("label", arrow.string()),
                ("answer", arrow.string()),
                ("between", arrow.list_(arrow.string())),
                ("can_be_unknown", arrow.bool_()),
                ("probability", arrow.float64()),
                ("familiarity", arrow.float64()),
                ("threshold", arrow.float64()),
                ("candidates", arrow.list_(candidate)),
                ("model", arrow.string()),
            ]
        )
        self._end = self._file.seek(0, os.SEEK_END)
        with atomic_path(self.path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
            rows: list[dict[str, Any]] = []
            for values in self.values():
                rows.append({**values, "path": _text(values["path"])})
                if len(rows) == _GROUP:
                    writer.write_table(arrow.Table.from_pylist(rows, schema))
                    rows = []
            writer.write_table(arrow.Table.from_pylist(rows, schema))
        self._file.close()
        self.grows.unlink()


def _key(path: str, box: str) -> Key:
    """Return a number for a photo or a part of one: a million of them take little memory."""
    return int.from_bytes(hashlib.blake2b(f"{_text(path)}\0{box}".encode(), digest_size=8).digest(), "big")


def _text(name: str) -> str:
    """Return a name that can be written as UTF-8, whatever bytes the file system has."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _csv_line(cells: Sequence[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([_harmless(cell) for cell in cells])
    return line.getvalue().encode("utf-8", "backslashreplace")


def _harmless(cell: str) -> str:
    """Return text that no spreadsheet treats as a formula.

    >>> _harmless("=1+2"), _plain("'=1+2"), _harmless("owl.jpg")
    ("'=1+2", '=1+2', 'owl.jpg')
    """
    if not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)  # a number may be negative
    except ValueError:
        return f"'{cell}"
    return cell


def _plain(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
