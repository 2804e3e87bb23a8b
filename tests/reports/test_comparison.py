from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console
from toys import toy_features

from fiveshot.benchmark import OverallFigures, Protocol, PublishedFigures, RunRecord, compare_runs, run
from fiveshot.errors import InputError
from fiveshot.heads import NCM
from fiveshot.reports import (
    Number,
    against_table,
    as_rich,
    comparison_tables,
    experiments,
    further_table,
    paired_variants,
)


def of(records: list[RunRecord], method: str) -> list[RunRecord]:
    return [record for record in records if record.method == method]


def test_a_comparison_has_difference_interval_and_p(bird_records: list[RunRecord]) -> None:
    ncm, fecam = of(bird_records, "ncm"), of(bird_records, "c-fecam")
    (table,) = comparison_tables(paired_variants(fecam, ncm))
    assert table.title == "birds: C-FeCAM less NCM"
    rows = {row.cells[0]: row.cells for row in table.rows}
    found = compare_runs(fecam, ncm)
    difference = found.differences["A_last"]
    assert rows["A_last"][1:3] == (Number(found.first["A_last"]), Number(found.second["A_last"]))
    assert rows["A_last"][3] == f"{100 * difference.mean:+.1f}"
    assert rows["A_last"][4] == f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    assert "2 draws" in table.notes[0]


def test_several_comparisons_have_p_values_with_holms_correction(bird_records: list[RunRecord]) -> None:
    first, *others = (of(bird_records, method) for method in ("ncm", "c-fecam", "ranpac"))
    pairs = paired_variants(first, *others)
    assert [pair.names["names"] for pair in pairs] == [["NCM", "C-FeCAM"], ["NCM", "RanPAC"]]
    for name in ("A_last", "area"):
        small, large = sorted((pair.comparison.differences[name] for pair in pairs), key=lambda each: each.p)
        assert small.corrected == pytest.approx(min(1, 2 * small.p))
        assert large.corrected == pytest.approx(max(small.corrected, large.p))
    table = comparison_tables(pairs)[0]
    assert [column.name for column in table.columns][-2:] == ["p", "p (Holm)"]
    assert any("These 2 draws can show differences of" in note for note in table.notes)


def test_sides_of_several_heads_are_compared_head_by_head(bird_records: list[RunRecord]) -> None:
    some = of(bird_records, "ncm") + of(bird_records, "ranpac")
    pairs = paired_variants(bird_records, some)
    assert [pair.names["names"] for pair in pairs] == [["NCM", "NCM"], ["RanPAC", "RanPAC"]]
    assert all(pair.comparison.differences["A_last"].p == 1 for pair in pairs)
    assert "draws can show" not in " ".join(note for table in comparison_tables(pairs) for note in table.notes)
    with pytest.raises(InputError, match="which of NCM, RanPAC to compare with which of C-FeCAM"):
        paired_variants(some, of(bird_records, "c-fecam"))


def test_runs_of_one_head_are_named_by_the_parameters_in_which_they_differ() -> None:
    birds = toy_features("birds", 8, rng=np.random.default_rng(0))
    protocol = Protocol("birds", dataset="birds", n_classes=8, base_classes=4, increment=2)
    cosine, euclidean = ([run(protocol, birds, NCM(metric))] for metric in ("cosine", "euclidean"))
    (table,) = comparison_tables(paired_variants(cosine, euclidean))
    assert table.title == "birds: NCM, metric cosine less NCM, metric euclidean"
    assert [column.name for column in table.columns][1:3] == ["NCM, metric cosine", "NCM, metric euclidean"]


def test_other_protocols_are_not_compared(bird_records: list[RunRecord], paper_records: list[RunRecord]) -> None:
    words = r"share no protocol on the same features: name \S+ and \S+; .*features \w+ and \w+"
    with pytest.raises(InputError, match=words):
        paired_variants(bird_records, paper_records)


def test_a_comparison_that_is_refused_names_only_what_differs() -> None:
    birds = toy_features("birds", 8, rng=np.random.default_rng(0))
    protocol = Protocol("birds", dataset="birds", n_classes=8, base_classes=4, increment=2)
    two, three = ([run(protocol.replace(shots=shots), birds, NCM())] for shots in (2, 3))
    with pytest.raises(InputError, match="on the same features: shots 2 and 3; compare"):
        paired_variants(two, three)


