from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_vit import TINY
from toy_cifar import write_toy_cifar

from fiveshot import __version__
from fiveshot.data.synthetic import gaussian_classes

Run = Callable[..., tuple[int, str, str]]


def fiveshot(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fiveshot", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "birds.npz"
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=8, n_features=12, train_per_class=7, test_per_class=5, seed=0
    )
    names = np.array([f"bird {chr(97 + label)}" for label in range(8)])
    np.savez(path, train_x=train_x, train_y=names[train_y], test_x=test_x, test_y=names[test_y])
    return path


def test_samples_without_a_split_get_one_and_it_is_said(run: Run, features: Path, tmp_path: Path) -> None:
    with np.load(features) as birds:
        np.savez(tmp_path / "whole.npz", X=birds["train_x"], y=birds["train_y"])
    asked = ("--methods", "ncm", "--seeds", 1, "--shots", 5, "--out", tmp_path / "runs", "--format", "json")
    status, found, said = run("bench", "--features", tmp_path / "whole.npz", *asked)
    held_out = "a fifth of the samples of each class, drawn with seed 0, is held out for testing"
    assert status == 0, said
    assert f"note: read from whole.npz; {held_out}" in said
    assert len(json.loads(found)) == 1
    (record,) = (tmp_path / "runs").rglob("run.json")
    assert held_out in record.read_text()
    assert "held out" not in run("bench", "--features", features, *asked)[2]


def test_parameters_of_heads_are_set_and_said(run: Run, features: Path, tmp_path: Path) -> None:
    arguments = ("bench", "--features", features, "--methods", "ncm,teen", "--seeds", 1, "--out", tmp_path)
    plain = run(*arguments, "--format", "json")[1]
    _, found, _ = run(*arguments, "--set", "alpha=0.5", "--set", "bias=auto", "--format", "json")
    ncm, teen = (record["config"]["head"]["parameters"] for record in json.loads(found))
    assert (ncm["auto"], teen["auto"]) == (["bias"], ["bias"])
    assert teen["head"]["calibration"]["alpha"] == 0.5
    assert [record["config"]["head"]["class"] for record in json.loads(plain)] == ["NCM", "NCM"]
    _, shown, said = run(*arguments, "--set", "alpha=0.5", "--set", "bias=auto")
    assert said.count("kept from before, chose bias = ") == 2
    assert "Set for the methods that have it: alpha = 0.5, bias = auto." in " ".join(shown.split())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("gamma=0.5", "none of the methods has a parameter 'gamma'; they have alpha, beta, bias, calibration"),
        ("bias", "--set takes NAME=VALUE, got 'bias'"),
        ("bias=-1", "error: bias must be"),
        ("bias=abc", "error: bias must be"),
        ("bias=true", "error: bias must be"),
        ("metric=auto", "no metric 'auto'"),
        ("temperature=auto", "'temperature' of NCM cannot be chosen by episodes"),
        ("temperature=hot", "error: temperature must be"),
        ("device=cuda", "--set cannot set 'device'; use --device"),
        ("calibration=5", "--set cannot set 'calibration'; set its fields: alpha"),
        ("n_projections=1.5", "error: n_projections must be"),
        ("n_projections=0", "error: n_projections must be"),
        ("lambdas=5", "error: lambdas must"),
        ("per_class=x", "error: per_class must be"),
        ("alpha=x", "error: alpha must lie in [0, 1], got"),
        ("tau=x", "error: tau must be"),
        ("mass=samples --set mass=balanced", "mass is given twice; give it once"),
        ("n_projections=9 --projections 8", "n_projections is given twice; give it once"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    run: Run, features: Path, tmp_path: Path, setting: str, message: str
) -> None:
    arguments = ("bench", "--features", features, "--methods", "ncm,c-ranpac", "--out", tmp_path)
    status, printed, said = run(*arguments, "--set", *setting.split())
    assert (status, printed, list(tmp_path.iterdir())) == (1, "", [])
    assert message in said


