from __future__ import annotations

from pathlib import Path

import pytest

from fiveshot.benchmark import (
    PROTOCOLS,
    get_protocol,
    paper_beta_ablation,
    paper_methods,
    paper_parts_ablation,
    paper_protocols,
    paper_result,
)
from fiveshot.benchmark._paper_results import TABLES
from fiveshot.errors import InputError

ORIGINAL = Path(__file__).parents[3] / "shared" / "paper" / "tables.json"


def test_every_protocol_has_all_six_methods():
    assert set(paper_protocols()) == {name for name, protocol in PROTOCOLS.items() if protocol.is_papers}
    for protocol in map(PROTOCOLS.get, paper_protocols()):
        assert paper_methods(protocol) == ("NCM", "TEEN", "FeCAM", "C-FeCAM", "RanPAC", "C-RanPAC")
        for method in paper_methods(protocol):
            found = paper_result(protocol, method)
            assert found.sessions == protocol.paper_sessions
            assert len(found.a_hm) == len(found.sessions)
            assert all(0 < value < 1 for value in (*found.a_hm, found.a_last, found.a_inc))


def test_figures_are_fractions_of_those_printed():
    found = paper_result(get_protocol("cub200/small").replace(shot_seed=2), "c-fecam")
    assert found.method == "C-FeCAM"
    assert found.a_hm == (0.9245, 0.8294, 0.7929, 0.7401, 0.6945)
    assert (found.a_last, found.a_inc) == (0.7268, 0.8187)


def test_calibrated_methods_win_in_the_paper():
    for name in paper_protocols():
        for plain in ("FeCAM", "RanPAC"):
            assert paper_result(name, f"C-{plain}").a_last > paper_result(name, plain).a_last


def test_ablations_agree_with_the_main_table():
    main = {method: paper_result("cars/small", method) for method in ("FeCAM", "C-FeCAM", "RanPAC", "C-RanPAC")}
    betas = {(row.method, row.beta): row for row in paper_beta_ablation()}
    assert len(betas) == 6
    for method, beta in (("C-FeCAM", 1.0), ("C-RanPAC", 0.5)):
        row = betas[method, beta]
        assert (row.a_hm, row.a_last, row.a_inc) == (
            main[method].a_hm[-1],
            main[method].a_last,
            main[method].a_inc,
        )
    parts = paper_parts_ablation()
    assert len(parts) == 7
    for row in parts:
        if row.method in main and row.mean_calibrated == row.covariance_calibrated:
            assert row.a_last == main[row.method].a_last
            assert row.a_hm == main[row.method].a_hm[-1]


@pytest.mark.parametrize(
    ("protocol", "method", "message"),
    [
        ("cub200/large", "NCM", "no protocol in the paper 'cub200/large'; did you mean"),
        ("cub200/big", "slda", "no method in the paper 'slda'"),
        (
            PROTOCOLS["cub200/big"].replace(shots=1),
            "NCM",
            "no results for the changed protocol 'cub200/big'",
        ),
    ],
)
def test_what_the_paper_does_not_have_is_refused(protocol, method, message):
    with pytest.raises(InputError, match=message):
        paper_result(protocol, method)


@pytest.mark.real
@pytest.mark.skipif(not ORIGINAL.is_file(), reason="the real material is not beside the checkout")
def test_tables_are_the_originals():
    assert TABLES.read_bytes() == ORIGINAL.read_bytes()
