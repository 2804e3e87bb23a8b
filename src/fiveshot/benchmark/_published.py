"""Published results of other papers, and whether they are comparable with a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from fiveshot.benchmark.protocol import Protocol
from fiveshot.benchmark.record import RunRecord, SessionImages
from fiveshot.errors import InputError, is_number, some_of, unknown_name
from fiveshot.storage import FilePath

SHIPPED = Path(__file__).with_name("published")
NEEDED = ("source", "dataset", "methods")
SAID = ("origin", "backbone", "class_order", "base_classes", "increment", "shots", "shot_draw", "images")
ABOUT = ("origin", "backbone")  # they do not decide whether figures are comparable
DRAWS_IN_WORDS = {
    "random": "drawn at random",
    "first": "the first of a class",
    "listed": "those of the official lists",
}
OVERALL = ("base", "last", "average")


@dataclass(frozen=True)
class OverallFigures:
    """Accuracy after the base session, after the last one, and averaged over all, as fractions.

    Examples
    --------
    >>> from fiveshot.benchmark import OverallFigures
    >>> OverallFigures(base=0.8, last=0.7).average is None
    True
    """

    base: float | None = None
    last: float | None = None
    average: float | None = None


@dataclass(frozen=True)
class PublishedFigures:
    """Results of a publication with their setting.

    Attributes
    ----------
    source, dataset, backbone : str
        The publication, the dataset, and the backbone if it is known.
    accuracy : mapping of str to tuple of float
        By method: the accuracy after each session, as fractions.
    overall : mapping of str to OverallFigures
        By method: what is known of methods without figures for each session.
    origin : str
        Where and when the figures were read.
    setting : mapping
        Class order, sessions, shots and images, as far as the file gives them.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from fiveshot.benchmark import read_published
    >>> figures = {"source": "A paper", "dataset": "cub200", "methods": {"Theirs": [75.85, 71.94]}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "paper.json").write_text(json.dumps(figures))
    ...     read_published(Path(folder, "paper.json")).accuracy
    {'Theirs': (0.7585, 0.7194)}
    """

    source: str
    dataset: str
    backbone: str
    accuracy: Mapping[str, tuple[float, ...]]
    setting: Mapping[str, Any]
    overall: Mapping[str, OverallFigures] = field(default_factory=dict)
    origin: str = ""

    def differences(self, record: RunRecord) -> tuple[str, ...]:
        """Return the differences that prevent a comparison with a run, in words; empty without differences.

        A value that the publication does not give counts as a difference.
        """
        protocol = Protocol(**record.config["protocol"])
        said = self.setting
        if self.dataset != protocol.dataset:
            return (f"dataset: {self.dataset} there, {protocol.dataset} here",)
        found = []
        for name, what in (("class_order", "class order"), ("base_classes", "sessions"), ("images", "split")):
            if name not in said:
                found.append(f"{what}: not said there ({name})")
        found += [*self._order(record), *self._shots(record, protocol), *self._split(record)]
        sessions = len(record.session_classes)
        for method, values in self.accuracy.items():
            if len(values) != sessions:
                found.append(f"sessions: {len(values)} figures of {method} there, {sessions} sessions here")
        return tuple(found)

    def _order(self, record: RunRecord) -> list[str]:
        """Compare which classes come in which session; the order within a session does not matter."""
        said = self.setting
        if "class_order" not in said or "base_classes" not in said:
            return []
        names = record.class_names
        theirs, base = said["class_order"], said["base_classes"]
        if not isinstance(theirs, list):
            seed = None if theirs == "dataset" else theirs
            own = Protocol(self.source, self.dataset, len(names), min(base, len(names)), 1, order_seed=seed)
            theirs = [names[label] for label in own.class_order]
        sizes = Protocol(self.source, self.dataset, max(base, len(theirs)), base, said["increment"]).session_sizes
        ours = [{names[label] for label in classes} for classes in record.session_classes]
        if [len(classes) for classes in ours] != list(sizes):
            return [f"sessions: {_sizes(sizes)} classes there, {_sizes([len(own) for own in ours])} here"]
        order = iter(theirs)
        cut = [set(islice(order, size)) for size in sizes]
        wrong = [number for number, pair in enumerate(zip(cut, ours, strict=True)) if pair[0] != pair[1]]
        if not wrong:
            return []
        which = "the base session" if wrong[0] == 0 else f"session {wrong[0]}"
        return [f"class order: other classes in {which}"]

    def _shots(self, record: RunRecord, protocol: Protocol) -> list[str]:
        """Compare the number of images of new classes, and how they were chosen."""
        found = []
        ours = "listed" if record.config.get("sessions") else protocol.shot_draw
        for name, words, own in (
            ("shots", "shots of a new class", protocol.shots),
            ("shot_draw", "choice of the shots", ours),
        ):
            theirs = self.setting.get(name)
            if theirs is None:
                found.append(f"{words}: not said there ({name})")
            elif theirs != own:
                found.append(
                    f"{words}: {DRAWS_IN_WORDS.get(theirs, theirs)} there, "
                    f"{DRAWS_IN_WORDS.get(str(own), own)} here"
                )
        return found

    def _split(self, record: RunRecord) -> list[str]:
        """Compare the number of training and test images of every session."""
        for number, (said, own) in enumerate(zip(self.setting.get("images", ()), record.images, strict=False)):
            theirs = SessionImages(*said)
            if theirs != own:
                where = f"session {number}" if number else "base session"
                there = f"{theirs.train:,} images to learn and {theirs.test:,} to test in the {where} there"
                return [f"split: {there}, {own.train:,} and {own.test:,} here"]
        return []


def shipped_figures() -> tuple[str, ...]:
    """Return the names of the published figures that come with the package.

    Returns
    -------
    tuple of str
        Names for :func:`read_published` and ``bench --against``.

    Examples
    --------
    >>> from fiveshot.benchmark import shipped_figures
    >>> shipped_figures()
    ('asp-cifar100', 'asp-cub200', 'privilege-cifar100', 'privilege-cub200', 'sec-prompt-cub200')
    """
    return tuple(sorted(file.stem for file in SHIPPED.glob("*.json")))


def read_published(path: FilePath) -> PublishedFigures:
    """Read published results from a JSON file, or those that come with the package by their name.

    A file has ``source``, ``dataset`` and ``methods``: by method, the accuracy in % after every session, or an
    object with what is known of ``base``, ``last`` and ``average``. It should have ``class_order`` (``"dataset"``,
    the seed of a permutation, or the names of all classes), ``base_classes``, ``increment``, ``shots``,
    ``shot_draw`` (``"random"``, ``"first"`` or ``"listed"``), ``images`` (the numbers of training and test images
    of each session, at least of the base session), ``backbone``, and ``origin`` (where and when the figures were
    read).

    Parameters
    ----------
    path : path or str
        The file, or one of :func:`shipped_figures`.

    Returns
    -------
    PublishedFigures
        The results.

    Raises
    ------
    InputError
        When it cannot be read, lacks a key, or has an unknown key.

    Examples
    --------
    >>> from fiveshot.benchmark import read_published
    >>> read_published("no-such-file.json")
    Traceback (most recent call last):
    fiveshot.errors.InputError: cannot read no-such-file.json ...
    >>> read_published("privilege-cub200").overall["PriViLege"]
    OverallFigures(base=0.8221, last=0.7508, average=0.775)
    """
    if str(path) in shipped_figures():
        path = SHIPPED / f"{path}.json"
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        known = some_of(shipped_figures())
        hint = f"it must be a JSON file of figures, or one of {known}"
        raise InputError(f"cannot read {path} ({error})", hint=hint) from error
    if not isinstance(values, dict) or any(not values.get(name) for name in NEEDED):
        raise InputError(
            f"{path} must be a JSON object with {', '.join(NEEDED)}", hint="see the page on benchmarks"
        )
    for name in values:
        if name not in (*NEEDED, *SAID):
            raise unknown_name(f"key of {path}", name, (*NEEDED, *SAID))
    setting = {name: values[name] for name in SAID if values.get(name) is not None and name not in ABOUT}
    _check_setting(setting, path)
    accuracy, overall = _accuracies(values["methods"], path)
    return PublishedFigures(
        source=str(values["source"]),
        dataset=str(values["dataset"]),
        backbone=str(values.get("backbone") or ""),
        accuracy=accuracy,
        setting=setting,
        overall=overall,
        origin=str(values.get("origin") or ""),
    )


def _check_setting(setting: Mapping[str, Any], path: FilePath) -> None:
    """Refuse invalid values."""
    whole = {name: setting[name] for name in ("base_classes", "increment", "shots") if name in setting}
    for name, value in whole.items():
        if not is_number(value, whole=True) or value < 1:
            raise InputError(f"{name} in {path} must be a whole number of at least 1, not {value!r}")
    if ("base_classes" in setting) != ("increment" in setting):
        raise InputError(f"{path} must have both base_classes and increment, or neither")
    if setting.get("shot_draw", "random") not in DRAWS_IN_WORDS:
        raise unknown_name("shot draw", setting["shot_draw"], DRAWS_IN_WORDS)
    order = setting.get("class_order", "dataset")
    if order != "dataset" and not is_number(order, whole=True) and not _is_list_of(order, str):
        raise InputError(f"class_order in {path} must be 'dataset', a seed, or a list of class names")
    images = setting.get("images", [[1, 1]])
    pairs = (
        isinstance(images, list) and images and all(_is_list_of(pair, int) and len(pair) == 2 for pair in images)
    )
    if not pairs:
        raise InputError(f"images in {path} must be a list of pairs: images to learn and to test of each session")


def _accuracies(methods: Any, path: FilePath) -> tuple[dict[str, tuple[float, ...]], dict[str, OverallFigures]]:
    """Return the figures of each method as fractions: after every session, or those that are known."""
    accuracy, overall = {}, {}
    for name, values in methods.items() if isinstance(methods, dict) else ():
        numbers = list(values.values()) if isinstance(values, dict) else values
        if not isinstance(numbers, list) or not numbers or not all(map(_is_percent, numbers)):
            raise InputError(f"{name} in {path} must have its accuracy in % after every session, not {values!r}")
        if isinstance(values, dict):
            for key in values:
                if key not in OVERALL:
                    raise unknown_name(f"key of {name} in {path}", key, OVERALL)
            overall[str(name)] = OverallFigures(**{key: round(value / 100, 8) for key, value in values.items()})
        else:
            accuracy[str(name)] = tuple(round(value / 100, 8) for value in numbers)
    if not accuracy and not overall:
        raise InputError(f"methods in {path} must have figures by name")
    return accuracy, overall


def _is_percent(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 100


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _sizes(sizes: Sequence[int]) -> str:
    later = len(sizes) - 1
    return f"{sizes[0]}" if not later else f"{sizes[0]} + {later} x {sizes[1]}"
