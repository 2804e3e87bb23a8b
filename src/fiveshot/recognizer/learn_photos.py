"""Learn classes from photos: gather them all, look at them, and only then change the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import islice

from fiveshot.errors import InputError
from fiveshot.features import Runner
from fiveshot.progress import Progress
from fiveshot.recognizer.change import LiveModel
from fiveshot.recognizer.class_folders import class_folders
from fiveshot.recognizer.extraction import see_photos
from fiveshot.recognizer.insight import LearnReport
from fiveshot.recognizer.learning import check_known, learn_shots
from fiveshot.recognizer.manifest import Options
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photo import Photo
from fiveshot.recognizer.photo_inputs import PhotoInputs, class_photos
from fiveshot.recognizer.shots import Shots, seen_shots
from fiveshot.recognizer.snapshot import Snapshot

ClassInputs = Mapping[str, PhotoInputs] | str | os.PathLike[str]


def learn_photos(
    model: LiveModel,
    runner_of: Callable[[Snapshot], Runner],
    classes: ClassInputs,
    *,
    add: bool,
    new_only: bool,
    progress: Progress | None,
) -> list[LearnReport]:
    """Learn classes, all of them or none; what can be refused before the backbone runs is refused before.

    ``runner_of`` gives the backbone of a state, which is loaded when it is asked for.
    """
    gathered = _gathered(classes)
    if add and new_only:
        raise InputError("add=True (--add) and new_only=True (--new-only) contradict each other; choose one")
    snapshot = model.refresh()
    if new_only:
        gathered = {name: photos for name, photos in gathered.items() if name not in snapshot.contents}
        if not gathered:
            return []
    check_known(snapshot.contents, gathered, add=add)
    runner = runner_of(snapshot)
    shots = _seen(runner, gathered, snapshot.manifest.options, progress)
    with model.change() as change:
        return learn_shots(change, shots, add=add, made_by=runner.fingerprint)


def _gathered(classes: ClassInputs) -> dict[str, list[Photo]]:
    """Return the photos by class name; the names are checked, and none is there twice."""
    gathered: dict[str, list[Photo]] = {}
    given = classes if isinstance(classes, Mapping) else class_folders(classes)
    for name, photos in given.items():
        checked = check_name(name)
        if checked in gathered:
            raise InputError(f"two of the classes are called {checked!r}; give each its own name")
        gathered[checked] = class_photos(photos)
    if not gathered:
        raise InputError("no classes were given; give at least one with its photos")
    return gathered


def _seen(
    runner: Runner, classes: Mapping[str, list[Photo]], options: Options, progress: Progress | None
) -> list[Shots]:
    """Look at the photos of all classes in one go, so that batches are full."""
    everything = [photo for photos in classes.values() for photo in photos]
    seen = iter(
        see_photos(
            runner,
            everything,
            thumbnails=options.thumbnails,
            originals=options.keep_photos,
            progress=progress,
        )
    )
    return [seen_shots(name, list(islice(seen, len(photos)))) for name, photos in classes.items()]
