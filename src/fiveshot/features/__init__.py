"""Feature vectors: a set with provenance in one file; extraction and its cache; the embedded packs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fiveshot.features.embedded import embedded_features, embedded_packs
from fiveshot.features.feature_set import FeatureSet, load_features
from fiveshot.features.provenance import Provenance

if TYPE_CHECKING:
    from fiveshot.features.cache import CacheKey, FeatureCache, default_cache_folder
    from fiveshot.features.extraction.job import ExtractionSettings, open_labeled_images
    from fiveshot.features.extraction.report import Extraction, bare_rate
    from fiveshot.features.extraction.run import extract, extracted_features
    from fiveshot.features.npz import load_npz

__all__ = [
    "CacheKey",
    "Extraction",
    "ExtractionSettings",
    "FeatureCache",
    "FeatureSet",
    "Provenance",
    "bare_rate",
    "default_cache_folder",
    "embedded_features",
    "embedded_packs",
    "extract",
    "extracted_features",
    "load_features",
    "load_npz",
    "open_labeled_images",
]

# Imported when it is asked for: recognizing a photo needs neither pools of processes nor datasets.
_PLACES = {
    "cache": ("CacheKey", "FeatureCache", "default_cache_folder"),
    "extraction.job": ("ExtractionSettings", "open_labeled_images"),
    "extraction.report": ("Extraction", "bare_rate"),
    "extraction.run": ("extract", "extracted_features"),
    "npz": ("load_npz",),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
