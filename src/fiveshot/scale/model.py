"""A recogniser from the statistics of a cluster: the same directory that one machine makes from a folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fiveshot.backbones import Preprocessing
from fiveshot.backbones.embedded_adapters import adapter_path
from fiveshot.errors import InputError
from fiveshot.features import Runner, load_runner
from fiveshot.heads import make_head
from fiveshot.heads.memory import Memory
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.backbone import backbone_record
from fiveshot.recognizer.creation import create_model, free_folder
from fiveshot.recognizer.making import require_statistics_head
from fiveshot.recognizer.manifest import HeadRecord, Manifest, Options
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.rejection import fit_rejection
from fiveshot.recognizer.snapshot import head_record
from fiveshot.recognizer.threshold import Rejection, check_rate
from fiveshot.scale.class_sample import ClassSample
from fiveshot.scale.cluster_statistics import ClusterStatistics
from fiveshot.statistics import ClassStatistics
from fiveshot.statistics.labels import python_labels
from fiveshot.storage import FilePath


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

    ``weights`` and ``adapter`` are the files the statistics were made with. The head is the one they were made
    for; the thresholds of rejection come from the vectors that were kept of each class.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.scale import BackboneSpec, ClusterStatistics, Wanted, create_from_statistics
    >>> from fiveshot.scale.rows import Rows
    >>> facts = BackboneSpec(runtime="torch").placed(gpus=False).described("float32", dataset="birds")
    >>> vectors = np.random.default_rng(0).normal(size=(8, facts.width)).astype(np.float32)
    >>> rows = Rows(vectors, np.array(["owl", "wren"] * 4), tuple("12345678"))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in Wanted().reductions().items()}
    >>> found = ClusterStatistics(facts.provenance, facts.identity, images=8, **parts, head="ncm")
    >>> with TemporaryDirectory() as folder:
    ...     with create_from_statistics(f"{folder}/birds", found, device="cpu", runtime="torch") as model:
    ...         model.show().base_classes
    2
    """
    found = statistics if isinstance(statistics, ClusterStatistics) else ClusterStatistics.load(statistics)
    if not found.head:
        raise InputError("these statistics were made for no head; reduce again with Wanted(head='default')")
    require_statistics_head(found.head)
    options = Options(keep_photos, thumbnails, check_rate(float(false_rejection)), seed)
    record = replace(head_record(found.head), settings=dict(found.settings))
    free_folder(path)
    runner = same_backbone(found, weights=weights, adapter=adapter, device=device, runtime=runtime)
    base = _named(found.statistics if found.classes is not None else found.pooled.dealt_out(seed=seed))
    rejection = _rejection(record, base, found.sample, options)
    manifest = Manifest(
        backbone_record(runner, weights=weights), record, options=options, rejection=rejection.as_dict()
    )
    create_model(path, manifest, base=base, adapter=None if adapter is None else adapter_path(adapter))
    return Recognizer.open(path, device=device, runtime=runtime)


def same_backbone(
    found: ClusterStatistics, *, weights: FilePath | None, adapter: FilePath | None, device: str, runtime: str
) -> Runner:
    """Load the backbone that the statistics were made with; any other is refused."""
    identity = found.identity
    runner = load_runner(
        identity["name"],
        weights=weights,
        adapter=adapter,
        preprocessing=Preprocessing.from_json(identity["preprocessing"]),
        **identity["readout"],
        device=device,
        runtime=runtime,
        precision="float32",
    )
    own = runner.identity()
    for key, value in identity.items():
        if own[key] != value:
            raise InputError(
                f"the statistics are of another backbone: their {key} is {value!r}, here it is {own[key]!r}; "
                "give the weights and adapter of the cluster run, and run it with precision float32"
            )
    return runner


def _named(statistics: ClassStatistics) -> ClassStatistics:
    """Return the statistics under names as models have them, which are tidied texts."""
    named = {
        check_name(str(label)): summary
        for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True)
    }
    if len(named) < len(statistics):
        raise InputError("two classes have names that differ in spaces or in the form of letters only; rename one")
    return ClassStatistics(np.array(sorted(named)), tuple(named[name] for name in sorted(named)))


def _rejection(
    record: HeadRecord, base: ClassStatistics, sample: ClassSample | None, options: Options
) -> Rejection:
    """Return the thresholds that the kept vectors give."""
    if sample is None or not len(sample):
        note = "nothing is rejected: no vectors of the base classes were kept"
        return Rejection(options.false_rejection, note=note)
    vectors = torch.from_numpy(sample.vectors.copy())
    labels = [check_name(str(label)) for label in sample.labels]
    head = make_head(record.name).adopt(Memory(base=base), record.settings or None)
    return fit_rejection(head, vectors, labels, false_rejection=options.false_rejection, seed=options.seed)
