"""Sweeps and tuning on the cluster, and memory that stays bounded."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from city_head import CITY
from pictures import CLASSES, draw_folder

from fiveshot.backbones import BackboneSpec, adapter_state, load_backbone
from fiveshot.benchmark import Protocol, RunRecord, sweep
from fiveshot.benchmark.job import make_jobs
from fiveshot.data import open_images
from fiveshot.data.synthetic import gaussian_classes
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet, Provenance
from fiveshot.scale import TuningTask, sweep_on_cluster, tune_on_cluster
from fiveshot.scale._jobs import first_result
from fiveshot.scale._pipeline import block_bytes, data_context
from fiveshot.scale._reducer import BlockReducer
from fiveshot.scale._reductions import Tied
from fiveshot.scale.cluster import Tally, connected, resources
from fiveshot.tuning import EpochRecord, TuneProgress, TuneRecipe, tune
from fiveshot.tuning._run import Checkpoints, Run, write_checkpoint

PROTOCOL = Protocol("toy", "gaussian", n_classes=6, base_classes=4, increment=1)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=6, n_features=8, train_per_class=8, test_per_class=6, seed=3
    )
    names = tuple(f"class {label}" for label in range(6))
    path = tmp_path_factory.mktemp("features") / "toy.safetensors"
    FeatureSet(train_x, train_y, test_x, test_y, names, Provenance.unknown("gaussian")).save(path)
    return path


def test_a_sweep_on_the_cluster_gives_the_same_runs(cluster: Any, features: Path, tmp_path: Path) -> None:
    jobs = make_jobs(PROTOCOL, str(features), methods=("ncm", "fecam"), seeds=2)
    expected = {outcome.job.folder: outcome.record for outcome in sweep(jobs, tmp_path / "local")}
    found = list(sweep_on_cluster(jobs, tmp_path / "ray"))
    assert {outcome.job.folder for outcome in found} == set(expected)
    for outcome in found:
        assert not outcome.reused
        assert (outcome.record.predictions == expected[outcome.job.folder].predictions).all()
        kept = RunRecord.load(tmp_path / "ray" / outcome.job.folder)
        assert (kept.predictions == outcome.record.predictions).all()
    assert all(outcome.reused for outcome in sweep_on_cluster(jobs, tmp_path / "ray"))


def test_an_error_of_a_job_arrives_as_it_was_raised(cluster: Any, features: Path, tmp_path: Path) -> None:
    (tmp_path / "session_1.txt").write_text("owl/1.jpg")
    wrong = make_jobs(PROTOCOL, str(features), methods=("ncm",), seeds=1, sessions=str(tmp_path))
    with pytest.raises(InputError, match="these features have no image names"):
        list(sweep_on_cluster(wrong, tmp_path / "ray"))


# As the command is installed: Python adds the program's folder to the path, no other. While the cluster is there,
# others ask for its status.
PROGRAM = """
import json, os, subprocess, sys
from contextlib import contextmanager
from fiveshot.cli.app import main
from fiveshot.scale import _jobs as jobs

OTHERS = {"with it": {}, "without": {"RAY_AUTH_MODE": "disabled"}, "with another": {"RAY_AUTH_TOKEN": "f" * 64}}
connected = jobs.connected

@contextmanager
def asked_by_others(address):
    with connected(address) as found:
        import ray

        address = ray.get_runtime_context().gcs_address
        command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "status", "--address", address]
        quietly = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        asking = {name: subprocess.Popen(command, env=os.environ | new, **quietly) for name, new in OTHERS.items()}
        errors = {name: one.communicate(timeout=60)[1] for name, one in asking.items()}
        said = {name: errors[name] if one.returncode else "let in" for name, one in asking.items()}
        with open(os.environ["SAID"], "w") as file:
            json.dump(said, file)
        yield found

if __name__ == "__main__":
    jobs.connected = asked_by_others
    main()
