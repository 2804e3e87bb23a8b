"""Protocols of few-shot class-incremental learning: which classes arrive when, and with how many shots."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fiveshot.errors import InputError, unknown_name

ShotDraw = Literal["random", "first"]
PAPER_ORDER_SEED = 1993


def _require_integer(name: str, value: object, least: int, most: float = float("inf")) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        allowed = f"of at least {least}" if most == float("inf") else f"from {least} to {most}"
        raise InputError(f"{name} must be an integer {allowed}, not {value!r}")


@dataclass(frozen=True)
class Protocol:
    """A class order cut into sessions, and how the shots of later sessions are drawn.

    The classes are permuted with ``order_seed`` (None keeps their order); session 0 has the first
    ``base_classes`` of them with all their training images, every later session the next ``increment`` with
    ``shots`` images each. What remains at the end is a smaller last session, be it of one class.
    ``shot_draw="random"`` draws with ``shot_seed``, ``"first"`` takes the first images of a class in the
    order of the dataset, as the published code does.

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
    paper_sessions: tuple[int, ...] = ()  # sessions at which the paper reports A_HM

    def __post_init__(self) -> None:
        """Refuse a protocol that cannot be run."""
        for name in ("n_classes", "base_classes", "increment", "shots"):
            _require_integer(name, getattr(self, name), 1)
        _require_integer("shot_seed", self.shot_seed, 0)
        if self.order_seed is not None:
            _require_integer("order_seed", self.order_seed, 0, 2**32 - 1)
        if self.base_classes > self.n_classes:
            raise InputError(
                f"protocol {self.name!r}: {self.base_classes} base classes of {self.n_classes}; "
                f"choose at most {self.n_classes}"
            )
        if self.shot_draw not in get_args(ShotDraw):
            raise unknown_name("shot draw", self.shot_draw, get_args(ShotDraw))
        object.__setattr__(self, "paper_sessions", tuple(self.paper_sessions))
        if any(not 0 <= number < len(self.session_sizes) for number in self.paper_sessions):
            raise InputError(
                f"protocol {self.name!r} has sessions 0 to {len(self.session_sizes) - 1}; "
                f"paper_sessions names {list(self.paper_sessions)}"
            )

    @property
    def session_sizes(self) -> tuple[int, ...]:
        """Number of classes each session introduces."""
        later = self.n_classes - self.base_classes
        whole, rest = divmod(later, self.increment)
        return (self.base_classes, *[self.increment] * whole, *[rest] * (rest > 0))

    @property
    def class_order(self) -> tuple[int, ...]:
        """Label indices in the order the classes arrive.

        >>> get_protocol("cifar100/small").class_order[:5]
        (68, 56, 78, 8, 23)
        """
        if self.order_seed is None:
            return tuple(range(self.n_classes))
        # The legacy generator, because numpy.random.seed(1993) and permutation made the paper's order.
        order = np.random.RandomState(self.order_seed).permutation(self.n_classes)
        return tuple(order.tolist())

    @property
    def session_classes(self) -> tuple[tuple[int, ...], ...]:
        """Label indices of the classes each session introduces."""
        order = iter(self.class_order)
        return tuple(tuple(next(order) for _ in range(size)) for size in self.session_sizes)

    @property
    def is_papers(self) -> bool:
        """Whether the paper has figures for this: a named setting, whatever the seed and draw of shots."""
        named = PROTOCOLS.get(self.name)
        return named == dataclasses.replace(self, shot_seed=0, shot_draw="random")

    def replace(self, **changes: Any) -> Protocol:
        """Return the protocol with some values changed.

        When the sessions change, the paper's session numbers mean nothing any more and are dropped.

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


def _named(name: str, n_classes: int, base: int, increment: int, *paper_sessions: int) -> Protocol:
    dataset = name.split("/")[0]
    return Protocol(name, dataset, n_classes, base, increment, paper_sessions=paper_sessions)


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
    )
}
"""The paper's protocols by name, such as ``cub200/big``.

A ``small`` one starts with as many classes as every later session adds, a ``big`` one with half of all.
"""


def get_protocol(name: str) -> Protocol:
    """Return one of the paper's protocols.

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
