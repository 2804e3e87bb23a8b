"""Create a model: choose a backbone and learn the base classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import BackboneSpec, Embedder, adapter_path, is_bundle, load_embedder, read_adapter
from fiveshot.core import NO_CLASSES, ClassStatistics
from fiveshot.core.draws import LEAST_TO_HOLD_BACK, hold_back
from fiveshot.core.scorers import DEFAULT_HEAD, make_scorer
from fiveshot.data import BadImage, ImageDataset, ImageError, ImageSource, ImageSplit, content_mark
from fiveshot.errors import InputError
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.embedding import backbone_record
from fiveshot.recognizer.photos.inputs import ClassInputs, gather_classes
from fiveshot.recognizer.recognition.rejection import fit_rejection
from fiveshot.recognizer.recognition.snapshot import head_record, require_statistics_head
from fiveshot.recognizer.store.folder import create_model, free_folder
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, Options
from fiveshot.recognizer.store.rows import (
    Floats,
)
from fiveshot.storage import FilePath
from fiveshot.work import Progress

if TYPE_CHECKING:
    from fiveshot.features import FeatureSet

NO_IMAGES = ImageSplit((), np.zeros(0, np.int64))
MAY_BE_SEEN = "if the adapter was tuned on photos of the base, more known photos are rejected than requested"
FEATURE_FILES = (".safetensors", ".npz")
GRAY, TRIED = 128, 3  # photos to try a bundle with: it gets two in a pass, and the last one alone


@dataclass(frozen=True, eq=False)
class BaseWork:
    """How photos of a base are read: whether to skip bad photos, and callbacks for bad photos and progress."""

    skip_bad: bool = False
    on_bad: Callable[[Sequence[BadImage]], None] | None = None
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class BaseSession:
    """The result of the base session: statistics, the head's choices and the thresholds of rejection."""

    head: HeadRecord
    base: ClassStatistics = NO_CLASSES
    rejection: dict[str, Any] = field(default_factory=dict)


def make_model(
    path: FilePath,
    spec: BackboneSpec,
    *,
    base: ClassInputs | FeatureSet | ImageDataset | None,
    head: str | None,
    options: Options,
    work: BaseWork,
    embedder: Embedder | None = None,
) -> Embedder:
    """Write a new model and return its backbone: the one that is given, or that of the specification."""
    head = head or DEFAULT_HEAD
    check_new_model(path, head)
    known, images = _base_given(base)
    if images is not None and spec.adapter is not None and not len(images.test):
        images = with_unseen(images, spec.adapter)
    embedder = embedder or load_embedder(spec)
    if is_bundle(embedder.name):  # it may come from anywhere: no model is made for one that cannot run
        embedder.features(np.full((TRIED, *embedder.preprocessing.shape), GRAY, np.uint8))
    adapted = embedder.network.adapter_hash is not None
    session = BaseSession(head_record(head))
    if known is not None:
        X, y = features_of(known, embedder)
        session = learn_base(X, y, head=session.head, options=options, may_be_seen=adapted)
    elif images is not None:
        found, seen = extracted(images, embedder, work), adapted and not len(images.test)
        session = learn_base(*found, head=session.head, options=options, may_be_seen=seen)
    manifest = Manifest(backbone_record(embedder), session.head, options=options, rejection=session.rejection)
    adapter_file = None if spec.adapter is None else adapter_path(spec.adapter)
    create_model(path, manifest, base=session.base, adapter=adapter_file)
    return embedder


def check_new_model(path: FilePath, head: str | None) -> None:
    """Refuse a directory in use, or a head that a model cannot have, before anything is computed."""
    require_statistics_head(head or DEFAULT_HEAD)
    free_folder(path)


def _base_given(
    base: ClassInputs | FeatureSet | ImageDataset | None,
) -> tuple[FeatureSet | None, ImageDataset | None]:
    """Return the features or the photos of a given base."""
    if base is None:
        return None, None
    if isinstance(base, ImageDataset):
        return None, base
    if isinstance(base, Mapping):
        return None, base_images(base)
    if not isinstance(base, str | os.PathLike):
        return base, None
    if Path(base).suffix not in FEATURE_FILES:
        return None, base_images(base)
    from fiveshot.features import load_features

    return load_features(base), None


