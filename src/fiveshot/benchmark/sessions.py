"""The sessions of a benchmark: which training rows are learned when, and which test rows count after it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.benchmark.protocol import Protocol
from fiveshot.errors import InputError

Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Session:
    """One step: the classes it introduces, what it learns from, and what it is tested on.

    >>> from fiveshot.benchmark import get_protocol, sessions
    >>> from fiveshot.features import embedded_features
    >>> birds = embedded_features("cub200")
    >>> first = sessions(get_protocol("cub200/big"), birds.train_y, birds.test_y, birds.class_names)[1]
    >>> first.number, len(first.classes), len(first.train_indices), len(first.test_indices)
    (1, 10, 50, 3181)
    """

    number: int
    classes: tuple[int, ...]  # label indices, in order of arrival
    train_indices: Indices  # rows of these classes only, class by class
    test_indices: Indices  # rows of all classes seen so far, ascending


def sessions(
    protocol: Protocol, train_y: ArrayLike, test_y: ArrayLike, class_names: Sequence[str]
) -> tuple[Session, ...]:
    """Return the sessions of a protocol on a dataset with these labels (indices into ``class_names``).

    Nothing but the arguments decides the result. The shots of a class depend on ``shot_seed``, its name and
    its own images, not on other classes; with more shots the fewer ones stay among them.

    >>> from fiveshot.benchmark import Protocol, sessions
    >>> protocol = Protocol("p", "d", n_classes=3, base_classes=2, increment=1, order_seed=None, shots=1)
    >>> base, new = sessions(protocol, [0, 0, 1, 2], [2, 1, 0], ("ani", "rook", "wren"))
    >>> base.train_indices, base.test_indices, new.train_indices, new.test_indices
    (array([0, 1, 2]), array([1, 2]), array([3]), array([0, 1, 2]))
    """
    train, test = (_labels(y, len(class_names)) for y in (train_y, test_y))
    if len(class_names) != protocol.n_classes:
        raise InputError(
            f"protocol {protocol.name!r} has {protocol.n_classes} classes, the dataset {len(class_names)}; "
            "choose a protocol for this dataset"
        )
    rows_of = {label: np.flatnonzero(train == label) for label in range(protocol.n_classes)}
    learned = []
    for number, classes in enumerate(protocol.session_classes):
        least = 1 if number == 0 else protocol.shots
        _require_images(classes, rows_of, class_names, least)
        picked = [
            rows_of[label] if number == 0 else draw_shots(rows_of[label], protocol, class_names[label])
            for label in classes
        ]
        learned.append((classes, np.concatenate(picked)))
    return _with_tests(learned, test, class_names)


def listed_sessions(
    train_lists: Sequence[ArrayLike], train_y: ArrayLike, test_y: ArrayLike, class_names: Sequence[str]
) -> tuple[Session, ...]:
    """Return the sessions whose training rows are given, one list per session, as official lists do.

    ``fiveshot.data.match_names`` turns lists of image names into rows. The classes of a session are those of
    its rows, in order of appearance; a class may come only once.

    >>> from fiveshot.benchmark import listed_sessions
    >>> base, new = listed_sessions([[2, 0], [3]], [0, 0, 1, 2], [0, 1, 2], ("ani", "rook", "wren"))
    >>> base.classes, new.classes, new.test_indices.tolist()
    ((1, 0), (2,), [0, 1, 2])
    """
    train, test = (_labels(y, len(class_names)) for y in (train_y, test_y))
    learned: list[tuple[tuple[int, ...], Indices]] = []
    session_of: dict[int, int] = {}
    for number, given in enumerate(train_lists):
        rows = np.asarray(given, dtype=np.int64)
        if rows.ndim != 1 or len(rows) == 0 or rows.min() < 0 or rows.max() >= len(train):
            raise InputError(f"the list of session {number} must name rows from 0 to {len(train) - 1}")
        if len(np.unique(rows)) != len(rows):
            raise InputError(f"the list of session {number} names a row twice")
        classes = tuple(dict.fromkeys(train[rows].tolist()))
        for label in classes:
            if session_of.setdefault(label, number) != number:
                raise InputError(
                    f"class {class_names[label]!r} is listed in sessions {session_of[label]} and {number}"
                )
        learned.append((classes, np.concatenate([rows[train[rows] == label] for label in classes])))
    if not learned:
        raise InputError("no session lists given")
    return _with_tests(learned, test, class_names)


def draw_shots(rows: Indices, protocol: Protocol, class_name: str) -> Indices:
    """Return the rows of a class's shots, ascending: drawn by the protocol's seed, or the first ones.

    >>> import numpy as np
    >>> from fiveshot.benchmark import draw_shots, get_protocol
    >>> protocol = get_protocol("cub200/big")
    >>> draw_shots(np.arange(100, 130), protocol, "wren").tolist()
    [105, 106, 115, 122, 127]
    >>> draw_shots(np.arange(100, 130), protocol.replace(shot_draw="first"), "wren").tolist()
    [100, 101, 102, 103, 104]
    """
    if protocol.shot_draw == "first":
        return rows[: protocol.shots]
    name_seed = int.from_bytes(hashlib.sha256(class_name.encode("utf-8", "surrogateescape")).digest())
    rng = np.random.default_rng([protocol.shot_seed, name_seed])
    return np.sort(rng.permutation(rows)[: protocol.shots])


def _require_images(
    classes: Iterable[int], rows_of: dict[int, Indices], class_names: Sequence[str], least: int
) -> None:
    for label in classes:
        if len(rows_of[label]) < least:
            raise InputError(
                f"class {class_names[label]!r} has {len(rows_of[label])} training images of {least} needed, those "
                "held out for testing not counted; add some or leave the class out"
                + (", or take fewer with --shots" if least > 1 else "")
            )


def _with_tests(
    learned: Sequence[tuple[tuple[int, ...], Indices]], test: NDArray[np.int64], class_names: Sequence[str]
) -> tuple[Session, ...]:
    found: list[Session] = []
    seen = np.zeros(len(test), dtype=bool)
    for number, (classes, rows) in enumerate(learned):
        own = np.isin(test, classes)
        if not own.any():
            names = ", ".join(class_names[label] for label in classes[:8])
            raise InputError(f"session {number} ({names}) has no test images; its accuracy cannot be measured")
        seen |= own
        found.append(Session(number, classes, rows.astype(np.int64), np.flatnonzero(seen).astype(np.int64)))
    return tuple(found)


def _labels(y: ArrayLike, n_classes: int) -> NDArray[np.int64]:
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (labels < 0).any() or (labels >= n_classes).any():
        raise InputError(f"labels must be a vector of indices into the {n_classes} class names")
    return labels.astype(np.int64, copy=False)
