"""Groups of classes: ``owl/barn owl`` is a class of the group ``owl``; and how sure an answer is at each level.

The probability of a group is the sum over its classes, so it is as well calibrated as they are.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError, StorageError, is_number
from fiveshot.recognizer.names import check_name
from fiveshot.storage import FilePath
from fiveshot.values import Candidate

SLASH = "/"
TAXONOMY_COLUMNS = ["name", "parent"]  # of a taxonomy file


def levels_of(name: str) -> tuple[str, ...]:
    """Return the groups of a class from the widest on, and the class itself.

    >>> levels_of("bird/owl/barn owl"), levels_of("wren"), levels_of("/ odd")
    (('bird', 'bird/owl', 'bird/owl/barn owl'), ('wren',), ('/ odd',))
    """
    parts = [part.strip() for part in name.split(SLASH)]
    if not all(parts):
        return (name,)
    return (*(SLASH.join(parts[:depth]) for depth in range(1, len(parts))), name)


def short_name(name: str) -> str:
    """Return the name of a class without its groups.

    >>> short_name("owl/barn owl"), short_name("wren")
    ('barn owl', 'wren')
    """
    return name if len(levels_of(name)) == 1 else name.rpartition(SLASH)[2].strip()


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a model's classes, as a tree. A group with one class adds nothing and does not count.

    Attributes
    ----------
    classes : tuple of str
        Names of the classes.
    members : mapping of str to array of int
        By group, the numbers of all its classes.
    inner : mapping of str to tuple of str
        By group, the groups right below it; an empty name stands for everything.
    own : mapping of str to array of int
        By group, the numbers of the classes right below it.

    Examples
    --------
    >>> owls = Groups.of(("owl/barn owl", "owl/tawny owl", "wren"))
    >>> owls.chains(np.array([[0.5, 0.25, 0.25]]))
    [(Candidate(label='owl', probability=0.75), Candidate(label='owl/barn owl', probability=0.5))]
    """

    classes: tuple[str, ...]
    members: Mapping[str, NDArray[np.intp]]
    inner: Mapping[str, tuple[str, ...]]
    own: Mapping[str, NDArray[np.intp]]

    @classmethod
    def of(cls, classes: Sequence[str]) -> Groups:
        """Return the groups in the names of classes."""
        paths = [levels_of(name) for name in classes]
        named = {group for path in paths for group in path[:-1]}
        # A class with the name of a group belongs to the group: an owl of unknown species is an owl.
        paths = [path[:-1] if path[-1] not in named else path for path in paths]
        sizes = Counter(group for path in paths for group in path)
        members: dict[str, list[int]] = {}
        inner: dict[str, dict[str, None]] = {"": {}}
        own: dict[str, list[int]] = {"": []}
        for number, path in enumerate(paths):
            groups = ["", *(group for group in path if sizes[group] > 1)]
            for above, group in pairwise(groups):
                inner.setdefault(above, {})[group] = None
                members.setdefault(group, []).append(number)
            own.setdefault(groups[-1], []).append(number)
        return cls(
            tuple(classes),
            {group: np.array(numbers) for group, numbers in members.items()},
            {above: tuple(inner.get(above, ())) for above in ("", *members)},
            {above: np.array(own.get(above, []), dtype=np.intp) for above in ("", *members)},
        )

    def chains(self, probabilities: NDArray[Any]) -> list[tuple[Candidate, ...]]:
        """Return for each row the most probable group, the most probable one in it, and so on down to a class.

        A group or class with a probability above a half is always among them.
        """
        chains: list[list[Candidate]] = [[] for _ in probabilities]
        waiting = [("", np.arange(len(probabilities)))] if self.members else []
        while waiting:
            above, rows = waiting.pop()
            of_groups = [
                probabilities[np.ix_(rows, self.members[group])].sum(axis=1) for group in self.inner[above]
            ]
            chances = np.column_stack([probabilities[np.ix_(rows, self.own[above])], *of_groups])
            best = chances.argmax(axis=1)
            for row, choice, chance in zip(rows, best, chances.max(axis=1), strict=True):
                chains[row].append(Candidate(self._below(above, int(choice)), min(float(chance), 1.0)))
            for number, group in enumerate(self.inner[above], len(self.own[above])):
                if (best == number).any():
                    waiting.append((group, rows[best == number]))
        return [tuple(chain) for chain in chains]

    def _below(self, above: str, number: int) -> str:
        own = self.own[above]
        return self.classes[own[number]] if number < len(own) else self.inner[above][number - len(own)]