def test_an_option_for_other_methods_is_a_note(run: Run, features: Path, tmp_path: Path) -> None:
    arguments = ("--projections", 9, "--memory", 3, "--seeds", 1)
    status, _, said = run("bench", "--features", features, "--methods", "ncm", *arguments, "--out", tmp_path)
    assert status == 0
    assert "note: --projections has no effect: none of the methods has random features" in said


def test_by_default_it_is_one_draw_of_the_papers_methods_and_the_default_head(
    run: Run, features: Path, tmp_path: Path
) -> None:
    arguments = ("bench", "--features", features, "--projections", 64, "--out", tmp_path, "--format", "json")
    status, printed, said = run(*arguments)
    assert status == 0
    found = [record["config"]["method"] for record in json.loads(printed)]
    assert found == ["ncm", "teen", "fecam", "c-fecam", "ranpac", "c-ranpac", "unbiased-lda"]
    assert said.splitlines()[-1] == ("note: one draw of the shots; add --seeds 5, or --full for all methods")
    status, printed, said = run(*arguments, "--full", "--methods", "ncm,c-ranpac")
    assert status == 0
    full = [(r["config"]["method"], r["config"]["protocol"]["shot_seed"]) for r in json.loads(printed)]
    assert full == [(method, seed) for method in ("ncm", "c-ranpac") for seed in range(5)]
    assert "--full" not in said


def test_other_embedded_features_are_chosen_by_name(run: Run, tmp_path: Path) -> None:
    arguments = ("bench", "cub200/big", "--methods", "ncm", "--out", tmp_path, "--format", "json")
    own, other = (json.loads(run(*arguments, *more)[1])[0] for more in ((), ("--features", "cub200")))
    assert own["config"]["features"] != other["config"]["features"]


def test_any_feature_file_is_a_benchmark(run: Run, features: Path, tmp_path: Path) -> None:
    arguments = ("bench", "--features", features, "--methods", "ncm,c-fecam", "--seeds", 2, "--out", tmp_path)
    first = fiveshot(*arguments)  # as a process of its own once
    assert first.returncode == 0, first.stderr
    assert "NCM" in first.stdout
    assert "C-FeCAM" in first.stdout
    assert first.stderr.count(" s)") == 4
    status, again, said = run(*arguments, "--format", "json")
    assert (status, len(json.loads(again))) == (0, 4)
    assert said.count("kept from before") == 4
    assert "by release" not in said
    assert "" not in said.splitlines()
    for file in tmp_path.rglob("run.json"):
        file.write_text(file.read_text().replace(f'"fiveshot": "{__version__}"', '"fiveshot": "0.0.9"'))
    _, _, old = run(*arguments)
    assert old.count("kept from before by release 0.0.9; --fresh runs it again") == 4


def test_json_holds_the_numbers_that_the_table_shows(run: Run, features: Path, tmp_path: Path) -> None:
    arguments = ("bench", "--features", features, "--methods", "ncm", "--seeds", 1, "--out", tmp_path)
    found = json.loads(run(*arguments, "--format", "json")[1])
    assert found[0]["config"]["method"] == "ncm"
    shown = run(*arguments, "--format", "csv")[1]
    assert str(found[0]["metrics"]["a_last"]) in shown


def test_a_method_named_twice_runs_once(run: Run, features: Path, tmp_path: Path) -> None:
    arguments = (
        "--features",
        features,
        "--methods",
        "ncm,unbiased-lda,ncm",
        "--seeds",
        1,
        "--out",
        tmp_path,
    )
    status, printed, _ = run("bench", *arguments, "--format", "json")
    assert status == 0
    assert [record["config"]["method"] for record in json.loads(printed)] == ["ncm", "unbiased-lda"]


