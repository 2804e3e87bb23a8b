"""The community's session lists: which images each few-shot session trains on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.folders import is_image
from fiveshot.data.sources import read_regular
from fiveshot.errors import InputError, some_of

_FILE = re.compile(r"^(session|test)_(\d+)\.txt$")
# The shots of Tao et al. (CVPR 2020), also used by CEC and most later work: one per line, session by session.
LISTS = Path(__file__).parent / "lists"


@dataclass(frozen=True)
class SessionLists:
    """The listed images of each session, in file order.

    Parameters
    ----------
    train : tuple of tuple of str
        Per session the training images: paths, or indices written as digits.
    test : tuple of tuple of str
        Per session the test images of its own classes; empty if there are no test lists.

    Examples
    --------
    >>> lists = SessionLists(train=(("owl/1.jpg", "wren/1.jpg"), ("rook/3.jpg",)), test=())
    >>> [len(session) for session in lists.train]
    [2, 1]
    """

    train: tuple[tuple[str, ...], ...]
    test: tuple[tuple[str, ...], ...]


def read_session_lists(folder: Path) -> SessionLists:
    """Read ``session_1.txt`` ... and, if present, ``test_1.txt`` ... from a folder.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    SessionLists
        What they list.

    Raises
    ------
    InputError
        When a list is missing, empty or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.data import read_session_lists
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "session_1.txt").write_text("owl/1.jpg\\nwren/1.jpg")
    ...     _ = Path(folder, "session_2.txt").write_text("rook/3.jpg")
    ...     read_session_lists(Path(folder)).train
    (('owl/1.jpg', 'wren/1.jpg'), ('rook/3.jpg',))
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"no such folder of session lists: {folder}")
    found: dict[str, dict[int, Path]] = {"session": {}, "test": {}}
    for file in folder.iterdir():
        if match := _FILE.match(file.name):
            found[match[1]][int(match[2])] = file
    train, test = found["session"], found["test"]
    if sorted(train) != list(range(1, len(train) + 1)) or not train:
        raise InputError(
            f"{folder} must hold session_1.txt, session_2.txt, ... without a gap; "
            f"found sessions {', '.join(map(str, sorted(train))) or 'none'}"
        )
    if test and set(test) != set(train):
        raise InputError(f"{folder} has {len(train)} session lists, but test lists for {sorted(test)}")
    return SessionLists(*(tuple(_lines(files[n]) for n in sorted(files)) for files in (train, test)))


def official_shots(dataset: str) -> tuple[str, ...]:
    """Return the images that the community's lists have for the classes after the base session.

    >>> len(official_shots("cub200")), official_shots("cifar100")[:2]
    (500, ('29774', '33344'))
    """
    known = sorted(file.stem for file in LISTS.glob("*.txt"))
    if dataset not in known:
        raise InputError(
            f"{dataset!r} has no official lists of shots",
            hint=f"only {', '.join(known)} have them; draw the shots, or give lists with --sessions",
        )
    return _lines(LISTS / f"{dataset}.txt")


def match_names(lists: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[NDArray[np.int64], ...]:
    """Return for each list the positions of its entries in ``names``, in list order.

    A path matches a name with the same class folder and file; parent folders and the extension do not matter.
    An index matches the name that ends in that number (``train/29774``), never a position, because
    positions differ in a part of the dataset.

    Parameters
    ----------
    lists : sequence of sequence of str
        The lists.
    names : sequence of str
        Names of the images.

    Returns
    -------
    tuple of ndarray of int64
        Positions, in the order of each list.

    Raises
    ------
    InputError
        When an entry matches no name, or several equally well.

    Examples
    --------
    >>> match_names([["CUB/images/001.Owl/b.jpg"]], ["train/001.Owl/a.webp", "train/001.Owl/b.webp"])
    (array([1]),)
    >>> match_names([["7", "3"]], ["train/00003", "train/00007"])
    (array([1, 0]),)
    """
    by_key: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        for key in _keys(name):
            by_key.setdefault(key, []).append(position)
    entries = [entry for session in lists for entry in session]
    missing = [entry for entry in entries if _wanted(entry) not in by_key]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(entries)} listed images are not in the dataset: {some_of(missing)}",
            hint="get the complete official files",
        )
    return tuple(
        np.array([_nearest(entry, by_key[_wanted(entry)], names) for entry in session], dtype=np.int64)
        for session in lists
    )


def _lines(file: Path) -> tuple[str, ...]:
    try:
        text = read_regular(file).decode("utf-8")
    except (InputError, OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the session list {file}: {error}") from error
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise InputError(f"the session list {file} is empty")
    return lines


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name.replace("\\", "/"))
    return (path.with_suffix("") if is_image(name) else path).parts


def _keys(name: str) -> Iterator[str]:
    """Yield the keys that an entry may use for an image: class and file, the file alone, or a number."""
    *folders, stem = _parts(name)
    if folders:
        yield f"{folders[-1]}/{stem}"
    yield stem
    if stem.isdecimal() and stem != str(int(stem)):
        yield str(int(stem))


def _wanted(entry: str) -> str:
    return "/".join(_parts(entry)[-2:])


def _nearest(entry: str, positions: Sequence[int], names: Sequence[str]) -> int:
    """Prefer the name that shares the most folders with the entry."""
    if len(positions) == 1:
        return positions[0]
    shared = [_shared_end(_parts(entry), _parts(names[position])) for position in positions]
    if shared.count(max(shared)) > 1:
        raise InputError(
            f"{entry} matches several images: {some_of([names[p] for p in positions], 3)}",
            hint="give the names of one split only",
        )
    return positions[shared.index(max(shared))]


def _shared_end(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
