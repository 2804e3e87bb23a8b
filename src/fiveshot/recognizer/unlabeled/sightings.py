"""Sightings: photos without a name that a watch has kept in the model's folder. Name, confirm or forget them.

They are not part of a state: keeping one changes nothing that was learned, and cannot be undone. They do not
travel with an exported, merged or published model.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fiveshot.data import BadImage, Photo
from fiveshot.errors import InputError
from fiveshot.features import KEEP_NOTHING, Keep, PhotoVector, Seen, decode_photos, embed
from fiveshot.recognizer._learning import require_fingerprint
from fiveshot.recognizer.change import Change, ConflictError
from fiveshot.recognizer.correction import correct_by_name
from fiveshot.recognizer.names import target_name
from fiveshot.recognizer.photos.embedding import photo_record
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.rows import Floats, PhotoRecord, photo_features
from fiveshot.recognizer.store.sightings import (
    beyond_limits,
    delete_sightings,
    hide_sightings,
    insert_sighting,
    move_clocks,
    no_sighting,
    require_open,
    same_sighting,
    sighting_id,
    sighting_records,
)
from fiveshot.recognizer.unlabeled.sorting import known_labels, sort_rows
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
        sorting = sort_rows(snapshot, X, photos=(), ask=False)
    by_label: dict[str, list[int]] = {}
    for one in sorting.known:
        by_label.setdefault(one.label, []).append(one.photo)
    places: list[tuple[str | None, list[int]]] = [(label, sorted(own)) for label, own in by_label.items()]
    places += [(None, sorted(group.photos)) for group in sorting.groups]
    places.sort(key=lambda group: group[1][0])
    groups = tuple(
        SightingGroup(f"g{found[own[-1]].id[1:]}", label, tuple(found[place].id for place in own))
        for label, own in places
    )
    labels = {one.photo: one.label for one in sorting.known}
    suggested = tuple(replace(one, suggestion=labels.get(place)) for place, one in enumerate(found))
    return Sightings(suggested, groups, size, snapshot.state)


def sighting_picture(model: Recognizer, id: str, *, kept: bool = False) -> bytes | None:
    """Return the small copy of a sighting, or the photo itself.

    Parameters
    ----------
    model : Recognizer
        The model.
    id : str
        Id of the sighting, such as ``s17``.
    kept : bool
        Whether to return the photo as it was seen.

    Returns
    -------
    bytes or None
        A JPEG file, or the file that was seen; None if there is no such sighting.

    Raises
    ------
    InputError
        If this is not the id of a sighting.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import sighting_picture
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     sighting_picture(birds, "s17") is None
    True
    """
    (number,) = sighting_numbers(id)
    return model.reader.sighting_picture(number, kept=kept)


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
    return learn_sightings(model, {name: [ids] if isinstance(ids, str) else ids})


def learn_sightings(model: Recognizer, names: Mapping[str, Iterable[str]]) -> PhotoChange:
    """Do the same for several classes: ids by name, in one change."""
    wanted = dict[str, list[int]]()
    for name, ids in names.items():
        wanted.setdefault(target_name(name), []).extend(sighting_numbers(ids))
    with model.live.change() as change:
        return _learn(change, wanted)


def confirm_sightings(model: Recognizer, ids: str | Iterable[str], *, state: int | None = None) -> PhotoChange:
    """Say that suggestions are right: sightings are learned as what is suggested for them, in one change.

    Parameters
    ----------
    model : Recognizer
        The model.
    ids : str or iterable of str
        Ids of sightings, such as ``s17``.
    state : int, optional
        State of the model that made the suggestions. In another state it may suggest other classes, so nothing is
        learned then.

    Returns
    -------
    PhotoChange
        The learned photos, and how many their classes have now.

    Raises
    ------
    InputError
        If there is no such sighting, or no class is suggested for it (``no_suggestion``); nothing was learned.
    ConflictError
        If the model is in another state.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import confirm_sightings, sightings
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     found = sightings(birds)
    ...     right = [one.id for one in found.sightings if one.suggestion == "owl"]
    ...     made = confirm_sightings(birds, right, state=found.state) if right else None
    >>> made is None
    True
    """
    numbers = sighting_numbers(ids)
    with model.live.change() as change:
        if state is not None and change.before.state != state:
            raise ConflictError(
                f"the model was changed since state {state}, it is in state {change.before.state} now",
                hint="look at the suggestions again; nothing was learned",
                code="changed",
            )
        wanted = dict[str, list[int]]()
        for number, label in _suggested(change, numbers).items():
            if label is None:
                raise InputError(
                    f"no class is suggested for {sighting_id(number)}",
                    hint="give it a name; nothing was learned",
                    code="no_suggestion",
                )
            wanted.setdefault(label, []).append(number)
        return _learn(change, wanted)


def _suggested(change: Change, numbers: Sequence[int]) -> dict[int, str | None]:
    """Return the classes that are suggested for some of the open sightings."""
    photos = [photo for _, photo in sighting_records(change.connection, change.before.width, numbers)]
    return dict(zip(numbers, known_labels(change.snapshot, photo_features(photos)), strict=True))


def _learn(change: Change, wanted: Mapping[str, Sequence[int]]) -> PhotoChange:
    """Learn sightings, given by name, as one entry of the history that hides them."""
    width = change.before.width
    photos = {
        name: [photo for _, photo in sighting_records(change.connection, width, numbers)]
        for name, numbers in wanted.items()
    }
    made = correct_by_name(change, photos)
    numbers = [number for own in wanted.values() for number in own]
    if change.done:
        (seq,) = change.connection.execute("SELECT max(seq) FROM history").fetchone()
        hide_sightings(change.connection, numbers, seq)
    else:  # the same photos were learned before
        delete_sightings(change.connection, numbers)
    return made


def dismiss_sightings(model: Recognizer, ids: str | Iterable[str]) -> PhotoChange:
    """Put sightings aside without learning them, in one change; ``undo`` brings them back.

    Their photos stay on the disk, within the limits of sightings. ``forget_sightings`` erases them.

    Parameters
    ----------
    model : Recognizer
        The model.
    ids : str or iterable of str
        Ids of sightings, such as ``s17``.

    Returns
    -------
    PhotoChange
        The dismissed sightings.

    Raises
    ------
    InputError
        If there is no such sighting; nothing was dismissed.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import dismiss_sightings
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     dismiss_sightings(birds, "s17")
    Traceback (most recent call last):
    fiveshot.errors.InputError: there is no sighting s17: it has a name by now, or it was erased; ...
    """
    numbers = sighting_numbers(ids)
    with model.live.change() as change:
        require_open(change.connection, numbers)
        seq = change.record("dismiss", detail={"sightings": numbers})
        hide_sightings(change.connection, numbers, seq)
    return PhotoChange("dismiss", tuple(map(sighting_id, numbers)), {})


def forget_sightings(model: Recognizer, ids: str | Iterable[str] | None = None) -> int:
    """Erase sightings from the disk. This cannot be undone.

    Parameters
    ----------
    model : Recognizer
        The model.
    ids : str or iterable of str, optional
        Ids of sightings, such as ``s17``. By default all, with those that were learned or dismissed: then an undo
        cannot bring them back.

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


