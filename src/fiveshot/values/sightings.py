"""Photos from a camera that have no name yet."""

from __future__ import annotations

from dataclasses import dataclass

from fiveshot.errors import InputError, is_number
from fiveshot.values.predictions import Prediction


@dataclass(frozen=True)
class SightingLimits:
    """How many sightings a model keeps. When a limit is reached, the oldest are erased.

    Attributes
    ----------
    number : int
        Most sightings.
    megabytes : float
        Most megabytes of photos.
    days : float
        Days that a sighting is kept.

    Examples
    --------
    >>> SightingLimits(number=0)
    Traceback (most recent call last):
    fiveshot.errors.InputError: cannot keep 0 sightings; give a number from 1 to 10,000
    """

    number: int = 1000
    megabytes: float = 500
    days: float = 30

    def __post_init__(self) -> None:
        if not is_number(self.number, whole=True) or not 1 <= self.number <= 10_000:
            raise InputError(f"cannot keep {self.number} sightings", hint="give a number from 1 to 10,000")
        if not is_number(self.megabytes) or not 1 <= self.megabytes <= 30_000:
            raise InputError(
                f"cannot keep {self.megabytes} megabytes of sightings", hint="give a number from 1 to 30,000"
            )
        if not is_number(self.days) or not 0 < self.days <= 36_500:
            raise InputError(
                f"cannot keep sightings for {self.days} days", hint="give a number above 0, at most 36,500"
            )


@dataclass(frozen=True)
class SightingInfo:
    """A photo that a watch has kept, because it has no name yet.

    Attributes
    ----------
    id : str
        Its id: ``s`` and a number that the model never uses again. A later sighting has a higher number.
    seen : str
        When it was seen, in UTC, by the clock of that time.
    source, region : str
        The folder or the camera, and the name of the region; empty for the whole photo.
    prediction : Prediction
        What the model said of it then.
    suggestion : str or None
        The class that the model sees now, which may know more than then; None if it does not know the photo.

    Examples
    --------
    >>> unknown = Prediction("a.jpg", None, 0.4, (), 1.0, 2.0)
    >>> SightingInfo("s3", "2026-05-01T10:00:00.000+00:00", "inbox", "", unknown).suggestion is None
    True
    """

    id: str
    seen: str
    source: str
    region: str
    prediction: Prediction
    suggestion: str | None = None


@dataclass(frozen=True)
class SightingGroup:
    """Sightings that are alike, the newest first: of a class that the model knows, or without a label.

    The id is ``g`` and the number of the oldest one, so it stays when others come.

    >>> SightingGroup("g3", None, ("s7", "s3")).ids
    ('s7', 's3')
    """

    id: str
    label: str | None
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Sightings:
    """The sightings of a model, the newest first.

    Attributes
    ----------
    sightings : tuple of SightingInfo
        All of them.
    groups : tuple of SightingGroup
        The same in groups, as the model sees them now; the group with the newest one first.
    bytes : int
        Bytes that all kept photos take, with those that an undo can bring back.
    state : int
        State of the model.

    Examples
    --------
    >>> found = Sightings((), (SightingGroup("g3", None, ("s7", "s3")),), 0, 1)
    >>> found.ids_of("g3"), found.ids_of("s3")
    (('s7', 's3'), ('s3',))
    """

    sightings: tuple[SightingInfo, ...]
    groups: tuple[SightingGroup, ...]
    bytes: int
    state: int

    def ids_of(self, place: str) -> tuple[str, ...]:
        """Return the ids of a group (``g3``), or the id of a sighting (``s3``) itself."""
        if not place.startswith("g"):
            return (place,)
        for group in self.groups:
            if group.id == place:
                return group.ids
        raise InputError(
            f"there is no group {place}: its sightings have a name by now, or were erased",
            hint="list the sightings again; nothing was changed",
            code="no_group",
        )
