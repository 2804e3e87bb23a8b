"""Protocols of few-shot class-incremental learning: the classes, training and test images of each session."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.core.ranges import OneOf
from fiveshot.data import match_names, official_shots
from fiveshot.errors import InputError, unknown_name

Indices: TypeAlias = NDArray[np.int64]
ShotDraw = Literal["random", "first", "listed"]
PAPER_ORDER_SEED = 1993


def _require_integer(name: str, value: object, least: int, most: float = float("inf")) -> None:
    """Refuse a value that is not an integer in the range."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        allowed = f"of at least {least}" if most == float("inf") else f"from {least} to {most}"
        raise InputError(f"{name} must be an integer {allowed}, not {value!r}")


@dataclass(frozen=True)
class Protocol:
    """A class order cut into sessions, and how the shots of later sessions are drawn.

    Session 0 has the first ``base_classes`` classes with all their training images, every later session the next
    ``increment`` classes with ``shots`` images each. The last session may be smaller.

    Parameters
    ----------
    name, dataset : str
        The name of the protocol in tables, and its dataset.
    n_classes, base_classes, increment : int
        Number of all classes, of classes in session 0, and in each later session.
    order_seed : int or None
        Seed of the permutation of the classes; None keeps their order. The paper uses 1993.
    shots : int
        Images of a new class.
    shot_seed : int
        Seed for drawing the shots.
    shot_draw : {"random", "first", "listed"}
        ``"first"`` takes the first images of a class in the order of the dataset, as the published code does.
        ``"listed"`` takes the images of the community's official lists, found by name.
    paper_sessions : tuple of int
        Sessions at which the paper reports A_HM.

    Raises
    ------
    InputError
        If the protocol cannot be run.

    Examples
    --------
    >>> from fiveshot.benchmark import Protocol
    >>> Protocol("birds", dataset="birds", n_classes=8, base_classes=3, increment=2).session_sizes
    (3, 2, 2, 1)
    """

    name: str
    dataset: str
    n_classes: int
    base_classes: int
    increment: int
    order_seed: int | None = PAPER_ORDER_SEED
    shots: int = 5
    shot_seed: int = 0
    shot_draw: ShotDraw = "random"
    paper_sessions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a protocol that cannot be run."""
        for name in ("n_classes", "base_classes", "increment", "shots"):
            _require_integer(name, getattr(self, name), 1)
        _require_integer("shot_seed", self.shot_seed, 0)
        if self.order_seed is not None:
            _require_integer("order_seed", self.order_seed, 0, 2**32 - 1)
        if self.base_classes > self.n_classes:
            raise InputError(
                f"protocol {self.name!r}: {self.base_classes} base classes of {self.n_classes}",
                hint=f"choose at most {self.n_classes}",
            )
        OneOf(get_args(ShotDraw)).check("shot draw", self.shot_draw)
        object.__setattr__(self, "paper_sessions", tuple(self.paper_sessions))
        if any(not 0 <= number < len(self.session_sizes) for number in self.paper_sessions):
            raise InputError(
                f"protocol {self.name!r} has sessions 0 to {len(self.session_sizes) - 1}; "
                f"paper_sessions names {list(self.paper_sessions)}"
            )

    @property
    def session_sizes(self) -> tuple[int, ...]:
        """Number of new classes of each session."""
        later = self.n_classes - self.base_classes
        whole, rest = divmod(later, self.increment)
        return (self.base_classes, *[self.increment] * whole, *[rest] * (rest > 0))

    @property
    def class_order(self) -> tuple[int, ...]:
        """Label indices in the order of arrival.

        >>> get_protocol("cifar100/small").class_order[:5]
        (68, 56, 78, 8, 23)
        """
        if self.order_seed is None:
            return tuple(range(self.n_classes))
        # The legacy generator, because the paper's order comes from numpy.random.seed(1993) and permutation.
        order = np.random.RandomState(self.order_seed).permutation(self.n_classes)
        return tuple(order.tolist())

    @property
    def session_classes(self) -> tuple[tuple[int, ...], ...]:
        """Label indices of the new classes of each session."""
        order = iter(self.class_order)
        return tuple(tuple(next(order) for _ in range(size)) for size in self.session_sizes)

    @property
    def is_papers(self) -> bool:
        """Whether the paper has results for this protocol; the seed and the draw of the shots may differ."""
        named = PROTOCOLS.get(self.name)
        return bool(self.paper_sessions) and named == dataclasses.replace(self, shot_seed=0, shot_draw="random")

    def replace(self, **changes: Any) -> Protocol:
        """Return the protocol with some values changed.

        Parameters
        ----------
        **changes
            Fields with their new values. When the sessions change, the paper's session numbers are dropped.

        Returns
        -------
        Protocol
            The changed copy.

        Examples
        --------
        >>> get_protocol("cub200/big").replace(shot_seed=3).paper_sessions
        (2, 4, 6, 8, 10)
        >>> get_protocol("cub200/big").replace(increment=30).paper_sessions
        ()
        """
        known = {entry.name for entry in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise unknown_name("protocol option", name, known)
        changed = dataclasses.replace(self, **{"paper_sessions": (), **changes})
        same = changed.session_sizes == self.session_sizes and "paper_sessions" not in changes
        return dataclasses.replace(changed, paper_sessions=self.paper_sessions) if same else changed


def _named(name: str, n_classes: int, base: int, increment: int, *paper_sessions: int, **values: Any) -> Protocol:
    """Return a protocol whose name begins with its dataset."""
    return Protocol(name, name.split("/")[0], n_classes, base, increment, paper_sessions=paper_sessions, **values)


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        _named("cifar100/small", 100, 10, 10, 1, 3, 5, 7, 9),
        _named("cub200/small", 200, 20, 20, 1, 3, 5, 7, 9),
        _named("cub200/big", 200, 100, 10, 2, 4, 6, 8, 10),
        _named("cars/small", 196, 28, 28, 1, 2, 4, 6),
        _named("cars/big", 196, 98, 14, 1, 3, 5, 7),
        _named("aircraft/small", 100, 10, 10, 1, 3, 5, 7, 9),
        _named("aircraft/big", 100, 50, 5, 2, 4, 6, 8, 10),
        _named("cub200/cec", 200, 100, 10, order_seed=None, shot_draw="listed"),
        _named("cifar100/cec", 100, 60, 5, order_seed=None, shot_draw="listed"),
        _named("miniimagenet/cec", 100, 60, 5, order_seed=None, shot_draw="listed"),
        _named("imagenet-r/asp", 200, 100, 10, order_seed=None),
        _named("cub200/stream", 200, 100, 1),
        _named("cifar100/stream", 100, 60, 1),
        _named("cars/stream", 196, 98, 1),
        _named("aircraft/stream", 100, 50, 1),
        _named("miniimagenet/stream", 100, 60, 1),
        _named("imagenet-r/stream", 200, 100, 1),
    )
}
"""The protocols by name, such as ``cub200/big``.

