"""Compare the heads with the published code on the same features and sessions: answers and time.

CHECKOUT is a clone of https://github.com/dipamgoswami/FSCIL-Calibration (MIT), which is not changed: its learners
are imported, and vectors replace its backbone and its loaders, so these do not count. 98 base classes, then seven
sessions of 14 classes with five samples each; 800 vectors are classified after the first and after the last. The
vectors are the embedded features of ViT-Ti/16, 192 values each, not normalized, because the published constants
fit the lengths of a ViT's features.

    python benchmarks/published_code.py CHECKOUT
    python benchmarks/published_code.py CHECKOUT --heads c-fecam --rounds 3 --check
    python benchmarks/published_code.py CHECKOUT --one-thread   # processor seconds: for a busy machine
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ratios import Ratio, add_check, report

from fiveshot.core.draws import derived_seed
from fiveshot.core.scorers import ScoreTable
from fiveshot.features import embedded_features
from fiveshot.heads import FewShotHead, make_head
from fiveshot.work import one_thread

Clock = Callable[[], float]

N_BASE, INCREMENT, SESSIONS, SHOTS, N_TEST, WIDTH = 98, 14, 7, 5, 800, 192
N_CLASSES = N_BASE + SESSIONS * INCREMENT
SWITCHES = {  # module, FeCAM, calibration
    "ncm": ("adam_adapter", False, False),
    "teen": ("adam_adapter", False, True),
    "fecam": ("adam_adapter", True, False),
    "c-fecam": ("adam_adapter", True, True),
    "ranpac": ("ranpac", False, False),
    "c-ranpac": ("ranpac", False, True),
}
FASTER = {"c-fecam": 20.0, "ranpac": 2.0, "c-ranpac": 6.0}  # the limits
EXACT = ("ncm", "teen", "fecam", "c-fecam")  # without random numbers: every answer must be the same


@dataclass(frozen=True)
class Material:
    """Training rows in the order of their classes, and the test vectors."""

    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]

    def rows(self, first: int, last: int, shots: int | None) -> NDArray[np.intp]:
        found = [np.flatnonzero(self.train_y == label)[:shots] for label in range(first, last)]
        return np.concatenate(found)


def material(seed: int = 0) -> Material:
    features = embedded_features("cub200-vit")
    rng = np.random.default_rng(seed)
    known = np.flatnonzero(features.test_y < N_CLASSES)
    asked = np.sort(rng.choice(known, N_TEST, replace=False))
    kept = np.flatnonzero(features.train_y < N_CLASSES)

    def vectors(stored: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.float32]:
        return np.ascontiguousarray(stored[rows], dtype=np.float32)

    return Material(
        vectors(features.train_x, kept),
        features.train_y[kept],
        vectors(features.test_x, asked),
        features.test_y[asked],
    )


class Vectors(torch.nn.Module):
    """Replaces a backbone: the images are vectors."""

    out_dim = WIDTH

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@dataclass
class Split:
    """Replaces a data set: the attributes that learners and loader read."""

    x: torch.Tensor
    labels: NDArray[np.int64]


class Batches:
    """Replaces a loader: all vectors in one batch, shuffled if the learner asks for it."""

    def __init__(self, split: Split, batch_size: int, shuffle: bool, num_workers: int) -> None:
        self.split, self.shuffle = split, shuffle

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        count = len(self.split.x)
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        yield order, self.split.x[order], torch.from_numpy(self.split.labels)[order]


class Manager:
    """Replaces their manager of data sets."""

    def __init__(self, given: Material) -> None:
        self.given = given

    def get_task_size(self, task: int) -> int:
        return INCREMENT if task else N_BASE

    def get_dataset(self, indices: Any, source: str, mode: str, shot: int | None = None) -> Split:
        if source == "test":
            return Split(torch.from_numpy(self.given.test_x), self.given.test_y)
        rows = self.given.rows(int(indices[0]), int(indices[-1]) + 1, shot)
        return Split(torch.from_numpy(self.given.train_x[rows]), self.given.train_y[rows])


def settings(name: str, width: int) -> dict[str, Any]:
    """Return the settings of their files, for a run on the CPU from stored weights."""
    module, fecam, calibration = SWITCHES[name]
    return {
        "model_name": module,
        "fecam": fecam,
        "calibration": calibration,
        "backbone_type": "pretrained_vit_b16_224_adapter",
        "dataset": "vectors",
        "device": [torch.device("cpu")],
        "memory_size": 0,
        "init_cls": N_BASE,
        "increment": INCREMENT,
        "nb_classes": N_CLASSES,
        "shot": SHOTS,
        "resume": True,
        "seed": 0,
        "tuned_epoch": 1,
        "init_lr": 0.01,
        "batch_size": 48,
        "weight_decay": 0.0005,
        "min_lr": 0,
        "optimizer": "sgd",
        "use_RP": True,
        "M": width,
    }


def learner(modules: dict[str, types.ModuleType], name: str, width: int) -> Any:
    """Return their learner, with the same random projection as ours."""
    found = modules[SWITCHES[name][0]].Learner(settings(name, width))
    if SWITCHES[name][0] == "ranpac":
        drawn = found.setup_RP

        def setup() -> None:
            torch.manual_seed(derived_seed(0, "projection"))
            drawn()

        found.setup_RP = setup
    return found


def imported(checkout: Path) -> dict[str, types.ModuleType]:
    """Import their learners, with vectors in place of images."""
    sys.path.insert(0, str(checkout))
    network = importlib.import_module("utils.inc_net")
    network.get_backbone = lambda args, pretrained=False: Vectors()  # type: ignore[attr-defined]
    modules = {name: importlib.import_module(f"models.{name}") for name in ("adam_adapter", "ranpac")}
    for module in modules.values():
        module.DataLoader = Batches  # type: ignore[attr-defined]
    return modules


def store_weights(modules: dict[str, types.ModuleType]) -> None:
    """Write the tuned network that they load: only the layer that they replace."""
    network = modules["ranpac"].SimpleVitNet(settings("ranpac", WIDTH), False)
    network.update_fc(N_BASE)
    Path("weights").mkdir()
    for name, seed in (("adam_adapter", "_0"), ("ranpac", "")):
        file = f"weights/vectors_{name}{seed}_{N_BASE}_{INCREMENT}_0.pkl"
        torch.save({"model_state_dict": network.state_dict()}, file)


@dataclass(frozen=True)
class Played:
    answers: NDArray[np.int64]  # (2, N_TEST): after the first session and after the last
    seconds: float
    lam: float | None


def theirs(modules: dict[str, types.ModuleType], name: str, given: Material, width: int, clock: Clock) -> Played:
    np.random.seed(0)  # noqa: NPY002  (they draw from the global generator)
    one, manager, answers = learner(modules, name, width), Manager(given), []
    start = clock()
    for session in range(SESSIONS + 1):
        one.incremental_train(manager)
        if session in (0, SESSIONS):
            if SWITCHES[name][1]:
                found, _ = one._eval_maha(one.test_loader, one._network.fc.weight.data, one.cov_mats)
            else:
                found, _ = one._eval_cnn(one.test_loader)
            answers.append(found[:, 0])
        one.after_task()
    lam = float(one.ridge) if "ranpac" in name else None
    return Played(np.stack(answers), clock() - start, lam)


def ours(name: str, given: Material, width: int, clock: Clock) -> Played:
    parameters = {"n_projections": width} if "ranpac" in name else {}
    head: FewShotHead = make_head(name, "published", **parameters)
    table, answers = None, []
    start = clock()
    for session in range(SESSIONS + 1):
        first = N_BASE + (session - 1) * INCREMENT if session else 0
        last = first + INCREMENT if session else N_BASE
        rows = given.rows(first, last, SHOTS if session else None)
        head.partial_fit(given.train_x[rows], given.train_y[rows])
        if session in (0, SESSIONS):
            table = table or ScoreTable(given.test_x)
            answers.append(table.classify(head.scorer_))
    return Played(np.stack(answers), clock() - start, getattr(head, "lambda_", None))


@contextlib.contextmanager
def quiet_folder() -> Iterator[None]:
    """Work in a temporary folder, and drop their output."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a clone of the published repository")
    parser.add_argument("--heads", nargs="+", default=list(SWITCHES), choices=list(SWITCHES))
    parser.add_argument("--projections", type=int, default=2000, help="random features of the ridge heads")
    parser.add_argument("--rounds", type=int, default=2, help="number of runs; the shortest time counts")
    parser.add_argument("--one-thread", action="store_true", help="count processor seconds of one thread")
    add_check(parser)
    arguments = parser.parse_args()
    if not (arguments.checkout / "models" / "ranpac.py").is_file():
        sys.exit(f"{arguments.checkout} is not a checkout of the published code: it has no models/ranpac.py")
    modules = imported(arguments.checkout.resolve())
    clock = time.process_time if arguments.one_thread else time.perf_counter
    with one_thread() if arguments.one_thread else contextlib.nullcontext():
        rows = compared(modules, material(), arguments, clock)
    sys.exit(report(rows, check=arguments.check))


