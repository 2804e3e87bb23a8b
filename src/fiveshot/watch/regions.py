"""Regions: named parts of every photo, for a camera that stands still, and whether a part has changed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import Box
from fiveshot.errors import InputError

MOST_REGIONS = 32  # they go through the network together
LONGEST_NAME = 50  # characters
CELLS = 16  # a picture is compared in 16 x 16 cells at most: the noise of single pixels averages out
CELL_SIDE, FEWEST_CELLS = 16, 2  # pixels of the camera; so a small region has fewer cells
CHANGED = 8.0  # of 255: by how much the mean of a cell must change, in one color
EXAMPLE = "write for example gate=0.1,0.2,0.3,0.4 or gate=120,80,200,160; a name needs a letter a to z, or a digit"
Cells: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True)
class NamedBox:
    """A region: its name, and its part of every photo.

    >>> NamedBox.parse("gate=0.1,0.2,0.3,0.4").box
    Box(x=0.1, y=0.2, width=0.3, height=0.4)
    """

    name: str
    box: Box

    @classmethod
    def parse(cls, text: str) -> NamedBox:
        """Return the region for a text such as ``gate=0.1,0.2,0.3,0.4``; refuse a box that fits no picture."""
        name, equals, numbers = text.rpartition("=")
        if not equals or not plain_id(name) or not name.isprintable() or len(name) > LONGEST_NAME:
            raise InputError(f"{text!r:.100} is not NAME=X,Y,W,H", hint=EXAMPLE, code="bad_region")
        box = Box.parse(numbers)
        if not box.fits_some_picture:
            raise InputError(f"{text!r:.100} lies outside of every picture", hint=EXAMPLE, code="bad_region")
        return cls(name.strip(), box)


def parse_regions(given: Sequence[str]) -> tuple[NamedBox, ...]:
    """Return the regions for texts; refuse two of the same name.

    >>> [one.name for one in parse_regions(["gate=0,0,0.5,1", "bowl=0.5,0,0.5,1"])]
    ['gate', 'bowl']
    """
    regions = tuple(map(NamedBox.parse, given))
    if len(regions) > MOST_REGIONS:
        raise InputError(f"{len(regions)} regions are too many", hint=f"give at most {MOST_REGIONS}")
    by_id = dict[str, str]()
    for one in regions:
        key = plain_id(one.name)
        if key in by_id:
            raise InputError(
                f"the regions {by_id[key]!r} and {one.name!r} have the same name in topics",
                hint="give each another name",
                code="bad_region",
            )
        by_id[key] = one.name
    return regions


def plain_id(name: str) -> str:
    """Return a name in the form that topics and ids allow, without accents.

    >>> plain_id("Garden gate!"), plain_id("Küche")
    ('garden_gate', 'kuche')
    """
    letters = unicodedata.normalize("NFKD", name.casefold())
    return re.sub(r"[^a-z0-9]+", "_", "".join(one for one in letters if not unicodedata.combining(one))).strip("_")


def cell_means(pixels: NDArray[np.uint8], short_side: int) -> Cells:
    """Return the means of the cells of a picture as the network gets it, in each color of each view.

    ``short_side`` is that of the picture, or of the region, before it was scaled.

    >>> gray = np.full((1, 3, 32, 32), 7, np.uint8)
    >>> cell_means(gray, short_side=480).shape, cell_means(gray, short_side=64).shape
    ((3, 16, 16), (3, 4, 4))
    """
    cells = max(FEWEST_CELLS, min(CELLS, short_side // CELL_SIDE))
    planes = pixels.reshape(-1, *pixels.shape[-2:])  # (views · 3, height, width)
    edges = [np.linspace(0, side, min(cells, side), endpoint=False).astype(int) for side in planes.shape[1:]]
    sums = np.add.reduceat(np.add.reduceat(planes.astype(np.float32), edges[0], axis=1), edges[1], axis=2)
    sizes = [np.diff([*one, side]) for one, side in zip(edges, planes.shape[1:], strict=True)]
    return np.asarray(sums / np.outer(*sizes), dtype=np.float32)


class Stillness:
    """Remembers the picture that was computed last, and tells whether another one differs from it.

    Comparing with the last computed picture, not with the last one, notices slow changes, too.

    >>> still, gray = Stillness(), np.full((1, 3, 32, 32), 100, np.uint8)
    >>> [still.differs(gray + more, short_side=480, state=1) for more in (0, 8, 9)]
    [True, False, True]
    """

    def __init__(self) -> None:
        self._last: Cells | None = None
        self._state = -1

    def differs(self, pixels: NDArray[np.uint8], *, short_side: int, state: int) -> bool:
        """Tell whether a picture must be computed: it has changed, or the model has. Then remember it."""
        now, last = cell_means(pixels, short_side), self._last
        is_like = last is not None and last.shape == now.shape and bool(np.abs(now - last).max() <= CHANGED)
        if is_like and self._state == state:
            return False
        self._last, self._state = now, state
        return True

    def forget(self) -> None:
        """Compute the next picture: the answer for the last one was lost."""
        self._last = None