The paper's ``small`` protocols start with as many classes as every later session adds, its ``big`` ones with half
of all classes. ``cec`` is the community's protocol: classes in the dataset's order, shots from the lists of Tao et
al. (2020), as in CEC (Zhang et al., 2021) and most later work. ``asp`` is the protocol of Liu et al. (2024). A
``stream`` adds one class at a time.
"""


def get_protocol(name: str) -> Protocol:
    """Return a protocol by its name.

    Parameters
    ----------
    name : str
        Such as ``"cub200/big"``.

    Returns
    -------
    Protocol
        The protocol.

    Raises
    ------
    InputError
        If there is no protocol of this name.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol
    >>> get_protocol("cub200/big").session_sizes
    (100, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10)
    >>> get_protocol("cub200/bigg")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no protocol 'cub200/bigg'; did you mean 'cub200/big'? choose from ...
    """
    if name not in PROTOCOLS:
        raise unknown_name("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


@dataclass(frozen=True, eq=False)
class Session:
    """One step of a protocol: its new classes, its training rows and its test rows.

    Attributes
    ----------
    number : int
        From 0, the base session.
    classes : tuple of int
        Label indices, in order of arrival.
    train_indices : ndarray of int
        Rows of these classes only, class by class.
    test_indices : ndarray of int
        Rows of all classes seen so far, ascending.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, sessions
    >>> from fiveshot.features import embedded_features
    >>> birds = embedded_features("cub200")
    >>> first = sessions(get_protocol("cub200/big"), birds.train_y, birds.test_y, birds.class_names)[1]
    >>> first.number, len(first.classes), len(first.train_indices), len(first.test_indices)
    (1, 10, 50, 3181)
    """

    number: int
    classes: tuple[int, ...]
    train_indices: Indices
    test_indices: Indices


def sessions(
    protocol: Protocol,
    train_y: ArrayLike,
    test_y: ArrayLike,
    class_names: Sequence[str],
    train_names: Sequence[str] | None = None,
) -> tuple[Session, ...]:
    """Return the sessions of a protocol on a dataset.

    The result depends only on the arguments. The shots of a class depend on ``shot_seed``, its name and its own
    images, not on other classes. A larger draw contains the smaller one.

    Parameters
    ----------
    protocol : Protocol
        Which classes come when.
    train_y, test_y : array-like of int
        Labels of the training and test images, as indices into ``class_names``.
    class_names : sequence of str
        The names of all classes.
    train_names : sequence of str, optional
        The names of the training images; needed for official lists of shots.

    Returns
    -------
    tuple of Session
        Session 0 and all later ones.

    Raises
    ------
    InputError
        If the dataset does not fit the protocol, or a class has too few images.

    Examples
    --------
    >>> from fiveshot.benchmark import Protocol, sessions
    >>> protocol = Protocol("p", "d", n_classes=3, base_classes=2, increment=1, order_seed=None, shots=1)
    >>> base, new = sessions(protocol, [0, 0, 1, 2], [2, 1, 0], ("ani", "rook", "wren"))
    >>> base.train_indices, base.test_indices, new.train_indices, new.test_indices
    (array([0, 1, 2]), array([1, 2]), array([3]), array([0, 1, 2]))
    """
    train, test = (_labels(y, len(class_names)) for y in (train_y, test_y))
    if len(class_names) != protocol.n_classes:
        raise InputError(
            f"protocol {protocol.name!r} has {protocol.n_classes} classes, the dataset {len(class_names)}",
            hint="choose a protocol for this dataset",
        )
    listed = _listed_rows(protocol, train_names) if protocol.shot_draw == "listed" else None
    learned = []
    for number, classes in enumerate(protocol.session_classes):
        picked = []
        for label in classes:
            rows, name = np.flatnonzero(train == label), class_names[label]
            _require_images(rows, name, 1 if number == 0 else protocol.shots)
            if number and listed is not None:
                rows = listed[train[listed] == label]
                _require_listed(rows, name, protocol.shots)
            if number:
                rows = draw_shots(rows, protocol, name)
            picked.append(rows)
        learned.append((classes, np.concatenate(picked)))
    return _with_tests(learned, test, class_names)


def listed_sessions(
    train_lists: Sequence[ArrayLike], train_y: ArrayLike, test_y: ArrayLike, class_names: Sequence[str]
) -> tuple[Session, ...]:
    """Return the sessions for given training rows, one list per session, as from official lists.

    The classes of a session are those of its rows, in order of appearance. A class may come only once.

    Parameters
    ----------
    train_lists : sequence of array-like of int
        Rows of each session; ``fiveshot.data.match_names`` makes them from image names.
    train_y, test_y : array-like of int
        Labels of the training and test images, as indices into ``class_names``.
    class_names : sequence of str
        The names of all classes.

    Returns
    -------
    tuple of Session
        Session 0 and all later ones.

    Raises
    ------
    InputError
        If the lists contradict the labels or each other.

    Examples
    --------
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

    Parameters
    ----------
    rows : ndarray of int
        All training rows of the class.
    protocol : Protocol
        Gives the number of shots, and how they are drawn.
    class_name : str
        Part of the seed, so that each class has its own draw.

    Returns
    -------
    ndarray of int
        The chosen rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.benchmark import draw_shots, get_protocol
    >>> protocol = get_protocol("cub200/big")
    >>> draw_shots(np.arange(100, 130), protocol, "wren").tolist()
    [105, 106, 115, 122, 127]
    >>> draw_shots(np.arange(100, 130), protocol.replace(shot_draw="first"), "wren").tolist()
    [100, 101, 102, 103, 104]
    """
    if protocol.shot_draw != "random":  # the first images, or rows that come from lists
        return rows[: protocol.shots]
    name_seed = int.from_bytes(hashlib.sha256(class_name.encode("utf-8", "surrogateescape")).digest())
    rng = np.random.default_rng([protocol.shot_seed, name_seed])
    return np.sort(rng.permutation(rows)[: protocol.shots])


def _listed_rows(protocol: Protocol, names: Sequence[str] | None) -> Indices:
    """Return the rows of the official shots, in the order of the lists."""
    listed = official_shots(protocol.dataset)
    if names is None:
        raise InputError(
            f"protocol {protocol.name!r} uses official lists of shots, but these features have no image names",
            hint="extract them again from the images, or draw other shots with --shot-draw random",
        )
    (rows,) = match_names([listed], names)
    return rows


def _require_listed(rows: Indices, name: str, least: int) -> None:
    """Refuse a class with too few images in the lists: the class order or the shots differ from the lists."""
    if len(rows) < least:
        raise InputError(
            f"the official lists have {len(rows)} images of class {name!r}, but {least} are needed",
            hint="keep the protocol's own base, order and shots, or draw others with --shot-draw random",
        )


def _require_images(rows: Indices, name: str, least: int) -> None:
    """Refuse a class with too few training images."""
    if len(rows) < least:
        raise InputError(
            f"class {name!r} has {len(rows)} training images of {least} needed, those held out for testing not "
            "counted",
            hint="add some or leave the class out" + (", or take fewer with --shots" if least > 1 else ""),
        )


def _with_tests(
    learned: Sequence[tuple[tuple[int, ...], Indices]], test: NDArray[np.int64], class_names: Sequence[str]
) -> tuple[Session, ...]:
    """Add the test rows of all classes seen so far to each session."""
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
    """Return labels as a vector of indices."""
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (labels < 0).any() or (labels >= n_classes).any():
        raise InputError(f"labels must be a vector of indices into the {n_classes} class names")
    return labels.astype(np.int64, copy=False)
