from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from fiveshot.backbones import Backbone, adapter_state, load_adapter
from fiveshot.data import ImageSplit
from fiveshot.tuning import TuneRecipe, tune
from fiveshot.tuning.execution import make_accelerator

pytest.importorskip("accelerate", reason="the extra 'accelerate' is not installed")

# One process of several that train together: it writes what it found to a file of its own.
SCRIPT = """
import json, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
sys.path[:0] = sys.argv[1], str(Path(sys.argv[1]).parent)
import torch
torch.set_num_threads(1)
from conftest import coloured_split, tiny_backbone
from fiveshot.tuning import TuneRecipe, tune
from fiveshot.tuning.execution import make_accelerator, started_by_launcher

out, found, recipe = sys.argv[2], Path(sys.argv[3]), TuneRecipe.from_json(json.loads(sys.argv[4]))
assert started_by_launcher()
accelerator = make_accelerator(cpu=True)
backbone = tiny_backbone()
result = tune(backbone, coloured_split(), recipe=recipe, out=out, accelerator=accelerator, held_out=0.1)
last = result.history[-1]
found.write_text(json.dumps({
    "processes": accelerator.num_processes,
    "loss": last.loss,
    "accuracy": last.train_accuracy,
    "adapter": backbone.adapter_hash,
}))
"""


def launched(processes: int, folder: Path, out: Path, recipe: TuneRecipe) -> list[dict[str, Any]]:
    """Start the processes in the environment that a launcher makes, and return what each found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"WORLD_SIZE": str(processes), "ACCELERATE_USE_CPU": "true"}
    found = [folder / f"found-{rank}.json" for rank in range(processes)]
    with ExitStack() as running:
        started = []
        for rank, file in enumerate(found):
            environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(out), str(file)]
            command.append(json.dumps(recipe.to_json()))
            log = running.enter_context((folder / f"log-{rank}.txt").open("w"))
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            running.callback(process.wait)
            running.callback(process.kill)
            started.append(process)
        ended = [process.wait(180) for process in started]
    assert not any(ended), [log.read_text()[-3000:] for log in sorted(folder.glob("log-*.txt"))]
    return [json.loads(file.read_text()) for file in found]


def test_two_processes_train_what_one_trains(
    make_backbone: Callable[[], Backbone], split: ImageSplit, tmp_path: Path
) -> None:
    """Without dropout, whose masks are each process's own, both ways average the same gradients."""
    recipe = TuneRecipe(optimizer="sgd", lr=0.01, batch_size=5, epochs=2, bottleneck=8, dropout=0.0, seed=1)
    alone = make_backbone()
    expected = tune(alone, split, recipe=recipe, held_out=0.1)
    logs, out = tmp_path / "logs", tmp_path / "out" / "two.safetensors"
    logs.mkdir()
    out.parent.mkdir()
    first, second = launched(2, logs, out, recipe)
    assert first == second  # the same weights and figures in both
    assert first["processes"] == 2
    assert first["loss"] == pytest.approx(expected.history[-1].loss, rel=1e-4)
    assert first["accuracy"] == pytest.approx(expected.history[-1].train_accuracy)
    shared = make_backbone()
    load_adapter(out, shared)
    for name, tensor in adapter_state(alone.model).items():
        assert torch.allclose(adapter_state(shared.model)[name], tensor, atol=2e-4), name
    assert [path.name for path in out.parent.iterdir()] == ["two.safetensors"]


def test_one_process_with_accelerate_is_the_same_to_the_bit(
    make_backbone: Callable[[], Backbone], split: ImageSplit
) -> None:
    recipe = TuneRecipe(lr=1e-3, batch_size=5, epochs=1, bottleneck=8, label_smoothing=0.1, seed=1)
    alone, accelerated = make_backbone(), make_backbone()
    tune(alone, split, recipe=recipe, held_out=0.1)
    tune(accelerated, split, recipe=recipe, held_out=0.1, accelerator=make_accelerator(cpu=True))
    assert accelerated.adapter_hash == alone.adapter_hash
