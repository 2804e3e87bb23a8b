"""Compute statistics of images, or of vectors in shards, on a cluster; a stopped run can be continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.backbones import BackboneSpec
from fiveshot.core.scorers import make_scorer
from fiveshot.data import BadImage, bad_images_error
from fiveshot.errors import InputError, StorageError
from fiveshot.features import TRAIN, Part, Provenance
from fiveshot.scale._catalog import Catalog, preview
from fiveshot.scale._extraction import read_manifest
from fiveshot.scale._models import ClusterStatistics
from fiveshot.scale._pipeline import (
    Batch,
    Rows,
    VectorFacts,
    VectorPipeline,
    bad_node,
    block_bytes,
    checked,
    concatenate,
    good_rows,
    numpy_batch,
    select,
    vector_pipeline,
)
from fiveshot.scale._reducer import BlockReducer
from fiveshot.scale._reductions import Reductions, StatisticsPlan
from fiveshot.scale._shards import Shard
from fiveshot.scale.cluster import (
    ClusterProgress,
    ClusterSettings,
    OnClusterProgress,
    Tally,
    connected,
    own_errors,
    retried,
    silent,
)
from fiveshot.storage import FilePath, require_writable

SAVE_EVERY, MAX_SAVES = 256, 32  # shards between saves (more if there would be too many saves), and the most saves
PREVIEW_IMAGES = 20_000


def reduce_images(
    catalog: Catalog,
    out: FilePath,
    *,
    plan: StatisticsPlan | None = None,
    spec: BackboneSpec | None = None,
    settings: ClusterSettings | None = None,
    save_every: int | None = None,
    progress: OnClusterProgress | None = None,
) -> ClusterStatistics:
    """Reduce the training images of a catalog to statistics on a cluster and write them to a file.

    Vectors are reduced on the nodes that compute them, and are not stored. The statistics so far are saved next to
    ``out`` from time to time; the same call continues from there.

    Parameters
    ----------
    catalog : Catalog
        The images.
    out : path
        The file to write.
    plan : StatisticsPlan, optional
        Which statistics to make; by default a covariance for each class and a sample of vectors.
    spec : BackboneSpec, optional
        The backbone; by default the embedded one.
    settings : ClusterSettings, optional
        How to run on the cluster.
    save_every : int, optional
        Shards after which the statistics so far are saved; by default 256, or a 32nd of all if that is more.
    progress : callable, optional
        Called with a ``ClusterProgress`` from time to time.

    Returns
    -------
    ClusterStatistics
        The statistics in the file.

    Raises
    ------
    InputError
        If the plan cannot be made, or if images are bad, once all is done, unless ``settings.skip_bad`` leaves
        them out.
    StorageError
        If the file cannot be written, or images cannot be reached.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import ClusterSettings, dataset_catalog, reduce_images
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("grays", ("dark", "light"), split, split.select([])))
    >>> settings = ClusterSettings(workers=1)
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     found = reduce_images(catalog, f"{folder}/grays.safetensors", settings=settings)
    >>> found.images, found.statistics.labels.tolist(), found.statistics.counts.tolist()  # doctest: +SKIP
    (4, ['dark', 'light'], [2, 2])
    """
    target, plan, settings = Path(out), plan or StatisticsPlan(), settings or ClusterSettings()
    require_writable(target)
    plan.reductions()  # refuses what cannot be made before anything is computed
    if save_every is not None and save_every < 1:
        raise InputError(f"save_every is {save_every}", hint="choose 1 or more")
    saved = target.with_name(f".{target.name}.partial")
    with vector_pipeline(spec or BackboneSpec(), settings, dataset=catalog.name) as pipeline:
        run = StatisticsRun(catalog, plan, pipeline, saved, progress or silent)
        found = run.finish(save_every or max(SAVE_EVERY, len(catalog.shards) // MAX_SAVES))
    if found.bad and not settings.skip_bad:
        raise bad_images_error(found.bad, found.images)
    finished = replace(found, notes={"seconds": found.notes["seconds"], **plan.notes})
    finished.save(target)
    saved.unlink(missing_ok=True)
    return finished


@dataclass(eq=False)
class StatisticsRun:
    """Reduces the shards of a catalog, and saves the statistics so far with the list of their shards."""

    catalog: Catalog
    plan: StatisticsPlan
    pipeline: VectorPipeline
    path: Path
    progress: OnClusterProgress
    done: Tally = field(default_factory=Tally)  # in this run

    def finish(self, save_every: int) -> ClusterStatistics:
        """Reduce the remaining shards, ``save_every`` at a time, and save after each step."""
        found = self._with_settings(self._saved())
        reductions = self.plan.reductions(found.settings)
        finished = set(found.notes["done"])
        left = [shard for shard in self.catalog.shards if shard.key not in finished]
        for start in range(0, len(left), save_every):
            shards = left[start : start + save_every]
            values, done = retried(partial(self._reduced, shards, found.images, reductions))
            found = _joined(found, shards, reductions, values, done)
            found.save(self.path)
        return found

    def _saved(self) -> ClusterStatistics:
        """Return the saved statistics if they were made in the same way, else empty statistics."""
        made = f"{self.pipeline.facts.key} {self.plan} {self.catalog.digest}"
        try:
            found = ClusterStatistics.load(self.path)
            if found.notes.get("made") == made:
                return found
        except StorageError:  # absent or damaged: computed again
            pass
        facts, notes = self.pipeline.facts, {"made": made, "done": [], "seconds": {}}
        return ClusterStatistics(facts.provenance, facts.identity, 0, head=self.plan.head or "", notes=notes)

    def _with_settings(self, found: ClusterStatistics) -> ClusterStatistics:
        """Return the statistics with the settings of their head, which are chosen on some images."""
        if not found.head or found.settings:
            return found
        dataset = self.pipeline.vectors(preview(self.catalog, PREVIEW_IMAGES))
        batches = list(dataset.iter_batches(batch_size=None, batch_format="numpy"))
        if not batches:
            raise InputError(
                "no images were found",
                hint="name a folder, parquet files or tars that hold some",
                code="no_images",
            )
        batch = concatenate(checked(one, self.pipeline.facts) for one in batches)
        in_order = select(batch, np.lexsort((batch["row"], batch["shard"])))
        settings = choose_settings(found.head, good_rows(in_order, splits=(TRAIN,)))
        chosen = replace(found, settings=settings)
        chosen.save(self.path)
        return chosen

    def _reduced(
        self, shards: Sequence[Shard], before: int, reductions: Reductions
    ) -> tuple[dict[str, Any], Tally]:
        """Reduce some shards; ``before`` counts the images that are already reduced."""
        earlier = before - self.done.images

        def report(now: Tally, arrived: int) -> None:
            waiting = max(0, arrived - now.images)
            self.progress(ClusterProgress(self.done + now, earlier, self.catalog.n_images, waiting))

        workers = self.pipeline.workers
        reducer = BlockReducer(
            reductions,
            at_once=workers.reducers,
            task_cpus=workers.reduce_cpus,
            group_bytes=2 * block_bytes(self.pipeline.resources),
            load=partial(checked_block, facts=self.pipeline.facts),
        )
        values = reducer.reduce(self.pipeline.vectors(shards), report)
        done = reducer.tally
        if done.images != done.promised:
            raise bad_node(f"{done.images} images of {done.promised}")
        self.done += done
        return values, done


def checked_block(block: Any, *, facts: VectorFacts) -> Batch:
    """Check a block from a node, and return its rows."""
    return checked(numpy_batch(block), facts)


def choose_settings(head: str, rows: Rows) -> dict[str, Any]:
    """Return the settings that a head chooses on these vectors as its base session.

    Statistics describe vectors after the head's embedding, which centers them, for instance. So its settings must
    be known before the first vector is reduced. They are exact if these are all images.
    """
    classes = np.unique(rows.labels).tolist()
    if len(classes) < 2:
        raise InputError(
            f"statistics for a model need at least two classes, found {classes}", code="too_few_classes"
        )
    return make_scorer(head).learn(rows.vectors, rows.labels).settings()


def _joined(
    found: ClusterStatistics,
    shards: Sequence[Shard],
    reductions: Reductions,
    values: Mapping[str, Any],
    done: Tally,
) -> ClusterStatistics:
    """Return the statistics so far with those of some more shards."""
    merged = {}
    for name, reduction in reductions.items():
        parts = [part for part in (getattr(found, name), values[name]) if part is not None]
        merged[name] = reduction.merge(parts) if parts else None
    seconds = (Tally(seconds=found.notes["seconds"]) + Tally(seconds=done.seconds)).seconds
    finished = [*found.notes["done"], *(shard.key for shard in shards)]
    return replace(
        found,
        images=found.images + done.images,
        bad=found.bad + done.bad,
        notes={**found.notes, "done": finished, "seconds": dict(seconds)},
        **merged,  # type: ignore[arg-type]  # the parts by name
    )


def reduce_shards(
    folder: FilePath,
    out: FilePath,
    *,
    plan: StatisticsPlan | None = None,
    settings: ClusterSettings | None = None,
    progress: OnClusterProgress | None = None,
) -> ClusterStatistics:
    """Reduce the training vectors of a folder of shards to statistics on a cluster, and write them to a file.

    No backbone is needed. All nodes must see the folder.

    Parameters
    ----------
    folder : path
        A folder that ``extract_shards`` has finished.
    out : path
        The file to write.
    plan : StatisticsPlan, optional
        Which statistics to make; by default a covariance for each class and a sample of vectors.
    settings : ClusterSettings, optional
        How to run on the cluster; its ``workers`` are tasks at a time, as many as processors unless given.
    progress : callable, optional
        Called with a ``ClusterProgress`` from time to time.

    Returns
    -------
    ClusterStatistics
        The statistics in the file.

    Raises
    ------
    InputError
        If the plan cannot be made.
    StorageError
        If the folder is not finished, or the file cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import ClusterSettings, StatisticsPlan, dataset_catalog, extract_shards, reduce_shards
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> catalog = dataset_catalog(ImageDataset("grays", ("dark", "light"), split, split.select([])))
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     done = extract_shards(catalog, f"{folder}/shards", settings=ClusterSettings(workers=1))
    ...     found = reduce_shards(f"{folder}/shards", f"{folder}/grays.safetensors", plan=StatisticsPlan("tied"))
    >>> done.images, len(done.shards), done.bad, done.runtime  # doctest: +SKIP
    (4, 1, (), 'Ray, backbone on 1 ... worker')
    >>> found.pooled.labels.tolist(), found.pooled.covariance.shape  # doctest: +SKIP
    (['dark', 'light'], (320, 320))
    """
    about, target = read_manifest(folder), Path(out)
    plan, settings = plan or StatisticsPlan(), settings or ClusterSettings()
    plan.reductions()  # refuses what cannot be made before anything is computed
    require_writable(target)
    paths = [str(Path(folder).absolute() / name) for name in about["shards"]]
    images = int(about["images"])
    chosen = choose_settings(plan.head, some_rows(paths, images)) if plan.head else {}
    tell = progress or silent
    with connected(settings.address) as resources, own_errors():
        reducer = BlockReducer(
            plan.reductions(chosen),
            at_once=settings.workers or max(1, int(resources.cpus)),
            task_cpus=0.1 if settings.workers else 1.0,
            group_bytes=2 * block_bytes(resources),
            load=shard_rows,
        )
        for number, path in enumerate(paths, start=1):
            reducer.add(path, Path(path).stat().st_size)
            tell(ClusterProgress(reducer.tally, total=images, shards=number, all_shards=len(paths)))
        values = reducer.result()
    found = ClusterStatistics(
        Provenance.from_dict(about["provenance"]),
        about["identity"],
        images,
        tuple(BadImage(name, reason) for name, reason in about["bad"]),
        **values,
        head=plan.head or "",
        settings=chosen,
        notes=plan.notes,
    )
    found.save(target)
    return found


def shard_rows(path: str) -> Batch:
    """Return the rows of a shard's file, without bad images."""
    shard = Part.load(path)
    return {
        "row": shard.positions,
        "split": shard.splits,
        "name": np.array(shard.names, dtype=object),
        "label": np.array(shard.class_names, dtype=object)[shard.labels],
        "reason": np.full(len(shard.positions), "", dtype=object),
        "vectors": shard.vectors,
    }


def some_rows(paths: Sequence[str], images: int) -> Rows:
    """Return every n-th training vector of shards with ``images`` images, at most about 20,000 in all."""
    step = max(1, -(-images // PREVIEW_IMAGES))
    batches = (shard_rows(path) for path in paths)
    chosen = [select(batch, np.flatnonzero(batch["split"] == TRAIN)[::step]) for batch in batches]
    return good_rows(concatenate(chosen), splits=(TRAIN,))
