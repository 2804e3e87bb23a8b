"""Published results: the paper's and those of other papers, and whether they are comparable with a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from fiveshot.benchmark.protocol import Protocol
from fiveshot.benchmark.record import RunRecord, SessionImages
from fiveshot.errors import InputError, is_number, unknown_name
from fiveshot.storage import FilePath

TABLES = Path(__file__).with_name("paper_tables.json")
NEEDED = ("source", "dataset", "methods")
SAID = ("backbone", "class_order", "base_classes", "increment", "shots", "shot_draw", "images")
DRAWS_IN_WORDS = {
    "random": "drawn at random",
    "first": "the first of a class",
    "listed": "those of the official lists",
}


@dataclass(frozen=True)
class PaperResult:
    """The paper's result for one method under one protocol.

    Attributes
    ----------
    protocol, method : str
        The protocol, and the method in the paper's spelling.
    sessions : tuple of int
        Sessions with a reported A_HM.
    a_hm : tuple of float
        ``a_hm[i]`` is after ``sessions[i]``.
    a_last, a_inc : float
        Over the whole run.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_result
    >>> theirs = paper_result("cars/big", "c-fecam")
    >>> theirs.method, theirs.sessions, theirs.a_hm
    ('C-FeCAM', (1, 3, 5, 7), (0.5791, 0.5215, 0.5003, 0.4916))
    """

    protocol: str
    method: str
    sessions: tuple[int, ...]
    a_hm: tuple[float, ...]
    a_last: float
    a_inc: float


@dataclass(frozen=True)
class BetaAblation:
    """One row of the paper's ablation over beta on ``cars/small``; A_HM after the last session.

    Attributes
    ----------
    method : str
        As the paper spells it.
    beta : float
        The scale of the covariance.
    a_hm, a_last, a_inc : float
        What the paper reports.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_beta_ablation
    >>> max(paper_beta_ablation(), key=lambda row: row.a_hm)
    BetaAblation(method='C-RanPAC', beta=0.5, a_hm=0.3818, a_last=0.4073, a_inc=0.5605)
    """

    method: str
    beta: float
    a_hm: float
    a_last: float
    a_inc: float


@dataclass(frozen=True)
class PartsAblation:
    """One row of the paper's ablation over calibrated parts on ``cars/small``; A_HM after the last session.

    Attributes
    ----------
    method : str
        As the paper spells it.
    mean_calibrated, covariance_calibrated : bool
        Which statistics of new classes are calibrated.
    a_hm, a_last, a_inc : float
        What the paper reports.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_parts_ablation
    >>> row = paper_parts_ablation()[1]
    >>> row.method, row.mean_calibrated, row.covariance_calibrated, row.a_hm
    ('C-FeCAM', True, False, 0.2445)
    """

    method: str
    mean_calibrated: bool
    covariance_calibrated: bool
    a_hm: float
    a_last: float
    a_inc: float


def paper_protocols() -> tuple[str, ...]:
    """Return the names of the protocols with results in the paper.

    Returns
    -------
    tuple of str
        Such as ``"cub200/big"``.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_protocols
    >>> [name for name in paper_protocols() if name.endswith("/big")]
    ['cub200/big', 'aircraft/big', 'cars/big']
    """
    return tuple(_tables()["main"])


def paper_methods(protocol: str | Protocol) -> tuple[str, ...]:
    """Return the methods with results in the paper under a protocol, in the paper's spelling.

    Parameters
    ----------
    protocol : str or Protocol
        The setting.

    Returns
    -------
    tuple of str
        The methods.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_methods
    >>> paper_methods("cub200/big")
    ('NCM', 'TEEN', 'FeCAM', 'C-FeCAM', 'RanPAC', 'C-RanPAC')
    """
    return tuple(_setting(protocol)["methods"])


def paper_result(protocol: str | Protocol, method: str) -> PaperResult:
    """Return the paper's results for a method.

    Parameters
    ----------
    protocol : str or Protocol
        The setting.
    method : str
        The method; upper and lower case are the same.

    Returns
    -------
    PaperResult
        The figures.

    Raises
    ------
    InputError
        If the paper has no such method or protocol, or if more than the draw of the shots was changed in the
        protocol.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_result
    >>> paper_result("cub200/big", "c-ranpac").a_last
    0.8372
    """
    setting = _setting(protocol)
    spelled = {name.lower(): name for name in setting["methods"]}
    if method.lower() not in spelled:
        raise unknown_name("method in the paper", method, setting["methods"])
    name = spelled[method.lower()]
    row = setting["methods"][name]
    return PaperResult(
        protocol=protocol.name if isinstance(protocol, Protocol) else protocol,
        method=name,
        sessions=tuple(setting["hm_tasks"]),
        a_hm=tuple(_fraction(value) for value in row["a_hm"]),
        a_last=_fraction(row["a_last"]),
        a_inc=_fraction(row["a_inc"]),
    )


def paper_beta_ablation() -> tuple[BetaAblation, ...]:
    """Return the paper's ablation over beta.

    Returns
    -------
    tuple of BetaAblation
        Its rows.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_beta_ablation
    >>> [(row.beta, row.a_hm) for row in paper_beta_ablation() if row.method == "C-FeCAM"]
    [(0.5, 0.274), (1.0, 0.2886), (1.5, 0.2881)]
    """
    table = _tables()["ablation_beta (cars/small)"]
    return tuple(
        BetaAblation(method, float(beta), *(_fraction(value) for value in values))
        for method, rows in table.items()
        if method != "columns"
        for beta, values in rows.items()
    )


def paper_parts_ablation() -> tuple[PartsAblation, ...]:
    """Return the paper's ablation over calibrating the mean and the covariance.

    Returns
    -------
    tuple of PartsAblation
        Its rows.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_parts_ablation
    >>> for row in paper_parts_ablation()[:3]:
    ...     print(row.method, row.mean_calibrated, row.covariance_calibrated, row.a_hm)
    FeCAM False False 0.234
    C-FeCAM True False 0.2445
    C-FeCAM True True 0.2886
    """
    rows = _tables()["ablation_parts (cars/small)"]["rows"]
    return tuple(
        PartsAblation(method, mean, covariance, *(_fraction(value) for value in values))
        for method, mean, covariance, *values in rows
    )


def _setting(protocol: str | Protocol) -> dict[str, Any]:
    """Return the paper's entry for a protocol."""
    if isinstance(protocol, Protocol):
        if not protocol.is_papers:
            raise InputError(
                f"the paper has no results for the changed protocol {protocol.name!r}",
                hint=f"it has results for {', '.join(paper_protocols())}",
            )
        protocol = protocol.name
    if protocol not in paper_protocols():
        raise unknown_name("protocol in the paper", protocol, paper_protocols())
    setting: dict[str, Any] = _tables()["main"][protocol]
    return setting


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(TABLES.read_text(encoding="utf-8"))
    return tables


