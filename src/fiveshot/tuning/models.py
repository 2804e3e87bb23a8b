"""Models whose backbone is adapted to their own classes, on creation or later."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.backbones import DEFAULT, BackboneSpec, refuse_bundle
from fiveshot.errors import InputError
from fiveshot.recognizer import (
    Options,
    Recognizer,
    adopt_adapter,
    base_images,
    check_new_model,
    is_model,
    training_photos,
    with_held_back,
)
from fiveshot.storage import FilePath
from fiveshot.tuning._recipes import get_recipe
from fiveshot.work import Progress

if TYPE_CHECKING:
    from fiveshot.data import BadImage, ImageSplit
    from fiveshot.recognizer import ClassInputs
    from fiveshot.tuning.results import TuneProgress, TuneResult


def create_tuned(
    path: FilePath,
    base: ClassInputs | None,
    *,
    backbone: str | None = None,
    weights: FilePath | None = None,
    views: int | None = None,
    device: str = "auto",
    runtime: str = "auto",
    seed: int = 0,
    skip_bad: bool = False,
    exist_ok: bool = False,
    on_tuning: Callable[[TuneProgress], None] | None = None,
    **options: Any,
) -> Recognizer:
    """Adapt a backbone to base classes, and create a model with it. Needs the extra ``torch``.

    Parameters
    ----------
    path : str or path
        The directory; it must not exist yet, or be empty.
    base : str, path or mapping
        A folder or an archive of class folders, or photos by the name of their class.
    backbone, weights, views, device, runtime, seed, skip_bad, exist_ok
        As in ``Recognizer.create``.
    on_tuning : callable, optional
        Called with the progress of the tuning.
    **options
        Further arguments of ``Recognizer.create``.

    Returns
    -------
    Recognizer
        The model, open.

    Raises
    ------
    InputError
        If there are no photos of base classes, or an adapter is given.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.tuning import create_tuned
    >>> create_tuned(tempfile.mkdtemp(), None)
    Traceback (most recent call last):
    fiveshot.errors.InputError: tuning adapts the backbone to the base classes; give base=DIR with it
    """
    if exist_ok and is_model(path):
        return Recognizer.open(path, device=device, runtime=runtime)
    if base is None:
        raise InputError("tuning adapts the backbone to the base classes", hint="give base=DIR with it")
    if options.get("adapter") is not None:
        raise InputError("tuning makes an adapter, but one was given", hint="use only one of the two")
    chosen = {
        key: options[key] for key in ("keep_photos", "thumbnails", "names", "false_rejection") if key in options
    }
    Options(seed=seed, **chosen)
    check_new_model(path, options.get("head"))  # check everything before the tuning
    images = with_held_back(base_images(base), seed=seed)
    spec = BackboneSpec(
        backbone or DEFAULT,
        weights=weights,
        tokens=options.get("tokens", "own"),
        views=views,
        device=device,
        runtime=runtime,
        precision="float32",
    )
    with tempfile.TemporaryDirectory() as folder:
        adapter = Path(folder) / "adapter.safetensors"
        _tune_all(spec, images.train, adapter, {"seed": seed}, on_tuning=on_tuning, skip_bad=skip_bad)
        return Recognizer.create(
            path,
            base=images,
            backbone=backbone,
            weights=weights,
            views=views,
            device=device,
            runtime=runtime,
            seed=seed,
            skip_bad=skip_bad,
            **{**options, "adapter": adapter},
        )


def retune(
    model: Recognizer,
    *,
    base: FilePath | None = None,
    recipe: str = "ours",
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    on_tuning: Callable[[TuneProgress], None] | None = None,
    skip_bad: bool = False,
    on_bad: Callable[[Sequence[BadImage]], None] | None = None,
) -> TuneResult:
    """Adapt the backbone of a model to all its classes, and switch to the new features in one step.

    Until the switch the model works as before. The switch cannot be undone: export the model first if you may want
    to go back. Needs the extra ``torch``.

    Parameters
    ----------
    model : Recognizer
        A model that keeps its photos.
    base : str or path, optional
        Folder with the photos of the base classes, if the model has any.
    recipe : str
        Name of the tuning recipe.
    settings : mapping, optional
        Single values of the recipe to replace.
    progress : callable, optional
        Called with the number of processed base photos and of all base photos.
    on_tuning : callable, optional
        Called with the progress of the tuning.
    skip_bad : bool
        Whether to leave out photos of the base that cannot be read, instead of raising an error.
    on_bad : callable, optional
        Called with the photos that are left out.

    Returns
    -------
    TuneResult
        The result of the tuning.

    Raises
    ------
    InputError
        If the model keeps no photos, or the base photos do not fit.
    ConflictError
        If the model was changed meanwhile.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.tuning import retune
    >>> photos = {name: 2 * [Image.new("RGB", (64, 64), name)] for name in ("red", "blue")}
    >>> with Recognizer.create(tempfile.mkdtemp(), keep_photos=True) as colors:
    ...     _ = colors.learn_many(photos)
    ...     result = retune(colors, settings={"epochs": 1})
    ...     result.best_epoch, colors.show().adapter
    (1, True)
    """
    photos = training_photos(model, base)
    values = {"seed": model.snapshot.manifest.options.seed, **(settings or {})}
    with tempfile.TemporaryDirectory() as folder:
        adapter = Path(folder) / "adapter.safetensors"
        result = _tune_all(
            model.spec, photos.images, adapter, values, recipe=recipe, on_tuning=on_tuning, skip_bad=skip_bad
        )
        detail = {"recipe": result.recipe.to_json()}
        adopt_adapter(model, adapter, photos, progress=progress, skip_bad=skip_bad, on_bad=on_bad, detail=detail)
    return result


def _tune_all(
    spec: BackboneSpec,
    images: ImageSplit,
    out: Path,
    settings: Mapping[str, Any],
    *,
    recipe: str = "ours",
    on_tuning: Callable[[TuneProgress], None] | None,
    skip_bad: bool,
) -> TuneResult:
    """Adapt a backbone to all of these images, and write the adapter to a file."""
    refuse_bundle(spec.name)
    # These need PyTorch; arguments were checked before.
    from fiveshot.backbones import load_backbone
    from fiveshot.tuning import tune

    chosen = get_recipe(recipe).replace(**settings)
    backbone = load_backbone(spec)
    return tune(backbone, images, recipe=chosen, out=out, held_out=0.0, progress=on_tuning, skip_bad=skip_bad)
