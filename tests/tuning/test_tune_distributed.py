from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fiveshot.backbones import Backbone, adapter_state, load_adapter
from fiveshot.data import ImageSplit
from fiveshot.tuning import TuneRecipe, tune
from fiveshot.tuning.execution import make_accelerator

pytest.importorskip("accelerate", reason="the extra 'accelerate' is not installed")

# Importing takes longer than training, and so does taking all modules down in the end: the processes are forked
# when everything is imported, and leave at once.
SCRIPT = """
import gc, os, sys, warnings
gc.disable()
warnings.simplefilter("ignore")
sys.path[:0] = sys.argv[1], os.path.dirname(sys.argv[1])
import accelerate, torch
torch.set_num_threads(1)
from conftest import coloured_split, tiny_backbone
from fiveshot.tuning import TuneRecipe, tune
from fiveshot.tuning.execution import make_accelerator, started_by_launcher

out, processes, recipe = sys.argv[2], int(sys.argv[3]), TuneRecipe.from_json(eval(sys.argv[4]))

def train():
    assert started_by_launcher()
    accelerator = make_accelerator(cpu=True)
    assert accelerator.num_processes == processes
    backbone = tiny_backbone()
    result = tune(backbone, coloured_split(), recipe=recipe, out=out, accelerator=accelerator, held_out=0.1)
    print(result.history[-1].loss, result.history[-1].train_accuracy, backbone.adapter_hash)

started = []
for rank in map(str, range(processes)):
    if not (process := os.fork()):
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
        train()
        sys.stdout.flush()
        os._exit(0)
    started.append(process)
ended = [os.waitpid(process, 0)[1] for process in started]
assert not any(ended), ended
os._exit(0)
"""


def launched(processes: int, out: Path, recipe: TuneRecipe) -> list[list[str]]:
    """Start the processes in the environment that a launcher makes, and return what each printed last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "ACCELERATE_USE_CPU": "true",
    }
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(out), str(processes)]
    command.append(repr(recipe.to_json()))
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [line.split() for line in ended.stdout.splitlines()[-processes:]]


def test_two_processes_train_what_one_trains(
    make_backbone: Callable[[], Backbone], split: ImageSplit, tmp_path: Path
) -> None:
    """Without dropout, whose masks are each process's own, both ways average the same gradients."""
    recipe = TuneRecipe(optimizer="sgd", lr=0.01, batch_size=5, epochs=2, bottleneck=8, dropout=0.0, seed=1)
    alone = make_backbone()
    expected = tune(alone, split, recipe=recipe, held_out=0.1)
    out = tmp_path / "two.safetensors"
    first, second = launched(2, out, recipe)
    assert first == second  # the same weights and figures in both
    assert float(first[0]) == pytest.approx(expected.history[-1].loss, rel=1e-4)
    assert float(first[1]) == pytest.approx(expected.history[-1].train_accuracy)
    shared = make_backbone()
    load_adapter(out, shared)
    for name, tensor in adapter_state(alone.model).items():
        assert torch.allclose(adapter_state(shared.model)[name], tensor, atol=2e-4), name
    assert [path.name for path in tmp_path.iterdir()] == ["two.safetensors"]


def test_one_process_with_accelerate_is_the_same_to_the_bit(
    make_backbone: Callable[[], Backbone], split: ImageSplit
) -> None:
    recipe = TuneRecipe(lr=1e-3, batch_size=5, epochs=1, bottleneck=8, label_smoothing=0.1, seed=1)
    alone, accelerated = make_backbone(), make_backbone()
    tune(alone, split, recipe=recipe, held_out=0.1)
    tune(accelerated, split, recipe=recipe, held_out=0.1, accelerator=make_accelerator(cpu=True))
    assert accelerated.adapter_hash == alone.adapter_hash