"""


def python_in_a_folder_with_a_space(folder: Path) -> Path:
    """Return a Python that has the libraries of this one."""
    environment = folder / "my projects" / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    found = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True)
    lines = [f"import site; site.addsitedir({place!r})\n" for place in site.getsitepackages()]
    Path(found.strip(), "libraries.pth").write_text("".join(lines))
    return python


def test_the_command_starts_a_cluster_of_its_own(features: Path, light_path: Path, tmp_path: Path) -> None:
    """It listens on all interfaces and refuses requests without its token. It also runs a head of a plugin.

    The folder has modules of well-known names, which no process of the cluster may import. Python is in a folder
    with a space in its name.
    """
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    hostile, seen, said = tmp_path / "hostile", tmp_path / "seen", tmp_path / "said.json"
    hostile.mkdir()
    for name in {*sys.stdlib_module_names, "numpy", "scipy", "fiveshot", "ray", "sitecustomize"} - {"__main__"}:
        (hostile / f"{name}.py").write_text(f"open({str(seen)!r}, 'a').write('{name} ')")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    plugin = tmp_path / "plugins" / "city_head.py"
    plugin.parent.mkdir()
    plugin.write_text(CITY)
    command = [
        str(python_in_a_folder_with_a_space(tmp_path)),
        str(program),
        "--plugin",
        str(plugin),
        "cluster",
        "bench",
        "--features",
        str(features),
    ]
    command += ["--methods", "ncm,city", "--seeds", "1", "--format", "csv"]
    command += ["--out", str(tmp_path / "runs")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment |= {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "", "SAID": str(said)}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(light_path)}  # Ray keeps the token at home
    environment.pop("PYTHONSAFEPATH", None)
    ended = subprocess.run(command, env=environment, cwd=hostile, capture_output=True, text=True, timeout=120)
    assert not seen.exists(), seen.read_text()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[1].startswith("NCM,")
    assert "logging.cc" not in ended.stderr, "nothing but what the command says"
    runs = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("run.json")]
    assert sorted(run["config"]["head"]["class"] for run in runs) == ["CityBlock", "NCM"]
    found = json.loads(said.read_text())
    assert found["with it"] == "let in"
    assert "token is missing or incorrect" in found["without"]
    assert "token is missing or incorrect" in found["with another"]


ASKING = """
import sys
from fiveshot.errors import InputError
from fiveshot.scale import connected
for address in sys.argv[1:]:
    try:
        connected(address).__enter__()
    except InputError as error:
        print(error)
