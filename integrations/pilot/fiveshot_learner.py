"""Any head of fiveshot as a learner of LAMDA-PILOT: ``Learner`` for ``models/fiveshot_learner.py`` of a checkout.

The network stays as PILOT makes it. Its features of each task are learned by a head; nothing is trained. The names
that begin with ``_`` are those that PILOT's own learners use and replace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from models.base import BaseLearner
from torch.utils.data import DataLoader, Subset

from fiveshot.errors import InputError
from fiveshot.heads import make_head

HOST = ("_eval_cnn", "_evaluate", "_extract_vectors", "eval_task")  # what is used of PILOT's base class
DATA = ("get_dataset", "get_task_size", "_class_order")  # what is used of its manager of datasets


class Learner(BaseLearner):  # type: ignore[misc]
    """A head of fiveshot, task by task.

    Parameters
    ----------
    args : dict
        PILOT's settings, and: ``head`` (a name, such as ``"c-fecam"``), ``flavor`` (``"paper"`` or
        ``"published"``), ``head_parameters`` (such as ``{"alpha": 0.75}``), ``shot`` (images of a class after the
        first task; the first ones, as in the paper's code; without it all images).
    network : torch.nn.Module, optional
        Has ``extract_vector``; by default the ``SimpleVitNet`` of PILOT that ``backbone_type`` names.

    Raises
    ------
    InputError
        If this PILOT lacks something that is needed, or a setting is missing or unknown.
    """

    _cur_task: int
    _known_classes: int
    _total_classes: int

    def __init__(self, args: dict[str, Any], network: Any = None) -> None:
        require(BaseLearner, HOST, "models.base.BaseLearner")
        if "head" not in args:
            raise InputError("the settings have no 'head'", hint='add "head": "c-fecam", or another name')
        if (shot := args.get("shot")) is not None and (not isinstance(shot, int) or shot < 1):
            raise InputError(f"'shot' must be a whole number of at least 1, not {shot!r}")
        # With "fecam", as in the settings of the paper's code, its base class would answer itself.
        super().__init__({"memory_size": 0, **args, "fecam": False})
        self._head = make_head(args["head"], args.get("flavor", "paper"), **args.get("head_parameters", {}))
        if network is None:
            from utils import inc_net

            require(inc_net, ("SimpleVitNet",), "utils.inc_net")
            network = inc_net.SimpleVitNet(args, True)
        self._network = network.to(self._device).eval()
        self._order = np.arange(0)

    def incremental_train(self, data_manager: Any) -> None:
        """Learn the classes of the next task."""
        require(data_manager, DATA, "the manager of datasets")
        self._cur_task += 1
        self._total_classes = self._known_classes + data_manager.get_task_size(self._cur_task)
        self._order = np.asarray(data_manager._class_order)
        own = np.arange(self._known_classes, self._total_classes)
        train = data_manager.get_dataset(own, source="train", mode="test")
        shot = self.args.get("shot") if self._cur_task else None
        rows = np.concatenate([np.flatnonzero(train.labels == label)[:shot] for label in own])
        vectors, labels = self._extract_vectors(self._loader(Subset(train, rows.tolist())))
        # The head knows classes by the labels of the dataset: its random draws then do not depend on their order.
        self._head.partial_fit(vectors, self._order[labels])
        seen = np.arange(self._total_classes)
        self.test_loader = self._loader(data_manager.get_dataset(seen, source="test", mode="test"))

    def after_task(self) -> None:
        """Count the classes of this task as known."""
        self._known_classes = self._total_classes

    def _eval_cnn(self, loader: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return for each image the most likely classes, the best first, and its true class."""
        vectors, labels = self._extract_vectors(loader)
        scores = np.asarray(self._head.class_scores(vectors))
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.topk]
        place = np.argsort(self._order)  # where a label of the dataset stands in the order of classes
        return place[np.asarray(self._head.classes_)[best]], labels

    def _loader(self, images: Any) -> Any:
        workers = self.args.get("num_workers", 0)
        return DataLoader(images, batch_size=self.args.get("batch_size", 64), shuffle=False, num_workers=workers)


def require(host: object, names: tuple[str, ...], what: str) -> None:
    """Refuse a version of PILOT that lacks one of these names."""
    missing = [name for name in names if not hasattr(host, name)]
    if missing:
        raise InputError(
            f"{what} of this PILOT has no {', '.join(missing)}",
            hint="the plug-in needs a version of LAMDA-PILOT that has them",
        )