def check_sure(sure: float | None) -> None:
    """Refuse a probability that cannot be one."""
    if sure is not None and not (is_number(sure) and 0 < sure <= 1):
        raise InputError(f"sure={sure!r} is not a probability", hint="give one such as 0.8")


def surest(chain: Sequence[Candidate], sure: float) -> Candidate | None:
    """Return the narrowest level that is sure, or None.

    The only class of a model has no probability, and is always the answer.

    >>> owl, barn_owl, wren = Candidate("owl", 0.9), Candidate("owl/barn owl", 0.5), Candidate("wren", None)
    >>> surest([owl, barn_owl], 0.8).label, surest([wren], 0.9).label, surest([owl, barn_owl], 0.95)
    ('owl', 'wren', None)
    """
    enough = [level for level in chain if level.probability is None or level.probability >= sure]
    return enough[-1] if enough else None


def is_within(name: str, group: str) -> bool:
    """Tell whether a class is the one that was answered, or belongs to the group that was.

    >>> is_within("owl/barn owl", "owl"), is_within("owlet", "owl"), is_within("owl", "owl")
    (True, False, True)
    """
    return group in levels_of(name)


def full_names(names: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return names with their groups, if just one class has that short name.

    >>> full_names(["barn owl", "wren"], ["owl/barn owl", "owl/tawny owl"])
    ['owl/barn owl', 'wren']
    """
    known = set(classes)
    counts = Counter(map(short_name, classes))
    grouped = {short_name(name): name for name in classes if counts[short_name(name)] == 1}
    return [name if name in known else grouped.get(name, name) for name in names]


def read_parents(file: FilePath) -> dict[str, str]:
    """Return the parent of each name in a taxonomy file: CSV in UTF-8 with the columns ``name`` and ``parent``."""
    path = Path(file)
    try:
        with path.open(encoding="utf-8-sig", newline="") as opened:
            rows = list(csv.reader(opened))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not CSV in UTF-8", hint="save it as CSV UTF-8") from error
    if not rows or [cell.strip().lower() for cell in rows[0]] != TAXONOMY_COLUMNS:
        raise InputError(f"{path} does not begin with the line name,parent", hint="write it as its first line")
    parents: dict[str, str] = {}
    for number, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(TAXONOMY_COLUMNS):
            raise InputError(
                f"line {number} of {path} has {len(row)} cells, not 2", hint="quote names with commas"
            )
        name, parent = _node(row[0]), _node(row[1]) if row[1].strip() else ""
        if parents.setdefault(name, parent) != parent:
            raise InputError(f"line {number} of {path} gives {name!r} a second parent", hint="keep one of them")
    return parents


def _node(text: str) -> str:
    name = check_name(text)
    if SLASH in name:
        raise InputError(f"{name!r} has a slash", hint="give each level its own line")
    return name


def grouped_names(classes: Sequence[str], parents: Mapping[str, str]) -> dict[str, str]:
    """Return the new names of classes that get another name from their parents, by their present names.

    >>> grouped_names(["barn owl", "wren"], {"barn owl": "owl", "owl": "bird"})
    {'barn owl': 'bird/owl/barn owl'}
    """
    renamed: dict[str, str] = {}
    for name in classes:
        short = short_name(name)
        if short in parents:
            renamed[name] = check_name(SLASH.join(_path(short, parents)))
    twice = [name for name, count in Counter(renamed.get(name, name) for name in classes).items() if count > 1]
    if twice:
        raise InputError(f"two classes would be called {twice[0]!r}", hint="rename one of them first")
    return {name: new for name, new in renamed.items() if new != name}


def _path(name: str, parents: Mapping[str, str]) -> list[str]:
    path = [name]
    while parents.get(path[0]):
        if parents[path[0]] in path:
            raise InputError(f"{name!r} is among its own parents", hint="correct the taxonomy")
        path.insert(0, parents[path[0]])
    return path
