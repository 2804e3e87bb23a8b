"""The recognizer: a model in a directory that learns a class from five photos, predicts, forgets and ships.

:class:`Recognizer` has the verbs of every day. What is done less often is a function of a model, such as
``review(model)``, ``evaluate(model, folder)`` or ``export_onnx(model, file)``. Each name is imported when it is
used: the command line asks for an error or a name long before it needs a model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer
    from fiveshot.recognizer.adapting import TrainingPhotos, adopt_adapter, training_photos
    from fiveshot.recognizer.advice import check_kinds, review_model
    from fiveshot.recognizer.answers.delivery import Delivered, Delivery, Places
    from fiveshot.recognizer.answers.folders import ClassFolders, Placed, PutBack, Way, put_back
    from fiveshot.recognizer.change import ConflictError, NotErasedError, erase_pending
    from fiveshot.recognizer.checking import Finding, check_model
    from fiveshot.recognizer.correction import NotUndoableError, is_photo_id
    from fiveshot.recognizer.creation import (
        MAY_BE_SEEN,
        BaseWork,
        base_images,
        check_new_model,
        with_held_back,
        with_unseen,
    )
    from fiveshot.recognizer.evaluation import ClassResult, Evaluation, WrongPhoto, evaluate, without_labels
    from fiveshot.recognizer.glance import database_error, database_look, is_model, stored_names, stored_state
    from fiveshot.recognizer.names import NONE, check_name, similar_name, target_name
    from fiveshot.recognizer.photos.embedding import backbone_record, check_openable, refusal
    from fiveshot.recognizer.photos.inputs import (
        SYSTEM_FOLDERS,
        ClassInputs,
        FoundClasses,
        PhotoInputs,
        PhotoStream,
        find_classes,
        find_photos,
    )
    from fiveshot.recognizer.photos.photo import (
        Photo,
        Region,
        Regions,
        class_regions,
        read_boxes,
        regions_in,
        regions_of,
    )
    from fiveshot.recognizer.reading import ModelReader, picture, thumbnails
    from fiveshot.recognizer.recognition.levels import check_sure, levels_of, read_parents, short_name
    from fiveshot.recognizer.recognition.rejection import Rejection, can_reject, fit_rejection, thresholds_note
    from fiveshot.recognizer.recognition.snapshot import Snapshot, check_top, head_record, require_statistics_head
    from fiveshot.recognizer.sharing import export_onnx, export_web, from_pretrained, import_file, push_to_hub
    from fiveshot.recognizer.shipping._merging import MergeReport
    from fiveshot.recognizer.shipping._web import WebExport
    from fiveshot.recognizer.sorting import place_sorted, sort_rows
    from fiveshot.recognizer.store.folder import create_model, free_folder
    from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, Options
    from fiveshot.recognizer.store.rows import PhotoRecord, photo_features, photo_id
    from fiveshot.recognizer.store.schema import LostModelError
    from fiveshot.recognizer.teaching import (
        apply_review,
        correct_seen,
        group_classes,
        keep_photos,
        learn_seen,
        photo_ids,
        review,
    )
    from fiveshot.recognizer.unlabeled import learn_sorted, sort_features, sort_photos

_MODULES = {
    "_recognizer": ("Recognizer",),
    "adapting": (
        "TrainingPhotos",
        "adopt_adapter",
        "training_photos",
    ),
    "advice": (
        "check_kinds",
        "review_model",
    ),
    "answers.delivery": (
        "Delivered",
        "Delivery",
        "Places",
    ),
    "answers.folders": (
        "ClassFolders",
        "Placed",
        "PutBack",
        "Way",
        "put_back",
    ),
    "change": (
        "ConflictError",
        "NotErasedError",
        "erase_pending",
    ),
    "checking": (
        "Finding",
        "check_model",
    ),
    "correction": (
        "NotUndoableError",
        "is_photo_id",
    ),
    "creation": (
        "MAY_BE_SEEN",
        "BaseWork",
        "base_images",
        "check_new_model",
        "with_held_back",
        "with_unseen",
    ),
    "evaluation": (
        "ClassResult",
        "Evaluation",
        "WrongPhoto",
        "evaluate",
        "without_labels",
    ),
    "glance": (
        "database_error",
        "database_look",
        "is_model",
        "stored_names",
        "stored_state",
    ),
    "names": (
        "NONE",
        "check_name",
        "similar_name",
        "target_name",
    ),
    "photos.embedding": (
        "backbone_record",
        "check_openable",
        "refusal",
    ),
    "photos.inputs": (
        "SYSTEM_FOLDERS",
        "ClassInputs",
        "FoundClasses",
        "PhotoInputs",
        "PhotoStream",
        "find_classes",
        "find_photos",
    ),
    "photos.photo": (
        "Photo",
        "Region",
        "Regions",
        "class_regions",
        "read_boxes",
        "regions_in",
        "regions_of",
    ),
    "reading": (
        "ModelReader",
        "picture",
        "thumbnails",
    ),
    "recognition.levels": (
        "check_sure",
        "levels_of",
        "read_parents",
        "short_name",
    ),
    "recognition.rejection": (
        "Rejection",
        "can_reject",
        "fit_rejection",
        "thresholds_note",
    ),
    "recognition.snapshot": (
        "Snapshot",
        "check_top",
        "head_record",
        "require_statistics_head",
    ),
    "sharing": (
        "export_onnx",
        "export_web",
        "from_pretrained",
        "import_file",
        "push_to_hub",
    ),
    "shipping._merging": ("MergeReport",),
    "shipping._web": ("WebExport",),
    "sorting": (
        "place_sorted",
        "sort_rows",
    ),
    "store.folder": (
        "create_model",
        "free_folder",
    ),
    "store.manifest": (
        "HeadRecord",
        "Manifest",
        "Options",
    ),
    "store.rows": (
        "PhotoRecord",
        "photo_features",
        "photo_id",
    ),
    "store.schema": ("LostModelError",),
    "teaching": (
        "apply_review",
        "correct_seen",
        "group_classes",
        "keep_photos",
        "learn_seen",
        "photo_ids",
        "review",
    ),
    "unlabeled": (
        "learn_sorted",
        "sort_features",
        "sort_photos",
    ),
}

__all__ = [
    "MAY_BE_SEEN",
    "NONE",
    "SYSTEM_FOLDERS",
    "BaseWork",
    "ClassFolders",
    "ClassInputs",
    "ClassResult",
    "ConflictError",
    "Delivered",
    "Delivery",
    "Evaluation",
    "Finding",
    "FoundClasses",
    "HeadRecord",
    "LostModelError",
    "Manifest",
    "MergeReport",
    "ModelReader",
    "NotErasedError",
    "NotUndoableError",
    "Options",
    "Photo",
    "PhotoInputs",
    "PhotoRecord",
    "PhotoStream",
    "Placed",
    "Places",
    "PutBack",
    "Recognizer",
    "Region",
    "Regions",
    "Rejection",
    "Snapshot",
    "TrainingPhotos",
    "Way",
    "WebExport",
    "WrongPhoto",
    "adopt_adapter",
    "apply_review",
    "backbone_record",
    "base_images",
    "can_reject",
    "check_kinds",
    "check_model",
    "check_name",
    "check_new_model",
    "check_openable",
    "check_sure",
    "check_top",
    "class_regions",
    "correct_seen",
    "create_model",
    "database_error",
    "database_look",
    "erase_pending",
    "evaluate",
    "export_onnx",
    "export_web",
    "find_classes",
    "find_photos",
    "fit_rejection",
    "free_folder",
    "from_pretrained",
    "group_classes",
    "head_record",
    "import_file",
    "is_model",
    "is_photo_id",
    "keep_photos",
    "learn_seen",
    "learn_sorted",
    "levels_of",
    "photo_features",
    "photo_id",
    "photo_ids",
    "picture",
    "place_sorted",
    "push_to_hub",
    "put_back",
    "read_boxes",
    "read_parents",
    "refusal",
    "regions_in",
    "regions_of",
    "require_statistics_head",
    "review",
    "review_model",
    "short_name",
    "similar_name",
    "sort_features",
    "sort_photos",
    "sort_rows",
    "stored_names",
    "stored_state",
    "target_name",
    "thresholds_note",
    "thumbnails",
    "training_photos",
    "with_held_back",
    "with_unseen",
    "without_labels",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
