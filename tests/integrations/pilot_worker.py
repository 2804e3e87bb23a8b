"""Run the plug-in in a checkout of PILOT: its own base class, manager of datasets and loaders; vectors as images.

    python pilot_worker.py VECTORS.npz SETTINGS.json ...

The answers to each file of settings are written beside it, as .npz.

The checkout and the plug-in are on PYTHONPATH. A grey picture one pixel high holds a vector, so that PILOT's
datasets open it; the network returns it as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from fiveshot_learner import Learner
from utils.data_manager import DataManager


class Vectors(torch.nn.Module):
    """A network whose features are its input."""

    def extract_vector(self, images: torch.Tensor) -> torch.Tensor:
        return images


class Pictures(DataManager):
    """PILOT's manager of datasets, with the vectors in the place of a dataset on the disk."""

    def _setup_data(self, dataset_name: str, shuffle: bool, seed: int) -> None:
        arrays = np.load(dataset_name)
        order = arrays["order"].tolist()
        place = np.argsort(order)
        self._class_order, self.use_path = order, False
        self._train_data, self._train_targets = arrays["train_x"][:, None], place[arrays["train_y"]]
        self._test_data, self._test_targets = arrays["test_x"][:, None], place[arrays["test_y"]]
        self._train_trsf, self._test_trsf, self._common_trsf = [], [], [as_vector]


def as_vector(picture: object) -> torch.Tensor:
    return torch.from_numpy(np.array(picture, dtype=np.float32)[0])


def main() -> None:
    data, *settings = sys.argv[1:]
    for file in map(Path, settings):
        np.savez(file.with_suffix(".npz"), **answers(data, json.loads(file.read_text(encoding="utf-8"))))


def answers(data: str, given: dict[str, object]) -> dict[str, object]:
    """Return the accuracy after each task, and the answers."""
    args = {"device": [torch.device("cpu")], "batch_size": 64, **given}
    manager = Pictures(data, False, 0, args["init_cls"], args["increment"], args)
    learner = Learner(args, Vectors())
    found, accuracies = {}, []
    for task in range(manager.nb_tasks):
        learner.incremental_train(manager)
        accuracies.append(float(learner.eval_task()[0]["top1"]))
        best, _ = learner._eval_cnn(learner.test_loader)
        found[f"task{task}"] = np.asarray(manager._class_order)[best[:, 0]]
        learner.after_task()
    return {"accuracies": accuracies, **found}


if __name__ == "__main__":
    main()
