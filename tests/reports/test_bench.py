from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from toys import base_session_only

from fiveshot.benchmark import Job, Protocol, RunRecord, get_protocol, run_job, summarize_all
from fiveshot.benchmark.job import make_jobs
from fiveshot.core import Calibration
from fiveshot.errors import InputError
from fiveshot.reports import Number, as_rich, bench_table, bench_tables
from fiveshot.reports._bench import PAPER_BLOCK, backbone_notes, described, shown_sessions


def cell(table, label: str, column: str, block: str = ""):
    names = [entry.name for entry in table.columns]
    (row,) = [row for row in table.rows if row.cells[0] == label and row.block == block]
    return row.cells[names.index(column)]


def test_every_figure_is_that_of_the_runs(bird_records: list[RunRecord]) -> None:
    (table,) = bench_tables(bird_records)
    assert [row.cells[0] for row in table.rows] == ["NCM", "C-FeCAM", "RanPAC"]
    runs = [record.metrics for record in bird_records if record.method == "c-fecam"]
    for column, values in {
        "A_last": [m.a_last for m in runs],
        "A_inc": [m.a_inc for m in runs],
        "A_HM 2": [m.sessions[2].a_hm for m in runs],
        "mean A_HM": [statistics.mean(s.a_hm for s in m.sessions[1:]) for m in runs],
    }.items():
        found = cell(table, "C-FeCAM", column)
        assert found.value == pytest.approx(statistics.mean(values))
        assert found.std == pytest.approx(statistics.stdev(values))
    assert cell(table, "C-FeCAM", "time (s)").std is None


@pytest.mark.parametrize(
    ("parameters", "note"),
    [
        ({}, "Calibrated methods with α = 0.75 on this dataset, as in the paper (0.9 on others)."),
        (
            {"calibration": Calibration(alpha=0.9)},
            "Calibrated methods with α = 0.9 on this dataset, where the paper has 0.75 (0.9 on others).",
        ),
    ],
    ids=["paper", "given"],
)
def test_alpha_is_said_where_the_papers_is_unusual(toy_folder: Path, parameters: dict, note: str) -> None:
    cifar, source = get_protocol("cifar100/small"), str(toy_folder / "cifar100.safetensors")
    jobs = make_jobs(cifar, source, methods=["ncm", "c-fecam"], seeds=1, parameters=parameters)
    (table,) = bench_tables([run_job(job) for job in jobs])
    assert [row.cells[0] for row in table.rows if row.block] == ["NCM", "C-FeCAM"]
    assert note in table.notes


def test_nothing_is_said_of_alpha_without_one_or_elsewhere(
    toy_folder: Path, paper_records: list[RunRecord]
) -> None:
    plain = Job(get_protocol("cifar100/small"), "ncm", str(toy_folder / "cifar100.safetensors"))
    for records in ([run_job(plain)], paper_records):
        assert "α" not in " ".join(bench_tables(records)[0].notes)


def test_what_was_not_measured_is_an_empty_cell(bird_records: list[RunRecord]) -> None:
    first = bird_records[0]
    only = base_session_only(first)
    table = bench_table(summarize_all([only]), Protocol("birds", "birds", 6, 6, 2))
    assert cell(table, "NCM", "mean A_HM") is None
    assert cell(table, "NCM", "A_last") == Number(only.metrics.a_last)


def test_own_features_have_no_figures_of_the_paper(bird_records: list[RunRecord]) -> None:
    (table,) = bench_tables(bird_records)
    assert {row.block for row in table.rows} == {""}
    assert [column.name for column in table.columns[1:4]] == ["A_HM 1", "A_HM 2", "A_HM 3"]
    notes = " ".join(table.notes)
    assert "2 seeds" in notes
    assert "tiny_vit_5m_224.dist_in22k, without an adapter" in notes
    assert "paper" not in notes