"""


def test_no_cluster_at_an_address_is_one_sentence(light_path: Path) -> None:
    """In a process that is not connected already, and that Ray would end."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    reasons = {"127.0.0.1:1": "refused", "ray://head:10001": "host:port", "head": "host:port"}
    command = [sys.executable, "-c", ASKING, *reasons]
    environment = os.environ | {"PYTHONPATH": str(light_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    said = ended.stdout.splitlines()
    for (address, reason), line in zip(reasons.items(), said, strict=True):
        assert line.startswith(f"no Ray cluster answers at {address!r}")
        assert reason in line
        assert "ray start --head" in line


@dataclass(frozen=True)
class Doomed:
    """An image that takes the process with it, once, when a checkpoint newer than the one before is there."""

    image: Any
    checkpoint: Path
    before: int
    died: Path

    @property
    def name(self) -> str:
        """Name of the image."""
        return str(self.image.name)

    def read(self) -> bytes:
        """Read the image, or die."""
        # Gone is the checkpoint where the other process has finished before Ray starts both again.
        newer = self.checkpoint.exists() and self.checkpoint.stat().st_mtime_ns != self.before
        if newer and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(self.image.read())


def test_two_processes_tune_what_one_tunes(cluster: Any, spec: BackboneSpec, tmp_path: Path) -> None:
    """Without dropout, whose masks are each process's own, both ways average the same gradients.

    The folder of checkpoints has one of another run, and one of the processes is lost after the first epoch.
    """
    import ray

    pytest.importorskip("accelerate", reason="the extra 'accelerate' is not installed")
    ray.cloudpickle.register_pickle_by_value(sys.modules[Doomed.__module__])
    dataset = open_images(draw_folder(tmp_path / "birds", per_class=4, seed=2, splits=("train",)), seed=0)
    recipe = TuneRecipe(optimizer="sgd", lr=0.01, batch_size=4, epochs=2, bottleneck=4, dropout=0.0, seed=1)
    alone = load_backbone(BackboneSpec(spec.name, weights=spec.weights))
    expected = tune(alone, dataset, recipe=recipe, held_out=0.25)
    folder = tmp_path / "checkpoints"
    stale = Checkpoints(folder).checkpoint_of("tuning", {"recipe": "another"})
    assert stale is not None
    write_checkpoint(stale, Run((EpochRecord(1),), 1, {}, 0.0), {})

    news: list[TuneProgress] = []
    died = tmp_path / "died"
    doomed = Doomed(dataset.train.images[0], stale.path, stale.path.stat().st_mtime_ns, died)
    train = replace(dataset.train, images=(doomed, *dataset.train.images[1:]))
    task = TuningTask(
        replace(dataset, train=train),
        spec,
        recipe=recipe,
        held_out=0.25,
        checkpoint_folder=folder,
    )
    out = tmp_path / "adapter.safetensors"
    found = tune_on_cluster(task, out, processes=2, progress=news.append)
    assert died.exists()
    assert found.out == out
    assert [record.epoch for record in found.history] == [1, 2]
    assert found.history[-1].loss == pytest.approx(expected.history[-1].loss, rel=1e-4)
    shared = load_backbone(BackboneSpec(spec.name, weights=spec.weights, adapter=out))
    for name, tensor in adapter_state(alone.model).items():
        assert torch.allclose(adapter_state(shared.model)[name], tensor, atol=2e-4), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter.safetensors", "birds", "died"]


def test_of_all_that_fails_the_cause_is_raised(cluster: Any) -> None:
    """Who trains with others fails after them, and may be heard of first."""
    import ray

    @ray.remote(num_cpus=0.1)
    def fail(error: Exception, seconds: float) -> None:
        time.sleep(seconds)
        raise error

    closed = RuntimeError("connection closed by peer")
    with pytest.raises(InputError, match="no such photo"):
        first_result(ray, [fail.remote(closed, 0), fail.remote(InputError("no such photo"), 0.2)])
    with pytest.raises(RuntimeError, match="connection closed"):
        first_result(ray, [fail.remote(closed, 0), ray.put(None)])
    assert first_result(ray, [ray.put("adapters"), ray.put(None)]) == "adapters"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 0}, "processes is 0; choose 1 or more"),
        ({"out": "no/such/folder/a"}, "the folder no/such/folder does not exist"),
        ({"resume": True}, "--resume needs --checkpoints FOLDER"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_wrong_tuning_options_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    dataset = open_images(draw_folder(tmp_path / "birds", per_class=2, seed=2, splits=("train",)), seed=0)
    task = TuningTask(dataset, resume=options.pop("resume", False))
    with pytest.raises((InputError, OSError), match=message):
        tune_on_cluster(task, **{"out": tmp_path / "a.safetensors", **options})


@dataclass(frozen=True)
class SlowTied(Tied):
    """Takes its time, so that blocks come faster than they are reduced."""

    def reduce(self, rows: Any) -> Any:
        """Wait, and reduce."""
        time.sleep(0.02)
        return super().reduce(rows)


def test_back_pressure_bounds_the_memory(cluster: Any, tmp_path: Path) -> None:
    """More bytes than the object store holds pass through it, and none has to be spilled to the disk."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[SlowTied.__module__])
    made = tmp_path / "made"
    made.mkdir()

    def vectors(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number in batch["id"].tolist():
            (made / str(number)).touch()
            rng = np.random.default_rng(number)
            count = 4000
            yield {
                "split": np.zeros(count, np.int64),
                "row": np.arange(count),
                **{name: np.full(count, "", object) for name in ("reason", "name")},
                "label": np.array(CLASSES, object)[rng.integers(0, 3, count)],
                "vectors": rng.standard_normal((count, 256), dtype=np.float32),
            }

    ahead: list[int] = []
    spilled: list[Path] = []

    def watch(tally: Tally, arrived: int) -> None:
        ahead.append(len(list(made.iterdir())) - tally.images // 4000)
        spilled.extend(Path(cluster.head_node.get_session_dir_path()).glob("ray_spilled_objects*/*"))

    with data_context(resources()):
        dataset = ray.data.range(46, override_num_blocks=23).map_batches(
            vectors, batch_size=1, num_cpus=0.25, concurrency=2
        )
        reducer = BlockReducer(
            {"tied": SlowTied(buckets=1)}, at_once=1, task_cpus=0.5, group_bytes=2 * block_bytes(resources())
        )
        found = reducer.reduce(dataset, watch)
    assert reducer.tally.images == 184_000
    assert found["tied"].counts.sum() == 184_000
    assert max(ahead) * 4000 * 256 * 4 < 120 << 20, "never more in flight than the object store holds"
    assert not spilled


def test_a_connected_process_stays_connected(cluster: Any) -> None:
    import ray

    with connected() as found:
        assert found.cpus >= 2
    assert ray.is_initialized()
