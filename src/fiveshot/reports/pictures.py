"""Pages that show photos: the mistakes of an evaluation, a second look at learned photos, sorted photos.

Each is one HTML file without a service. It looks like the page of the service, whose style sheet it includes.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from fiveshot.backbones import Preprocessing
from fiveshot.data import Photo
from fiveshot.errors import command, counted
from fiveshot.features import Keep, Seen, decode_photos
from fiveshot.recognizer import Evaluation
from fiveshot.reports._formats import write_text
from fiveshot.reports.page import filled
from fiveshot.storage import FilePath
from fiveshot.values import FOUND, Review, Sorting, shown_photo

HERE = Path(__file__).parent / "templates"
SERVICE = Path(__file__).parents[1] / "service" / "page"  # a style sheet is read there; no module is imported
MOST = 1000  # photos on a page
MOST_OF_ONE = 24  # photos of one group or class on the page of sorted photos
Picture = tuple[str | None, str, str]  # a picture as an address with its data, its name, and a note


@dataclass(frozen=True)
class _Entry:
    """Photos side by side, with what is said about them."""

    figures: Sequence[Picture]
    texts: Sequence[str] = ()
    commands: Sequence[tuple[str, str]] = ()  # what a command is for, and the command
    heading: str = ""  # of many photos


@dataclass(frozen=True)
class _Group:
    """Entries under one heading."""

    title: str
    photos: Sequence[_Entry]
    note: str = ""


def write_mistakes(
    out: FilePath, measured: Evaluation, photos: Iterable[Photo], learned: Callable[[str], bytes | None]
) -> Path:
    """Write one page with every wrongly recognized photo next to the most similar learned photo.

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
    >>> from fiveshot.recognizer import Evaluation
    >>> measured = Evaluation(3, 0, 1.0, 1.0, 0.0, None, None, 0.0, (), ())
    >>> page = write_mistakes(Path(tempfile.mkdtemp()) / "mistakes.html", measured, [], lambda id: None)
    >>> "No photo was answered wrongly" in page.read_text(encoding="utf-8")
    True
    """
    by_name = {photo.name: photo for photo in photos}
    groups: dict[str, list[_Entry]] = {}
    ranks: dict[str, int] = {}
    for one in measured.wrong[:MOST]:
        unknown = one.shown_as is None and not one.between
        said = f"{one.name}, most like {one.most_like}" if unknown else one.name
        small = _small([by_name[one.photo]])[0] if one.photo in by_name else None
        figures = [_picture(small, PurePath(one.photo).name, said)]
        for near in one.why:
            said = f"of {near.label}, likeness {near.likeness:.2f}"
            figures.append(_picture(learned(near.id), shown_photo(near.id, near.name), said))
        title = f"{one.name}, {one.answer}"
        ranks[title] = bool(one.between) if one.shown_as is None else -1  # wrong names first, unsure ones last
        groups.setdefault(title, []).append(_Entry(figures, [one.photo]))
    ordered = sorted(groups.items(), key=lambda group: (ranks[group[0]], -len(group[1])))
    return _write(out, "Mistakes", _lead(measured), _numbered(ordered), max(0, len(measured.wrong) - MOST))


def _lead(measured: Evaluation) -> str:
    total = measured.photos + measured.unknown_photos
    if not measured.wrong:
        return f"No photo was answered wrongly, of {counted(total, 'photo')}."
    return f"{counted(len(measured.wrong), 'photo')} of {total:,} without the right answer."


def write_review(
    out: FilePath, review: Review, learned: Callable[[str], bytes | None], *, model: FilePath
) -> Path:
    """Write one page with the photos that a second look found, each with commands to correct or keep it.

    Parameters
    ----------
    out : path
        The page.
    review : Review
        What was found.
    learned : callable
        Returns the small copy of a learned photo by its id, or None.
    model : path
        The model, as the commands name it.

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
    >>> from fiveshot.values import FOUND, Review
    >>> found = Review(3, 1.0, 20, (), (), (), ())
    >>> page = write_review(Path(tempfile.mkdtemp()) / "review.html", found, lambda id: None, model="birds")
    >>> "nothing to look at again" in page.read_text(encoding="utf-8")
    True
    """
    name = Path(model)

    def beside(
        photo: str, file: str | None, said: str, other: str | None, its: str | None, of: str
    ) -> list[Picture]:
        figures = [_picture(learned(photo), shown_photo(photo, file), said)]
        if other is not None:
            figures.append(_picture(learned(other), shown_photo(other, its), f"of {of}"))
        return figures

    groups: dict[str, list[_Entry]] = {}
    for one in review.suggestions[:MOST]:
        action = command("remove", name, one.photo)
        if one.to:
            action = command("move", name, one.photo, "--to", one.to)
        keep = command("review", name, "--keep", one.photo)
        figures = beside(one.photo, one.name, f"of {one.label}", one.beside, one.beside_name, one.to or one.label)
        what = f"Move it to {one.to}" if one.to else "Remove it"
        commands = [(what if one.firm else f"Look at this. Perhaps: {what.lower()}", action), ("Or keep it", keep)]
        groups.setdefault(f"They {FOUND[one.kind]}", []).append(_Entry(figures, [_sentence(one.reason)], commands))
    pairs: list[_Group] = []
    for pair in review.pairs:
        first, second = pair.classes
        entries: list[_Entry] = []
        pairs.append(_Group(f"Confused: {first} and {second}, {counted(pair.count, 'photo')}", entries))
        if pair.alike:
            join = command("move", name, "--all-of", first, "--to", second)
            entries.append(_Entry((), [_sentence(pair.advice)], [("Join them", join)]))
        for photo in pair.photos:
            said = f"of {photo.label}, taken for {photo.taken_for}"
            figures = beside(photo.photo, photo.name, said, photo.beside, photo.beside_name, photo.taken_for)
            entries.append(_Entry(figures))
    found = f"{counted(len(review.suggestions), 'photo')} to decide about."
    lead = found if groups or pairs else "There is nothing to look at again."
    if review.accuracy is not None:
        share = f"{100 * review.accuracy:.1f} % of {counted(review.judged, 'photo')}"
        lead = f"{share} are recognized when they are left out. {lead}"
    left_out = max(0, len(review.suggestions) - MOST)
    return _write(out, f"Review of {name.name}", lead, [*_numbered(groups.items()), *pairs], left_out)


def write_sorting(out: FilePath, sorting: Sorting, *, model: FilePath, folder: FilePath) -> Path:
    """Write one page with sorted photos: questions, groups and known classes, with the commands that name them.

    Parameters
    ----------
    out : path
        The page.
    sorting : Sorting
        The sorted photos, with their sources.
    model, folder : path
        The model and the folder of photos, as the commands name them.

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
    >>> from fiveshot.values import Sorting
    >>> found = Sorting((), (), (), ())
    >>> page = write_sorting(Path(tempfile.mkdtemp()) / "sorted.html", found, model="birds", folder="holiday")
    >>> "0 photos" in page.read_text(encoding="utf-8")
    True
    """
    left = MOST

    def entry(numbers: Sequence[int], title: str, notes: Sequence[str] = (), name: str = "") -> _Entry:
        nonlocal left
        shown = numbers[: min(MOST_OF_ONE, left)]
        left -= len(shown)
        said = dict(zip(numbers, notes, strict=False))
        smalls = _small([sorting.sources[number] for number in shown])
        figures = [
            _picture(small, PurePath(sorting.photos[number]).name, said.get(number, ""))
            for number, small in zip(shown, smalls, strict=True)
        ]
        rest = len(numbers) - len(shown)
        texts = [f"And {counted(rest, 'photo')} more."] if rest else []
        return _Entry(figures, texts, [("", name)] if name else [], title)

    def naming(id: str) -> str:  # no guess in the place of the name: who copies it should have looked
        return command("sort", Path(model), Path(folder), "--name", f"{id}=NAME")

    questions = []
    for one in sorting.queue:
        numbers = (one.photo, *one.companions)
        guess = f", may be {one.guess}" if one.guess else ""
        title = f"q{one.photo}, {counted(len(numbers), 'photo')}{guess}"
        questions.append(entry(numbers, title, name=naming(f"q{one.photo}")))
    groups = [
        entry(group.photos, f"{group.id}, {counted(len(group.photos), 'photo')}", name=naming(group.id))
        for group in sorting.groups
    ]
    known = []
    for label in dict.fromkeys(one.label for one in sorting.known):
        own = [one for one in sorting.known if one.label == label]
        shares = [_share(one.probability) + (f", or {one.between[1]}" if one.between else "") for one in own]
        known.append(entry([one.photo for one in own], f"{label}, {counted(len(own), 'photo')}", shares))
    unknown = sum(len(group.photos) for group in sorting.groups)
    lead = (
        f"{counted(len(sorting.photos), 'photo')} in {folder}: {len(sorting.known):,} of known classes, "
        f"{unknown:,} unknown in {counted(len(sorting.groups), 'group')}."
    )
    sections = [
        _Group(
            "Most useful to name",
            questions,
            "The first photo is uncertain; the others are like it. Put the name in place of NAME.",
        ),
        _Group("Unknown", groups, "The photos of a group are alike. Put the name in place of NAME."),
        _Group("Known", known, "The surest come first."),
    ]
    return _write(out, f"Sorted: {PurePath(folder).name or folder}", lead, [one for one in sections if one.photos])


def _share(probability: float | None) -> str:
    if probability is None:
        return ""
    return "over 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


def _numbered(groups: Iterable[tuple[str, Sequence[_Entry]]]) -> list[_Group]:
    return [_Group(f"{title} ({len(entries)})", entries) for title, entries in groups]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _write(out: FilePath, title: str, lead: str, groups: Sequence[_Group], left_out: int = 0) -> Path:
    style, script, script_hash = _look()
    values = {"title": title, "lead": lead, "groups": groups, "left_out": left_out}
    page = filled("pictures.html", style=style, script=script, script_hash=script_hash, **values)
    return write_text(Path(out), page)


@cache
def _look() -> tuple[str, str, str]:
    """Return the style sheet, the script, and the hash by which a browser allows the script."""
    sheets = (SERVICE / "page.css", HERE / "pictures.css")
    script = (HERE / "pictures.js").read_text(encoding="utf-8")
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return "\n".join(one.read_text(encoding="utf-8") for one in sheets), script, f"sha256-{digest}"


def _small(photos: Sequence[Photo]) -> list[bytes | None]:
    """Return small copies of photos, made in decoder processes."""
    found = decode_photos(photos, Preprocessing(size=8, resize=8), Keep(thumbnail=True)) if photos else []
    return [one.thumbnail if isinstance(one, Seen) else None for one in found]


def _picture(data: bytes | None, name: str, said: str) -> Picture:
    address = None if data is None else f"data:image/jpeg;base64,{b64encode(data).decode()}"
    return address, name, said