def _fraction(percent: float) -> float:
    # Rounded, so that 88.48 % is exactly 0.8848.
    return round(percent / 100, 6)


@dataclass(frozen=True)
class PublishedFigures:
    """Results of a publication with their setting.

    Attributes
    ----------
    source, dataset, backbone : str
        The publication, the dataset, and the backbone if it is known.
    accuracy : mapping of str to tuple of float
        By method: the accuracy after each session, as fractions.
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

    def differences(self, record: RunRecord) -> tuple[str, ...]:
        """Return the differences that forbid a comparison with a run, in words; empty if there are none.

        A value that the publication does not give counts as a difference.
        """
        protocol = Protocol(**record.config["protocol"])
        said = self.setting
        found = []
        if self.dataset != protocol.dataset:
            found.append(f"dataset: {self.dataset} there, {protocol.dataset} here")
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


def read_published(path: FilePath) -> PublishedFigures:
    """Read published results from a JSON file.

    It has ``source``, ``dataset`` and ``methods`` (by method, the accuracy in % after every session), and should
    have ``class_order`` (``"dataset"``, the seed of a permutation, or the names of all classes), ``base_classes``,
    ``increment``, ``shots``, ``shot_draw`` (``"random"``, ``"first"`` or ``"listed"``), ``images`` (the numbers of
    training and test images of each session, at least of the base session) and ``backbone``.

    Parameters
    ----------
    path : path
        The file.

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
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} ({error})", hint="it must be a JSON file of figures") from error
    if not isinstance(values, dict) or any(not values.get(name) for name in NEEDED):
        raise InputError(
            f"{path} must be a JSON object with {', '.join(NEEDED)}", hint="see the page on benchmarks"
        )
    for name in values:
        if name not in (*NEEDED, *SAID):
            raise unknown_name(f"key of {path}", name, (*NEEDED, *SAID))
    setting = {name: values[name] for name in SAID if values.get(name) is not None and name != "backbone"}
    _check_setting(setting, path)
    return PublishedFigures(
        source=str(values["source"]),
        dataset=str(values["dataset"]),
        backbone=str(values.get("backbone") or ""),
        accuracy=_accuracies(values["methods"], path),
        setting=setting,
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


def _accuracies(methods: Any, path: FilePath) -> dict[str, tuple[float, ...]]:
    """Return the accuracy of each method as fractions."""
    found = {}
    for name, values in methods.items() if isinstance(methods, dict) else ():
        numbers = values if isinstance(values, list) else []
        if not numbers or not all(is_number(value) and 0 <= value <= 100 for value in numbers):
            raise InputError(f"{name} in {path} must have its accuracy in % after every session, not {values!r}")
        found[str(name)] = tuple(round(value / 100, 8) for value in numbers)
    if not found:
        raise InputError(f"methods in {path} must have figures by name")
    return found


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _sizes(sizes: Sequence[int]) -> str:
    later = len(sizes) - 1
    return f"{sizes[0]}" if not later else f"{sizes[0]} + {later} x {sizes[1]}"
