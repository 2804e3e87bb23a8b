"""Options without an effect are refused, with a hint, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
TUNE = "tune --images photos --out a.safetensors"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench --skip-bad", "--skip-bad needs photos; name them with --images or --root"),
        ("bench --sessions lists --shots 3", "the session lists decide --shots; leave it out"),
        ("bench --sessions lists --base 3", "the session lists decide --base"),
        ("bench --sessions lists --increment 3", "the session lists decide --increment"),
        ("bench --sessions lists --order-seed 3", "the session lists decide --order-seed"),
        ("bench --sessions lists --shot-draw first", "the session lists decide --shot-draw"),
        ("cluster bench --sessions lists --shots 3", "the session lists decide --shots"),
        ("bench --format csv --against f.json", "--against adds a table, and the format csv holds one only"),
        (f"{TUNE} --set seed=3", "--set cannot set the seed; use --seed"),
        ("paper ablation-M --projections 9", "ablation-M varies --projections itself; leave it out"),
        (
            "paper table1 --backbone test_vit",
            "--backbone and --weights need photos; name their folder",
        ),
        ("bench --backbone test_vit", "--backbone needs photos; name them with --images or --root"),
        ("predict birds a.jpg --by move", "--by needs --into; add --into FOLDER, or leave it out"),
        ("predict birds a.jpg --dry-run", "--dry-run needs --into"),
        ("predict birds a.jpg --utf8-mark", "--utf8-mark needs --out"),
        ("predict birds a.jpg --box 0,0,9,9 --box b.csv", "--box b.csv is a file; give one file, or boxes"),
        ("sort birds photos --dry-run", "--dry-run needs --into"),
        ("sort birds photos --ask", "--ask needs a terminal; give names with --name ID=NAME"),
        ("export birds hf://me/birds --force", "--force has no effect on an export to the hub"),
        ("export birds b.fiveshot --private", "--private has no effect on an export to a file"),
        ("export birds --web site --photos", "--photos has no effect on an export to a page"),
        ("import b.fiveshot birds --revision main", "--revision is for the hub; leave it out"),
    ],
)
def test_an_option_without_effect_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    if "--set seed" in command:
        pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    monkeypatch.chdir(tmp_path)
    status, printed, said = run(*command.split())
    assert (status, printed) == (1, "")
    assert said.startswith(f"error: {message}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "bench --address auto",
        "extract --images photos --out a --address auto",
        "tune --images photos --out a --processes 2",
        "cluster bench --workers 2",
        "cluster extract --images photos --out a --no-cache",
        "cluster statistics --images photos --out a --holdout 0.3",
        "cluster tune --images photos --out a --device cpu",
    ],
)
def test_options_of_a_cluster_and_of_one_machine_do_not_mix(run: Run, command: str) -> None:
    status, printed, said = run(*command.split())
    assert (status, printed) == (2, "")
    assert "No such option" in said


def test_what_a_model_does_not_have(
    run: Run, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("new", "birds", "--backbone", "test_vit.r160_in1k", "--weights", tiny_file)[0] == 0
    status, _, said = run("export", "birds", "birds.fiveshot", "--photos")  # a script may ask it of every model
    assert (status, said) == (0, "note: birds keeps no photos to include\n")
    (tmp_path / "birds.fiveshot").unlink()
    status, _, said = run("retune", "birds", "--base", "photos")
    assert (status, said) == (1, "error: birds has no base classes; leave --base out\n")
    assert [path.name for path in tmp_path.iterdir()] == ["birds"]
