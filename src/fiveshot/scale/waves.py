"""A cluster run in waves: what a wave of shards adds is kept before the next wave starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.scale.backbone_spec import BackboneFacts, BackboneSpec
from fiveshot.scale.block_reducer import Reductions, reduce_dataset
from fiveshot.scale.catalog import Catalog
from fiveshot.scale.cluster import Resources, Workers, is_cluster_failure
from fiveshot.scale.cluster_statistics import ClusterStatistics
from fiveshot.scale.pilot import chosen_settings, pilot_rows, pilot_shards
from fiveshot.scale.pipeline import vector_dataset
from fiveshot.scale.progress import ClusterProgress, OnProgress
from fiveshot.scale.raw_image import Shard
from fiveshot.scale.rows import Tally
from fiveshot.scale.shard_run import ATTEMPTS
from fiveshot.scale.wanted import Wanted


@dataclass(frozen=True, eq=False)
class KeptStatistics:
    """Statistics so far, in a file that names the shards they are about."""

    path: Path
    facts: BackboneFacts
    wanted: Wanted
    images: str  # the catalog's digest

    def load(self) -> ClusterStatistics:
        """Return what is kept, where it was made the same way, or nothing yet."""
        try:
            found = ClusterStatistics.load(self.path)
        except StorageError:  # absent, or damaged and made again
            found = None
        if found is not None and found.notes.get("made") == self._made:
            return found
        notes = {"made": self._made, "done": [], "seconds": {}}
        head = self.wanted.head or ""
        return ClusterStatistics(self.facts.provenance, self.facts.identity, 0, head=head, notes=notes)

    @property
    def _made(self) -> str:
        return f"{self.facts.key} {self.wanted} {self.images}"


@dataclass(eq=False)
class Waves:
    """The shards of a catalog, reduced some at a time."""

    catalog: Catalog
    kept: KeptStatistics
    spec: BackboneSpec
    workers: Workers
    resources: Resources
    batch_size: int | None
    progress: OnProgress
    done: Tally = field(default_factory=Tally)

    def until_finished(self, wave_shards: int) -> ClusterStatistics:
        """Reduce wave after wave; what a wave adds is kept before the next one starts."""
        if wave_shards < 1:
            raise InputError(f"wave_shards is {wave_shards}; choose 1 or more")
        state = self._piloted(self.kept.load())
        finished = set(state.notes["done"])
        left = [shard for shard in self.catalog.shards if shard.key not in finished]
        for start in range(0, len(left), wave_shards):
            wave = left[start : start + wave_shards]
            reductions = self.kept.wanted.reductions(state.settings)
            state = self._joined(state, wave, reductions, *self._tried(wave, state.images, reductions))
            state.save(self.kept.path)
        return state

    def _piloted(self, state: ClusterStatistics) -> ClusterStatistics:
        """Return the statistics so far with the settings of their head, chosen on some images first."""
        if not state.head or state.settings:
            return state
        shards = pilot_shards(self.catalog)
        dataset = vector_dataset(shards, self.spec, self.kept.facts, self.workers, batch_size=self.batch_size)
        chosen = replace(state, settings=chosen_settings(state.head, pilot_rows(dataset)))
        chosen.save(self.kept.path)
        return chosen

    def _tried(self, wave: Sequence[Shard], before: int, reductions: Reductions) -> tuple[dict[str, Any], Tally]:
        for attempt in range(ATTEMPTS):
            try:
                return self._reduced(wave, before, reductions)
            except Exception as error:
                if attempt == ATTEMPTS - 1 or isinstance(error, FiveshotError) or not is_cluster_failure(error):
                    raise
        raise AssertionError("unreachable")

    def _reduced(self, wave: Sequence[Shard], before: int, reductions: Reductions) -> tuple[dict[str, Any], Tally]:
        dataset = vector_dataset(wave, self.spec, self.kept.facts, self.workers, batch_size=self.batch_size)
        earlier = before - self.done.images

        def report(now: Tally, arrived: int) -> None:
            waiting = max(0, arrived - now.images)
            self.progress(ClusterProgress(self.done + now, earlier, self.catalog.n_images, waiting))

        values, done = reduce_dataset(
            dataset,
            reductions,
            self.resources,
            task_cpus=self.workers.reduce_cpus,
            at_once=self.workers.reducers,
            progress=report,
        )
        self.done += done
        return values, done

    def _joined(
        self,
        state: ClusterStatistics,
        wave: Iterable[Shard],
        reductions: Reductions,
        values: Mapping[str, Any],
        done: Tally,
    ) -> ClusterStatistics:
        merged = {}
        for name, reduction in reductions.items():
            parts = [part for part in (getattr(state, name), values[name]) if part is not None]
            merged[name] = reduction.merge(parts) if parts else None
        seconds = (Tally(seconds=state.notes["seconds"]) + Tally(seconds=done.seconds)).seconds
        finished = [*state.notes["done"], *(shard.key for shard in wave)]
        return replace(
            state,
            images=state.images + done.images,
            bad=state.bad + done.bad,
            notes={**state.notes, "done": finished, "seconds": dict(seconds)},
            **merged,  # type: ignore[arg-type]  # the parts by name
        )
