"""Make the directory of a model: complete, or not at all."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fiveshot.errors import StorageError
from fiveshot.recognizer.base_file import file_sha256, write_base
from fiveshot.recognizer.change import timestamp
from fiveshot.recognizer.class_record import ClassRecord
from fiveshot.recognizer.folder import write_manifest_file
from fiveshot.recognizer.history import record
from fiveshot.recognizer.manifest import Manifest
from fiveshot.recognizer.rows import insert_class
from fiveshot.recognizer.schema import DATABASE, create_database, storage_error
from fiveshot.statistics import NO_CLASSES, ClassStatistics
from fiveshot.storage import atomic_path, confirm_place, part_beside


def create_model(
    path: str | os.PathLike[str],
    manifest: Manifest,
    *,
    base: ClassStatistics = NO_CLASSES,
    adapter: str | os.PathLike[str] | None = None,
    classes: Iterable[ClassRecord] = (),
    action: str = "create",
) -> Manifest:
    """Write a model to a directory that does not exist yet, or is empty, and return its manifest.

    It is made beside its place and moved there when it is complete.
    """
    target = free_folder(path)
    work = part_beside(target)
    try:
        work.mkdir()
        complete = _fill(work, manifest, base, adapter, classes, action)
        work.replace(target)
    except StorageError:
        raise
    except sqlite3.Error as error:
        raise storage_error(target / DATABASE, error, afterwards="nothing was left behind") from error
    except OSError as error:
        raise StorageError(f"cannot make {target}: {error.strerror or error}; nothing was left behind") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    confirm_place(target)
    return complete


def free_folder(path: str | os.PathLike[str]) -> Path:
    """Return the place of a new model, or say why it cannot be there."""
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise StorageError(f"cannot make {target}: the folder {target.parent} does not exist; create it first")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StorageError(f"{target} exists already; choose another name, or remove it first")
    return target


def place_adapter(folder: Path, adapter: str | os.PathLike[str]) -> tuple[str, str]:
    """Copy an adapter into the folder of a model; return the name of the file there, and its SHA-256."""
    content = file_sha256(Path(adapter))
    name = f"adapter-{content[:16]}.safetensors"
    with atomic_path(folder / name) as temporary:
        shutil.copyfile(adapter, temporary)
    return name, content


def _fill(
    work: Path,
    manifest: Manifest,
    base: ClassStatistics,
    adapter: str | os.PathLike[str] | None,
    classes: Iterable[ClassRecord],
    action: str,
) -> Manifest:
    if adapter is not None:
        name, content = place_adapter(work, adapter)
        backbone = replace(manifest.backbone, adapter=name, adapter_sha256=content)
        manifest = replace(manifest, backbone=backbone)
    manifest = manifest.with_base(write_base(work, base))
    text = manifest.to_toml()
    with closing(create_database(work / DATABASE)) as connection:
        at = timestamp()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO meta VALUES (?, ?)", [("state", "1"), ("manifest", text)])
        for one in classes:
            insert_class(connection, one, state=1)
        record(connection, action, at=at, undoable=False)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    write_manifest_file(work, text)
    return manifest
