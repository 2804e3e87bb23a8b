from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toys import base_session_only

from fiveshot.benchmark import Job, RunRecord, get_protocol, summarize_all
from fiveshot.benchmark.run import run_job
from fiveshot.core.scorers import RECIPES
from fiveshot.reports import Variant, experiments
from fiveshot.reports._drawings import marker_path
from fiveshot.reports._styles import SPARE, STYLES, styles
from fiveshot.reports._variants import representatives


def test_runs_are_grouped_by_protocol_and_by_all_but_the_seed(bird_records, paper_records) -> None:
    birds, cars = experiments([*bird_records, *paper_records])
    assert [(v.label, v.summary.seeds) for v in birds.variants] == [
        ("NCM", (0, 1)),
        ("C-FeCAM", (0, 1)),
        ("RanPAC", (0, 1)),
    ]
    assert cars.protocol.name == "cars/small"
    assert [v.label for v in cars.variants] == ["NCM", "C-FeCAM, beta 0.5", "C-FeCAM, beta 1.0"]


def test_order_of_runs_changes_nothing_and_a_copy_counts_once(bird_records: list[RunRecord]) -> None:
    (plain,) = experiments(bird_records)
    (shuffled,) = experiments([*bird_records[::-1], *bird_records[:3]])
    assert [v.label for v in plain.variants] == [v.label for v in shuffled.variants]
    assert [v.summary for v in plain.variants] == [v.summary for v in shuffled.variants]


def test_other_features_are_another_experiment(bird_records: list[RunRecord]) -> None:
    other = replace(bird_records[0], provenance={**bird_records[0].provenance, "backbone": "other"})
    assert len(experiments([*bird_records, other])) == 2


def test_an_edited_head_is_another_variant(bird_records: list[RunRecord]) -> None:
    first = bird_records[0]
    edited = [
        replace(first, config={**first.config, "head": {**first.config["head"], "source": digest * 32}})
        for digest in ("ab", "cd")
    ]
    (found,) = experiments(edited)
    assert [variant.label for variant in found.variants] == ["NCM, source abababab", "NCM, source cdcdcdcd"]


def test_a_head_that_tunes_itself_is_shown_as_the_one_inside() -> None:
    protocols = [get_protocol("cub200/small").replace(shot_seed=seed, base_classes=9) for seed in (0, 1)]
    jobs = [
        Job(protocol, "teen", "embedded:cub200", parameters=parameters)
        for protocol in protocols
        for parameters in ({}, {"bias": "auto"}, {"alpha": "auto", "bias": "auto"})
    ]
    records = [run_job(job) for job in jobs]
    (found,) = experiments(records)
    assert {variant.label: len(variant.records) for variant in found.variants} == {
        "TEEN, alpha 0.9, bias 0.0": 2,
        "TEEN, alpha 0.9, bias auto": 2,
        "TEEN, alpha auto, bias auto": 2,
    }
    assert [len(summary.seeds) for summary in summarize_all(records)] == [2, 2, 2]


def test_base_and_new_accuracy_are_counted_from_predictions(bird_records: list[RunRecord]) -> None:
    (birds,) = experiments(bird_records)
    variant = birds.variants[0]
    expected = []
    for record in variant.records:
        base = np.isin(record.y_true, record.session_classes[0])
        right = record.predictions[-1] == record.y_true
        expected.append((right[base].mean(), right[~base].mean()))
    found_base, found_new = variant.base_new
    assert found_new is not None
    assert (found_base.mean, found_new.mean) == pytest.approx(tuple(np.mean(expected, axis=0)))


def test_without_later_sessions_there_is_no_new_accuracy(bird_records: list[RunRecord]) -> None:
    first = bird_records[0]
    (found,) = experiments([base_session_only(first)])
    assert found.variants[0].base_new[1] is None


def test_of_many_variants_the_recipes_own_is_drawn(paper_records: list[RunRecord]) -> None:
    (cars,) = experiments(paper_records)
    assert representatives(cars.variants) == cars.variants
    drawn: list[Variant] = list(representatives(cars.variants, most=2))
    assert [v.label for v in drawn] == ["NCM", "C-FeCAM"]
    (fecam,) = drawn[1].records
    assert fecam.config["head"]["parameters"]["calibration"]["beta"] == 1.0


def test_every_marker_can_be_drawn() -> None:
    for style in (*STYLES.values(), *SPARE):
        assert marker_path(style.marker, 1, 2).startswith("M")


def test_every_method_looks_different() -> None:
    known = [*STYLES.values(), *SPARE]
    for attribute in ("color", "night_color", "marker"):
        assert len({getattr(style, attribute) for style in known}) == len(known)
    assert len(set(styles([*STYLES, "mine", "c-fecam"]))) == len(STYLES) + 2
    assert len({(look.color, look.marker) for look in styles(list(RECIPES))}) == len(RECIPES)
