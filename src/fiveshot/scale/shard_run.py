"""The run that computes the missing shards of a folder, again where the cluster failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fiveshot.errors import FiveshotError, InputError
from fiveshot.scale.backbone_spec import BackboneSpec
from fiveshot.scale.catalog import Catalog
from fiveshot.scale.cluster import Workers, is_cluster_failure
from fiveshot.scale.pipeline import vector_dataset
from fiveshot.scale.progress import ClusterProgress, OnProgress
from fiveshot.scale.raw_image import Shard
from fiveshot.scale.rows import Tally, tally
from fiveshot.scale.shard_collector import ShardCollector
from fiveshot.scale.shard_file import ShardFolder

ATTEMPTS = 3  # after a failure of the cluster that Ray could not repair by itself


@dataclass(eq=False)
class ShardRun:
    """The shards of a catalog, computed into a folder."""

    catalog: Catalog
    store: ShardFolder
    spec: BackboneSpec
    workers: Workers
    batch_size: int | None
    progress: OnProgress
    done: Tally = field(default_factory=Tally)

    def until_finished(self) -> Tally:
        """Compute the missing shards, again where the cluster failed; return what was computed."""
        for attempt in range(ATTEMPTS):
            missing = self.store.missing(self.catalog.shards)
            if not missing:
                return self.done
            try:
                self._compute(missing)
            except Exception as error:
                if attempt == ATTEMPTS - 1 or isinstance(error, FiveshotError) or not is_cluster_failure(error):
                    raise
        if self.store.missing(self.catalog.shards):
            raise InputError("images changed while they were read; start again once nothing writes to them")
        return self.done

    def _compute(self, shards: Sequence[Shard]) -> None:
        collector = ShardCollector({shard.number: shard for shard in shards}, self.store)
        before = len(self.catalog.shards) - len(shards)
        images = self._finished_images(shards)
        dataset = vector_dataset(shards, self.spec, self.store.facts, self.workers, batch_size=self.batch_size)
        for batch in dataset.iter_batches(batch_size=None, batch_format="numpy"):
            collector.add(batch)
            self.done += tally(batch)
            self.progress(
                ClusterProgress(
                    self.done,
                    images,
                    self.catalog.n_images,
                    shards=before + collector.finished,
                    all_shards=len(self.catalog.shards),
                )
            )

    def _finished_images(self, missing: Sequence[Shard]) -> int:
        numbers = {shard.number for shard in missing}
        kept = [shard for shard in self.catalog.shards if shard.number not in numbers]
        return max(0, sum(shard.n_images for shard in self.store.shards(kept)) - self.done.images)