def compared(
    modules: dict[str, types.ModuleType], given: Material, arguments: argparse.Namespace, clock: Clock
) -> list[Ratio]:
    """Run both sides of every head, print a line for each, and return the limits."""
    rows = []
    print("| head | same answers | published code | ours | ratio | λ, published and ours |")
    print("|---|---|---|---|---|---|")
    for name in arguments.heads:
        runs = []
        for _ in range(arguments.rounds):
            with quiet_folder():
                store_weights(modules)
                other = theirs(modules, name, given, arguments.projections, clock)
            runs.append((other, ours(name, given, arguments.projections, clock)))
        other, mine = runs[-1]
        same = 100 * float((other.answers == mine.answers).mean())
        slow, fast = (min(pair[side].seconds for pair in runs) for side in (0, 1))
        chosen = "" if mine.lam is None else f"{other.lam:g}, {mine.lam:g}"
        print(
            f"| {name} | {same:.2f} % | {slow:.2f} s | {fast:.3f} s | {slow / fast:.1f}x | {chosen} |", flush=True
        )
        if name in EXACT:
            rows.append(Ratio(f"answers of {name} that are the published code's", same, 100, unit="%"))
        if name in FASTER:
            rows.append(Ratio(f"{name} against the published code", slow / fast, FASTER[name]))
    return rows


if __name__ == "__main__":
    main()
