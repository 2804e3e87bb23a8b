"""Verify a model: the database, the files next to it and every number; repair what can be repaired."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fiveshot.core import ClassStatistics, summarize
from fiveshot.core.scorers import Scorer
from fiveshot.errors import FiveshotError, StorageError
from fiveshot.recognizer.names import NONE, known_name
from fiveshot.recognizer.recognition.snapshot import check_width, restored_head
from fiveshot.recognizer.store._confirmed import CONFIRMED, Confirmed, lost_changes, read_confirmed
from fiveshot.recognizer.store.contents import file_sha256, read_base, same_statistics, state_number
from fiveshot.recognizer.store.folder import TIMEOUT, ModelFolder, orphans
from fiveshot.recognizer.store.manifest import MANIFEST, Manifest, check_folder, read_manifest, read_manifest_text
from fiveshot.recognizer.store.rows import PhotoRecord, Tables, photo_digest, photo_features, summary_from_bytes
from fiveshot.recognizer.store.schema import DATABASE, changed_meanwhile, open_database
from fiveshot.recognizer.store.sightings import check_sightings

Severity = Literal["error", "note"]
Kind = Literal[
    "database", "manifest", "file", "leftover", "erase", "class", "history", "sighting", "lost", "confirmed"
]
COPY = "restore the model from a copy"
SIGHTING = "forget it with: fiveshot sightings MODEL --forget ID"
TRACES = "traces of a forgotten class remain until no process reads an earlier state and the model is opened"
ACCEPTED = "from now on the model continues without them"
REPAIRABLE: tuple[Kind, ...] = ("manifest", "leftover", "erase", "confirmed")  # derived from the database


@dataclass(frozen=True)
class Finding:
    """A problem of a model.

    Attributes
    ----------
    severity : {"error", "note"}
        An error must be repaired before the model can be trusted.
    kind : str
        Where the problem is: database, manifest, file, leftover, erase, class, history, sighting, lost (confirmed
        changes that are missing) or confirmed (the file that notes confirmed changes).
    text, hint : str
        What is wrong, and what to do about it.
    repaired : bool
        Whether it was repaired.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = (birds.path / "model.toml").write_text("edited by hand")
    ...     [(found.severity, found.kind, found.repaired) for found in birds.check(repair=True)]
    [('error', 'manifest', True)]
    """

    severity: Severity
    kind: Kind
    text: str
    hint: str = ""
    repaired: bool = False

    def __str__(self) -> str:
        return f"{self.text}; {self.hint}" if self.hint else self.text


def check_model(path: str | os.PathLike[str], *, repair: bool = False) -> list[Finding]:
    """Verify everything in the directory of a model.

    Parameters
    ----------
    path : str or path
        The directory.
    repair : bool
        Whether to rewrite ``model.toml`` from the database, remove files that a killed process left behind, and
        erase traces of forgotten classes. Data lost from the database can only be restored from a copy. Lost
        changes are reported once more, and then the model continues without them.

    Returns
    -------
    list of Finding
        The problems; empty for a sound model.

    Raises
    ------
    StorageError
        If there is no model in the directory.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import check_model
    >>> folder = tempfile.mkdtemp()
    >>> Recognizer.create(folder).close()
    >>> check_model(folder)
    []
    """
    path = Path(path)
    if not (path / DATABASE).is_file():
        check_folder(path)
    confirmed = read_confirmed(path)
    try:
        connection = open_database(path / DATABASE, readonly=True, timeout=TIMEOUT)
    except FiveshotError as error:
        return [_error("database", error)]
    with closing(connection):
        findings = _findings(connection, path, confirmed)
        if connection.is_outdated():
            raise changed_meanwhile(path / DATABASE)
    if not repair or any(one.kind == "database" for one in findings):
        return findings
    return _repaired(path, findings)


def _findings(connection: sqlite3.Connection, path: Path, confirmed: Confirmed | None) -> list[Finding]:
    try:
        findings = list(_database(connection))
        if findings:
            return findings
        connection.execute("BEGIN")
        notes = dict(connection.execute("SELECT key, value FROM meta"))
        findings += _lost(path, confirmed, notes)
        text = notes["manifest"]
        manifest = Manifest.from_toml(text, where=f"the manifest in {path / DATABASE}")
        findings += _files(path, manifest, text)
        tables = Tables(connection, manifest.backbone.width)
        findings += _statistics(tables, path, manifest)
        findings += _history(tables)
        damaged = check_sightings(connection, manifest.backbone.width)
        findings += [Finding("error", "sighting", text, SIGHTING) for text in damaged]
        if notes.get("unsettled") == "erase":
            findings.append(Finding("note", "erase", TRACES))
    except (sqlite3.Error, FiveshotError, KeyError, ValueError, TypeError) as error:
        return [Finding("error", "database", f"{path / DATABASE} cannot be read ({error})", COPY)]
    return findings


def _database(connection: sqlite3.Connection) -> Iterator[Finding]:
    for (text,) in connection.execute("PRAGMA integrity_check"):
        if text != "ok":
            yield Finding("error", "database", f"{DATABASE} is damaged: {text}", COPY)
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield Finding("error", "database", f"{DATABASE}: row {row} of {table} belongs to no row of {parent}")


def _lost(path: Path, confirmed: Confirmed | None, notes: dict[str, str]) -> Iterator[Finding]:
    if confirmed is None or confirmed.model != notes["id"]:
        text = f"{CONFIRMED} is missing, damaged or of another model, so lost changes would not be noticed"
        yield Finding("error", "confirmed", text, "write it again with: fiveshot check MODEL --repair")
    elif error := lost_changes(path, confirmed, state_number(notes.get("state"))):
        yield _error("lost", error)


def _files(path: Path, manifest: Manifest, text: str) -> Iterator[Finding]:
    try:
        if read_manifest_text(path) != text:
            read_manifest(path)  # says what is damaged
            text = f"{MANIFEST} does not match the database: a change was interrupted, or it was edited"
            yield Finding("error", "manifest", text)
    except FiveshotError as error:
        yield _error("manifest", error)
    adapter = manifest.backbone.adapter
    if adapter and not (path / adapter).is_file():
        yield Finding("error", "file", f"{adapter} is missing", COPY)
    elif adapter and file_sha256(path / adapter) != manifest.backbone.adapter_sha256:
        yield Finding("error", "file", f"{adapter} is damaged (its SHA-256 differs)", COPY)
    weights = manifest.backbone.weights
    if weights and not Path(weights).is_file():
        text = f"the backbone's weights are no longer at {weights}"
        yield Finding("note", "file", text, "open the model with weights=FILE")
    for file in orphans(path, manifest):
        yield Finding("note", "leftover", f"{file.name} is left from an earlier state: a process was killed")


def _statistics(tables: Tables, path: Path, manifest: Manifest) -> Iterator[Finding]:
    head = restored_head(manifest.head)
    check_width(head, manifest)
    base: ClassStatistics | None = None
    try:
        base = read_base(path, manifest.base)
    except FiveshotError as error:
        yield _error("file", error)
    classes = tables.connection.execute("SELECT id, name, base FROM classes ORDER BY id").fetchall()
    for number, name, of_base in classes:
        try:
            if name != NONE and known_name(name) != name:
                raise ValueError("its name is not in normal form")
            if base is not None and bool(of_base) != (name in base):
                raise ValueError("it is wrongly marked as a base class, or the mark is missing")
            _check_class(tables, number, head)
        except (FiveshotError, ValueError, TypeError) as error:
            yield Finding("error", "class", f"class {name!r}: {error}")


def _check_class(tables: Tables, number: int, head: Scorer) -> None:
    record = tables.read_class(number)
    summary = record.summary
    if len(record.photos) != summary.count:
        raise ValueError(f"{summary.count} photos are counted, {len(record.photos)} are stored")
    _check_photos(tables, tables.read_photos(number, originals=True))
    features = photo_features(record.photos)
    if not all(np.isfinite(values).all() for values in (features, summary.mean, summary.factor)):
        raise ValueError("it holds NaN or infinity")
    if not same_statistics(summary, summarize(head.embed(features))):
        raise ValueError("its statistics do not match its photos")


def _check_photos(tables: Tables, photos: Iterator[PhotoRecord]) -> int:
    """Compare photos, one at a time, with their checksums, and return their number."""
    number = 0
    for number, photo in enumerate(photos, 1):  # noqa: B007
        query = "SELECT digest FROM photos WHERE id = ?"
        (checksum,) = tables.connection.execute(query, (photo.id,)).fetchone()
        if photo_digest(photo) != checksum:
            raise ValueError(f"photo {photo.id} is damaged (its checksum differs)")
    return number


def _history(tables: Tables) -> Iterator[Finding]:
    rows = tables.connection.execute(
        "SELECT changes.seq, id, before, photos, kind = 'reduced' FROM changes "
        "JOIN history ON history.seq = changes.seq WHERE undoable AND undone_by IS NULL "
        "AND changes.seq > (SELECT COALESCE(MAX(seq), 0) FROM history WHERE action = 'retune')"
    )
    for seq, number, before, photos, holds in rows:
        try:
            if before is not None:
                summary_from_bytes(photos, before)
            held = tables.read_photos(number, originals=True, owner="held_by")
            if holds and _check_photos(tables, held) != photos:
                raise ValueError("photos of the class are lost")
        except (FiveshotError, ValueError) as error:
            yield Finding("error", "history", f"entry {seq} of the history cannot be undone: {error}")


def _repaired(path: Path, findings: list[Finding]) -> list[Finding]:
    left, hint = [one for one in findings if one.kind not in REPAIRABLE], ""
    try:
        with closing(ModelFolder(path, repair=True)) as folder:
            folder.settle()
            folder.confirm()
        left = [replace(one, hint=ACCEPTED) if one.kind == "lost" else one for one in left]
    except StorageError as error:  # some steps before the erase may have succeeded
        left, hint = check_model(path), f"not repaired: {error}"
    done = [one for one in findings if one.kind in REPAIRABLE and one not in left]
    return [
        *(replace(one, hint="", repaired=True) for one in done),
        *(replace(one, hint=hint) if one.kind in REPAIRABLE else one for one in left),
    ]


def _error(kind: Kind, error: FiveshotError) -> Finding:
    return Finding("error", kind, error.message, error.hint)
