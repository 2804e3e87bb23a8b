"""Sharing a model: as an ONNX graph, as a page for the browser, on the Hugging Face hub; and models of others."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fiveshot.errors import InputError
from fiveshot.recognizer._recognizer import Recognizer
from fiveshot.recognizer.advice.evaluation import Evaluation
from fiveshot.recognizer.shipping._hub import Place, fetch, kept_copy, model_card, publish
from fiveshot.recognizer.shipping._onnx import onnx_targets, write_onnx
from fiveshot.recognizer.shipping._portable import import_model, write_portable
from fiveshot.recognizer.shipping._web import WebExport, check_folder, write_web
from fiveshot.recognizer.store.contents import read_contents
from fiveshot.storage import FilePath


def export_onnx(
    model: Recognizer, file: FilePath, *, all_views: bool = False, overwrite: bool = False
) -> tuple[Path, Path, Path]:
    """Write backbone, classes and thresholds as an ONNX graph, with a JSON file and ``labels.txt`` next to it.

    The graph takes RGB images from 0 to 1, (n, 3, size, size), and gives probabilities. By default it sees one
    view of a photo, the center crop, also if the model sees more.

    Parameters
    ----------
    model : Recognizer
        The model.
    file : str or path
        The file of the graph; its name ends in ``.onnx``.
    all_views : bool
        Whether the graph takes all views that the model sees, (n, views, 3, size, size), and normalized.
    overwrite : bool
        Whether to replace files that are not an earlier export.

    Returns
    -------
    tuple of Path
        The graph; the JSON file, which describes how to prepare photos and how to read the answers; and the names
        of the classes, one in each line.

    Raises
    ------
    FiveshotError
        If the extra ``onnx`` is not installed.
    InputError
        If the model knows no class, or its backbone or head cannot be written as ONNX.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import FiveshotError, Recognizer
    >>> from fiveshot.recognizer import export_onnx
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     try:
    ...         export_onnx(birds, "birds.onnx")
    ...     except FiveshotError as error:
    ...         print(error.code)
    no_classes
    """
    snapshot = model.refresh()
    snapshot.require_classes()
    onnx_targets(file, overwrite=overwrite)  # check this before the backbone is loaded
    return write_onnx(
        model.embedder_of(snapshot),
        snapshot.head,
        file,
        rejection=snapshot.rejection,
        strangers=snapshot.strangers,
        all_views=all_views,
        overwrite=overwrite,
    )


def export_web(
    model: Recognizer, folder: FilePath, *, title: str | None = None, overwrite: bool = False
) -> WebExport:
    """Write a page that recognizes photos and the camera's picture in the browser, without a server.

    Everything is in the folder: the page, the graph with weights of 8 bits, and ONNX Runtime to run it. Any
    web server can serve it. Once loaded, the page works without a network and can be installed.

    Parameters
    ----------
    model : Recognizer
        The model.
    folder : str or path
        A new or empty folder, or that of an earlier export, whose files are replaced.
    title : str, optional
        Title of the page; by default the name of the model's directory.
    overwrite : bool
        Whether to write into a folder with other files; those are not changed.

    Returns
    -------
    WebExport
        The folder, its files, and how many bytes a browser loads.

    Raises
    ------
    FiveshotError
        If the extra ``onnx`` is not installed.
    InputError
        If the model knows no class, or its backbone or head cannot be written as ONNX.
    StorageError
        If the folder holds other files, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import FiveshotError, Recognizer
    >>> from fiveshot.recognizer import export_web
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     try:
    ...         export_web(birds, "site")
    ...     except FiveshotError as error:
    ...         print(error.code)
    no_classes
    """
    snapshot = model.refresh()
    snapshot.require_classes()
    check_folder(folder, overwrite=overwrite)  # check this before the backbone is loaded
    name = title or model.path.resolve().name
    return write_web(model.embedder_of(snapshot), snapshot, folder, title=name, overwrite=overwrite)


def import_file(file: FilePath, path: FilePath, **opening: Any) -> Recognizer:
    """Make a model from an exported file and open it. Nothing in the file is trusted.

    Parameters
    ----------
    file : str or path
        A file that ``export`` wrote, here or elsewhere.
    path : str or path
        The directory to make.
    **opening
        Arguments of ``open``.

    Returns
    -------
    Recognizer
        The model, open.

    Raises
    ------
    StorageError
        If the file is not valid; then nothing is created.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import import_file
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
    ...     file = birds.export(Path(tempfile.mkdtemp()) / "birds.fiveshot")
    >>> with import_file(file, tempfile.mkdtemp(), readonly=True) as copy:
    ...     copy.snapshot.classes
    ('owl',)
    """
    import_model(file, path)
    return Recognizer.open(path, **opening)


def push_to_hub(
    model: Recognizer,
    place: FilePath,
    *,
    private: bool = False,
    token: str | None = None,
    photos: bool = False,
    evaluation: Evaluation | Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:
    """Publish the model on the Hugging Face hub, or in a folder: the portable file, and a card about it.

    Parameters
    ----------
    model : Recognizer
        The model.
    place : str or path
        ``owner/name`` on the hub, which is created if needed, or a folder: a path, ``./folder`` or
        ``file:///folder``. An earlier version is replaced; the hub keeps its history.
    private : bool
        Whether a new repository is private.
    token : str, optional
        Your access token for the hub; by default that of ``hf auth login`` or ``HF_TOKEN``.
    photos : bool
        Whether to include small copies of photos and stored photos.
    evaluation : Evaluation or mapping, optional
        The result of ``evaluate``, for the card.
    title : str, optional
        Heading of the card; by default the name of the model's directory.

    Returns
    -------
    str
        The address of the repository, or the folder.

    Raises
    ------
    InputError
        If the model knows no class, the place is not one, or the extra ``hub`` is not installed.
    StorageError
        If the hub cannot be reached or does not allow it; ``code`` says which.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import push_to_hub
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
    ...     _ = push_to_hub(birds, folder, title="Birds")
    >>> sorted(file.name for file in folder.iterdir())
    ['README.md', 'model.fiveshot']
    """
    where = Place.of(place)
    model.refresh().require_classes()
    name = title or model.path.resolve().name
    card = model_card(model.show(), where, title=name, evaluation=evaluation, pictures=photos)
    with tempfile.TemporaryDirectory() as folder, model.live.folder.reading() as connection:
        file = Path(folder) / "model.fiveshot"
        contents = read_contents(connection, model.path, model.snapshot.contents)
        write_portable(file, model.path, contents, connection, originals=photos, thumbnails=photos)
        return publish(where, file, card, private=private, token=token, message=f"{name}, by fiveshot")


def from_pretrained(
    place: FilePath,
    path: FilePath | None = None,
    *,
    revision: str | None = None,
    token: str | None = None,
    **opening: Any,
) -> Recognizer:
    """Open a model that ``push_to_hub`` has published. Nothing in it is trusted.

    Parameters
    ----------
    place : str or path
        ``owner/name`` on the hub, or a folder: a path, ``./folder`` or ``file:///folder``. An existing folder has
        priority over the hub.
    path : str or path, optional
        The directory to create, for a model that you want to teach. Without it, the model is in the cache and
        opened read-only.
    revision : str, optional
        A branch, tag or commit of the hub.
    token : str, optional
        Your access token for the hub; by default that of ``hf auth login`` or ``HF_TOKEN``.
    **opening
        Arguments of ``open``.

    Returns
    -------
    Recognizer
        The model, open.

    Raises
    ------
    InputError
        If the place is not one, or the extra ``hub`` is not installed.
    StorageError
        If there is no such model, the hub cannot be reached, or anything in the file does not fit.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import from_pretrained, push_to_hub
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
    ...     _ = push_to_hub(birds, folder)
    >>> with from_pretrained(folder, tempfile.mkdtemp()) as copy:
    ...     copy.snapshot.classes
    ('owl',)
    """
    file = fetch(Place.of(place, must_exist=True), revision=revision, token=token)
    if path is not None:
        return import_file(file, path, **opening)
    if opening.get("readonly") is False:
        raise InputError("cached models are read-only", hint="give a directory: path=DIR")
    return Recognizer.open(kept_copy(file), **{**opening, "readonly": True})
