"""Models and heads from the statistics of a cluster: the same as if one machine had seen every sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fiveshot.backbones import BackboneSpec, Embedder, Preprocessing, adapter_path, load_embedder
from fiveshot.core import ClassStatistics
from fiveshot.core.arrays import one_hot
from fiveshot.core.draws import random_features
from fiveshot.core.labels import python_labels
from fiveshot.core.memory import Memory
from fiveshot.core.ridge import best_lambda_of_sums
from fiveshot.errors import InputError
from fiveshot.heads import RanPAC, make_head
from fiveshot.heads.ranpac import LAMBDAS
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.embedding import backbone_record
from fiveshot.recognizer.recognition.head import head_record, require_statistics_head
from fiveshot.recognizer.recognition.rejection import Rejection, fit_rejection
from fiveshot.recognizer.store.folder import create_model, free_folder
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, Options
from fiveshot.scale.statistics.classes import unpack
from fiveshot.scale.statistics.reductions import ClassSample, RidgeSums
from fiveshot.scale.statistics.result import ClusterStatistics
from fiveshot.storage import FilePath

HELD_OUT = 5  # one sample of so many, and no more than were kept


def create_from_statistics(
    path: FilePath,
    statistics: ClusterStatistics | FilePath,
    *,
    weights: FilePath | None = None,
    adapter: FilePath | None = None,
    seed: int = 0,
    keep_photos: bool = False,
    thumbnails: bool = True,
    false_rejection: float = 0.05,
    device: str = "auto",
    runtime: str = "auto",
) -> Recognizer:
    """Make a model whose base classes are those of a cluster's statistics, and open it.

    The head is the one the statistics were made for. The thresholds of rejection come from the vectors that were
    kept of each class.

    Parameters
    ----------
    path : path
        Folder of the model; it must not exist yet.
    statistics : ClusterStatistics or path
        The statistics, or the file they are in.
    weights, adapter : path, optional
        The files the statistics were made with.
    seed : int, default 0
        Seed of everything random.
    keep_photos, thumbnails : bool
        What the model keeps of the photos it learns.
    false_rejection : float, default 0.05
        Share of known photos that may be called unknown.
    device, runtime : str, default "auto"
        Where and how the backbone runs.

    Returns
    -------
    Recognizer
        The open model.

    Raises
    ------
    InputError
        If the statistics are for no head, or of another backbone.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.backbones import BackboneSpec
    >>> from fiveshot.scale import ClusterStatistics, StatisticsPlan, create_from_statistics
    >>> from fiveshot.scale.extraction.pipeline import vector_facts
    >>> from fiveshot.scale.extraction.batches import Rows
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
            "these statistics were made for no head",
            hint="reduce again with StatisticsPlan(head='unbiased-lda')",
            code="no_head",
        )
    require_statistics_head(found.head)
    options = Options(keep_photos, thumbnails, float(false_rejection), seed)
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
    """Load the backbone that the statistics were made with; any other is refused."""
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
                f"the statistics are of another backbone: their {key} is {value!r}, here it is {own[key]!r}",
                hint="give the weights and adapter of the cluster run, and run it with precision float32",
                code="other_backbone",
            )
    return runner


def _named(statistics: ClassStatistics) -> ClassStatistics:
    """Return the statistics under names as models have them, which are tidied texts."""
    named = {
        check_name(str(label)): summary
        for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True)
    }
    if len(named) < len(statistics):
        raise InputError(
            "two classes have names that differ in spaces or in the form of letters only",
            hint="rename one",
            code="same_name",
        )
    return ClassStatistics.of(named)


def _rejection(
    record: HeadRecord, base: ClassStatistics, sample: ClassSample | None, options: Options
) -> Rejection:
    """Return the thresholds that the kept vectors give."""
    if sample is None or not len(sample):
        note = "nothing is rejected: no vectors of the base classes were kept"
        return Rejection(options.false_rejection, note=note)
    labels = [check_name(str(label)) for label in sample.labels]
    head = make_head(record.name).adopt(Memory(base=base), record.settings or None)
    return fit_rejection(head, sample.vectors, labels, false_rejection=options.false_rejection, seed=options.seed)


def ranpac_from_sums(
    found: ClusterStatistics, *, lam: float | None = None, lambdas: Sequence[float] = LAMBDAS
) -> RanPAC:
    """Return the RanPAC head that a cluster's sums give, as if it had been fitted on all samples at once.

    It learns new classes and forgets them as any other.

    Parameters
    ----------
    found : ClusterStatistics
        Statistics that were reduced with ``ridge`` and a covariance for each class.
    lam : float, optional
        Weight of the ridge; chosen on the kept vectors unless given.
    lambdas : sequence of float
        Candidates to choose from.

    Returns
    -------
    RanPAC
        The fitted head.

    Raises
    ------
    InputError
        If the statistics hold no such sums, or no vectors to choose ``lam`` on.

    Examples
    --------
    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.features import Provenance
    >>> from fiveshot.heads import RanPAC
    >>> from fiveshot.scale import ClusterStatistics, Ridge, StatisticsPlan, ranpac_from_sums
    >>> from fiveshot.scale.extraction.batches import Rows
    >>> x, y, test_x, _ = gaussian_classes(
    ...     n_classes=3, n_features=8, train_per_class=20, test_per_class=10, seed=0)
    >>> plan, rows = StatisticsPlan(ridge=Ridge(64, random_state=5)), Rows(x, y, tuple(map(str, range(60))))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in plan.reductions().items()}
    >>> found = ClusterStatistics(Provenance.unknown("toys"), {}, 60, **parts, notes=plan.notes)
    >>> fitted = RanPAC(64, lambdas=(100.0,), random_state=5).fit(x, y)
    >>> bool((ranpac_from_sums(found, lam=100.0).predict(test_x) == fitted.predict(test_x)).all())
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
    return RanPAC.from_sums(statistics, sums.folded(), lam=lam, lambdas=lambdas, random_state=seed)


def choose_lambda(sums: RidgeSums, held_out: ClassSample, *, seed: int, lambdas: Sequence[float]) -> float:
    """Return the λ of least squared error on held-out vectors, which are taken out of the sums first."""
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
    limits = classes.counts[np.searchsorted(classes.labels, sample.labels)] // HELD_OUT
    _, counts = np.unique(sample.labels, return_counts=True)
    rank = np.arange(len(sample)) - np.repeat(np.cumsum(counts) - counts, counts)
    return sample.select(rank < limits)
