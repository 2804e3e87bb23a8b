"""Beyond one machine: extraction and statistics on a Ray cluster, and an index over very many classes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.scale.backbone_spec import BackboneSpec
    from fiveshot.scale.catalog import Catalog, dataset_catalog, join_catalogs, open_catalog
    from fiveshot.scale.cluster import connected
    from fiveshot.scale.cluster_extraction import ClusterExtraction, extract_file, extract_shards
    from fiveshot.scale.cluster_reduction import reduce_images
    from fiveshot.scale.cluster_statistics import ClusterStatistics
    from fiveshot.scale.cluster_sweep import sweep_on_cluster
    from fiveshot.scale.cluster_tuning import TuningTask, tune_on_cluster
    from fiveshot.scale.index import ClassIndex, exact_nearest
    from fiveshot.scale.model import create_from_statistics
    from fiveshot.scale.progress import ClusterProgress
    from fiveshot.scale.ranpac import ranpac_from_sums
    from fiveshot.scale.reduction import Ridge
    from fiveshot.scale.shard_reduction import reduce_shards
    from fiveshot.scale.wanted import Wanted

# Loaded when first asked for: processes that only read images are started by the dozen and need none of it.
PLACES = {
    "BackboneSpec": "backbone_spec",
    "Catalog": "catalog",
    "ClassIndex": "index",
    "ClusterExtraction": "cluster_extraction",
    "ClusterProgress": "progress",
    "ClusterStatistics": "cluster_statistics",
    "Ridge": "reduction",
    "TuningTask": "cluster_tuning",
    "Wanted": "wanted",
    "connected": "cluster",
    "create_from_statistics": "model",
    "dataset_catalog": "catalog",
    "exact_nearest": "index",
    "extract_file": "cluster_extraction",
    "extract_shards": "cluster_extraction",
    "join_catalogs": "catalog",
    "open_catalog": "catalog",
    "ranpac_from_sums": "ranpac",
    "reduce_images": "cluster_reduction",
    "reduce_shards": "shard_reduction",
    "sweep_on_cluster": "cluster_sweep",
    "tune_on_cluster": "cluster_tuning",
}

__all__ = [
    "BackboneSpec",
    "Catalog",
    "ClassIndex",
    "ClusterExtraction",
    "ClusterProgress",
    "ClusterStatistics",
    "Ridge",
    "TuningTask",
    "Wanted",
    "connected",
    "create_from_statistics",
    "dataset_catalog",
    "exact_nearest",
    "extract_file",
    "extract_shards",
    "join_catalogs",
    "open_catalog",
    "ranpac_from_sums",
    "reduce_images",
    "reduce_shards",
    "sweep_on_cluster",
    "tune_on_cluster",
]


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
