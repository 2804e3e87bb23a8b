"""Folders within folders: where photos lie only in several of them, these are most likely the classes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fiveshot.data.folder import is_image
from fiveshot.data.listing import some_of
from fiveshot.errors import InputError


def branching(files: Iterable[str]) -> PurePosixPath | None:
    """Return the folder that holds all images in folders of its own and none beside them, if there is one.

    >>> branching(["a/owl/1.jpg", "a/wren/1.jpg"]), branching(["owl/1.jpg", "2.jpg"]), branching(["a/owl/1.jpg"])
    (PurePosixPath('a'), None, None)
    """
    holding = {PurePosixPath(file).parent for file in files if is_image(file)}
    if not holding:
        return None
    shared = [(one, *one.parents) for one in holding]
    top = next(folder for folder in shared[0] if all(folder in line for line in shared))
    return None if top in holding else top


def refuse_one_class(where: Path, files: Iterable[str]) -> None:
    """Refuse a folder or an archive that is given for one class and looks like several."""
    files = list(files)
    top = branching(files)
    if top is None:
        return
    depth = len(top.parts)
    folders = sorted({PurePosixPath(file).parts[depth] for file in files if is_image(file)})
    together = f"'{where / top}/*/'" if where.is_dir() else "it unpacked, all files by a pattern"
    raise InputError(
        f"{where / top} has no photos of its own, but {len(folders)} folders of them ({some_of(folders)}), "
        f"most likely classes: learn each with learn_many (fiveshot learn MODEL {where / top}); "
        f"for one class of all, give {together}"
    )


def refuse_nested_classes(where: Path, files: Iterable[str]) -> None:
    """Refuse class folders whose photos lie in several folders: these may be the classes."""
    by_top: dict[str, list[str]] = {}
    for file in files:
        by_top.setdefault(PurePosixPath(file).parts[0], []).append(file)
    nested = [str(where / name) for name, own in sorted(by_top.items()) if branching(own) is not None]
    if nested:
        raise InputError(
            f"photos lie only in folders below {some_of(nested, 3)}: if those folders are the classes, name the "
            f"one they are in, as {nested[0]}; if not, move the photos of a class into its own folder"
        )
