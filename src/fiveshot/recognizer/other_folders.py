"""Folders of an evaluation that are no class: meant to be strangers, or misspelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

ALIKE = 0.8  # likeness of two names from which on one may be meant by the other
COMPARED = 100_000  # pairs of a folder and a class, about a second: of more, only other capitals are found out


@dataclass(frozen=True)
class OtherFolder:
    """Photos under a name that is no class of the model; ``like`` is a class that may have been meant.

    >>> str(OtherFolder("FISH", photos=3, like="fish")), str(OtherFolder("moss", photos=3))
    ("FISH (like 'fish'?)", 'moss')
    """

    name: str
    photos: int
    like: str | None = None

    def __str__(self) -> str:
        return self.name if self.like is None else f"{self.name} (like {self.like!r}?)"


def other_folders(names: Sequence[str], classes: Sequence[str]) -> list[OtherFolder]:
    """Return the names, one for each photo, that are none of the classes.

    >>> [str(one) for one in other_folders(["owl", "Owl", "wern", "moss"], ["owl", "wren"])]
    ["Owl (like 'owl'?)", 'moss', 'wern']
    """
    known = set(classes)
    counts = Counter(name for name in names if name not in known)
    by_folded = {name.casefold(): name for name in reversed(classes)}
    compared = COMPARED // max(1, len(by_folded))  # folders, each with all classes
    found = []
    for number, (name, photos) in enumerate(sorted(counts.items())):
        like = by_folded.get(name.casefold())
        if like is None and number < compared:
            like = next((by_folded[one] for one in get_close_matches(name.casefold(), by_folded, 1, ALIKE)), None)
        found.append(OtherFolder(name, photos, like))
    return found
