"""What ``fiveshot extract --engine ray`` does, from its options to the lines it prints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from fiveshot.backbones import DEFAULT
from fiveshot.data import BadImage
from fiveshot.errors import counted
from fiveshot.features import open_labelled_images
from fiveshot.scale.backbone_spec import BackboneSpec
from fiveshot.scale.catalog import Catalog, dataset_catalog, open_catalog
from fiveshot.scale.cluster_extraction import ClusterExtraction, extract_file, extract_shards
from fiveshot.scale.cluster_reduction import reduce_images
from fiveshot.scale.wanted import Covariance, Wanted

Result = Literal["file", "shards", "statistics"]


def extract_on_cluster(
    out: str | os.PathLike[str],
    *,
    result: Result = "file",
    covariance: Covariance = "class",
    head: str = "default",
    source: Mapping[str, Any],
    reading: Mapping[str, Any],
    loading: Mapping[str, Any],
    **running: Any,
) -> tuple[list[str], Sequence[BadImage]]:
    """Run an extraction on a cluster; return what to say about it, and the bad images.

    ``source`` says which images (``images``, or ``dataset`` and ``root``; ``seed`` and ``holdout``), ``reading``
    how they lie there, ``loading`` which backbone, ``running`` how to go about it.
    """
    spec = BackboneSpec(**{**loading, "backbone": loading.get("backbone") or DEFAULT})
    catalog = _opened(source, reading, draw=result != "statistics")
    lines = [f"note: {note}" for note in catalog.notes]
    if result == "statistics":
        # A model computes in float32, so that it may move between machines.
        spec = replace(spec, precision=spec.precision or "float32")
        wanted = Wanted(covariance, None if head == "none" else head)
        found = reduce_images(catalog, out, wanted=wanted, spec=spec, **running)
        lines.append(
            f"{out}: statistics of {counted(found.images, 'image')}, {counted(len(found.pooled), 'class')}"
        )
        return lines, found.bad
    if result == "shards":
        done = extract_shards(catalog, out, spec=spec, **running)
        lines.append(
            f"{out}: {counted(len(done.shards), 'shard')} with vectors of {counted(done.images, 'image')}"
        )
    else:
        features, done = extract_file(catalog, out, spec=spec, **running)
        lines.append(
            f"{out}: {len(features.train_x):,} training and {len(features.test_x):,} test vectors of "
            f"{features.n_features} {features.train_x.dtype}, {counted(len(features.class_names), 'class')}"
        )
    return [*lines, *_pace(done)], done.bad


def _opened(source: Mapping[str, Any], reading: Mapping[str, Any], *, draw: bool) -> Catalog:
    images, dataset, root = (source.get(key) for key in ("images", "dataset", "root"))
    holdout = source.get("holdout", 0.2)
    if images is not None and dataset is None and root is None:
        return open_catalog(str(images), seed=source["seed"], holdout=holdout if draw else None, **reading)
    return dataset_catalog(
        open_labelled_images(images, dataset=dataset, root=root, seed=source["seed"], holdout=holdout)
    )


def _pace(done: ClusterExtraction) -> Iterator[str]:
    if done.rate is None:
        yield f"all {done.images:,} images were extracted before; nothing had to be computed"
        return
    rates = ", ".join(f"{stage} {rate:,.0f}" for stage, rate in done.tally.rates().items())
    yield f"{counted(done.tally.images, 'image')} in {done.seconds:.1f} s, {done.runtime}"
    yield f"{done.rate:,.1f} images/s end to end; images/s of one worker: {rates}"