def base_images(base: ClassInputs) -> ImageDataset:
    """Return photos by class, or from class folders, as base classes; at least two classes are needed."""
    classes = {check_name(name): photos for name, photos in gather_classes(base).items()}
    if len(classes) < 2:
        raise InputError(
            f"there is one class in the base, {next(iter(classes))!r}, but a base needs two or more",
            hint="create the model without a base, and learn this class",
        )
    labels = np.repeat(np.arange(len(classes)), [len(photos) for photos in classes.values()])
    images = tuple(photo for photos in classes.values() for photo in photos)
    return ImageDataset("base", tuple(classes), ImageSplit(images, labels), NO_IMAGES)


def with_held_back(images: ImageDataset, *, seed: int) -> ImageDataset:
    """Return base classes with a test split: the photos for the thresholds of rejection.

    An adapter must not have seen these photos, or they look more familiar than later ones. Classes of fewer than
    four photos are not split.
    """
    labels = images.train.labels
    return _apart(images, hold_back(labels, seed=seed, least=LEAST_TO_HOLD_BACK))


def with_unseen(images: ImageDataset, adapter: FilePath) -> ImageDataset:
    """Return base classes with a test split: the photos that an adapter has not seen.

    The adapter's file names them. The test split is empty if it names none, or if none of them is here.
    """
    marks = read_adapter(adapter_path(adapter)).held_back
    if marks is None:
        return images
    return _apart(images, np.array([_mark(image) in marks for image in images.train.images]))


def _mark(image: ImageSource) -> str:
    """Return the mark of an image; None for an image that cannot be read, which extraction reports."""
    try:
        return content_mark(image)
    except ImageError:
        return ""


def _apart(images: ImageDataset, held: NDArray[np.bool_]) -> ImageDataset:
    kept, test = (images.train.select(np.flatnonzero(which)) for which in (~held, held))
    return replace(images, train=kept, test=test)


def extracted(
    images: ImageDataset, embedder: Embedder, work: BaseWork
) -> tuple[Floats, list[str], NDArray[np.bool_] | None]:
    """Return the features of all usable images, their class names, and which images were held back, if any."""
    from fiveshot.features import ExtractionSettings, extract

    settings = ExtractionSettings(dtype="float32", skip_bad=work.skip_bad)
    done = extract(images, embedder, settings, progress=work.progress)
    if done.bad and work.on_bad is not None:
        work.on_bad(done.bad)
    found = done.features
    X = np.concatenate([np.asarray(part, dtype=np.float32) for part in (found.train_x, found.test_x)])
    labels = [*found.train_y, *found.test_y]
    held = np.arange(len(X)) >= len(found.train_y)
    return X, [images.class_names[label] for label in labels], held if len(images.test.images) else None


def features_of(base: FeatureSet, embedder: Embedder) -> tuple[Floats, list[str]]:
    """Return the training features of a set, after checking that this backbone made them."""
    from fiveshot.features import UNRECORDED, readout_in_words

    made, own = base.provenance, embedder.identity()
    found = {"weights_hash": made.weights_hash, "adapter_hash": made.adapter}
    wanted = {key: own[key] for key in found}
    found["readout"], wanted["readout"] = made.readout, readout_in_words(**own["readout"])
    if made.precision != UNRECORDED:  # as in files of other programs
        found["precision"], wanted["precision"] = made.precision, own["precision"]
    for key in own["preprocessing"].keys() & made.preprocessing.keys():
        found[key], wanted[key] = made.preprocessing[key], own["preprocessing"][key]
    for key, value in wanted.items():
        if found[key] != value:
            raise InputError(
                f"these features are of another backbone: their {key} is {found[key]!r}, not {value!r}",
                hint="extract them with the backbone and the adapter of the model, and with --precision float32",
                code="other_backbone",
            )
    names = [check_name(str(base.class_names[label])) for label in base.train_y]
    return np.array(base.train_x, dtype=np.float32), names


def learn_base(
    X: Floats,
    y: Sequence[str],
    held: NDArray[np.bool_] | None = None,
    *,
    head: HeadRecord,
    options: Options,
    may_be_seen: bool = False,
) -> BaseSession:
    """Fit the head on the base session, keep its choices, and set the thresholds of rejection.

    The thresholds are set on the photos in ``held``, which an adapter has not seen, or else on a sample of all
    photos. If an adapter may have seen those, the note says so.
    """
    fitted = make_scorer(head.name).learn(X, y)
    rate, seed = options.false_rejection, options.seed
    rejection = fit_rejection(fitted, X, y, false_rejection=rate, seed=seed, held=held)
    if may_be_seen and rejection.counts:
        rejection = replace(rejection, note=f"{rejection.note}; {MAY_BE_SEEN}")
    return BaseSession(replace(head, settings=fitted.settings()), fitted.memory.base, rejection.as_dict())
