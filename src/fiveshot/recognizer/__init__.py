"""The recognizer: a model in a directory that learns a class from five photos, predicts, forgets and ships.

:class:`Recognizer` has the verbs of every day. What is done less often is a function of a model, such as
``review(model)``, ``evaluate(model, folder)`` or ``export_onnx(model, file)``. Each name is imported when it is
used: the command line asks for an error or a name long before it needs a model.

Names in ``__all__`` are for everybody. The others are for the packages of fiveshot above this one, which import
nothing from the modules in here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer
    from fiveshot.recognizer.adapting import adopt_adapter as adopt_adapter
    from fiveshot.recognizer.adapting import training_photos
    from fiveshot.recognizer.advice.evaluation import ClassResult as ClassResult
    from fiveshot.recognizer.advice.evaluation import Evaluation, evaluate
    from fiveshot.recognizer.advice.evaluation import WrongPhoto as WrongPhoto
    from fiveshot.recognizer.advice.evaluation import without_labels as without_labels
    from fiveshot.recognizer.advice.review import check_kinds as check_kinds
    from fiveshot.recognizer.advice.review import review_model as review_model
    from fiveshot.recognizer.answers.delivery import Delivered as Delivered
    from fiveshot.recognizer.answers.delivery import Delivery as Delivery
    from fiveshot.recognizer.answers.delivery import OutputTargets as OutputTargets
    from fiveshot.recognizer.answers.folders import ClassFolders as ClassFolders
    from fiveshot.recognizer.answers.folders import Placed as Placed
    from fiveshot.recognizer.answers.folders import Way as Way
    from fiveshot.recognizer.answers.folders import free_places as free_places
    from fiveshot.recognizer.answers.folders import put_back as put_back
    from fiveshot.recognizer.change import ConflictError, NotErasedError, erase_pending
    from fiveshot.recognizer.checking import Finding, check_model
    from fiveshot.recognizer.correction import is_photo_id as is_photo_id
    from fiveshot.recognizer.creation import MAY_BE_SEEN as MAY_BE_SEEN
    from fiveshot.recognizer.creation import base_images as base_images
    from fiveshot.recognizer.creation import check_new_model as check_new_model
    from fiveshot.recognizer.creation import with_held_back as with_held_back
    from fiveshot.recognizer.glance import database_error as database_error
    from fiveshot.recognizer.glance import database_state as database_state
    from fiveshot.recognizer.glance import is_model as is_model
    from fiveshot.recognizer.glance import stored_names as stored_names
    from fiveshot.recognizer.glance import stored_state as stored_state
    from fiveshot.recognizer.names import NONE
    from fiveshot.recognizer.names import check_name as check_name
    from fiveshot.recognizer.names import similar_name as similar_name
    from fiveshot.recognizer.names import target_name as target_name
    from fiveshot.recognizer.photos.boxes import Region
    from fiveshot.recognizer.photos.boxes import Regions as Regions
    from fiveshot.recognizer.photos.boxes import class_regions as class_regions
    from fiveshot.recognizer.photos.boxes import read_boxes as read_boxes
    from fiveshot.recognizer.photos.boxes import regions_in as regions_in
    from fiveshot.recognizer.photos.boxes import regions_of as regions_of
    from fiveshot.recognizer.photos.embedding import backbone_record as backbone_record
    from fiveshot.recognizer.photos.embedding import check_openable as check_openable
    from fiveshot.recognizer.photos.embedding import photo_record as photo_record
    from fiveshot.recognizer.photos.embedding import refusal as refusal
    from fiveshot.recognizer.photos.inputs import SYSTEM_FOLDERS as SYSTEM_FOLDERS
    from fiveshot.recognizer.photos.inputs import ClassInputs as ClassInputs
    from fiveshot.recognizer.photos.inputs import FoundClasses as FoundClasses
    from fiveshot.recognizer.photos.inputs import PhotoStream as PhotoStream
    from fiveshot.recognizer.photos.inputs import find_classes as find_classes
    from fiveshot.recognizer.photos.inputs import find_photos as find_photos
    from fiveshot.recognizer.reading import ModelReader, picture, thumbnails
    from fiveshot.recognizer.recognition.levels import check_sure as check_sure
    from fiveshot.recognizer.recognition.levels import levels_of as levels_of
    from fiveshot.recognizer.recognition.levels import read_parents as read_parents
    from fiveshot.recognizer.recognition.levels import short_name as short_name
    from fiveshot.recognizer.recognition.rejection import Rejection as Rejection
    from fiveshot.recognizer.recognition.rejection import can_reject as can_reject
    from fiveshot.recognizer.recognition.rejection import fit_rejection as fit_rejection
    from fiveshot.recognizer.recognition.rejection import rejects_other_things as rejects_other_things
    from fiveshot.recognizer.recognition.rejection import thresholds_note as thresholds_note
    from fiveshot.recognizer.recognition.snapshot import Snapshot
    from fiveshot.recognizer.recognition.snapshot import check_top as check_top
    from fiveshot.recognizer.recognition.snapshot import head_record as head_record
    from fiveshot.recognizer.recognition.snapshot import require_statistics_head as require_statistics_head
    from fiveshot.recognizer.sharing import export_onnx, export_web, from_pretrained, import_file, push_to_hub
    from fiveshot.recognizer.shipping._merging import MergeReport
    from fiveshot.recognizer.shipping._web import WebExport
    from fiveshot.recognizer.store.folder import create_model as create_model
    from fiveshot.recognizer.store.folder import free_folder as free_folder
    from fiveshot.recognizer.store.manifest import HeadRecord as HeadRecord
    from fiveshot.recognizer.store.manifest import Manifest as Manifest
    from fiveshot.recognizer.store.manifest import Options as Options
    from fiveshot.recognizer.store.rows import PhotoRecord
    from fiveshot.recognizer.store.rows import photo_features as photo_features
    from fiveshot.recognizer.store.rows import photo_id as photo_id
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
    from fiveshot.recognizer.undo import NotUndoableError
    from fiveshot.recognizer.unlabeled.folders import learn_sorted, sort_features, sort_photos
    from fiveshot.recognizer.unlabeled.sightings import SeenPhoto as SeenPhoto
    from fiveshot.recognizer.unlabeled.sightings import (
        confirm_sightings,
        dismiss_sightings,
        forget_sightings,
        name_sightings,
        sighting_picture,
        sightings,
    )
    from fiveshot.recognizer.unlabeled.sightings import follow_clock as follow_clock
    from fiveshot.recognizer.unlabeled.sightings import group_sightings as group_sightings
    from fiveshot.recognizer.unlabeled.sightings import has_too_many_sightings as has_too_many_sightings
    from fiveshot.recognizer.unlabeled.sightings import keep_sighting as keep_sighting
    from fiveshot.recognizer.unlabeled.sightings import learn_sightings as learn_sightings
    from fiveshot.recognizer.unlabeled.sightings import limit_sightings as limit_sightings
    from fiveshot.recognizer.unlabeled.sightings import recognize_photos as recognize_photos
    from fiveshot.recognizer.unlabeled.sorting import place_sorted
    from fiveshot.recognizer.unlabeled.sorting import sort_rows as sort_rows

_MODULES = {
    "_recognizer": ("Recognizer",),
    "adapting": (
        "adopt_adapter",
        "training_photos",
    ),
    "advice.evaluation": (
        "ClassResult",
        "Evaluation",
        "WrongPhoto",
        "evaluate",
        "without_labels",
    ),
    "advice.review": (
        "check_kinds",
        "review_model",
    ),
    "answers.delivery": (
        "Delivered",
        "Delivery",
        "OutputTargets",
    ),
    "answers.folders": (
        "ClassFolders",
        "Placed",
        "Way",
        "free_places",
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
    "correction": ("is_photo_id",),
    "creation": (
        "MAY_BE_SEEN",
        "base_images",
        "check_new_model",
        "with_held_back",
    ),
    "glance": (
        "database_error",
        "database_state",
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
    "photos.boxes": (
        "Region",
        "Regions",
        "class_regions",
        "read_boxes",
        "regions_in",
        "regions_of",
    ),
    "photos.embedding": (
        "backbone_record",
        "check_openable",
        "photo_record",
        "refusal",
    ),
    "photos.inputs": (
        "SYSTEM_FOLDERS",
        "ClassInputs",
        "FoundClasses",
        "PhotoStream",
        "find_classes",
        "find_photos",
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
        "rejects_other_things",
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
    "undo": ("NotUndoableError",),
    "unlabeled.folders": (
        "learn_sorted",
        "sort_features",
        "sort_photos",
    ),
    "unlabeled.sightings": (
        "SeenPhoto",
        "confirm_sightings",
        "dismiss_sightings",
        "follow_clock",
        "forget_sightings",
        "group_sightings",
        "has_too_many_sightings",
        "keep_sighting",
        "learn_sightings",
        "limit_sightings",
        "name_sightings",
        "recognize_photos",
        "sighting_picture",
        "sightings",
    ),
    "unlabeled.sorting": (
        "place_sorted",
        "sort_rows",
    ),
}

__all__ = [
    "NONE",
    "ConflictError",
    "Evaluation",
    "Finding",
    "LostModelError",
    "MergeReport",
    "ModelReader",
    "NotErasedError",
    "NotUndoableError",
    "PhotoRecord",
    "Recognizer",
    "Region",
    "Snapshot",
    "WebExport",
    "apply_review",
    "check_model",
    "confirm_sightings",
    "correct_seen",
    "dismiss_sightings",
    "erase_pending",
    "evaluate",
    "export_onnx",
    "export_web",
    "forget_sightings",
    "from_pretrained",
    "group_classes",
    "import_file",
    "keep_photos",
    "learn_seen",
    "learn_sorted",
    "name_sightings",
    "photo_ids",
    "picture",
    "place_sorted",
    "push_to_hub",
    "review",
    "sighting_picture",
    "sightings",
    "sort_features",
    "sort_photos",
    "thumbnails",
    "training_photos",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
