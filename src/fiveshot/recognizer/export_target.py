"""Where an export may go: into no model, and over no file that is not an earlier export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.manifest import MANIFEST
from fiveshot.recognizer.schema import DATABASE


def check_target(
    target: Path,
    is_export: Callable[[Path], bool],
    *,
    beside: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse a target inside a model's directory, and one that something else has taken.

    ``is_export`` tells an earlier export, which is replaced; any other file is replaced with ``overwrite`` alone,
    and what is no file never. ``beside`` is the file that was named, where this one only goes with it.
    """
    shown = str(target) if beside is None else f"{target}, which is written beside {beside.name},"
    for place in (target.parent.resolve() / target.name, target.resolve()):  # a link, and where it leads
        around = _model_around(place)
        if around is not None:
            raise InputError(
                f"{shown} lies inside the model {around}, which an export must not change; "
                "name a file outside of it"
            )
    if not target.exists():
        return
    if not target.is_file():
        raise StorageError(f"{shown} exists already and is no file; choose another name")
    if not overwrite and not is_export(target):
        raise StorageError(
            f"{shown} exists already and is no earlier export of this kind; choose another name, "
            "or replace it with overwrite=True (--force)"
        )


def _model_around(place: Path) -> Path | None:
    """Return the directory of a model that a path lies in, be it the one that is exported or another."""
    folders = (one for one in place.parents if (one / MANIFEST).is_file() and (one / DATABASE).is_file())
    return next(folders, None)
