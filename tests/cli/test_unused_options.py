"""An option that would change nothing is refused, with what to do, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from fiveshot.cli.options import refuse_unused
from fiveshot.errors import InputError

Run = Callable[..., tuple[int, str, str]]
CLUSTER = "belongs to a cluster; add --engine ray, or leave it out"
LOCAL = "is for a single machine; leave it out with --engine ray"
EXTRACT = "extract --images photos --out a.safetensors"
TUNE = "tune --images photos --out a.safetensors"
STATISTICS = "belongs to statistics; add --result statistics, or leave it out"


@pytest.mark.parametrize(
    ("command", "option", "why"),
    [
        ("bench", "--address 1.2.3.4:5", CLUSTER),
        (TUNE, "--address auto", CLUSTER),
        (TUNE, "--processes 2", CLUSTER),
        (EXTRACT, "--address auto", CLUSTER),
        (EXTRACT, "--result shards", CLUSTER),
        (EXTRACT, "--layout folders", CLUSTER),
        (EXTRACT, "--image-column photo", CLUSTER),
        (EXTRACT, "--label-column bird", CLUSTER),
        (EXTRACT, "--covariance tied", CLUSTER),
        (EXTRACT, "--head ncm", CLUSTER),
        ("bench --engine ray", "--workers 2", LOCAL),
        ("bench --engine ray", "--memory 3", LOCAL),
        (f"{EXTRACT} --engine ray", "--cache c", LOCAL),
        (f"{EXTRACT} --engine ray", "--no-cache", LOCAL),
        (f"{EXTRACT} --engine ray", "--measure", LOCAL),
        (f"{TUNE} --engine ray", "--device cpu", LOCAL),
        (f"{EXTRACT} --engine ray", "--covariance tied", STATISTICS),
        (f"{EXTRACT} --engine ray --result shards", "--head ncm", STATISTICS),
        (f"{EXTRACT} --engine ray --result statistics", "--seed 3", "statistics are of all images; leave it out"),
        (f"{EXTRACT} --engine ray --result statistics", "--holdout 0.3", "of all images; leave it out"),
        (
            "extract --dataset cars --root d --out a --engine ray",
            "--layout folders",
            "is for --images; leave it out",
        ),
        (f"{EXTRACT} --engine ray --layout folders", "--image-column photo", "is for parquet files; leave it out"),
        (
            f"{EXTRACT} --engine ray --layout webdataset",
            "--image-column photo",
            "is for parquet files; leave it out",
        ),
        (f"{EXTRACT} --engine ray --layout folders", "--label-column bird", "is for parquet files and tars"),
        (f"{EXTRACT} --engine ray", "--device cuda:1", "names a GPU of a single machine; choose cuda or cpu"),
        ("bench", "--skip-bad", "is for images; add --images DIR, or leave it out"),
        ("bench --sessions lists", "--shots 3", "is in the session lists; leave it out with --sessions"),
        ("bench --sessions lists", "--base 3", "is in the session lists"),
        ("bench --sessions lists", "--increment 3", "is in the session lists"),
        ("bench --sessions lists", "--order-seed 3", "is in the session lists"),
        ("bench --sessions lists", "--shot-draw first", "is in the session lists"),
        (TUNE, "--refit", "belongs to --selection few-shot-classes; add that, or leave it out"),
        (f"{TUNE} --selection held-out-images", "--no-refit", "belongs to --selection few-shot-classes"),
        (f"{TUNE} --set seed=3", "--seed 4", "and --set seed=... contradict each other; give one of them"),
        ("new birds", "--skip-bad", "is for the photos of a base; add --base DIR, or leave it out"),
        ("new birds", "--runtime torch", "is not kept in a model; give it to 'learn' and 'predict' instead"),
        ("retune birds", "--skip-bad", "is for the photos of a base; add --base DIR, or leave it out"),
        (
            "paper figure2",
            "--seeds 2",
            "changes nothing in figure2, which shows features and no runs; leave it out",
        ),
        ("paper figure2", "--workers 2", "changes nothing in figure2"),
        ("paper figure2", "--flavor published", "changes nothing in figure2"),
        ("paper figure2", "--shot-draw first", "changes nothing in figure2"),
        ("paper figure2", "--projections 9", "changes nothing in figure2"),
        ("paper figure2", "--device cpu", "changes nothing in figure2"),
        ("paper ablation-M", "--projections 9", "is what ablation-M varies; leave it out"),
    ],
)
def test_an_option_without_effect_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, option: str, why: str
) -> None:
    if "--set seed" in command:
        pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    monkeypatch.chdir(tmp_path)
    status, printed, said = run(*command.split(), *option.split())
    assert (status, printed) == (1, "")
    assert said.startswith(f"error: {option.split()[0]}") or option == "--no-refit"
    assert why in said
    assert list(tmp_path.iterdir()) == []


def test_what_a_model_does_not_have(
    run: Run, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("new", "birds", "--backbone", "test_vit.r160_in1k", "--weights", tiny_file)[0] == 0
    status, _, said = run("export", "birds", "birds.fiveshot", "--photos")  # a script may ask it of every model
    assert (status, said) == (0, "note: birds keeps no photos to take along\n")
    (tmp_path / "birds.fiveshot").unlink()
    status, _, said = run("retune", "birds", "--base", "photos")
    assert (status, said) == (1, "error: --base is for base classes, and birds has none; leave it out\n")
    assert [path.name for path in tmp_path.iterdir()] == ["birds"]


def test_a_default_and_the_environment_are_no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()

    @app.command()
    def cook(
        ctx: typer.Context, salt: bool = False, pepper: str = typer.Option("none", envvar="PEPPER"), oil: int = 1
    ) -> None:
        refuse_unused(ctx, "does nothing for water", "salt", "pepper", "oil")

    command = get_command(app)
    command.main([], standalone_mode=False)
    monkeypatch.setenv("PEPPER", "black")
    command.main([], standalone_mode=False)
    with pytest.raises(InputError, match="--salt/--no-salt does nothing for water"):
        command.main(["--no-salt"], standalone_mode=False)
    with pytest.raises(InputError, match="--oil does nothing for water"):
        command.main(["--oil", "1"], standalone_mode=False)
