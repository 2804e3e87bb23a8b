"""The mistakes of an evaluation as pictures, on one HTML page that is complete in itself."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fiveshot import __version__
from fiveshot.data import ImageError, decoders
from fiveshot.data.reduction import Parts, Squares
from fiveshot.errors import counted
from fiveshot.recognizer.evaluation import Evaluation, WrongPhoto
from fiveshot.recognizer.photos.photo import Photo
from fiveshot.reports.page.page import TURNING, templates
from fiveshot.reports.tables.formats import write_text
from fiveshot.storage import FilePath

MOST = 1000  # photos on the page


def write_mistakes(
    out: FilePath, measured: Evaluation, photos: Iterable[Photo], learned: Callable[[str], bytes | None]
) -> Path:
    """Write one page with every photo that was answered wrongly, beside the learned photo it is most like.

    Parameters
    ----------
    out : path
        The page.
    measured : Evaluation
        What was measured.
    photos : iterable of Photo
        The photos that it was measured on.
    learned : callable
        Returns the small copy of a learned photo by its id, or None.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    StorageError
        If the page cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.recognizer.evaluation import Evaluation
    >>> measured = Evaluation(3, 0, 1.0, 1.0, 0.0, None, None, 0.0, (), ())
    >>> page = write_mistakes(Path(tempfile.mkdtemp()) / "mistakes.html", measured, [], lambda id: None)
    >>> "No photo was answered wrongly" in page.read_text(encoding="utf-8")
    True
    """
    by_name = {photo.name: photo for photo in photos}
    page = (
        templates()
        .get_template("mistakes.html")
        .render(
            groups=_groups(measured.wrong[:MOST], by_name, learned),
            lead=_lead(measured),
            left_out=max(0, len(measured.wrong) - MOST),
            version=__version__,
        )
    )
    return write_text(Path(out), page.translate(TURNING))


def _lead(measured: Evaluation) -> str:
    total = measured.photos + measured.unknown_photos
    if not measured.wrong:
        return f"No photo was answered wrongly, of {counted(total, 'photo')}."
    return f"{counted(len(measured.wrong), 'photo')} of {total:,} answered wrongly."


def _groups(
    wrong: Iterable[WrongPhoto], photos: Mapping[str, Photo], learned: Callable[[str], bytes | None]
) -> list[dict[str, Any]]:
    """Return the mistakes by class and answer, the most frequent first."""
    found: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for one in wrong:
        beside = [
            {"id": near.id, "label": near.label, "likeness": near.likeness, "picture": _data(learned(near.id))}
            for near in one.why
        ]
        entry = {"photo": one.photo, "picture": _data(_small(photos.get(one.photo))), "beside": beside}
        found.setdefault((one.name, one.shown_as), []).append(entry | {"most_like": one.most_like})
    ordered = sorted(found.items(), key=lambda group: -len(group[1]))
    return [{"name": name, "shown_as": shown_as, "photos": own} for (name, shown_as), own in ordered]


def _small(photo: Photo | None) -> bytes | None:
    """Return a small copy of a photo, made where photos are decoded."""
    if photo is None:
        return None
    try:
        reduced = decoders().reduce(
            photo.source, photo.reduction(Parts(Squares(size=8, resize=8), thumbnail=True))
        )
    except ImageError:  # it was there when it was measured
        return None
    small: bytes | None = reduced.parts[1]
    return small


def _data(picture: bytes | None) -> str | None:
    return None if picture is None else f"data:image/jpeg;base64,{b64encode(picture).decode()}"
