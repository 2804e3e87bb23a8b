"""Read a dataset from a folder or archive with one folder of images per class."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fiveshot.data.archives import ARCHIVE_SUFFIXES, is_archive, open_archive
from fiveshot.data.dataset import ImageDataset, ImageSplit, hold_out
from fiveshot.data.decoding import FORMATS
from fiveshot.data.parquet import is_parquet, open_parquet
from fiveshot.data.sources import ArchiveSource, FileSource, StoredSource
from fiveshot.errors import InputError, counted, some_of

SPLITS = ("train", "test")
MODEL_FILES = frozenset({"model.toml", "classes.sqlite"})  # every model has these files; folders of photos do not
IMAGE_SUFFIXES = frozenset(suffix for suffixes in FORMATS.values() for suffix in suffixes)
LAYOUT = "expected train/<class>/*.jpg and test/<class>/*.jpg, or <class>/*.jpg alone (.png, .webp, ... too)"


def open_images(path: Path, *, seed: int, holdout: float = 0.2) -> ImageDataset:
    """Open ``train/<class>/*`` and ``test/<class>/*``, or ``<class>/*``, in a folder or an archive; or Parquet.

    Class names are sorted as strings, a class's images by name. No image is read yet.

    Parameters
    ----------
    path : Path
        The folder or archive; or a Parquet file, or a folder of them, with images and labels.
    seed : int
        Seed for drawing the test images if there is no test split.
    holdout : float
        Share of every class that becomes the test split in that case.

    Returns
    -------
    ImageDataset
        The images.

    Raises
    ------
    InputError
        When there are no images in class folders.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.data import open_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for photo in (Path(folder, name, f"{number}.jpg") for name in ("cat", "dog") for number in range(5)):
    ...         photo.parent.mkdir(exist_ok=True)
    ...         photo.touch()
    ...     dataset = open_images(Path(folder), seed=0, holdout=0.2)
    >>> dataset.class_names, len(dataset.train), len(dataset.test)
    (('cat', 'dog'), 8, 2)
    """
    path = Path(path)
    if is_parquet(path):
        return open_parquet(path, seed=seed, holdout=holdout)
    name = path.name
    for suffix in ARCHIVE_SUFFIXES if path.is_file() else ():
        name = name[: -len(suffix)] if name.lower().endswith(suffix) else name
    return tree_dataset(open_tree(path), name=name, seed=seed, holdout=holdout)


def tree_dataset(tree: Tree, *, name: str, seed: int, holdout: float) -> ImageDataset:
    """Return the dataset in a tree of class folders."""
    tree = _unwrapped(tree)
    images = {file: source for file, source in tree.files.items() if is_image(file)}
    train, test = (_by_class(images, f"{split}/") for split in SPLITS)
    if test and not train:
        raise InputError(f"{tree.where} has a test split, but no train split", hint=LAYOUT)
    prefixes = [f"{split}/" for split in SPLITS] if train else [""]
    train = train or _by_class(images, "")
    if not set(train) - set(SPLITS):
        raise InputError(f"{tree.where} has no images in class folders{unread_note(tree.files)}", hint=LAYOUT)
    notes = list(_left_out(tree, prefixes))
    if not test:
        train, test = hold_out(train, holdout=holdout, seed=seed)
    untrained = sorted(set(test) - set(train))
    if untrained:
        raise InputError(
            f"{counted(len(untrained), 'test class')} of {tree.where} without training images: "
            f"{some_of(untrained)}",
            hint="add images to train/<class>/, or remove their test folders",
        )
    untested = sorted(set(train) - set(test))
    if untested:
        notes.append(f"{counted(len(untested), 'class')} without test images: {some_of(untested)}")
    classes = tuple(sorted(train))
    train_images, test_images = (
        ImageSplit.of((image, label) for label, own in enumerate(classes) for image in by_class.get(own, ()))
        for by_class in (train, test)
    )
    return ImageDataset(name, classes, train_images, test_images, tuple(notes))


def is_image(name: str) -> bool:
    """Tell whether a file's name is that of an image.

    >>> is_image("train/cat/1.JPG"), is_image("train/cat/notes.txt")
    (True, False)
    """
    return PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES


def other_suffixes(names: Iterable[str]) -> Counter[str]:
    """Count the files whose suffix is not that of an image, by suffix.

    >>> other_suffixes(["1.jpg", "2.MOV", "3.mov", "notes"])
    Counter({'.mov': 2, 'no suffix': 1})
    """
    return Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in names if not is_image(name))


def unread_note(names: Iterable[str]) -> str:
    """Return a note in brackets about the files whose suffix is not that of an image.

    >>> unread_note(["notes.txt"]), unread_note([])
    (' (seen: 1 .txt)', '')
    """
    seen = ", ".join(f"{count} {suffix}" for suffix, count in sorted(other_suffixes(names).items()))
    return f" (seen: {seen})" if seen else ""


def _unwrapped(tree: Tree) -> Tree:
    """Enter the single top folder that archives usually have: birds/train/... becomes train/..."""
    images = [name.split("/") for name in tree.files if is_image(name)]
    tops = {parts[0] for parts in images}
    if len(tops) == 1 and not tops & set(SPLITS) and all(len(parts) > 2 for parts in images):
        return _unwrapped(tree.below(tops.pop()))
    return tree


def _by_class(images: Mapping[str, StoredSource], prefix: str) -> dict[str, list[StoredSource]]:
    classes: dict[str, list[StoredSource]] = {}
    for name, source in images.items():
        class_name, slash, _ = name.removeprefix(prefix).partition("/")
        if slash and name.startswith(prefix):
            classes.setdefault(class_name, []).append(source)
    return classes


def _left_out(tree: Tree, prefixes: Sequence[str]) -> Iterator[str]:
    """Yield notes on files that were found but not used, so that no photo is ignored silently."""
    inside = {n for n in tree.files if any(n.startswith(p) and "/" in n[len(p) :] for p in prefixes)}
    stray = [name for name in tree.files if is_image(name) and name not in inside]
    if stray:
        yield f"ignored {counted(len(stray), 'image')} outside the class folders: {some_of(stray)}"
    others = other_suffixes(inside)
    if others:
        kinds = ", ".join(f"{suffix} ({count})" for suffix, count in sorted(others.items()))
        none = "is not an image" if others.total() == 1 else "are not images"
        yield f"ignored {counted(others.total(), 'file')} in class folders that {none} by name: {kinds}"


@dataclass(frozen=True)
class Tree:
    """Files by relative name with forward slashes, sorted; hidden ones are left out."""

    where: Path
    files: Mapping[str, StoredSource]

    def below(self, folder: str) -> Tree:
        """Return the files in a folder of the tree, named relative to it ("" is the tree itself)."""
        start = f"{folder}/" if folder else ""
        return Tree(
            self.where / folder,
            {
                name.removeprefix(start): replace(source, name=name.removeprefix(start))
                for name, source in self.files.items()
                if name.startswith(start)
            },
        )

    def source(self, name: str) -> StoredSource:
        """Return a file that an annotation lists; a missing file is detected on reading."""
        return self.files.get(name) or FileSource(self.where / name, name)

    def text(self, name: str, *, hint: str = "") -> str:
        """Return the content of a text file."""
        try:
            return self.files[name].read().decode("utf-8")
        except KeyError:
            raise InputError(f"{self.where} has no {name}", hint=hint) from None
        except UnicodeDecodeError as error:
            raise InputError(f"{self.where / name} is not a text file ({error})") from error


def open_tree(path: Path) -> Tree:
    """List a folder, an archive, or a folder that holds train.tar and test.tar (or .zip, .tar.gz, ...)."""
    if path.is_dir():
        files: dict[str, StoredSource] = {name: FileSource(path / name, name) for name in walk_files(path)}
        files.update(_split_archives(path))
        return Tree(path, dict(sorted(files.items())))
    if path.is_file() and is_archive(path):
        members = sorted(without_models(name for name in open_archive(path).members if not is_hidden(name)))
        return Tree(path, {name: ArchiveSource(path, name, name) for name in members})
    if path.exists():
        raise InputError(f"{path} is neither a folder nor an archive ({', '.join(ARCHIVE_SUFFIXES)})")
    raise InputError(f"no such folder or archive: {path}")


def tree_with(path: Path, marker: str) -> Tree | None:
    """Return the tree that has the file ``marker`` at its top: at ``path`` or at most two folders deeper."""
    if path.is_dir():
        found = next((hit for depth in ("", "*/", "*/*/") for hit in sorted(path.glob(depth + marker))), None)
        return open_tree(found.parents[marker.count("/")]) if found else None
    if not is_archive(path):
        return None
    tree = open_tree(path)
    hits = [name for name in tree.files if f"/{name}".endswith(f"/{marker}")]
    if not hits:
        return None
    nearest = min(hits, key=lambda name: name.count("/"))
    return tree.below(nearest.removesuffix(marker).rstrip("/"))


def split_archive(folder: Path, split: str) -> Path | None:
    """Return the archive in the folder that is named after a split, such as train.tar."""
    return next((p for suffix in ARCHIVE_SUFFIXES if (p := folder / f"{split}{suffix}").is_file()), None)


def _split_archives(folder: Path) -> Iterator[tuple[str, ArchiveSource]]:
    for split in SPLITS:
        archive = split_archive(folder, split)
        if archive is None or (folder / split).is_dir():
            continue
        for member in open_archive(archive).members:
            if not is_hidden(member):
                name = member if member.startswith(f"{split}/") else f"{split}/{member}"
                yield name, ArchiveSource(archive, member, name)


def walk_files(top: Path, but: Collection[Path] = ()) -> Iterator[str]:
    """Yield the names of the files below a folder, folder by folder.

    Hidden files, model folders of fiveshot and the folders in ``but`` are left out. ``top`` itself is always read.
    """
    seen = {path.resolve() for path in but} - {top.resolve()}
    for folder, folders, files in os.walk(top, followlinks=True):
        real = Path(folder).resolve()
        below = Path(folder).relative_to(top).as_posix()
        if real in seen or (below != "." and all(name in files for name in MODEL_FILES)):
            folders[:] = []
            continue
        seen.add(real)  # a link to a parent folder would otherwise loop for ever
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        start = "" if below == "." else f"{below}/"
        yield from (start + name for name in sorted(files) if not is_hidden(name))


def without_models(names: Iterable[str]) -> list[str]:
    """Return the names of files that are not inside a model folder.

    >>> without_models(["owl/1.jpg", "birds/model.toml", "birds/classes.sqlite", "birds/base/statistics"])
    ['owl/1.jpg']
    """
    listed = list(names)
    holding = [{name.rpartition("/")[0] for name in listed if name.endswith(f"/{own}")} for own in MODEL_FILES]
    models = set.intersection(*holding)
    return [name for name in listed if models.isdisjoint(str(one) for one in PurePosixPath(name).parents)]


def is_model_folder(folder: Path) -> bool:
    """Tell whether a folder is a fiveshot model; models hold no photos to read."""
    return all((folder / name).is_file() for name in MODEL_FILES)


def is_hidden(name: str) -> bool:
    """Tell whether a file or one of its folders is hidden."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
