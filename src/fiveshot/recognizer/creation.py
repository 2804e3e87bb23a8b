"""Begin a model: choose a backbone, and learn the base classes where there are any."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import BackboneSpec, Embedder, adapter_path, load_embedder
from fiveshot.core import NO_CLASSES, ClassStatistics
from fiveshot.data import BadImage, ImageDataset, ImageSplit
from fiveshot.errors import InputError
from fiveshot.heads import DEFAULT_HEAD, make_head
from fiveshot.progress import Progress
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.embedding import backbone_record
from fiveshot.recognizer.photos.inputs import ClassInputs, gather_classes
from fiveshot.recognizer.recognition.head import head_record, require_statistics_head
from fiveshot.recognizer.recognition.rejection import fit_rejection, hold_back
from fiveshot.recognizer.store.folder import create_model, free_folder
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, Options
from fiveshot.recognizer.store.rows import Floats
from fiveshot.storage import FilePath

if TYPE_CHECKING:
    from fiveshot.features import FeatureSet
    from fiveshot.tuning import TuneProgress, TuneResult

NO_IMAGES = ImageSplit((), np.zeros(0, np.int64))
LEAST_TO_HOLD_BACK = 4  # photos of a base class
FEATURE_FILES = (".safetensors", ".npz")


@dataclass(frozen=True, eq=False)
class Work:
    """How the photos of a base are worked through: what to do with bad ones, and whom to tell how far it is."""

    skip_bad: bool = False
    on_bad: Callable[[Sequence[BadImage]], None] | None = None
    progress: Progress | None = None
    on_tuning: Callable[[TuneProgress], None] | None = None


@dataclass(frozen=True, eq=False)
class BaseSession:
    """What the base session gives: statistics, the head's choices and the thresholds of rejection."""

    head: HeadRecord
    base: ClassStatistics = NO_CLASSES
    rejection: dict[str, Any] = field(default_factory=dict)


def make_model(
    path: FilePath,
    spec: BackboneSpec,
    *,
    base: ClassInputs | FeatureSet | None,
    head: str | None,
    options: Options,
    tune: bool,
    work: Work,
) -> Embedder:
    """Write a new model and return the backbone it works with."""
    head = head or DEFAULT_HEAD
    require_statistics_head(head)  # what can be refused is refused before anything is computed
    free_folder(path)
    with ExitStack() as held:
        known, images = _base_given(base)
        if tune:
            if images is None:
                raise InputError("tune=True adapts the backbone to the base classes", hint="give base=DIR with it")
            if spec.adapter is not None:
                raise InputError("tune=True makes an adapter, and one was given", hint="choose one of the two")
            adapter = Path(held.enter_context(tempfile.TemporaryDirectory())) / "adapter.safetensors"
            images = with_held_back(images, seed=options.seed)
            tune_adapter(spec, images.train, adapter, seed=options.seed, work=work)
            spec = spec.replace(adapter=adapter)
        embedder = load_embedder(spec)
        session = BaseSession(head_record(head))
        if known is not None:
            X, y = features_of(known, embedder)
            session = learn_base(X, y, head=session.head, options=options)
        elif images is not None:
            session = learn_base(*extracted(images, embedder, work), head=session.head, options=options)
        manifest = Manifest(backbone_record(embedder), session.head, options=options, rejection=session.rejection)
        adapter_file = None if spec.adapter is None else adapter_path(spec.adapter)
        create_model(path, manifest, base=session.base, adapter=adapter_file)
    return embedder


def _base_given(base: ClassInputs | FeatureSet | None) -> tuple[FeatureSet | None, ImageDataset | None]:
    """Return the features, or the photos, that a base is given as."""
    if base is None:
        return None, None
    if isinstance(base, Mapping):
        return None, base_images(base)
    if not isinstance(base, str | os.PathLike):
        return base, None
    if Path(base).suffix not in FEATURE_FILES:
        return None, base_images(base)
    from fiveshot.features import load_features

    return load_features(base), None


def base_images(base: ClassInputs) -> ImageDataset:
    """Return photos by class, or those of class folders, as base classes; there must be two at least."""
    classes = {check_name(name): photos for name, photos in gather_classes(base).items()}
    if len(classes) < 2:
        raise InputError(
            f"there is one class in the base, {next(iter(classes))!r}, and a base has two or more",
            hint="begin without one, and learn this class",
        )
    labels = np.repeat(np.arange(len(classes)), [len(photos) for photos in classes.values()])
    images = tuple(photo for photos in classes.values() for photo in photos)
    return ImageDataset("base", tuple(classes), ImageSplit(images, labels), NO_IMAGES)


def with_held_back(images: ImageDataset, *, seed: int) -> ImageDataset:
    """Return base classes with the photos that set the thresholds of rejection as a test split of their own.

    An adapter must not have seen them, or they are more familiar than others will be. Classes of fewer than four
    photos give none away.
    """
    labels = images.train.labels
    held = hold_back(labels, seed=seed) & (np.bincount(labels)[labels] >= LEAST_TO_HOLD_BACK)
    kept, test = (images.train.select(np.flatnonzero(which)) for which in (~held, held))
    return replace(images, train=kept, test=test)


def tune_adapter(
    spec: BackboneSpec,
    images: ImageSplit,
    out: Path,
    *,
    seed: int,
    work: Work,
    recipe: str = "ours",
    settings: Mapping[str, Any] | None = None,
) -> TuneResult:
    """Adapt a backbone without adapters to all of these images, and write the adapters to a file."""
    from fiveshot.backbones import load_backbone
    from fiveshot.tuning import get_recipe, tune

    chosen = get_recipe(recipe).replace(**{"seed": seed, **(settings or {})})
    return tune(
        load_backbone(spec),
        images,
        recipe=chosen,
        out=out,
        held_out=0.0,
        progress=work.on_tuning,
        skip_bad=work.skip_bad,
    )


def extracted(
    images: ImageDataset, embedder: Embedder, work: Work
) -> tuple[Floats, list[str], NDArray[np.bool_] | None]:
    """Return the features of all images that can be used, their class names, and which were held back, if any."""
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
    from fiveshot.features.feature_set import UNKNOWN, readout_in_words

    made, own = base.provenance, embedder.identity()
    found = {"weights_hash": made.weights_hash, "adapter_hash": made.adapter}
    wanted = {key: own[key] for key in found}
    found["readout"], wanted["readout"] = made.readout, readout_in_words(**own["readout"])
    if made.precision != UNKNOWN:  # as in files of other programs
        kinds = (made.precision, own["precision"])
        found["precision"], wanted["precision"] = ("float32" if one == "int8" else one for one in kinds)
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
) -> BaseSession:
    """Fit the head on the base session; keep what it chose, and set the thresholds of rejection.

    They are set on the photos that ``held`` names, which an adapter has not seen, or else on some of all.
    """
    fitted = make_head(head.name).fit(X, y)
    rate, seed = options.false_rejection, options.seed
    rejection = fit_rejection(fitted, X, y, false_rejection=rate, seed=seed, held=held)
    return BaseSession(replace(head, settings=fitted.settings()), fitted.memory_.base, rejection.as_dict())
