"""Heads and models from a cluster's statistics equal those that saw every sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.core.draws import random_features
from fiveshot.core.scorers import RanPACScorer
from fiveshot.errors import InputError, StorageError
from fiveshot.features import FeatureSet
from fiveshot.recognizer import Recognizer
from fiveshot.scale import (
    ClusterStatistics,
    Ridge,
    StatisticsPlan,
    create_from_statistics,
    ranpac_from_sums,
)
from fiveshot.scale._models import choose_lambda
from fiveshot.scale._pipeline import Rows, vector_facts
from fiveshot.scale._reductions import PerClass, Sample
from fiveshot.scale._statistics import choose_settings

WIDTH = 64  # of the tiny backbone


def bird_rows(per_class: int = 60, n_classes: int = 6, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    means = rng.normal(0, 1.5, (n_classes, WIDTH))
    codes = np.repeat(np.arange(n_classes), per_class)
    vectors = (means[codes] + rng.normal(0, 1, (len(codes), WIDTH))).astype(np.float32)
    return Rows(vectors, np.array([f"bird {c}" for c in codes]), tuple(f"{i}.jpg" for i in range(len(codes))))


def statistics_of(rows: Rows, spec: BackboneSpec, *, covariance: str = "class") -> ClusterStatistics:
    """Return the statistics for the default head, as a cluster makes them."""
    facts = vector_facts(spec, "float32", dataset="birds")
    settings = choose_settings("unbiased-lda", rows)
    made = StatisticsPlan(covariance, "unbiased-lda").reductions(settings)  # type: ignore[arg-type]
    (name, reduction) = next(iter(made.items()))
    return ClusterStatistics(
        facts.provenance,
        facts.identity,
        len(rows.labels),
        **{name: reduction.reduce(rows)},
        sample=Sample(20).reduce(rows),
        head="unbiased-lda",
        settings=settings,
    )


def sums_of(rows: Rows, spec: BackboneSpec) -> ClusterStatistics:
    """Return the statistics for RanPAC."""
    facts = vector_facts(spec, "float32", dataset="birds")
    return ClusterStatistics(
        facts.provenance,
        facts.identity,
        len(rows.labels),
        classes=PerClass().reduce(rows),
        sample=Sample(20).reduce(rows),
        ridge=Ridge(48, random_state=5).reduce(rows),
        notes={"random_state": 5},
    )


def test_ranpac_from_sums_is_ranpac_fitted_on_all_samples(spec: BackboneSpec) -> None:
    rows, later, queries = bird_rows(), bird_rows(5, 8, seed=1), bird_rows(9, seed=2)
    whole = RanPACScorer(48, lambdas=(100.0,), random_state=5).learn(rows.vectors, rows.labels)
    found = ranpac_from_sums(sums_of(rows, spec), lam=100.0)
    expected, scores = whole.scores(queries.vectors), found.scores(queries.vectors)
    assert np.allclose(scores, expected, atol=1e-4)
    assert (found.classify(queries.vectors) == whole.classify(queries.vectors)).all()
    new = np.array([f"new {label}" for label in later.labels])
    more, expected = (scorer.learn(later.vectors, new).scores(queries.vectors) for scorer in (found, whole))
    assert np.allclose(more, expected, atol=1e-4)


def test_lambda_is_the_best_on_vectors_taken_out_of_the_sums() -> None:
    rows = bird_rows(30)
    held = Sample(6).reduce(rows)
    feature_map = random_features(WIDTH, 48, seed=5, like=np.zeros(1, np.float32))
    lambdas = tuple(10.0**k for k in range(-1, 6))
    found = choose_lambda(Ridge(48, random_state=5).reduce(rows), held, seed=5, lambdas=lambdas)

    projection = feature_map.projection.astype(np.float64)
    held_rows = {row.tobytes() for row in held.vectors}
    kept = np.array([row.tobytes() not in held_rows for row in rows.vectors])
    one_hot = (rows.labels[:, None] == np.unique(rows.labels)).astype(np.float64)
    mapped = np.maximum(rows.vectors.astype(np.float64) @ projection, 0)
    errors = []
    for lam in lambdas:
        gram = mapped[kept].T @ mapped[kept] + lam * np.eye(48)
        weights = np.linalg.solve(gram, mapped[kept].T @ one_hot[kept])
        errors.append(np.square(one_hot[~kept] - mapped[~kept] @ weights).mean())
    assert kept.sum() == 6 * 24
    assert found == lambdas[int(np.argmin(errors))]


def test_without_held_out_vectors_lambda_must_be_given(spec: BackboneSpec) -> None:
    whole = sums_of(bird_rows(10), spec)
    with pytest.raises(InputError, match="no vectors were kept to choose lambda on"):
        ranpac_from_sums(replace(whole, sample=None))
    with pytest.raises(InputError, match="RanPAC needs the sums"):
        ranpac_from_sums(replace(whole, ridge=None))


def test_a_model_from_statistics_is_one_from_features(spec: BackboneSpec, tmp_path: Path) -> None:
    rows, queries = bird_rows(n_classes=12), bird_rows(12, n_classes=12)
    file = tmp_path / "statistics.safetensors"
    statistics_of(rows, spec).save(file)
    options: dict[str, Any] = {"weights": spec.weights, "device": "cpu", "runtime": "torch"}
    features = FeatureSet(
        rows.vectors,
        np.searchsorted(np.unique(rows.labels), rows.labels),
        rows.vectors[:0],
        np.zeros(0, np.int64),
        tuple(np.unique(rows.labels).tolist()),
        vector_facts(spec, "float32", dataset="birds").provenance,
    )
    alone = Recognizer.create(tmp_path / "alone", base=features, backbone=spec.name, **options)
    made = create_from_statistics(tmp_path / "birds", file, **options)
    with made, alone, Recognizer.open(tmp_path / "birds", device="cpu", runtime="torch") as again:
        assert made.check() == []
        assert made.show().base_classes == 12
        assert made.embedder.fingerprint == load_embedder(spec).fingerprint
        expected, found = alone.snapshot.memory.base, again.snapshot.memory.base
        for label in expected.labels.tolist():
            assert found[label].count == expected[label].count
            assert np.allclose(found[label].mean, expected[label].mean, atol=1e-6)
        answers, others = made.predict_features(queries.vectors), alone.predict_features(queries.vectors)
        assert [answer.candidates[0].label for answer in answers] == [
            answer.candidates[0].label for answer in others
        ]
        chances = [[answer.candidates[0].probability for answer in some] for some in (answers, others)]
        assert np.allclose(*chances, atol=1e-3)
        right = [
            answer.candidates[0].label == label for answer, label in zip(answers, queries.labels, strict=True)
        ]
        assert np.mean(right) > 0.95
        strange = made.predict_features(-queries.vectors)
        assert np.mean([answer.unknown for answer in answers]) < 0.15
        assert np.mean([answer.unknown for answer in strange]) > 0.5, "thresholds come from the kept vectors"
        made.learn_features("a new bird", bird_rows(5, 1, seed=9).vectors)
        assert made.check() == []


def test_a_model_from_tied_statistics_predicts_the_same(spec: BackboneSpec, tmp_path: Path) -> None:
    rows, queries = bird_rows(60, n_classes=12), bird_rows(9, n_classes=12)
    options: dict[str, Any] = {"weights": spec.weights, "device": "cpu", "runtime": "torch"}
    each = create_from_statistics(tmp_path / "each", statistics_of(rows, spec), **options)
    tied = create_from_statistics(tmp_path / "tied", statistics_of(rows, spec, covariance="tied"), **options)
    with each, tied:
        found, expected = (
            [answer.candidates[0] for answer in model.predict_features(queries.vectors)] for model in (tied, each)
        )
        assert [one.label for one in found] == [one.label for one in expected]
        assert np.allclose([one.probability for one in found], [one.probability for one in expected], atol=1e-3)
        assert tied.check() == []


def test_too_few_classes_cannot_share_a_covariance(spec: BackboneSpec, tmp_path: Path) -> None:
    found = statistics_of(bird_rows(4, n_classes=3), spec, covariance="tied")
    with pytest.raises(InputError, match="too few to share one covariance; reduce with covariance='class'"):
        create_from_statistics(tmp_path / "birds", found, weights=spec.weights, device="cpu")


def test_statistics_for_no_head_make_no_model(spec: BackboneSpec, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not made for a head; reduce again"):
        create_from_statistics(tmp_path / "birds", sums_of(bird_rows(4), spec), weights=spec.weights)


@pytest.mark.parametrize("head", ["ranpac", "c-ranpac"])
def test_heads_that_need_samples_are_refused_before_anything_is_computed(
    head: str, spec: BackboneSpec, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="RanPAC"):
        StatisticsPlan(head=head).reductions()
    found = replace(sums_of(bird_rows(4), spec), head=head, sample=None)
    with pytest.raises(InputError, match="RanPAC"):
        create_from_statistics(tmp_path / "birds", found, weights=spec.weights, device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_without_kept_vectors_nothing_is_rejected(spec: BackboneSpec, tmp_path: Path) -> None:
    found = replace(statistics_of(bird_rows(), spec), sample=None)
    with create_from_statistics(tmp_path / "birds", found, weights=spec.weights, device="cpu") as made:
        assert not any(answer.unknown for answer in made.predict_features(-bird_rows(3).vectors))


def test_statistics_of_another_backbone_are_refused(spec: BackboneSpec, tmp_path: Path) -> None:
    found = statistics_of(bird_rows(4), spec)
    other = replace(found, identity={**found.identity, "weights_hash": "0" * 64})
    with pytest.raises(InputError, match="the statistics come from another backbone: their weights_hash is '000"):
        create_from_statistics(tmp_path / "birds", other, weights=spec.weights, device="cpu")
    half = replace(found, identity={**found.identity, "precision": "bf16"})
    with pytest.raises(InputError, match="run it with precision float32"):
        create_from_statistics(tmp_path / "birds", half, weights=spec.weights, device="cpu")
    assert not (tmp_path / "birds").exists()


def test_tied_statistics_have_no_covariance_for_each_class(spec: BackboneSpec, tmp_path: Path) -> None:
    rows = bird_rows(4)
    found = statistics_of(rows, spec, covariance="tied")
    found.save(tmp_path / "tied.safetensors")
    again = ClusterStatistics.load(tmp_path / "tied.safetensors")
    assert (again.pooled.scatter == found.pooled.scatter).all()
    assert again.pooled.labels.tolist() == found.pooled.labels.tolist()
    assert again.sample is not None
    assert found.sample is not None
    assert (again.sample.keys == found.sample.keys).all()
    with pytest.raises(InputError, match="have one covariance for all classes"):
        _ = again.statistics


def test_damaged_statistics_are_refused(spec: BackboneSpec, tmp_path: Path) -> None:
    path = tmp_path / "statistics.safetensors"
    statistics_of(bird_rows(4), spec).save(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(StorageError, match="truncated"):
        ClusterStatistics.load(path)


def test_names_that_become_the_same_are_refused(spec: BackboneSpec, tmp_path: Path) -> None:
    rows = bird_rows(4, 2)
    alike = Rows(rows.vectors, np.where(rows.labels == "bird 0", "owl", "owl "), rows.names)
    with pytest.raises(InputError, match="two class names differ only in spaces"):
        create_from_statistics(tmp_path / "birds", statistics_of(alike, spec), weights=spec.weights, device="cpu")
