"""Keep photos that a watch was not sure of, for a person to name later."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fiveshot.errors import FiveshotError, InputError, counted
from fiveshot.recognizer import (
    Recognizer,
    SeenPhoto,
    follow_clock,
    has_too_many_sightings,
    keep_sighting,
    limit_sightings,
)
from fiveshot.values import SightingLimits
from fiveshot.watch.sources import KEEP, Notices

WAITING = 16  # photos in memory that could not be written yet
CHECKED = 60.0  # seconds between two looks at the age of sightings, where no photo is kept
JUMP = 3600.0  # seconds by which the system's clock must run ahead of the time that has passed
Which: TypeAlias = Literal["unsure", "all"]


@dataclass(frozen=True, eq=False)
class _WaitingPhoto:
    photo: SeenPhoto
    seen: str
    source: str
    region: str


class Keeper:
    """Keeps photos in the folder of the model, in the order in which they were seen.

    What cannot be written, on a full disk say, is reported once and waits in memory. It is tried again with every
    photo. If too many wait, the oldest is lost, and the report of the recovery says how many were.
    """

    def __init__(self, recognizer: Recognizer, which: Which, limits: SightingLimits) -> None:
        self._recognizer, self._which, self._limits = recognizer, which, limits
        self._waiting: deque[_WaitingPhoto] = deque()
        self._lost = 0
        self._checked = time.monotonic()
        self._started = time.time() - time.monotonic()  # by the system's clock
        limit_sightings(recognizer, limits)  # an error here ends the watch before it begins

    def add(self, photo: SeenPhoto, notices: Notices, *, seen: str, source: str, region: str = "") -> None:
        """Keep a photo if it is wanted, and write the photos that wait."""
        if self._which == "all" or not photo.prediction.is_sure:
            self._waiting.append(_WaitingPhoto(photo, seen, source, region))
        self.write(notices)

    def tidy(self, notices: Notices) -> None:
        """Erase sightings that are too old, from time to time, even if no photo is kept."""
        if time.monotonic() - self._checked >= CHECKED:
            self._checked = time.monotonic()
            try:
                self._follow_clock()
                if has_too_many_sightings(self._recognizer, self._limits):
                    limit_sightings(self._recognizer, self._limits)
            except FiveshotError as error:
                notices.trouble(KEEP, f"cannot erase old sightings: {error.message}; retrying")
            else:
                if not self._waiting:
                    self._recovered(notices)

    def write(self, notices: Notices) -> None:
        """Write the photos that wait, the oldest first."""
        while self._waiting:
            one = self._waiting[0]
            try:
                self._follow_clock()
                keep_sighting(
                    self._recognizer, one.photo, self._limits, seen=one.seen, source=one.source, region=one.region
                )
            except InputError as error:  # this photo can never be kept
                notices.trouble(KEEP, f"a sighting is not kept: {error}")
                self._lost += 1
            except FiveshotError as error:
                notices.trouble(KEEP, f"cannot keep sightings: {error.message}; retrying")
                self._drop_oldest()
                return
            else:
                self._recovered(notices)
            self._waiting.popleft()

    def _follow_clock(self) -> None:
        """Let sightings keep their age if the system's clock has jumped ahead, as without a network at first."""
        started = time.time() - time.monotonic()
        if started - self._started > JUMP:
            follow_clock(self._recognizer, started - self._started)
        self._started = started

    def _recovered(self, notices: Notices) -> None:
        lost = f"; {counted(self._lost, 'sighting')} could not be kept" if self._lost else ""
        notices.over(KEEP, f"sightings are written again{lost}")
        self._lost = 0

    def _drop_oldest(self) -> None:
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._lost += 1
