"""A head that chooses some of its parameters itself, by episodes inside the classes of its base session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

from fiveshot.core import Memory
from fiveshot.core.arrays import Array
from fiveshot.core.labels import Label, Labels
from fiveshot.errors import InputError
from fiveshot.heads.head import FewShotHead, on_device
from fiveshot.heads.parameters import parameter_names, with_parameters
from fiveshot.heads.tune_on_base import choose_parameters


class TunedHead(FewShotHead):
    """Another head, with the parameters named in ``auto`` chosen on the base session.

    ``make_head("c-fecam", alpha="auto")`` returns one. The values in ``head`` are where the choice starts, and
    what stays with fewer than ten base classes; :func:`~fiveshot.heads.choose_parameters` says how one is made.
    ``random_state`` and ``device`` are those of ``head`` unless given.
    After ``fit``, ``chosen_`` holds what was chosen, and ``head_`` the head that has it.

    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.heads import NCM, TunedHead
    >>> X, y, _, _ = gaussian_classes(n_classes=12, n_features=8, train_per_class=20, test_per_class=1, seed=0)
    >>> head = TunedHead(NCM("euclidean"), ["bias"], episodes=4).fit(X, y)
    >>> list(head.chosen_), head.head_.bias == head.chosen_["bias"]
    (['bias'], True)
    >>> head.partial_fit([[9.0] * 8] * 5, [12] * 5).predict([[8.0] * 8]).tolist()
    [12]
    """

    head_: FewShotHead
    chosen_: dict[str, Any]

    def __init__(
        self,
        head: FewShotHead,
        auto: Sequence[str] = (),
        *,
        shots: int = 5,
        episodes: int = 8,
        random_state: int | None = None,
        device: Any = None,
    ) -> None:
        self.head = head
        self.auto = auto
        self.shots = shots
        self.episodes = episodes
        self.random_state = random_state
        self.device = device

    @property
    def temperature(self) -> float:  # type: ignore[override]
        """That of the head."""
        return self.head.temperature

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Take up statistics; without ``settings`` with the values that the choice would have started from."""
        if not hasattr(self, "head_"):
            self._choose({})
        if type(self.head_).adopt is not FewShotHead.adopt:
            self.head_.adopt(memory)  # refuses: it does not follow from statistics
        return super().adopt(memory, settings)

    def settings(self) -> dict[str, Any]:
        """Return what was chosen, and what the head itself chose on the base session."""
        return {"chosen": self.chosen_, "head": self.head_.settings()}

    def embed(self, X: Array) -> Array:
        """Return the vectors that the head keeps statistics of."""
        return (self.head_ if hasattr(self, "head_") else self._placed_head({})).embed(X)

    def familiarity(self, X: Any) -> Any:
        """Return how much each sample is like the class it is most like, as the head has it."""
        return self.head_.familiarity(X)

    def _learn(self, X: Array, y: Any, classes: Any, memory: Memory, model: Any) -> Self:
        place = self.device or getattr(self.head, "device", None)
        return super()._learn(on_device(X, place), y, classes, memory, model)

    def _begin(self, X: Array, y: Labels) -> None:
        if isinstance(self.auto, str):
            raise InputError(f"auto must be a list of names, got {self.auto!r}; for example [{self.auto!r}]")
        start = self._placed_head({})
        seed = start.get_params(deep=False).get("random_state", self.random_state or 0)
        chosen = choose_parameters(
            start, X, y, names=self.auto, shots=self.shots, episodes=self.episodes, seed=int(seed)
        )
        self._choose(chosen)
        self.head_._begin(X, y)

    def _derive(self, memory: Memory, X: Array, y: Labels, previous: Any) -> Any:
        return self.head_._derive(memory, X, y, previous)

    def _class_scores(self, X: Array, labels: list[Label]) -> Array:
        return self.head_._class_scores(X, labels)

    def _class_tokens(self) -> Mapping[Label, object]:
        return self.head_._class_tokens()

    def _softmax_factor(self) -> float:
        return self.head_._softmax_factor()

    def _width(self, memory: Memory) -> int:
        return self.head_._width(memory)

    def _adopt(self, memory: Memory, model: Any) -> Self:
        inner = copy(self.head_)  # copies of this head share the one before
        inner.n_features_in_ = self.n_features_in_
        self.head_ = inner._adopt(memory, model)
        return super()._adopt(memory, model)

    def _apply_settings(self, settings: Mapping[str, Any]) -> None:
        self._choose(settings["chosen"])
        self.head_._apply_settings(settings["head"])

    def _extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        tensors, extra = self.head_._extra_state()
        return tensors, {"chosen": self.chosen_, "head": extra}

    def _restore(self, memory: Memory, tensors: dict[str, Array], extra: dict[str, Any]) -> None:
        self._choose(extra["chosen"])
        self.head_.n_features_in_ = self.n_features_in_
        self.head_._restore(memory, tensors, extra["head"])
        self._adopt(memory, self.head_.model_)

    def _choose(self, chosen: Mapping[str, Any]) -> None:
        self.head_, self.chosen_ = self._placed_head(chosen), dict(chosen)

    def _placed_head(self, chosen: Mapping[str, Any]) -> FewShotHead:
        """Return the head with these values, on the device and with the seed of this one."""
        if not isinstance(self.head, FewShotHead) or isinstance(self.head, TunedHead):
            raise InputError(f"head must be a head to choose parameters for, got {self.head!r}; for example NCM()")
        shared = {"device": self.device, "random_state": self.random_state}
        known = parameter_names(self.head)
        given = {name: value for name, value in shared.items() if name in known and value is not None}
        return with_parameters(self.head, {**given, **chosen})


def plain_head(head: FewShotHead) -> FewShotHead:
    """Return the head inside one that tunes itself, and any other as it is.

    >>> from fiveshot.heads import make_head
    >>> type(plain_head(make_head("teen", alpha="auto"))).__name__, type(plain_head(make_head("fecam"))).__name__
    ('NCM', 'FeCAM')
    """
    return head.head if isinstance(head, TunedHead) else head
