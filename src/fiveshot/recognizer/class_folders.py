"""Folders of class folders: their photos by class, and the folders that most likely mean something else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fiveshot.data.folder import is_image, unread
from fiveshot.data.listing import some_of
from fiveshot.data.tree import SPLITS
from fiveshot.errors import InputError, counted
from fiveshot.recognizer.arguments import given_path
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photo import Photo
from fiveshot.recognizer.photo_files import SYSTEM_FOLDERS, expected_suffixes, files_below, stored_photo

_THUMBS = "thumbs"  # with photos it may be a class, without any it is Windows' folder of small copies


def class_folders(folder: str | os.PathLike[str]) -> dict[str, list[Photo]]:
    """Return the photos of a folder of class folders (or an archive of them) by class name, sorted."""
    where = given_path(folder, "folder")
    classes: dict[str, list[Photo]] = {}
    found = files_below(where)
    for file, source in found.items():
        top, slash, _ = file.partition("/")
        if slash and is_image(file):
            classes.setdefault(top, []).append(stored_photo(where, file, source))
    folders = set(classes) | _folders(where, found)
    if not folders:
        loose = len(_loose(found))
        hint = f"; it holds {counted(loose, 'photo')} itself: give them the name of one class" if loose else ""
        raise InputError(f"{where} has no class folders{hint}; expected {where}/<class>/*.jpg")
    empty = sorted(folders - set(classes))
    if empty:
        seen = unread(file for file in found if file.startswith(f"{empty[0]}/"))
        raise InputError(
            f"no photos in {where / empty[0]}{seen}; {expected_suffixes()}: add some, or remove the folder"
        )
    if set(classes) <= set(SPLITS):
        raise InputError(f"{where} is split into {' and '.join(sorted(classes))}; name one, as {where}/train")
    _refuse_nested(where, found)
    return _by_checked_name(where, classes)


def loose_photos(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of photos that lie beside the class folders, in none of them: they belong to no class."""
    return _loose(files_below(Path(folder)))


def refuse_one_class(where: Path, files: Iterable[str]) -> None:
    """Refuse a folder or an archive that is given for one class and looks like several."""
    files = list(files)
    top = _branching(files)
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


def _branching(files: Iterable[str]) -> PurePosixPath | None:
    """Return the folder that holds all images in folders of its own and none beside them, if there is one.

    >>> _branching(["a/owl/1.jpg", "a/wren/1.jpg"])
    PurePosixPath('a')
    >>> _branching(["owl/1.jpg", "2.jpg"]), _branching(["a/owl/1.jpg"])
    (None, None)
    """
    holding = {PurePosixPath(file).parent for file in files if is_image(file)}
    if not holding:
        return None
    shared = [(one, *one.parents) for one in holding]
    top = next(folder for folder in shared[0] if all(folder in line for line in shared))
    return None if top in holding else top


def _refuse_nested(where: Path, files: Iterable[str]) -> None:
    """Refuse class folders whose photos lie in several folders: these may be the classes."""
    by_top: dict[str, list[str]] = {}
    for file in files:
        by_top.setdefault(PurePosixPath(file).parts[0], []).append(file)
    nested = [str(where / name) for name, own in sorted(by_top.items()) if _branching(own) is not None]
    if nested:
        raise InputError(
            f"photos lie only in folders below {some_of(nested, 3)}: if those folders are the classes, name the "
            f"one they are in, as {nested[0]}; if not, move the photos of a class into its own folder"
        )


def _loose(files: Iterable[str]) -> list[str]:
    return [file for file in files if "/" not in file and is_image(file)]


def _folders(where: Path, files: Iterable[str]) -> set[str]:
    """Return the names of the folders that somebody has put there."""
    folders = {file.partition("/")[0] for file in files if "/" in file}
    if where.is_dir():
        folders |= {path.name for path in where.iterdir() if path.is_dir() and not path.name.startswith(".")}
    return {name for name in folders if name not in SYSTEM_FOLDERS and name.casefold() != _THUMBS}


def _by_checked_name(where: Path, classes: dict[str, list[Photo]]) -> dict[str, list[Photo]]:
    named: dict[str, list[Photo]] = {}
    for folder in sorted(classes):
        name = check_name(folder)
        if name in named:
            raise InputError(f"two folders of {where} give the class name {name!r}; rename one of them")
        named[name] = classes[folder]
    return dict(sorted(named.items()))
