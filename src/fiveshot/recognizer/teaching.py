"""Functions for teaching: review learned photos, follow suggestions, group classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fiveshot.recognizer import _learning, correction
from fiveshot.recognizer.advice.review import apply_suggestions, check_kinds, review_model
from fiveshot.recognizer.names import check_name, target_name
from fiveshot.recognizer.photos.inputs import PhotoInputs, gather_photos
from fiveshot.recognizer.recognition.levels import grouped_names, read_parents
from fiveshot.recognizer.store.rows import PhotoRecord
from fiveshot.storage import FilePath
from fiveshot.values import LearnReport, PhotoChange, Review, Suggestion

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer


def review(model: Recognizer, *, kept: bool = False) -> Review:
    """Review all learned photos; each is predicted by a model that has not seen it.

    Parameters
    ----------
    model : Recognizer
        The model.
    kept : bool
        Whether to include photos that a user decided to keep. No suggestion about them is firm.

    Returns
    -------
    Review
        Accuracy and confused pairs of classes, photos to move or remove, and the gain from more photos.

    Raises
    ------
    InputError
        If the model knows no class yet.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import apply_review, review
    >>> rng = np.random.default_rng(0)
    >>> owls, wrens, crows = rng.normal(size=(3, 1, 320)) + 0.5 * rng.normal(size=(3, 6, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls[1:]), birds.learn_features("crow", crows)
    ...     _ = birds.learn_features("wren", [*wrens, owls[0]])
    ...     first = review(birds)
    ...     _ = apply_review(birds, first.of(["mixed-up"]))
    ...     round(first.accuracy, 2), review(birds).accuracy
    (0.94, 1.0)
    """
    return review_model(model.refresh(), model.reader.kept(), show_kept=kept)


def apply_review(model: Recognizer, suggestions: Iterable[Suggestion]) -> PhotoChange:
    """Follow suggestions of a review, as one change that ``undo`` reverts.

    If a photo has two suggestions, the first counts. Every class keeps at least one photo.

    Parameters
    ----------
    model : Recognizer
        The model.
    suggestions : iterable of Suggestion
        The suggestions to follow.

    Returns
    -------
    PhotoChange
        The photos, and how many their classes have now.

    Raises
    ------
    InputError
        If nothing is suggested.
    ConflictError
        If a photo is no longer in the class that it was in during the review.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import apply_review, review
    >>> rng = np.random.default_rng(0)
    >>> owls, wrens, crows = rng.normal(size=(3, 1, 320)) + 0.5 * rng.normal(size=(3, 6, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls[1:]), birds.learn_features("crow", crows)
    ...     _ = birds.learn_features("wren", [*wrens, owls[0]])
    ...     apply_review(birds, review(birds).of(["mixed-up"])).counts, birds.undo().action
    ({'wren': 6, 'owl': 6}, 'review')
    """
    with model.live.change() as change:
        return apply_suggestions(change, suggestions)


def keep_photos(model: Recognizer, ids: str | Iterable[str], finding: str) -> PhotoChange:
    """Remember to keep photos: a review does not suggest them again.

    This is valid until their class has twice or half as many photos. Photos that were moved or corrected are not
    suggested again either.

    Parameters
    ----------
    model : Recognizer
        The model.
    ids : str or iterable of str
        Ids of photos, such as ``p17``.
    finding : {"mixed-up", "harmful", "duplicates", "outliers"}
        The finding of the review.

    Returns
    -------
    PhotoChange
        The photos.

    Raises
    ------
    InputError
        If there is no such photo or no such finding.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import keep_photos, review
    >>> rng = np.random.default_rng(0)
    >>> owls, wrens, crows = rng.normal(size=(3, 1, 320)) + 0.5 * rng.normal(size=(3, 6, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls[1:]), birds.learn_features("crow", crows)
    ...     _ = birds.learn_features("wren", [*wrens, owls[0]])
    ...     _ = keep_photos(birds, "p18", "mixed-up")
    ...     review(birds).of(["mixed-up"])
    ()
    """
    check_kinds([finding])
    with model.live.change() as change:
        return correction.keep_photos(change, ids, finding)


def group_classes(model: Recognizer, parents: Mapping[str, str] | FilePath) -> dict[str, str]:
    """Put classes into groups: each gets the path of its parents as its name, ``owl/barn owl``.

    Parameters
    ----------
    model : Recognizer
        The model.
    parents : mapping, str or path
        The parent of each class, and of each parent that has one: by name, or in a CSV file with the columns
        ``name`` and ``parent``. An empty parent removes a class from its group. Other classes are not changed, and
        names that are not classes are ignored.

    Returns
    -------
    dict
        New names of the renamed classes, by their old names.

    Raises
    ------
    InputError
        If a name is among its own parents, or two classes would get one name; nothing was changed.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import group_classes
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("barn owl", owls), birds.learn_features("wren", -owls)
    ...     group_classes(birds, {"barn owl": "owl"})
    {'barn owl': 'owl/barn owl'}
    """
    known = parents if isinstance(parents, Mapping) else read_parents(parents)
    if not grouped_names(model.refresh().classes, known):
        return {}  # without a difference there is no change to store
    with model.live.change() as change:
        renamed = grouped_names(change.snapshot.classes, known)
        correction.rename_all(change, renamed)
    return renamed


def photo_ids(model: Recognizer, photos: PhotoInputs) -> list[str]:
    """Return the ids of learned photos by their files, for ``remove`` and ``move``.

    Parameters
    ----------
    model : Recognizer
        The model.
    photos : photos
        As for ``learn``. Files are compared by their bytes, not by path or name. A part of a photo is a separate
        photo.

    Returns
    -------
    list of str
        Ids, such as ``p17``; several for a file that is in several classes.

    Raises
    ------
    InputError
        If one of them was not learned.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import photo_ids
    >>> red, blue = (Image.new("RGB", (64, 64), name) for name in ("red", "blue"))
    >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
    ...     _ = colors.learn_many({"red": [red], "blue": [blue]})
    ...     photo_ids(colors, blue)
    ['p2']
    """
    return correction.ids_of(gather_photos(photos), model.refresh().contents)


def learn_seen(
    model: Recognizer,
    name: str,
    photos: Sequence[PhotoRecord],
    *,
    fingerprint: str | None = None,
    add: bool = False,
) -> LearnReport:
    """Learn a class from photos with features of this model's backbone, as the service does.

    Parameters
    ----------
    model : Recognizer
        The model.
    name : str
        Name of the class.
    photos : sequence of PhotoRecord
        The photos with their features and pictures; they are stored as given.
    fingerprint : str, optional
        Fingerprint of the backbone that made the features.
    add : bool
        Whether photos may be added to a class that is known.

    Returns
    -------
    LearnReport
        What was found while the class was learned.

    Raises
    ------
    ConflictError
        If the model has another backbone now.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import learn_seen, PhotoRecord
    >>> owl = PhotoRecord(sha256=64 * "0", feature=np.ones(320, np.float32), name="owl.jpg")
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     learn_seen(birds, "owl", [owl]).photos
    1
    """
    with model.live.change() as change:
        (report,) = _learning.learn_classes(change, {check_name(name): photos}, add=add, made_by=fingerprint)
    return report


def correct_seen(
    model: Recognizer, photos: Sequence[PhotoRecord], name: str, *, fingerprint: str | None = None
) -> PhotoChange:
    """Say what photos with features of this model's backbone show, as the service does.

    Parameters
    ----------
    model : Recognizer
        The model.
    photos : sequence of PhotoRecord
        The photos with their features and pictures.
    name : str
        As in ``correct``.
    fingerprint : str, optional
        Fingerprint of the backbone that made the features.

    Returns
    -------
    PhotoChange
        The photos, and how many the classes have now.

    Raises
    ------
    ConflictError
        If the model has another backbone now.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import correct_seen, learn_seen, PhotoRecord
    >>> owl = PhotoRecord(sha256=64 * "0", feature=np.ones(320, np.float32), name="owl.jpg")
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = learn_seen(birds, "wren", [owl])
    ...     correct_seen(birds, [owl], "owl").counts
    {'wren': 0, 'owl': 1}
    """
    with model.live.change() as change:
        return correction.correct_photos(change, photos, target_name(name), made_by=fingerprint)
