"""The statistics of a cluster run, as a value and a file; and models and heads made from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from fiveshot.backbones import BackboneSpec, Embedder, Preprocessing, adapter_path, load_embedder
from fiveshot.core import ClassStatistics
from fiveshot.core.arrays import one_hot
from fiveshot.core.draws import random_features
from fiveshot.core.labels import python_labels
from fiveshot.core.memory import Memory
from fiveshot.core.ridge import best_lambda_of_sums
from fiveshot.core.scorers import LAMBDAS, RanPACScorer, make_scorer
from fiveshot.data import BadImage
from fiveshot.errors import InputError, StorageError
from fiveshot.features import Provenance
from fiveshot.recognizer import (
    HeadRecord,
    Manifest,
    Options,
    Recognizer,
    Rejection,
    backbone_record,
    check_name,
    create_model,
    fit_rejection,
    free_folder,
    head_record,
    require_statistics_head,
)
from fiveshot.scale._reductions import ClassSample, PackedStatistics, RidgeSums, TiedStatistics, tie, unpack
from fiveshot.storage import FilePath, read_tensors, write_tensors

KIND, VERSION = "cluster-statistics", 1
PART_TYPES: dict[str, Any] = {
    "classes": PackedStatistics,
    "tied": TiedStatistics,
    "sample": ClassSample,
    "ridge": RidgeSums,
}
HELD_OUT = 5  # one sample in five is held out, at most those that were kept


@dataclass(frozen=True, eq=False)
class ClusterStatistics:
    """Statistics of the training images, with their backbone and the images that were left out.

    Attributes
    ----------
    provenance : Provenance
        How the vectors were made.
    identity : mapping
        Everything about the backbone that affects its vectors.
    images : int
        All images, bad ones included.
    bad : tuple of BadImage
        The images that were left out.
    classes : PackedStatistics or None
        Statistics with a covariance for each class, if the plan includes them.
    tied : TiedStatistics or None
        Statistics with one covariance for all classes, if the plan includes them.
    sample : ClassSample or None
        A few vectors of each class.
    ridge : RidgeSums or None
        The sums of a RanPAC base session.
    head : str
        The head whose embedded vectors ``classes`` and ``tied`` describe; empty for the backbone's own vectors.
    settings : mapping
        Settings of that head.
    notes : mapping
        Further facts, as JSON values.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.features import Provenance
    >>> from fiveshot.scale import ClusterStatistics, StatisticsPlan
    >>> from fiveshot.scale._pipeline import Rows
    >>> rows = Rows(np.float32([[1, 0], [3, 0], [0, 5]]), np.array(["owl", "owl", "wren"]), ("1", "2", "3"))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in StatisticsPlan().reductions().items()}
    >>> found = ClusterStatistics(Provenance.unknown("birds"), {}, images=3, **parts)
    >>> found.statistics.means.tolist(), found.pooled.covariance.round(3).tolist()
    ([[2.0, 0.0], [0.0, 5.0]], [[2.0, 0.0], [0.0, 0.0]])
    """

    provenance: Provenance
    identity: Mapping[str, Any]
    images: int
    bad: tuple[BadImage, ...] = ()
    classes: PackedStatistics | None = None
    tied: TiedStatistics | None = None
    sample: ClassSample | None = None
    ridge: RidgeSums | None = None
    head: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def statistics(self) -> ClassStatistics:
        """The statistics with a covariance for each class, as heads take them."""
        if self.classes is None:
            raise InputError(
                "these statistics have one covariance for all classes", hint="reduce again with covariance='class'"
            )
        return unpack(self.classes)

    @property
    def pooled(self) -> TiedStatistics:
        """The statistics with one covariance for all classes; computed from those with one for each if needed."""
        if self.tied is not None:
            return self.tied
        if self.classes is None:
            raise InputError("these statistics have no covariance at all")
        return tie(self.classes)

    def save(self, path: FilePath) -> None:
        """Write everything into one file; it is complete or absent."""
        arrays, texts = {}, []
        for part in PART_TYPES:
            value = getattr(self, part)
            for entry in fields(value) if value is not None else ():
                name, array = f"{part}.{entry.name}", getattr(value, entry.name)
                if array.dtype.kind == "U":
                    texts.append(name)
                    array = np.frombuffer(json.dumps(array.tolist()).encode(), np.uint8)
                arrays[name] = array
        meta = {
            "provenance": self.provenance.as_dict(),
            "identity": dict(self.identity),
            "images": self.images,
            "bad": [[image.name, image.reason] for image in self.bad],
            "texts": texts,
            "head": self.head,
            "settings": dict(self.settings),
            "notes": dict(self.notes),
        }
        write_tensors(path, arrays, kind=KIND, version=VERSION, meta=meta)

    @classmethod
    def load(cls, path: FilePath) -> ClusterStatistics:
        """Read a file written by ``save``."""
        file = read_tensors(path, kind=KIND, version=VERSION)
        try:
            meta, parts = file.meta, {}
            texts = {name: json.loads(file.tensors[name].tobytes()) for name in meta["texts"]}
            arrays = file.tensors | {name: np.array(own, dtype=np.str_) for name, own in texts.items()}
            for part, make in PART_TYPES.items():
                if f"{part}.labels" in arrays:
                    parts[part] = make(*(arrays[f"{part}.{entry.name}"] for entry in fields(make)))
            bad = tuple(BadImage(name, reason) for name, reason in meta["bad"])
            provenance = Provenance.from_dict(meta["provenance"])
            rest = {name: meta[name] for name in ("head", "settings", "notes")}
            return cls(provenance, meta["identity"], int(meta["images"]), bad, **parts, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} is damaged ({error})", hint="get a fresh copy of it") from error


def create_from_statistics(
    path: FilePath,
    statistics: ClusterStatistics | FilePath,
    *,
    weights: FilePath | None = None,
    adapter: FilePath | None = None,
    seed: int = 0,
    keep_photos: bool = False,
    thumbnails: bool = True,
    names: bool = True,
    false_rejection: float = 0.05,
    device: str = "auto",
    runtime: str = "auto",
) -> Recognizer:
    """Create a model with the base classes of a cluster's statistics, and open it.

    The head is the one that the statistics were made for. The rejection thresholds come from the kept vectors of
    each class.

    Parameters
    ----------
    path : path
        Folder of the model; it must not exist yet.
    statistics : ClusterStatistics or path
        The statistics, or the file they are in.
    weights, adapter : path, optional
        The files the statistics were made with.
    seed : int, default 0
        Random seed.
    keep_photos, thumbnails, names : bool
        What the model keeps of the photos it learns.
    false_rejection : float, default 0.05
        Share of known photos that may be rejected as unknown.
    device, runtime : str, default "auto"
        Where and how the backbone runs.

    Returns
    -------
    Recognizer
        The open model.

    Raises
    ------
    InputError
        If the statistics were not made for a head, or come from another backbone.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.backbones import BackboneSpec
    >>> from fiveshot.scale import ClusterStatistics, StatisticsPlan, create_from_statistics
    >>> from fiveshot.scale._pipeline import vector_facts
    >>> from fiveshot.scale._pipeline import Rows
    >>> facts = vector_facts(BackboneSpec(device="cpu"), "float32", dataset="birds")
    >>> vectors = np.random.default_rng(0).normal(size=(8, facts.width)).astype(np.float32)
    >>> rows = Rows(vectors, np.array(["owl", "wren"] * 4), tuple("12345678"))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in StatisticsPlan().reductions().items()}
    >>> found = ClusterStatistics(facts.provenance, facts.identity, images=8, **parts, head="ncm")
    >>> with TemporaryDirectory() as folder:
    ...     with create_from_statistics(f"{folder}/birds", found, device="cpu", runtime="torch") as model:
    ...         model.show().base_classes
    2
    """
    found = statistics if isinstance(statistics, ClusterStatistics) else ClusterStatistics.load(statistics)
    if not found.head:
        raise InputError(
            "these statistics were not made for a head",
            hint="reduce again with StatisticsPlan(head='unbiased-lda')",
            code="no_head",
        )
    require_statistics_head(found.head)
    options = Options(keep_photos, thumbnails, float(false_rejection), seed, names)
    record = replace(head_record(found.head), settings=dict(found.settings))
    free_folder(path)
    runner = same_backbone(found, weights=weights, adapter=adapter, device=device, runtime=runtime)
    base = _named(found.statistics if found.classes is not None else found.pooled.split(seed=seed))
    rejection = _rejection(record, base, found.sample, options)
    manifest = Manifest(backbone_record(runner), record, options=options, rejection=rejection.as_dict())
    create_model(path, manifest, base=base, adapter=None if adapter is None else adapter_path(adapter))
    return Recognizer.open(path, device=device, runtime=runtime)


def same_backbone(
    found: ClusterStatistics, *, weights: FilePath | None, adapter: FilePath | None, device: str, runtime: str
) -> Embedder:
    """Load the backbone of the statistics; refuse any other."""
    identity = found.identity
    spec = BackboneSpec(
        identity["name"],
        weights=weights,
        adapter=adapter,
        preprocessing=Preprocessing.from_json(identity["preprocessing"]),
        **identity["readout"],
        device=device,
        runtime=runtime,
        precision="float32",
    )
    runner = load_embedder(spec)
    own = runner.identity()
    for key, value in identity.items():
        if own[key] != value:
            raise InputError(
                f"the statistics come from another backbone: their {key} is {value!r}, here it is {own[key]!r}",
                hint="give the weights and adapter of the cluster run, and run it with precision float32",
                code="other_backbone",
            )
    return runner


def _named(statistics: ClassStatistics) -> ClassStatistics:
    """Return the statistics with class names in the normalized form that models use."""
    named = {
        check_name(str(label)): summary
        for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True)
    }
    if len(named) < len(statistics):
        raise InputError(
            "two class names differ only in spaces or in the Unicode form of letters",
            hint="rename one",
            code="same_name",
        )
    return ClassStatistics.of(named)


def _rejection(
    record: HeadRecord, base: ClassStatistics, sample: ClassSample | None, options: Options
) -> Rejection:
    """Return the rejection thresholds from the kept vectors."""
    if sample is None or not len(sample):
        note = "nothing can be called unknown: no vectors of the base classes were kept"
        return Rejection(options.false_rejection, note=note)
    labels = [check_name(str(label)) for label in sample.labels]
    head = make_scorer(record.name).adopt(Memory(base=base), record.settings or None)
    return fit_rejection(head, sample.vectors, labels, false_rejection=options.false_rejection, seed=options.seed)


def ranpac_from_sums(
    found: ClusterStatistics, *, lam: float | None = None, lambdas: Sequence[float] = LAMBDAS
) -> RanPACScorer:
    """Return the RanPAC scorer from a cluster's sums, as if it had learned all samples at once.

    It can learn and forget new classes like any other scorer.

    Parameters
    ----------
    found : ClusterStatistics
        Statistics that were reduced with ``ridge`` and a covariance for each class.
    lam : float, optional
        Weight of the ridge; by default chosen on the kept vectors.
    lambdas : sequence of float
        Candidates to choose from.

    Returns
    -------
    RanPACScorer

    Raises
    ------
    InputError
        If the statistics hold no such sums, or no vectors to choose ``lam`` on.

    Examples
    --------
    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.features import Provenance
    >>> from fiveshot.core.scorers import RanPACScorer
    >>> from fiveshot.scale import ClusterStatistics, Ridge, StatisticsPlan, ranpac_from_sums
    >>> from fiveshot.scale._pipeline import Rows
    >>> x, y, test_x, _ = gaussian_classes(
    ...     n_classes=3, n_features=8, train_per_class=20, test_per_class=10, seed=0)
    >>> plan, rows = StatisticsPlan(ridge=Ridge(64, random_state=5)), Rows(x, y, tuple(map(str, range(60))))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in plan.reductions().items()}
    >>> found = ClusterStatistics(Provenance.unknown("toys"), {}, 60, **parts, notes=plan.notes)
    >>> whole = RanPACScorer(64, lambdas=(100.0,), random_state=5).learn(x, y)
    >>> bool((ranpac_from_sums(found, lam=100.0).classify(test_x) == whole.classify(test_x)).all())
    True
    """
    if found.ridge is None or found.classes is None:
        raise InputError(
            "RanPAC needs the sums and a covariance for each class",
            hint="reduce with StatisticsPlan(ridge=Ridge())",
            code="no_sums",
        )
    sums, statistics = found.ridge, unpack(found.classes)
    seed = int(found.notes["random_state"])
    if lam is None:
        lam = choose_lambda(sums, _held_out(found), seed=seed, lambdas=lambdas)
    return RanPACScorer.from_sums(statistics, sums.folded(), lam=lam, lambdas=lambdas, random_state=seed)


def choose_lambda(sums: RidgeSums, held_out: ClassSample, *, seed: int, lambdas: Sequence[float]) -> float:
    """Return the λ with the least squared error on held-out vectors, which are first subtracted from the sums."""
    vectors = held_out.vectors
    feature_map = random_features(vectors.shape[1], len(sums.gram), seed=seed, like=vectors)
    own = one_hot(np.searchsorted(sums.labels, held_out.labels), len(sums), vectors)  # (n, C)
    return best_lambda_of_sums(sums.gram, sums.targets, vectors, own, feature_map, lambdas=lambdas)


def _held_out(found: ClusterStatistics) -> ClassSample:
    """Return a part of the kept vectors, so that most samples of every class stay in the sums."""
    sample, classes = found.sample, found.classes
    if sample is None or classes is None:
        raise InputError(
            "no vectors were kept to choose lambda on", hint="reduce with a sample, or give lam", code="no_sample"
        )
    return sample.first(classes.counts[np.searchsorted(classes.labels, sample.labels)] // HELD_OUT)
