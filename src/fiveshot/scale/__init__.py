"""Beyond one machine: extraction and statistics on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name

if TYPE_CHECKING:
    from fiveshot.scale._catalog import Catalog, dataset_catalog, join_catalogs, open_catalog
    from fiveshot.scale._extraction import ClusterExtraction, extract_file, extract_shards
    from fiveshot.scale._jobs import TuningTask, sweep_on_cluster, tune_on_cluster
    from fiveshot.scale._models import ClusterStatistics, create_from_statistics, ranpac_from_sums
    from fiveshot.scale._reductions import Ridge, StatisticsPlan
    from fiveshot.scale._statistics import reduce_images, reduce_shards
    from fiveshot.scale.cluster import ClusterProgress, ClusterSettings, connected

__all__ = [
    "Catalog",
    "ClusterExtraction",
    "ClusterProgress",
    "ClusterSettings",
    "ClusterStatistics",
    "Ridge",
    "StatisticsPlan",
    "TuningTask",
    "connected",
    "create_from_statistics",
    "dataset_catalog",
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

# Loaded on first use: a cluster starts many processes that only read images and do not need these modules.
# The last imports scikit-learn.
_MODULES = ("cluster", "_catalog", "_reductions", "_models", "_extraction", "_statistics", "_jobs")


def __getattr__(name: str) -> Any:
    return imported_name(__name__, _MODULES, name, __all__)
