"""Extractions in one line: the settings as keywords."""

from __future__ import annotations

from typing import Any

from fiveshot.backbones import Embedder
from fiveshot.data import ImageDataset
from fiveshot.features import Extraction, ExtractionSettings, FeatureSet, extract

PLACES = ("out", "cache", "progress")


def run_extraction(dataset: ImageDataset, embedder: Embedder, **options: Any) -> Extraction:
    places = {name: options.pop(name) for name in PLACES if name in options}
    return extract(dataset, embedder, ExtractionSettings(**options), **places)


def extracted(dataset: ImageDataset, embedder: Embedder, **options: Any) -> FeatureSet:
    return run_extraction(dataset, embedder, **options).features
