"""What to look at again after a class was learned, in sentences: few of them, however many photos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fiveshot.data.listing import some_of
from fiveshot.errors import counted
from fiveshot.recognizer.likeness import Duplicate

if TYPE_CHECKING:
    from fiveshot.recognizer.insight import LearnReport

NAMED = 3  # photos that are named, and that have a sentence each
_MISPLACED = (
    "one of the two classes has it by mistake: undo, or forget the wrong one, and learn it without the photo"
)
_ALL_MISPLACED = (
    "one of the two classes has them by mistake: undo, or forget the wrong one, and learn it without the photos"
)


def warnings_of(report: LearnReport) -> Iterator[str]:
    """Yield what a report has to warn of."""
    if report.photos == 1:
        yield f"one photo tells little about {report.name!r}; five are better"
    if report.confusion:
        which = f" ({some_of(report.confused, NAMED)})" if report.confused else ""
        yield (
            f"{100 * report.confusion:.0f} % of the photos look more like {report.nearest!r} than like the others "
            f"of {report.name!r}{which}; more photos of both may help"
        )
    yield from _about_duplicates(report.name, report.duplicates)
    if len(report.outliers) > NAMED:
        yield (
            f"{counted(len(report.outliers), 'photo')} are unlike the other photos of {report.name!r} "
            f"({some_of(report.outliers, NAMED)}); are they of it?"
        )
        return
    for photo in report.outliers:
        yield f"{photo} is unlike the other photos of {report.name!r}; is it one?"


def _about_duplicates(name: str, duplicates: Sequence[Duplicate]) -> Iterator[str]:
    alike: dict[tuple[str, bool], list[Duplicate]] = {}
    for one in duplicates:
        alike.setdefault((one.label, one.same_file), []).append(one)
    for (label, same_file), group in alike.items():
        own = label == name
        if len(group) > NAMED:
            what = "the same files as" if same_file else "almost identical to"
            advice = "they teach nothing new" if own else _ALL_MISPLACED
            photos = some_of([one.photo for one in group], NAMED)
            yield f"{counted(len(group), 'photo')} are {what} photos of {label!r} ({photos}); {advice}"
            continue
        for one in group:
            what = "the same file as" if same_file else "almost identical to"
            other = one.of or f"a photo of {label!r}"
            yield f"{one.photo} is {what} {other}; {'it teaches nothing new' if own else _MISPLACED}"
