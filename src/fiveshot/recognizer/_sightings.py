"""Sightings: photos without a name that a watch has kept in the model's folder. Name, confirm or forget them.

They are not part of a state: keeping one changes nothing that was learned, and cannot be undone. They do not
travel with an exported, merged or published model.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fiveshot.data import Photo
from fiveshot.errors import InputError
from fiveshot.features import Keep
from fiveshot.recognizer._learning import require_fingerprint
from fiveshot.recognizer.correction import correct_photos
from fiveshot.recognizer.names import target_name
from fiveshot.recognizer.photos.embedding import NOTHING, photo_records
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.sorting import sort_rows
from fiveshot.recognizer.store.rows import Floats, PhotoRecord
from fiveshot.recognizer.store.sightings import (
    beyond_limits,
    delete_sightings,
    hide_learned,
    insert_sighting,
    no_sighting,
    sighting_id,
    sighting_records,
)
from fiveshot.values import (
    PhotoChange,
    Prediction,
    SightingGroup,
    SightingInfo,
    SightingLimits,
    Sightings,
)
from fiveshot.work import one_thread

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer

ID = re.compile(r"s?([1-9][0-9]{0,17})")


def sightings(model: Recognizer) -> Sightings:
    """Return the sightings of a model: photos without a name that ``fiveshot watch --keep`` has kept.

    Parameters
    ----------
    model : Recognizer
        The model.

    Returns
    -------
    Sightings
        The newest first, and in groups of similar photos.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import sightings
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     sightings(birds).sightings
    ()
    """
    snapshot = model.refresh()
    return group_sightings(snapshot, *model.reader.sightings(snapshot))


def group_sightings(snapshot: Snapshot, found: list[SightingInfo], X: Floats, size: int) -> Sightings:
    """Put sightings, given with their features and bytes, into groups as a state of the model sees them."""
    if not found:
        return Sightings((), (), size, snapshot.state)
    with one_thread():
        sorting = sort_rows(snapshot, X, photos=())
    by_label: dict[str, list[int]] = {}
    for one in sorting.known:
        by_label.setdefault(one.label, []).append(one.photo)
    places: list[tuple[str | None, list[int]]] = [(label, sorted(own)) for label, own in by_label.items()]
    places += [(None, sorted(group.photos)) for group in sorting.groups]
    places.sort(key=lambda group: group[1][0])
    groups = tuple(SightingGroup(label, tuple(found[place].id for place in own)) for label, own in places)
    return Sightings(tuple(found), groups, size, snapshot.state)


def name_sightings(model: Recognizer, ids: str | Iterable[str], name: str) -> PhotoChange:
    """Say what sightings show. They are learned and are no longer sightings, in one change; ``undo`` reverts it.

    Parameters
    ----------
    model : Recognizer
        The model.
    ids : str or iterable of str
        Ids of sightings, such as ``s17``.
    name : str
        A class, known or new, or ``NONE``: none of these.

    Returns
    -------
    PhotoChange
        The learned photos, and how many their classes have now.

    Raises
    ------
    InputError
        If there is no such sighting (``no_sighting``); nothing was learned.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import name_sightings
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     name_sightings(birds, ["s17"], "owl")
    Traceback (most recent call last):
    fiveshot.errors.InputError: there is no sighting s17: it has a name by now, or it was erased; ...
    """
    numbers, wanted = sighting_numbers(ids), target_name(name)
    with model.live.change() as change:
        photos = [photo for _, photo in sighting_records(change.connection, change.before.width, numbers)]
        made = correct_photos(change, photos, wanted, made_by=None)
        if change.done:
            (seq,) = change.connection.execute("SELECT max(seq) FROM history").fetchone()
            hide_learned(change.connection, numbers, seq)
        else:  # the same photos were learned before
            delete_sightings(change.connection, numbers)
        return made


def confirm_sightings(model: Recognizer, ids: str | Iterable[str]) -> list[PhotoChange]:
    """Say that the model was right about sightings: they are learned as the classes that it took them for.

    Parameters
    ----------
    model : Recognizer
        The model.
    ids : str or iterable of str
        Ids of sightings, such as ``s17``.

    Returns
    -------
    list of PhotoChange
        One change for each class.

    Raises
    ------
    InputError
        If there is no such sighting, or the model had no answer for it; nothing was learned.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import confirm_sightings, sightings
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     found = [one.id for one in sightings(birds).sightings if one.guess == "owl"]
    ...     changes = confirm_sightings(birds, found) if found else []
    >>> changes
    []
    """
    snapshot = model.refresh()
    found, *_ = model.reader.sightings(snapshot)
    guesses = {one.id: one.guess for one in found}
    by_name: dict[str, list[str]] = {}
    for number in sighting_numbers(ids):
        one = sighting_id(number)
        if one not in guesses:
            raise no_sighting(number)
        guess = guesses[one]
        if guess is None or guess not in snapshot.contents:
            text = "the model did not know it" if guess is None else f"there is no class {guess!r} now"
            raise InputError(
                f"{one} cannot be confirmed: {text}", hint="give it a name; nothing was learned", code="no_guess"
            )
        by_name.setdefault(guess, []).append(one)
    return [name_sightings(model, own, name) for name, own in by_name.items()]


def forget_sightings(model: Recognizer, ids: str | Iterable[str] | None = None) -> int:
    """Erase sightings from the disk. This cannot be undone.

    Parameters
    ----------
    model : Recognizer
        The model.
    ids : str or iterable of str, optional
        Ids of sightings, such as ``s17``. By default all, with those that were learned: then an undo cannot bring
        them back as sightings.

    Returns
    -------
    int
        How many were erased.

    Raises
    ------
    InputError
        If there is no such sighting; nothing was erased.
    NotErasedError
        If they are gone, but another process blocks the erasing of their traces.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import forget_sightings
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     forget_sightings(birds)
    0
    """
    wanted = None if ids is None else sighting_numbers(ids)
    with model.live.aside(erases=True) as connection:
        present = [number for (number,) in connection.execute("SELECT id FROM sightings ORDER BY id")]
        numbers = present if wanted is None else wanted
        for number in set(numbers) - set(present):
            raise no_sighting(number)
        delete_sightings(connection, numbers)
    return len(numbers)


@dataclass(frozen=True, eq=False)
class SeenPhoto:
    """A photo that the backbone has seen, with the answer; it can be kept without decoding it again."""

    record: PhotoRecord
    prediction: Prediction
    made_by: str  # fingerprint of the backbone


def see_photos(
    model: Recognizer, photos: Sequence[Photo], *, top: int, sure: float | None, keep: bool
) -> list[SeenPhoto]:
    """Say what photos show; ``keep`` reads what ``keep_sighting`` stores, too."""
    snapshot = model.refresh()
    embedder = model.embedder_of(snapshot)
    records = photo_records(embedder, photos, Keep(True, "file") if keep else NOTHING)
    found = snapshot.predict_photos(records, top, sure=sure)
    return [SeenPhoto(one, answer, embedder.fingerprint) for one, answer in zip(records, found, strict=True)]


def keep_sighting(
    model: Recognizer,
    photo: SeenPhoto,
    limits: SightingLimits,
    *,
    seen: str,
    source: str,
    region: str = "",
    now: float | None = None,
) -> str:
    """Keep a photo without a name, erase the oldest beyond the limits, and return its id, in one transaction.

    ``seen``, ``source`` and ``region`` say when and where. ``now`` is the present time in seconds since 1970,
    by default that of the system.
    """
    at = time.time() if now is None else now
    with model.live.aside() as connection:
        contents = model.live.snapshot.contents
        require_fingerprint(contents, photo.made_by)
        said = photo.prediction if contents.manifest.options.names else replace(photo.prediction, photo="")
        number = insert_sighting(connection, photo.record, said, seen=seen, source=source, region=region, now=at)
        beyond = beyond_limits(connection, limits, at)
        if number in beyond:
            raise InputError(
                f"{photo.record.name} is too large to be kept: sightings may take {limits.megabytes:g} MB in all",
                hint="allow more megabytes",
                code="too_much_kept",
            )
        delete_sightings(connection, beyond)
    return sighting_id(number)


def limit_sightings(model: Recognizer, limits: SightingLimits) -> int:
    """Erase the oldest sightings beyond the limits, and return how many."""
    with model.live.aside() as connection:
        beyond = beyond_limits(connection, limits, time.time())
        delete_sightings(connection, beyond)
    return len(beyond)


def sighting_numbers(ids: str | Iterable[str]) -> list[int]:
    """Return the numbers in ids such as ``s17``, each once.

    >>> sighting_numbers(["s17", "3", "s17"])
    [17, 3]
    """
    given = [ids] if isinstance(ids, str) else list(ids)
    if not given:
        raise InputError(
            "no sightings were named", hint="list them with: fiveshot sightings MODEL", code="no_photos"
        )
    matches = {str(one): ID.fullmatch(str(one).strip().lower()) for one in given}
    for text, match in matches.items():
        if match is None:
            raise InputError(f"{text!r:.80} is not the id of a sighting, such as s17", code="bad_id")
    return [int(match[1]) for match in matches.values() if match is not None]