def test_further_measures_pair_each_head_with_the_leader(bird_records: list[RunRecord]) -> None:
    (experiment,) = experiments(bird_records)
    table = further_table(experiment)
    names = [column.name for column in table.columns]
    leader = max(experiment.variants, key=lambda variant: variant.summary.a_hm_mean.mean)
    by_method = {row.cells[0]: dict(zip(names, row.cells, strict=True)) for row in table.rows}
    for variant in experiment.variants:
        cells = by_method[variant.label]
        behind = cells[f"less {leader.label}'s"]
        assert cells["gAcc"] == Number.of(variant.summary.g_acc)
        assert cells["area"] == Number.of(variant.summary.area)
        assert cells["forgetting"] == Number.of(variant.summary.forgetting)
        if variant is leader:
            assert behind == "leads"
        else:
            expected = compare_runs(variant.records, leader.records).differences["mean A_HM"]
            ends = f"[{100 * expected.low:+.1f}, {100 * expected.high:+.1f}]"
            assert behind == f"{100 * expected.mean:+.1f} {ends}"
            assert cells["p"]
    assert "2 draws" in table.notes[0]


def test_with_one_draw_intervals_are_over_test_images(paper_records: list[RunRecord]) -> None:
    (experiment,) = experiments(paper_records)
    table = further_table(experiment)
    assert "resampled test images" in table.notes[0]
    low, _, high = table.rows[0].cells[2].partition(" to ")
    assert float(low) < 100 * experiment.variants[0].summary.a_last.mean < float(high)


def test_further_measures_fit_a_terminal_of_eighty_columns(bird_records: list[RunRecord]) -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(as_rich(further_table(experiments(bird_records)[0])))
    assert "…" not in capture.get()
    assert "C-FeCAM" in capture.get()


def test_one_head_has_nobody_to_be_compared_with(bird_records: list[RunRecord]) -> None:
    (experiment,) = experiments(of(bird_records, "ncm"))
    assert "p" not in [column.name for column in further_table(experiment).columns]


def test_published_figures_stand_below_only_if_nothing_differs(bird_records: list[RunRecord]) -> None:
    (experiment,) = experiments(bird_records)
    record = experiment.variants[0].records[0]
    setting = {
        "class_order": 1993,
        "base_classes": 6,
        "increment": 2,
        "shots": 5,
        "shot_draw": "random",
        "images": [list(counts) for counts in record.images],
    }
    accuracy = {"Theirs": (0.9, 0.8, 0.7, 0.6)}
    table = against_table(experiment, PublishedFigures("A paper", "birds", "ResNet-18", accuracy, setting))
    *ours, theirs = table.rows
    assert {row.block for row in ours} == {""}
    assert (theirs.block, theirs.cells[0], theirs.cells[1]) == ("A paper, ResNet-18", "Theirs", Number(0.9))
    assert theirs.cells[-2].value == pytest.approx(0.75)
    assert theirs.cells[-1].value == pytest.approx(0.3)
    other = {**setting, "images": [[4693, 1171]]}
    table = against_table(experiment, PublishedFigures("A paper", "birds", "", accuracy, other))
    assert {row.block for row in table.rows} == {""}
    assert "split: 4,693 images to learn and 1,171 to test" in table.notes[0]


def test_published_figures_without_sessions_fill_the_first_and_the_last_column(
    bird_records: list[RunRecord],
) -> None:
    (experiment,) = experiments(bird_records)
    record = experiment.variants[0].records[0]
    setting = {
        "class_order": 1993,
        "base_classes": 6,
        "increment": 2,
        "shots": 5,
        "shot_draw": "random",
        "images": [list(record.images[0])],
    }
    known = {"Theirs": OverallFigures(base=0.9, last=0.6), "Others": OverallFigures(average=0.7)}
    published = PublishedFigures("A paper", "birds", "", {}, setting, known, "page 7, read today")
    table = against_table(experiment, published)
    theirs, others = table.rows[-2:]
    assert theirs.cells[:2] == ("Theirs", Number(0.9))
    assert theirs.cells[2:-3] == (None,) * (len(table.columns) - 5)
    assert (theirs.cells[-3], theirs.cells[-2], theirs.cells[-1].value) == (Number(0.6), None, pytest.approx(0.3))
    assert others.cells[1:] == (*[None] * (len(table.columns) - 3), Number(0.7), None)
    assert "page 7, read today" in table.notes[1]