@pytest.mark.parametrize("command", [("bench", "--methods", "ncm"), ("paper", "table1")])
def test_a_device_that_is_none_is_refused_before_anything_runs(
    run: Run, command: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    status, printed, said = run(*command, "--seeds", 1, "--device", "banana", "--out", tmp_path / "out")
    assert (status, printed) == (1, "")
    assert said.startswith("error: no device 'banana'; choose auto")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "cub200/bigg"), "no protocol 'cub200/bigg'; did you mean 'cub200/big'?"),
        (("bench", "--methods", "c-fecm"), "no method 'c-fecm'; did you mean 'c-fecam'?"),
        (("bench", "cars/big"), "fiveshot data fetch cars"),
        (("bench", "--features", "nowhere.npz"), "no such file: nowhere.npz"),
        (("bench", "--images", "nowhere"), "nowhere"),
        (("bench", "--methods", "ncm", "--format", "wrod", "--seeds", "1"), "no format 'wrod'"),
        (("bench", "--root", "."), "no CUB-200-2011 in ."),
        (("bench", "--root", ".", "--features", "cub200"), "photos and --features exclude each other"),
        (("paper", "table9"), "table9"),
        (("paper", "all", "--root", ".", "--features-dir", "."), "--root and --features-dir exclude each other"),
        (("paper", "all", "--root", ".", "--backbone", "nets/vit.onnx"), "is an ONNX bundle"),
        (("report", "nowhere"), "no such folder: nowhere"),
        (("data", "fetch", "carz"), "did you mean 'cars'"),
        (("data", "fetch", "cars"), "cars_train"),
    ],
)
def test_bad_requests_are_one_sentence_and_status_one(
    run: Run, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, printed, said = run(*arguments)
    assert (status, printed) == (1, "")
    assert message in said
    assert "" not in said.splitlines()


def test_a_table_without_any_features_is_told_and_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, printed, said = run("paper", "table2")
    assert (status, printed) == (1, "")
    assert said.startswith("missing: features of cars (for cars/small, cars/big); Stanford Cars cannot be")
    assert "data fetch cars --root" not in said


def test_too_many_shots_and_a_folder_that_cannot_be_written(
    run: Run, features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, said = run("bench", "--features", features, "--shots", 8, "--methods", "ncm")
    assert status == 1
    assert "has 7 training images of 8 needed" in said
    (tmp_path / "file").write_text("not a folder")
    status, _, said = run("bench", "--features", features, "--methods", "ncm", "--out", tmp_path / "file")
    assert status == 1
    assert "choose another --out" in said


def test_own_photographs_are_a_benchmark_without_writing_code(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    for name, colour in (
        ("red", (200, 30, 30)),
        ("green", (30, 200, 30)),
        ("blue", (30, 30, 200)),
        ("grey", (99, 99, 99)),
    ):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for number in range(4):
            pixels = np.clip(np.array(colour) + rng.normal(0, 25, (48, 64, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.jpg")
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    arguments = ("bench", "--images", tmp_path / "photos", "--methods", "ncm", "--shots", 2, "--seeds", 1)
    arguments = (*arguments, "--out", tmp_path / "runs")
    status, printed, said = run(*arguments)
    assert status == 0, said
    assert "NCM" in printed
    (tmp_path / "photos" / "red" / "0.jpg").write_bytes(b"no photograph")
    status, _, said = run(*arguments)
    assert status == 1
    assert "red/0.jpg" in said
    assert "--skip-bad" in said
    status, _, said = run(*arguments, "--skip-bad")
    assert status == 0, said


def test_photos_of_a_dataset_go_to_a_table_in_one_command(
    run: Run, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    root = write_toy_cifar(tmp_path / "cifar100.npz").parent
    network = ("--backbone", TINY, "--weights", tiny_file)
    arguments = ("bench", "cifar100/small", "--root", root, *network, "--methods", "ncm", "--seeds", 1)
    status, printed, said = run(*arguments, "--out", tmp_path / "runs")
    assert status == 0, said
    assert "NCM" in printed
    assert TINY in " ".join(printed.split())
    assert "note: 600 training images, officially 50,000" in said
    assert "700 photos to extract, about" in said
    status, _, said = run(*arguments, "--out", tmp_path / "runs")
    assert (status, "to extract" in said, "kept from before" in said) == (0, False, True)


def hear_interrupts() -> None:
    """A shell that runs the tests in the background has its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_ends_with_a_sentence(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "fiveshot",
        "bench",
        "--methods",
        "ncm",
        "--seeds",
        "500",
        "--out",
        str(tmp_path),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("metrics.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; finished runs are kept" in errors


def test_the_version_is_told() -> None:
    assert fiveshot("--version").stdout.startswith("fiveshot ")


def test_a_benchmark_and_its_page_need_neither_torch_nor_matplotlib(features: Path, tmp_path: Path) -> None:
    code = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "timm", "torchvision", "matplotlib"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
from fiveshot.cli.app import main
main()
"""
    bench = ("bench", "--features", features, "--projections", "64", "--out", tmp_path, "--format", "csv")
    for arguments, answer in ((bench, "C-RanPAC,"), (("report", tmp_path), "report.html")):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert found.returncode == 0, found.stderr
        assert answer in found.stdout


def test_help_does_not_load_torch() -> None:
    code = "\n".join(
        [
            "import sys",
            "from typer.testing import CliRunner",
            "from fiveshot.cli.app import app",
            "assert 'bench' in CliRunner().invoke(app, ['--help']).output",
            "print('torch' in sys.modules, 'timm' in sys.modules)",
        ]
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False False"


def test_two_heads_are_compared_by_their_folders(run: Run, features: Path, tmp_path: Path) -> None:
    methods = ("--methods", "ncm,teen", "--seeds", 3, "--out", tmp_path / "runs")
    log = tmp_path / "log.csv"
    status, shown, _ = run("bench", "--features", features, *methods, "--log", f"csv={log}")
    assert status == 0
    assert "how sure, and how balanced" in shown
    assert "Images to learn / to test: base " in " ".join(shown.split())
    rows = [line.split(",") for line in log.read_text().splitlines()]
    assert len({row[0] for row in rows[1:]}) == 6
    assert sum(row[3] == "g_acc" for row in rows) == 6
    (folder,) = (tmp_path / "runs").iterdir()
    status, shown, _ = run("compare", folder / "teen", folder / "ncm")
    assert (status, "TEEN less NCM" in shown, "3 draws" in shown) == (0, True, True)
    _, found, _ = run("compare", folder / "teen", folder / "ncm", "--json")
    (pair,) = json.loads(found)["result"]["comparisons"]
    assert (pair["names"], pair["seeds"], pair["differences"]["A_last"]["n"]) == (["TEEN", "NCM"], [0, 1, 2], 3)
    assert pair["fiveshot"] == [__version__]
    status, _, said = run("compare", folder / "teen", tmp_path / "none")
    assert (status, "no such folder" in said) == (1, True)


def test_published_figures_are_shown_only_where_they_fit(run: Run, features: Path, tmp_path: Path) -> None:
    arguments = ("bench", "--features", features, "--methods", "ncm", "--out", tmp_path / "runs")
    (record,) = json.loads(run(*arguments, "--format", "json")[1])
    protocol = record["config"]["protocol"]
    setting = {name: protocol[name] for name in ("dataset", "base_classes", "increment", "shots", "shot_draw")}
    figures = {
        **setting,
        "source": "A paper",
        "class_order": protocol["order_seed"],
        "images": [[counts["train"], counts["test"]] for counts in record["images"]],
        "methods": {"Theirs": [90.0] * len(record["images"])},
    }
    file = tmp_path / "paper.json"
    file.write_text(json.dumps(figures))
    _, shown, _ = run(*arguments, "--against", file)
    assert "Theirs" in shown
    file.write_text(json.dumps({**figures, "images": [[1000, 100]]}))
    _, shown, _ = run(*arguments, "--against", file)
    assert "Theirs" not in shown
    assert "split: 1,000 images to learn and 100 to test in the base session there" in " ".join(shown.split())
    status, _, said = run(*arguments, "--against", file, "--format", "csv")
    assert (status, "--against adds a table" in said) == (1, True)
    status, _, _ = run(*arguments, "--against", tmp_path / "none.json")
    assert status == 1
