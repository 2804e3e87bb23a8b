from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from toys import toy_features

from fiveshot.benchmark import Job, Outcome, get_protocol, open_features, paper_protocols, run_job, sweep
from fiveshot.benchmark.job import fingerprint
from fiveshot.benchmark.run import WIDTHS
from fiveshot.errors import InputError
from fiveshot.reports import Number, PaperOutput, make_paper
from fiveshot.reports.paper_plan import TARGETS

SMALL = {"n_projections": 32}


def collecting(outcomes: list[Outcome]) -> Callable[[Sequence[Job], Path], Iterator[Outcome]]:
    """Run jobs as usual, and keep what comes of them."""

    def run(jobs: Sequence[Job], folder: Path) -> Iterator[Outcome]:
        for outcome in sweep(jobs, folder):
            outcomes.append(outcome)
            yield outcome

    return run


TABLES = [name for name in TARGETS if name.startswith("table")]


@pytest.fixture(scope="module")
def everything(
    toy_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PaperOutput, Path, list[Outcome]]:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    out = tmp_path_factory.mktemp("paper") / "new folder"
    outcomes: list[Outcome] = []
    made = make_paper("all", features_dir=toy_folder, out=out, parameters=SMALL, run=collecting(outcomes))
    return made, out, outcomes


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_configuration_says_what_all_was_made_of(everything) -> None:
    made, out, outcomes = everything
    about = json.loads((out / "configuration.json").read_text(encoding="utf-8"))
    assert about["seeds"] == [0]
    assert about["procedure"]["parameters"] == SMALL
    assert {"python", "numpy", "fiveshot"} <= set(about["versions"])
    features = about["features"]["cifar100/small"]
    assert features["sha256"] == fingerprint(open_features(features["source"]))
    assert features["provenance"]["weights_hash"] == "0"
    for name, digest in about["files"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert set(about["files"]) == {file.name for file in made.files} - {"configuration.json"}
    assert set(about["runs"]) == {outcome.job.folder for outcome in outcomes}
    summary = made.tables[-1]
    ablations = {f"{name}, cars/small" for name in ("figure 2", "table 5", "table 6")}
    assert {row.block for row in summary.rows} == {*paper_protocols(), *ablations}
    assert "resampled test images" in " ".join(summary.notes)
    assert "RanPAC heads with 32 random features" in summary.notes[0]


def test_all_tables_and_figures_are_written_and_nothing_is_missing(everything) -> None:
    made, out, outcomes = everything
    expected = {f"{name}.{kind}" for name in (*TABLES, "summary") for kind in ("txt", "md", "tex", "csv")}
    expected |= {f"figure{number}.{kind}" for number in (1, 2, 3) for kind in ("png", "svg")}
    expected.add("configuration.json")
    assert {path.name for path in made.files} == expected
    assert all(path.parent == out and path.stat().st_size > 100 for path in made.files)
    assert made.missing == ()
    assert len(made.tables) == len(TABLES) + 1
    folders = [outcome.job.folder for outcome in outcomes]
    assert len(set(folders)) == len(folders)  # what tables share runs once


def test_table_1_has_the_papers_layout(everything) -> None:
    made, out, _ = everything
    table = made.tables[0]
    assert table.title == "Table 1"
    groups = [column.group for column in table.columns]
    assert groups == [""] + ["small"] * 7 + ["big"] * 7
    blocks = [(title, len(rows)) for title, rows in table.blocks()]
    assert blocks == [
        ("CUB-200-2011", 6),
        ("CUB-200-2011: paper, ViT-B/16", 6),
        ("FGVC-Aircraft", 6),
        ("FGVC-Aircraft: paper, ViT-B/16", 6),
    ]
    theirs = next(
        row for row in rows_of(out, "table1") if row["block"].startswith("FGVC") and "paper" in row["block"]
    )
    assert (theirs["method"], theirs["small A_HM 1"], theirs["big A_inc"]) == ("NCM", "0.2721", "0.3393")


def test_figures_of_table_1_are_those_of_single_runs(everything, toy_folder: Path) -> None:
    _, out, _ = everything
    record = run_job(
        Job(get_protocol("aircraft/big"), "c-ranpac", str(toy_folder / "aircraft.safetensors"), parameters=SMALL)
    )
    (row,) = [r for r in rows_of(out, "table1") if (r["block"], r["method"]) == ("FGVC-Aircraft", "C-RanPAC")]
    assert float(row["big A_last"]) == record.metrics.a_last
    assert float(row["big A_HM 8"]) == record.metrics.sessions[8].a_hm


def test_table_5_and_6_stand_beside_the_papers(everything) -> None:
    made, out, outcomes = everything
    beta = rows_of(out, "table5")
    assert [(row["block"], row["β"]) for row in beta] == [
        (method, value) for method in ("C-FeCAM", "C-RanPAC") for value in ("0.5", "1.0", "1.5")
    ]
    assert (beta[1]["paper A_HM"], beta[5]["paper A_inc"]) == ("0.2886", "0.5404")
    parts = rows_of(out, "table6")
    assert [(row["method"], row["μ"], row["Σ"], row["paper A_last"]) for row in parts] == [
        ("FeCAM", "×", "×", "0.2707"),
        ("C-FeCAM", "✓", "×", "0.2816"),
        ("C-FeCAM", "×", "✓", ""),
        ("C-FeCAM", "✓", "✓", "0.3071"),
        ("RanPAC", "×", "×", "0.383"),
        ("RanPAC*", "×", "×", "0.3963"),
        ("C-RanPAC", "✓", "×", "0.3985"),
        ("C-RanPAC", "×", "✓", ""),
        ("C-RanPAC", "✓", "✓", "0.4073"),
    ]
    calibrations = {
        (
            o.job.method,
            o.record.config["head"]["parameters"]["calibration"]["alpha"],
            beta,
        ): o.record.metrics.a_last
        for o in outcomes
        if o.job.method == "c-ranpac" and o.job.protocol.name == "cars/small"
        for beta in [o.record.config["head"]["parameters"]["calibration"]["beta"]]
    }
    assert float(parts[6]["here A_last"]) == calibrations["c-ranpac", 0.9, None]
    assert float(parts[7]["here A_last"]) == calibrations["c-ranpac", 1.0, 0.5]
    assert float(parts[8]["here A_last"]) == calibrations["c-ranpac", 0.9, 0.5]
    assert not any("whose features are not there" in note for table in made.tables for note in table.notes)


def test_cifar_keeps_less_of_its_own_mean(everything) -> None:
    _, _, outcomes = everything
    for outcome in outcomes:
        calibration = outcome.record.config["head"]["parameters"].get("calibration")
        if calibration and outcome.job.protocol.dataset == "cifar100":
            assert calibration["alpha"] == 0.75


def test_a_second_call_runs_nothing_and_writes_the_same(everything, toy_folder: Path) -> None:
    _, out, _ = everything
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    again: list[Outcome] = []
    for target in ("table3", "figure2", "figure3"):
        made = make_paper(target, features_dir=toy_folder, out=out, parameters=SMALL, run=collecting(again))
        assert all(before[path] == path.read_bytes() for path in made.files)
    assert again
    assert all(outcome.reused for outcome in again)


def test_what_is_there_is_made_and_the_rest_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    toy_features("cub200", 200, rng=rng, backbone="toy a").save(tmp_path / "cub200-small.safetensors")
    toy_features("cub200", 200, rng=rng, backbone="toy b").save(tmp_path / "cub200-big.safetensors")
    made = make_paper("table1", features_dir=tmp_path, out=tmp_path / "out", seeds=2, parameters=SMALL)
    (table,) = made.tables
    assert {row.block for row in table.rows} == {"CUB-200-2011", "CUB-200-2011: paper, ViT-B/16"}
    assert [missing.dataset for missing in made.missing] == ["aircraft"]
    assert "toy a" in " ".join(table.notes)
    assert "toy b" in " ".join(table.notes)
    last = table.rows[0].cells[6]
    assert isinstance(last, Number)
    assert last.std is not None


def test_without_cars_the_ablations_say_where_they_were_made(tmp_path: Path) -> None:
    toy_features("cub200", 200, rng=np.random.default_rng(4)).save(tmp_path / "cub200.safetensors")
    made = make_paper("table5", features_dir=tmp_path, out=tmp_path / "out", parameters=SMALL)
    notes = " ".join(made.tables[0].notes)
    assert "Here: cub200/small, 20 base classes" in notes
    assert "The paper ablates on cars/small" in notes
    assert [missing.dataset for missing in made.missing] == ["cars"]
    given = make_paper(
        "table5",
        features_dir=tmp_path,
        out=tmp_path / "out",
        parameters=SMALL,
        protocol=get_protocol("cub200/big"),
    )
    assert "Here: cub200/big, 100 base classes" in " ".join(given.tables[0].notes)
    assert given.missing == ()


def test_the_published_procedure_has_runs_of_its_own(tmp_path: Path) -> None:
    toy_features("cifar100", 100, rng=np.random.default_rng(5)).save(tmp_path / "cifar100.safetensors")
    outcomes: list[Outcome] = []
    for way in ({}, {"flavor": "published", "shot_draw": "first"}):
        made = make_paper(
            "table3",
            features_dir=tmp_path,
            out=tmp_path / "out",
            parameters=SMALL | {"device": "cpu"},
            run=collecting(outcomes),
            **way,
        )
    notes = " ".join(made.tables[0].notes)
    assert "as in the published code" in notes
    assert "first images" in notes
    half = len(outcomes) // 2
    assert {outcome.job.folder for outcome in outcomes[:half]}.isdisjoint(o.job.folder for o in outcomes[half:])
    assert not any(outcome.reused for outcome in outcomes)
    for outcome in outcomes[half:]:
        config = outcome.record.config
        assert (config["flavor"], config["protocol"]["shot_draw"]) == ("published", "first")
        calibration = config["head"]["parameters"].get("calibration")
        if calibration:  # the flavor's own, with the alpha of the dataset
            assert calibration["alpha"] == 0.75
            assert calibration["prototypes"] == "unit" or calibration["similarity"] == "dot"


def test_with_little_time_heads_have_fewer_random_features_and_the_table_says_so(tmp_path: Path) -> None:
    toy_features("cifar100", 100, rng=np.random.default_rng(6)).save(tmp_path / "cifar100.safetensors")
    outcomes: list[Outcome] = []
    where = {"features_dir": tmp_path, "out": tmp_path / "out"}
    made = make_paper("table3", **where, seconds=1.0, run=collecting(outcomes))
    assert made.width == WIDTHS[-1]
    widths = {o.job.method: o.job.parameters.get("n_projections") for o in outcomes}
    assert (widths["ranpac"], widths["c-ranpac"], widths["ncm"]) == (made.width, made.width, None)
    assert f"RanPAC heads with {made.width:,} random features; the paper has 10,000." in made.tables[0].notes
    asked = make_paper("table3", **where, seconds=1.0, parameters=SMALL)
    wanted = f"RanPAC heads with {SMALL['n_projections']:,} random features; the paper has 10,000."
    assert asked.tables[0].notes[0] == wanted, "a number that was asked for stays, with a note"


def test_with_little_time_an_ablation_has_fewer_values(tmp_path: Path) -> None:
    toy_features("cub200", 200, rng=np.random.default_rng(7)).save(tmp_path / "cub200.safetensors")
    plans: list[Job] = []

    def none_run(jobs: Sequence[Job], folder: Path) -> Iterator[Outcome]:
        plans.extend(jobs)
        raise KeyboardInterrupt

    for seconds, values in ((1.0, [500, 1000]), (None, [500, 1000, 2000, 5000, 10_000])):
        plans.clear()
        with pytest.raises(KeyboardInterrupt):
            make_paper("ablation-M", features_dir=tmp_path, out=tmp_path / "out", seconds=seconds, run=none_run)
        assert sorted({job.head().n_projections for job in plans}) == values


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    made = make_paper("table2", features_dir=None, out=tmp_path)
    assert (made.files, made.tables) == ((), ())
    assert [missing.protocols for missing in made.missing] == [("cars/small", "cars/big")]


def test_a_further_ablation_has_a_table_and_a_figure(toy_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    made = make_paper("ablation-samples", features_dir=toy_folder, out=tmp_path, parameters=SMALL)
    assert sorted(path.name for path in made.files) == [
        f"ablation-samples.{kind}" for kind in ("csv", "md", "png", "svg", "tex", "txt")
    ]
    (table,) = made.tables
    assert [row.cells[0] for row in table.rows] == ["5", "25", "100", "400", "800", "1600"] * 2
    assert {row.block for row in table.rows} == {"RanPAC*", "C-RanPAC"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "tabel1"}, "did you mean 'table1'"),
        ({"target": "table4"}, "no table or figure of results 'table4'; choose from table1, "),
        ({"target": "table1", "shot_draw": "last"}, "no shot draw 'last'"),
        ({"target": "table1", "parameters": {"projections": 5}}, "no head has a parameter 'projections'"),
        ({"target": "table1", "seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_paper(**{"features_dir": None, "out": tmp_path / "out", **arguments})
    assert not (tmp_path / "out").exists()
