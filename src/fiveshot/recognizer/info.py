"""The description of a model: classes, sizes, and how it was made."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from fiveshot.core.labels import python_labels
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.recognition._held_out import leaving_of
from fiveshot.recognizer.recognition.rejection import thresholds_note
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.contents import Contents, StoredClass
from fiveshot.recognizer.store.rows import PhotoFacts, count_pictures, photo_id
from fiveshot.values import ClassInfo, ModelInfo, PhotoInfo
from fiveshot.work import one_thread


def photo_infos(snapshot: Snapshot, row: StoredClass, facts: Iterable[PhotoFacts]) -> list[PhotoInfo]:
    """Describe the photos of a stored class, from ``photo_facts``."""
    scores = {} if row.name == NONE else _left_out_scores(snapshot, row)
    return [
        PhotoInfo(
            photo_id(number),
            row.name,
            added,
            sha256,
            *scores.get(number, (None, None)),
            bool(small),
            bool(whole),
            name,
        )
        for number, added, sha256, small, whole, name in facts
    ]


def _left_out_scores(snapshot: Snapshot, row: StoredClass) -> dict[int, tuple[float | None, str | None]]:
    with one_thread():
        leaving = leaving_of(snapshot.head, snapshot.memory, snapshot.contents, {row.name})
        judged = leaving.judge([row.name])[leaving.of(row.name)]
    if not judged.known.any():
        return {}
    strongest = python_labels(leaving.labels[judged.taken_for])
    taken = [None if right else str(label) for right, label in zip(judged.right, strongest, strict=True)]
    return dict(zip(row.photos.ids, zip(judged.share.tolist(), taken, strict=True), strict=True))


def model_info(path: Path, contents: Contents, connection: sqlite3.Connection) -> ModelInfo:
    """Describe a model in one state, without its head."""
    manifest = contents.manifest
    created = dict(connection.execute("SELECT name, created FROM classes"))
    pictures = count_pictures(connection)
    statistics = contents.memory.statistics
    classes = []
    for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True):
        name, row = str(label), contents.by_name.get(str(label))
        is_base = name in contents.base_file
        classes.append(
            ClassInfo(
                name,
                summary.count,
                is_base,
                0 if row is None else len(row.sha256s),
                *(pictures.get(row.id, (0, 0)) if row is not None else (0, 0)),
                created=None if is_base else created.get(name),
            )
        )
    own = [one for one in contents.classes.values() if not one.base]
    taken = sum(one.summary.mean.nbytes + one.summary.factor.nbytes + one.features.nbytes for one in own)
    return ModelInfo(
        path=str(path),
        state=contents.state,
        classes=tuple(classes),
        backbone=manifest.backbone.name,
        adapter=bool(manifest.backbone.adapter),
        negatives=0 if contents.negatives is None else len(contents.negatives.photos.ids),
        width=manifest.backbone.width,
        views=int(manifest.backbone.preprocessing.get("views", 1)),
        head=manifest.head.name,
        keep_photos=manifest.options.keep_photos,
        thumbnails=manifest.options.thumbnails,
        names=manifest.options.names,
        false_rejection=manifest.options.false_rejection,
        wrong_answers=manifest.options.wrong_answers,
        rejection=thresholds_note(contents),
        bytes_on_disk=sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
        bytes_per_class=taken // len(own) if own else 0,
        made_with=manifest.made_with,
        settings=manifest.head.settings,
    )