def recognize_photos(
    model: Recognizer,
    photos: Sequence[Photo],
    *,
    top: int,
    sure: float | None,
    keep: bool,
    wanted: Callable[[int, Seen, int], bool] | None = None,
) -> list[SeenPhoto | BadImage | None]:
    """Say what photos show, or parts of one, which is decoded once.

    ``keep`` reads what ``keep_sighting`` stores, too. ``wanted`` gets the position of each photo, what was
    decoded, and the state of the model, and tells whether to compute it. None stands for one that is not wanted.
    """
    snapshot = model.refresh()
    embedder = model.embedder_of(snapshot)
    found: list[SeenPhoto | BadImage | None] = [None] * len(photos)
    chosen = dict[int, Seen]()
    for at, one in enumerate(
        decode_photos(photos, embedder.preprocessing, Keep(True, "file") if keep else KEEP_NOTHING)
    ):
        if isinstance(one, BadImage):
            found[at] = one
        elif wanted is None or wanted(at, one, snapshot.state):
            chosen[at] = one
    vectors = embed(embedder, list(chosen.values()))
    records = [
        photo_record(PhotoVector(photos[at], vector, one.sha256, one.thumbnail, one.original))
        for (at, one), vector in zip(chosen.items(), vectors, strict=True)
    ]
    answers = snapshot.predict_photos(records, top, sure=sure) if records else []
    for at, record, answer in zip(chosen, records, answers, strict=True):
        found[at] = SeenPhoto(record, answer, embedder.fingerprint)
    return found


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

    A photo that is kept already, also one that was named or dismissed, is not kept again.
    ``seen``, ``source`` and ``region`` say when and where. ``now`` is the present time in seconds since 1970,
    by default that of the system.
    """
    at = time.time() if now is None else now
    with model.live.aside() as connection:
        contents = model.live.snapshot.contents
        require_fingerprint(contents, photo.made_by)
        known = same_sighting(connection, photo.record.sha256)
        if known is not None:
            return sighting_id(known)
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


def has_too_many_sightings(model: Recognizer, limits: SightingLimits) -> bool:
    """Tell whether there are sightings beyond the limits; waits for no other process."""
    with model.live.folder.reading() as connection:
        return bool(beyond_limits(connection, limits, time.time()))


def follow_clock(model: Recognizer, jump: float) -> None:
    """Let sightings keep their age after the system's clock has jumped ahead by so many seconds."""
    with model.live.aside() as connection:
        move_clocks(connection, jump, time.time())


def sighting_numbers(ids: str | Iterable[str]) -> list[int]:
    """Return the numbers in ids such as ``s17``, each once.

    >>> sighting_numbers(["s17", "3", "17"])
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
    return list(dict.fromkeys(int(match[1]) for match in matches.values() if match is not None))
