"""The memory of a head: raw statistics of the base classes and, separately, of the new classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from fiveshot.core.labels import Label, Labels, python_label, python_labels
from fiveshot.core.statistics import NO_CLASSES, ClassStatistics, ClassSummary, unknown_class
from fiveshot.errors import InputError

Model = TypeVar("Model")


@dataclass(frozen=True, eq=False)
class Memory:
    """Raw statistics in two parts. Calibration reads the base part and changes neither.

    Attributes
    ----------
    base : ClassStatistics
        The classes of the base session.
    new : ClassStatistics
        Later classes.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import Memory, class_statistics
    >>> memory = Memory(base=class_statistics(np.eye(2), ["owl", "wren"]))
    >>> memory = memory.learn(class_statistics(np.ones((5, 2)), ["kite"] * 5))
    >>> [(label, summary.count, is_new) for label, summary, is_new in memory]
    [('kite', 5, True), ('owl', 1, False), ('wren', 1, False)]
    """

    base: ClassStatistics = NO_CLASSES
    new: ClassStatistics = NO_CLASSES

    @property
    def labels(self) -> Labels:
        """All classes, sorted."""
        return self.statistics.labels

    @cached_property
    def statistics(self) -> ClassStatistics:
        """Raw statistics of all classes."""
        return self.base.merge(self.new)

    def __iter__(self) -> Iterator[tuple[Label, ClassSummary, bool]]:
        """Yield (label, raw statistics, whether the class is new), in the order of the labels."""
        statistics, new = self.statistics, set(python_labels(self.new.labels))
        for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True):
            yield label, summary, label in new

    def learn(self, session: ClassStatistics) -> Memory:
        """Return the memory after a session; the first one is the base session."""
        if not len(self.base) and not len(self.new):
            return Memory(base=session)
        of_base = [label for label in python_labels(session.labels) if label in self.base]
        base = self.base.merge(session.restrict(of_base)) if of_base else self.base
        return Memory(base, self.new.merge(session.drop(of_base)))

    def forget(self, labels: Iterable[Label]) -> Memory:
        """Return the memory without these classes."""
        labels = list(dict.fromkeys(python_label(label) for label in labels))
        for label in labels:
            if label not in self.base and label not in self.new:
                raise unknown_class(label, self.labels)
        of_base = [label for label in labels if label in self.base]
        of_new = [label for label in labels if label in self.new]
        if len(self.base) and len(of_base) == len(self.base):
            raise InputError(f"cannot forget {of_base[0]!r}: no base class would be left; fit a new head instead")
        base = self.base.drop(of_base) if of_base else self.base
        return Memory(base, self.new.drop(of_new) if of_new else self.new)


@dataclass(frozen=True, eq=False)
class ClassModels(Generic[Model]):
    """One derived model per class, and the memory they were derived from.

    Attributes
    ----------
    memory : Memory
        The memory they were derived from.
    models : dict
        The model of each class.

    Examples
    --------
    >>> from fiveshot.core import ClassModels, Memory
    >>> ClassModels(Memory(), {"owl": 0.5, "wren": 2.0}).of(["wren", "owl"])
    [2.0, 0.5]
    """

    memory: Memory
    models: dict[Label, Model]

    def of(self, labels: Iterable[Label]) -> list[Model]:
        """Return the models of these classes."""
        return [self.models[label] for label in labels]


def derive_models(
    memory: Memory,
    derive: Callable[[ClassSummary, bool], Model],
    previous: ClassModels[Model] | None,
) -> ClassModels[Model]:
    """Derive a model for each class; keep models whose statistics (for new classes also the base) are unchanged.

    Parameters
    ----------
    memory : Memory
        Raw statistics of the classes.
    derive : callable
        Takes the raw statistics of a class, and whether it is new; returns its model.
    previous : ClassModels or None
        The earlier models.

    Returns
    -------
    ClassModels

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import Memory, class_statistics, derive_models
    >>> base = Memory(class_statistics(np.eye(2), ["owl", "wren"]))
    >>> before = derive_models(base, lambda summary, is_new: summary.mean, None)
    >>> later = base.learn(class_statistics(np.ones((5, 2)), ["kite"] * 5))
    >>> after = derive_models(later, lambda summary, is_new: summary.mean, before)
    >>> sorted(after.models), after.models["owl"] is before.models["owl"]
    (['kite', 'owl', 'wren'], True)
    """
    stale = {label: derive(summary, is_new) for label, summary, is_new in stale_classes(memory, previous)}
    kept = previous.models if previous is not None else {}
    models = {label: stale[label] if label in stale else kept[label] for label in python_labels(memory.labels)}
    return ClassModels(memory, models)


def stale_classes(memory: Memory, previous: ClassModels[Any] | None) -> list[tuple[Label, ClassSummary, bool]]:
    """Return the classes that :func:`derive_models` derives again, in its order."""
    before = previous.memory if previous is not None else Memory()
    same_base = before.base is memory.base
    known = [dict(zip(python_labels(one.labels), one.summaries, strict=True)) for one in (before.base, before.new)]
    return [
        (label, summary, is_new)
        for label, summary, is_new in memory
        if known[is_new].get(label) is not summary or (is_new and not same_base)
    ]