def test_the_papers_figures_stand_below_and_are_marked(paper_records: list[RunRecord]) -> None:
    (table,) = bench_tables(paper_records)
    assert [row.cells[0] for row in table.rows if row.block] == ["NCM", "C-FeCAM"]
    assert cell(table, "C-FeCAM", "A_HM 6", PAPER_BLOCK) == Number(0.2886)
    assert cell(table, "C-FeCAM", "mean A_HM", PAPER_BLOCK) is None
    assert [c.name for c in table.columns if c.name.startswith("A_HM")] == ["A_HM 1", "A_HM 2", "A_HM 4", "A_HM 6"]
    assert "The paper's backbone is another, ViT-B/16" in " ".join(table.notes)
    assert {row.cells[0] for row in table.rows if not row.block} == {
        "NCM",
        "C-FeCAM, beta 0.5",
        "C-FeCAM, beta 1.0",
    }


def test_it_fits_a_terminal_of_eighty_columns(paper_records: list[RunRecord]) -> None:
    table = bench_table(summarize_all(paper_records), get_protocol("cars/small"), paper_records[0].provenance)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(as_rich(table))
    assert "…" not in capture.get()


def test_a_changed_protocol_is_not_compared(paper_records: list[RunRecord]) -> None:
    changed = get_protocol("cars/small").replace(shots=4)
    table = bench_table(summarize_all(paper_records), changed)
    assert {row.block for row in table.rows} == {""}
    assert "not recorded" in " ".join(table.notes)
    assert {
        row.block
        for row in bench_table(summarize_all(paper_records), get_protocol("cars/small"), paper=False).rows
    } == {""}


def test_runs_by_official_lists_are_not_compared(paper_records: list[RunRecord]) -> None:
    listed = [RunRecord(**{**vars_of(r), "config": {**r.config, "sessions": "lists"}}) for r in paper_records]
    (table,) = bench_tables(listed)
    assert {row.block for row in table.rows} == {""}


def vars_of(record: RunRecord) -> dict:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_one_seed_claims_no_spread(paper_records: list[RunRecord]) -> None:
    (table,) = bench_tables(paper_records[:1])
    assert all(c.std is None for row in table.rows for c in row.cells if isinstance(c, Number))
    assert "one seed" in table.notes[0]


def test_runs_of_different_lengths_are_refused(bird_records, paper_records) -> None:
    with pytest.raises(InputError, match=r"\[4, 7\] sessions do not fit one table"):
        bench_table(summarize_all([*bird_records, *paper_records]), get_protocol("cars/small"))
    with pytest.raises(InputError, match="no runs"):
        bench_table([], get_protocol("cars/small"))


@pytest.mark.parametrize("later", range(1, 30))
def test_shown_sessions_are_few_distinct_and_end_with_the_last(later: int) -> None:
    chosen = shown_sessions(later)
    assert len(chosen) == min(5, later) == len(set(chosen))
    assert chosen[0] == 1
    assert chosen[-1] == later
    steps = [b - a for a, b in pairwise(chosen)]
    assert not steps or max(steps) - min(steps) <= 1


def test_the_papers_own_backbone_is_said_to_be_the_same() -> None:
    adapted = {"backbone": "vit_base_patch16_224.augreg_in21k_ft_in1k", "adapter": "ab12"}
    assert "of the same backbone" in backbone_notes(adapted, paper=True)[0]
    assert "is another" in backbone_notes({**adapted, "adapter": None}, paper=True)[0]


@pytest.mark.parametrize(
    ("base", "increment", "shots", "words"),
    [
        (8, 1, 5, "8 base classes"),
        (4, 4, 1, "4 base classes, then 1 session of 4 with 1 image each"),
        (3, 2, 5, "3 base classes, then 3 sessions of 2, the last of 1, with 5 images each"),
    ],
)
def test_protocols_in_words(base: int, increment: int, shots: int, words: str) -> None:
    assert described(Protocol("p", "d", 8, base, increment, shots=shots)) == words
