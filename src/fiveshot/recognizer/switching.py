"""Put a tuned model in the place of the one before: features, statistics, adapter and manifest in one step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fiveshot.errors import InputError
from fiveshot.features import Runner
from fiveshot.recognizer.backbone import backbone_record
from fiveshot.recognizer.change import Change
from fiveshot.recognizer.class_record import ClassRecord, number_bytes, photo_digest
from fiveshot.recognizer.creation import place_adapter
from fiveshot.recognizer.making import Learned
from fiveshot.recognizer.rows import update_class

if TYPE_CHECKING:
    from fiveshot.tuning import TuneResult


@dataclass(frozen=True, eq=False)
class Retuned:
    """A model after tuning that has not taken its place yet."""

    result: TuneResult
    runner: Runner
    adapter: Path
    records: tuple[ClassRecord, ...]  # with the new features
    learned: Learned  # the base session with the new features
    state: int  # of the model it was made from


def switch(change: Change, retuned: Retuned) -> None:
    """Put the tuned model in the place of the one before, all of it in one transaction."""
    if change.before.state != retuned.state:
        raise InputError("the model was changed while it was tuned; nothing was switched: tune again")
    for record in retuned.records:
        assert record.id is not None
        update_class(change.connection, record.id, record.summary, state=change.state)
        change.connection.executemany(
            "UPDATE photos SET feature = ?, digest = ? WHERE id = ?",
            [(number_bytes(photo.feature), photo_digest(photo), photo.id) for photo in record.photos],
        )
    # What the history could restore are features of the backbone before: nothing may mix with the new ones.
    change.connection.execute("UPDATE changes SET before = NULL")
    before = change.before.manifest
    name, content = place_adapter(change.folder, retuned.adapter)
    change.written.append(change.folder / name)
    weights = before.backbone.weights or None
    backbone = replace(backbone_record(retuned.runner, weights=weights), adapter=name, adapter_sha256=content)
    change.manifest = replace(
        before, backbone=backbone, head=retuned.learned.head, rejection=retuned.learned.rejection
    )
    if len(change.before.base_file):
        change.base = retuned.learned.base
    change.record("tune", undoable=False, detail={"recipe": retuned.result.recipe.to_json()})
