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

SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from conftest import coloured_split, tiny_backbone
from fiveshot.tuning import TuneRecipe, tune
from fiveshot.tuning.execution import make_accelerator, started_by_launcher
assert started_by_launcher()
accelerator = make_accelerator(cpu=True)
assert accelerator.num_processes == int(sys.argv[3])
backbone = tiny_backbone()
result = tune(backbone, coloured_split(), recipe=TuneRecipe.from_json(eval(sys.argv[4])), out=sys.argv[2],
              accelerator=accelerator, held_out=0.1)
print(result.history[-1].loss, result.history[-1].train_accuracy, backbone.adapter_hash)
"""


def launched(processes: int, out: Path, recipe: TuneRecipe) -> list[list[str]]:
    """Start the processes as a launcher does and return what each printed last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(processes):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(processes),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "ACCELERATE_USE_CPU": "true",
        }
        command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(out), str(processes)]
        command.append(repr(recipe.to_json()))
        started.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    results = [process.communicate(timeout=180) for process in started]
    assert [process.returncode for process in started] == [0] * processes, results[0][1][-3000:]
    return [output.splitlines()[-1].split() for output, _ in results]


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
