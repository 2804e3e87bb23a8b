"""Begin a model: choose a backbone, learn the base classes; and adapt the backbone to all that came since."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import BackboneSpec, Embedder, adapter_path, load_embedder, read_adapter
from fiveshot.core import NO_CLASSES, ClassStatistics
from fiveshot.core.draws import LEAST_TO_HOLD_BACK, hold_back
from fiveshot.core.labels import python_labels
from fiveshot.core.scorers import DEFAULT_HEAD, make_scorer
from fiveshot.data import BadImage, BytesSource, ImageDataset, ImageError, ImageSource, ImageSplit, Photo
from fiveshot.data.sources import content_mark
from fiveshot.errors import InputError, counted, some_of
from fiveshot.recognizer.change import Change, ConflictError, LiveModel
from fiveshot.recognizer.names import NONE, check_name
from fiveshot.recognizer.photos.embedding import backbone_record, photo_records
from fiveshot.recognizer.photos.inputs import ClassInputs, gather_classes
from fiveshot.recognizer.recognition.rejection import fit_rejection
from fiveshot.recognizer.recognition.snapshot import head_record, require_statistics_head, restored_head
from fiveshot.recognizer.store.contents import Contents
from fiveshot.recognizer.store.folder import create_model, free_folder, place_adapter
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, Options
from fiveshot.recognizer.store.rows import (
    ClassRecord,
    Floats,
    Tables,
    number_bytes,
    photo_digest,
    photo_features,
    photo_summary,
)
from fiveshot.storage import FilePath
from fiveshot.work import Progress

if TYPE_CHECKING:
    from fiveshot.core.scorers import Scorer
    from fiveshot.features import FeatureSet
    from fiveshot.tuning import TuneProgress, TuneResult

NO_IMAGES = ImageSplit((), np.zeros(0, np.int64))
MAY_BE_SEEN = "if the adapter was tuned on photos of the base, more known photos are rejected than asked"
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
        elif images is not None and spec.adapter is not None:
            images = with_unseen(images, spec.adapter)
        embedder = load_embedder(spec)
        session = BaseSession(head_record(head))
        adapted = spec.adapter is not None
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
    return _apart(images, hold_back(labels, seed=seed, least=LEAST_TO_HOLD_BACK))


def with_unseen(images: ImageDataset, adapter: FilePath) -> ImageDataset:
    """Return base classes with the photos that were held back from an adapter as a test split of their own.

    Its file says which these are. The test split is empty where it does not, or where none of them is here.
    """
    marks = read_adapter(adapter_path(adapter)).held_back
    if marks is None:
        return images
    return _apart(images, np.array([_mark(image) in marks for image in images.train.images]))


def _mark(image: ImageSource) -> str:
    """Return the mark of an image; of one that cannot be read there is none, which extraction will report."""
    try:
        return content_mark(image)
    except ImageError:
        return ""


def _apart(images: ImageDataset, held: NDArray[np.bool_]) -> ImageDataset:
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
    """Fit the head on the base session; keep what it chose, and set the thresholds of rejection.

    They are set on the photos that ``held`` names, which an adapter has not seen, or else on some of all; their
    note then says so where an adapter may have seen these.
    """
    fitted = make_scorer(head.name).learn(X, y)
    rate, seed = options.false_rejection, options.seed
    rejection = fit_rejection(fitted, X, y, false_rejection=rate, seed=seed, held=held)
    if may_be_seen and rejection.counts:
        rejection = replace(rejection, note=f"{rejection.note}; {MAY_BE_SEEN}")
    return BaseSession(replace(head, settings=fitted.settings()), fitted.memory.base, rejection.as_dict())


@dataclass(frozen=True, eq=False)
class Retuned:
    """A model after tuning that has not taken its place yet."""

    result: TuneResult
    embedder: Embedder
    records: tuple[ClassRecord, ...]  # with the new features
    session: BaseSession  # with the new features
    state: int  # of the model it was made from


@contextmanager
def retuned_model(
    model: LiveModel,
    spec: BackboneSpec,
    *,
    base: FilePath | None,
    recipe: str,
    settings: Mapping[str, Any] | None,
    work: Work,
) -> Iterator[Retuned]:
    """Tune on all photos and recompute all features; the adapter's file is there until the block ends.

    ``spec`` is the backbone of the model without its adapter.
    """
    contents = model.refresh().contents
    options = contents.manifest.options
    with model.folder.reading() as connection:
        records = _kept_records(connection, contents)
    with tempfile.TemporaryDirectory() as folder:
        images = _base_images(base, contents)
        if images is not None:
            images = with_held_back(images, seed=options.seed)
        adapter = Path(folder) / "adapter.safetensors"
        split = _split(records, images.train if images else NO_IMAGES, images.class_names if images else ())
        result = tune_adapter(spec, split, adapter, seed=options.seed, work=work, recipe=recipe, settings=settings)
        embedder = load_embedder(spec.replace(adapter=adapter))
        session = BaseSession(head_record(contents.manifest.head.name))
        if images is not None:
            session = learn_base(*extracted(images, embedder, work), head=session.head, options=options)
        head = restored_head(session.head)
        fresh = tuple(_seen_again(record, embedder, head) for record in records)
        yield Retuned(result, embedder, fresh, session, contents.state)


def switch(change: Change, retuned: Retuned) -> None:
    """Put the tuned model in the place of the one before, all of it in one transaction."""
    if change.before.state != retuned.state:
        raise ConflictError("the model was changed while it was tuned", hint="nothing was switched: tune again")
    for record in retuned.records:
        assert record.id is not None
        change.tables.update_class(record.id, record.summary)
        change.connection.executemany(
            "UPDATE photos SET feature = ?, digest = ? WHERE id = ?",
            [(number_bytes(photo.feature), photo_digest(photo), photo.id) for photo in record.photos],
        )
    # What the history could restore are features of the backbone before: nothing may mix with the new ones.
    change.connection.execute("UPDATE changes SET before = NULL")
    change.connection.execute("DELETE FROM photos WHERE held_by IS NOT NULL")
    assert retuned.embedder.spec.adapter is not None
    name, content = place_adapter(change.folder, retuned.embedder.spec.adapter)
    change.written.append(change.folder / name)
    before, session = change.before.manifest, retuned.session
    backbone = replace(backbone_record(retuned.embedder), adapter=name, adapter_sha256=content)
    change.manifest = replace(before, backbone=backbone, head=session.head, rejection=session.rejection)
    if len(change.before.base_file):
        change.base = session.base
    change.record("retune", undoable=False, detail={"recipe": retuned.result.recipe.to_json()})


def _kept_records(connection: sqlite3.Connection, contents: Contents) -> tuple[ClassRecord, ...]:
    """Return the stored classes with their photos; all photos must have been kept."""
    tables = Tables(connection, contents.width)
    records = tuple(tables.read_class(number, originals=True) for number in contents.rows)
    lacking = [record.name for record in records if any(photo.original is None for photo in record.photos)]
    if lacking:
        shown, classes = some_of([repr(name) for name in lacking]), counted(len(lacking), "class")
        raise InputError(
            f"tuning needs the photos themselves, and those of {classes} were not kept: {shown}",
            hint="make a model with keep_photos=True (--keep-photos) and learn them there",
        )
    return records


def _base_images(base: FilePath | None, contents: Contents) -> ImageDataset | None:
    """Return the photos of the base classes, where there are any: those classes and no others."""
    if not len(contents.base_file):
        return None
    if base is None:
        raise InputError(
            f"the model has {len(contents.base_file)} base classes, whose photos are not in it",
            hint="say where they are with base=DIR (--base DIR)",
        )
    images = base_images(base)
    if missing := set(python_labels(contents.base_file.labels)) ^ set(images.class_names):
        raise InputError(
            f"{base} does not hold the base classes of this model: "
            f"{sorted(map(str, missing))[0]!r} is in one alone",
            hint="give the folder the model was made from, with the classes it has now",
        )
    return images


def _split(records: Sequence[ClassRecord], base: ImageSplit, base_names: tuple[str, ...]) -> ImageSplit:
    """Return all photos with one label for each class; a class of a single photo is not trained on."""
    images: list[ImageSource] = list(base.images)
    labels = base.labels.tolist()
    numbers = {name: number for number, name in enumerate(base_names)}
    for record in records:
        if record.name == NONE:
            continue
        number = numbers.setdefault(record.name, len(numbers))
        images += [photo.source for photo in _photos(record)]
        labels += [number] * len(record.photos)
    counts = np.bincount(labels, minlength=1) if labels else np.zeros(1, np.int64)
    split = ImageSplit(tuple(images), np.array(labels, dtype=np.int64))
    return split.select(np.flatnonzero(counts[split.labels] > 1))


def _photos(record: ClassRecord) -> list[Photo]:
    named = ((photo.original or b"", f"{record.name}/{number}") for number, photo in enumerate(record.photos, 1))
    return [Photo(BytesSource(data, name)) for data, name in named]


def _seen_again(record: ClassRecord, embedder: Embedder, head: Scorer) -> ClassRecord:
    seen = photo_records(embedder, _photos(record))
    photos = tuple(replace(photo, feature=again.feature) for photo, again in zip(record.photos, seen, strict=True))
    return replace(record, photos=photos, summary=photo_summary(head.embed, photo_features(photos)))
