"""Begin a model: choose a backbone, and learn the base classes where there are any."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fiveshot.backbones import DEFAULT, BackboneSpec, Embedder, adapter_path, load_embedder
from fiveshot.core import NO_CLASSES, ClassStatistics
from fiveshot.data import BadImage, ImageDataset, ImageSplit
from fiveshot.errors import InputError
from fiveshot.features import ExtractionSettings, FeatureSet, extract, load_features
from fiveshot.features.provenance import UNKNOWN, readout_in_words
from fiveshot.heads import make_head
from fiveshot.progress import Progress
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.embedding import backbone_record, check_place
from fiveshot.recognizer.photos.inputs import class_folders
from fiveshot.recognizer.recognition.rejection import fit_rejection
from fiveshot.recognizer.recognition.snapshot import head_record, require_statistics_head
from fiveshot.recognizer.store.folder import create_model, free_folder
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, Options
from fiveshot.storage import FilePath

if TYPE_CHECKING:
    from fiveshot.tuning import TuneResult
    from fiveshot.tuning.results import OnProgress as OnTuning

OnBad = Callable[[Sequence[BadImage]], None]
NO_IMAGES = ImageSplit((), np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class BaseSession:
    """What the base session gives: statistics, the head's choices and the thresholds of rejection."""

    base: ClassStatistics
    head: HeadRecord
    rejection: dict[str, Any]


def make_model(
    path: FilePath,
    *,
    base: FilePath | FeatureSet | None,
    backbone: str | None,
    weights: FilePath | None,
    head: str,
    adapter: FilePath | None,
    options: Options,
    device: str,
    runtime: str,
    progress: Progress | None,
    tune: bool = False,
    on_tuning: OnTuning | None = None,
    skip_bad: bool = False,
    on_bad: OnBad | None = None,
) -> Embedder:
    """Write a new model and return the backbone it works with."""
    check_place(device, runtime)  # what can be refused is refused before anything is computed
    require_statistics_head(head)
    free_folder(path)
    spec = BackboneSpec(backbone or DEFAULT, weights=weights, device=device, runtime=runtime, precision="float32")
    with ExitStack() as held:
        if isinstance(base, str | os.PathLike) and Path(base).suffix in (".safetensors", ".npz"):
            base = load_features(base)
        images = None if base is None or isinstance(base, FeatureSet) else base_images(base)
        if tune:
            if images is None:
                raise InputError("tune=True adapts the backbone to the base classes", hint="give base=DIR with it")
            if adapter is not None:
                raise InputError("tune=True makes an adapter, and one was given", hint="choose one of the two")
            folder = held.enter_context(tempfile.TemporaryDirectory())
            adapter = Path(folder) / "adapter.safetensors"
            tune_adapter(spec, images.train, adapter, seed=options.seed, on_tuning=on_tuning, skip_bad=skip_bad)
        runner = load_embedder(spec.replace(adapter=adapter))
        record = head_record(head)
        learned = BaseSession(NO_CLASSES, record, {})
        if isinstance(base, FeatureSet):
            learned = learn_base(*features_of(base, runner), head=record, options=options)
        elif images is not None:
            found = extracted(images, runner, progress, skip_bad=skip_bad, on_bad=on_bad)
            learned = learn_base(*found, head=record, options=options)
        manifest = Manifest(
            backbone_record(runner, weights=weights), learned.head, options=options, rejection=learned.rejection
        )
        create_model(path, manifest, base=learned.base, adapter=None if adapter is None else adapter_path(adapter))
    return runner


def base_images(folder: FilePath) -> ImageDataset:
    """Open a folder of class folders as base classes; there must be two at least."""
    classes = class_folders(folder)
    if len(classes) < 2:
        raise InputError(
            f"{folder} holds one class, {next(iter(classes))!r}, and a base has two or more",
            hint="begin without one, and learn this class",
        )
    labels = np.repeat(np.arange(len(classes)), [len(photos) for photos in classes.values()])
    images = tuple(photo for photos in classes.values() for photo in photos)
    return ImageDataset(Path(folder).name, tuple(classes), ImageSplit(images, labels), NO_IMAGES)


def tune_adapter(
    spec: BackboneSpec,
    images: ImageSplit,
    out: Path,
    *,
    seed: int,
    recipe: str = "ours",
    settings: Mapping[str, Any] | None = None,
    on_tuning: OnTuning | None = None,
    skip_bad: bool = False,
) -> TuneResult:
    """Adapt a backbone without adapters to all of these images, and write the adapters to a file."""
    from fiveshot.backbones import load_backbone
    from fiveshot.tuning import get_recipe, tune

    chosen = get_recipe(recipe).replace(**{"seed": seed, **(settings or {})})
    return tune(
        load_backbone(spec), images, recipe=chosen, out=out, held_out=0.0, progress=on_tuning, skip_bad=skip_bad
    )


def extracted(
    images: ImageDataset,
    runner: Embedder,
    progress: Progress | None,
    *,
    skip_bad: bool = False,
    on_bad: OnBad | None = None,
) -> tuple[Tensor, list[str]]:
    """Return the features of all images and their class names; ``on_bad`` gets those left out, if any."""
    settings = ExtractionSettings(dtype="float32", skip_bad=skip_bad)
    done = extract(images, runner, settings, progress=progress)
    if done.bad and on_bad is not None:
        on_bad(done.bad)
    features = done.features
    names = [images.class_names[label] for label in features.train_y]
    return torch.from_numpy(np.array(features.train_x, dtype=np.float32)), names


def features_of(base: FeatureSet, runner: Embedder) -> tuple[Tensor, list[str]]:
    """Return the training features of a set, after checking that this backbone made them."""
    made, own = base.provenance, runner.identity()
    found = {"weights_hash": made.weights_hash, "adapter_hash": made.adapter}
    wanted = {key: own[key] for key in found}
    found["readout"], wanted["readout"] = made.readout, readout_in_words(**own["readout"])
    if made.precision != UNKNOWN:  # as in files from before it was noted
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
    return torch.from_numpy(np.array(base.train_x, dtype=np.float32)), names


def learn_base(X: Tensor, y: list[str], *, head: HeadRecord, options: Options) -> BaseSession:
    """Fit the head on the base session; keep what it chose, and set the thresholds of rejection."""
    fitted = make_head(head.name).fit(X, y)
    rejection = fit_rejection(fitted, X, y, false_rejection=options.false_rejection, seed=options.seed)
    return BaseSession(fitted.memory_.base, replace(head, settings=fitted.settings()), rejection.as_dict())
