"""The head of a model: how it is written down, and how it is made again from that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.errors import StorageError
from fiveshot.heads import make_head
from fiveshot.heads.files import plain_parameters
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest

if TYPE_CHECKING:
    from fiveshot.heads import FewShotHead


def head_record(name: str) -> HeadRecord:
    """Return the record of a head by name."""
    parameters = {key: value for key, value in plain_parameters(make_head(name)).items() if key != "device"}
    return HeadRecord(name, parameters)


def require_statistics_head(name: str) -> None:
    """Refuse a head that needs samples: a model keeps statistics, and derives its head from them alone."""
    head = make_head(name)
    two = class_statistics(head.embed(np.eye(4, dtype=np.float32)), ["a", "a", "b", "b"])
    head.adopt(Memory(NO_CLASSES, two))


def restored_head(record: HeadRecord) -> FewShotHead:
    """Return the head that a manifest describes, unfitted, with its very parameters and settings."""
    head = make_head(record.name)
    own = plain_parameters(head)
    changed = {key: value for key, value in record.parameters.items() if own.get(key, head) != value}
    if any(isinstance(value, list | dict) or key not in own for key, value in changed.items()):
        raise StorageError(
            f"the model was made with another {record.name!r} head ({', '.join(sorted(changed))} differ)",
            hint="use the release that made it, or make a new model",
        )
    head = make_head(record.name, **changed)
    if record.settings:
        try:
            head.apply_settings(record.settings)  # so that it embeds as it did, also before it knows a class
        except (LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise _wrong_settings(record.name, error) from error
    return head


def check_width(head: FewShotHead, manifest: Manifest) -> None:
    """Refuse a head whose settings are of other features than the backbone's, before the first photo comes."""
    try:
        head.embed(np.zeros((1, manifest.backbone.width), np.float32))
    except (TypeError, ValueError, RuntimeError) as error:
        raise _wrong_settings(manifest.head.name, error) from error


def _wrong_settings(name: str, error: Exception) -> StorageError:
    return StorageError(
        f"the settings of the {name!r} head are damaged or were changed by hand ({error})",
        hint="restore the model from a copy",
    )
