"""A head that chooses some of its parameters itself, by episodes inside the classes of its base session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

from fiveshot.core import Memory
from fiveshot.core.arrays import Array
from fiveshot.core.labels import Label, Labels
from fiveshot.errors import InputError
from fiveshot.heads.head import FewShotHead, Workload, on_device
from fiveshot.heads.parameters import parameter_names, with_parameters
from fiveshot.heads.search.tuning import choose_parameters

TRIALS = 20  # candidates in all the episodes together cost about so many runs of a head


class TunedHead(FewShotHead):
    """Another head, with the parameters named in ``auto`` chosen on the base session.

    ``make_head("c-fecam", alpha="auto")`` returns one. :func:`~fiveshot.heads.choose_parameters` says how a choice
    is made. After ``fit``, ``chosen_`` holds what was chosen, and ``head_`` the head that has it.

    Parameters
    ----------
    head : FewShotHead
        Its values are where the choice starts, and what stays with fewer than ten base classes.
    auto : sequence of str
        The parameters to choose.
    shots : int
        Samples of a class that is played as new.
    episodes : int
        How many are played.
    random_state, device : optional
        Those of ``head`` unless given.

    Examples
    --------
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
        if self.head_.needs_samples:
            self.head_.adopt(memory)  # refuses: it does not follow from statistics
        return super().adopt(memory, settings)

    def settings(self) -> dict[str, Any]:
        """Return what was chosen, and what the head itself chose on the base session."""
        return {"chosen": self.chosen_, "head": self.head_.settings()}

    def embed(self, X: Array) -> Array:
        """Return the vectors that the head keeps statistics of."""
        return (self.head_ if hasattr(self, "head_") else self._placed_head({})).embed(X)

    def familiarity_of(self, X: Array, scores: Array) -> Array:
        """Return the familiarity of samples as the head has it."""
        return self.head_.familiarity_of(X, scores)

    def memory_needed(self, work: Workload) -> int:
        """Return what the head needs."""
        return self.head.memory_needed(work)

    def operations(self, work: Workload) -> float:
        """Return what the head needs, many times over."""
        return TRIALS * self.head.operations(work)

    def learn_session(self, X: Array, y: Any, classes: Any, memory: Memory, model: Any) -> Self:
        """Learn on the device of the head, unless this one has its own."""
        place = self.device or getattr(self.head, "device", None)
        return super().learn_session(on_device(X, place), y, classes, memory, model)

    def begin(self, X: Array, y: Labels) -> None:
        """Choose the parameters."""
        if isinstance(self.auto, str):
            raise InputError(f"auto must be a list of names, got {self.auto!r}; for example [{self.auto!r}]")
        start = self._placed_head({})
        seed = start.get_params(deep=False).get("random_state", self.random_state or 0)
        chosen = choose_parameters(
            start, X, y, names=self.auto, shots=self.shots, episodes=self.episodes, seed=int(seed)
        )
        self._choose(chosen)
        self.head_.begin(X, y)

    def derive(self, memory: Memory, X: Array, y: Labels, previous: Any) -> Any:
        """Return the model of the head."""
        return self.head_.derive(memory, X, y, previous)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return the scores of the head."""
        return self.head_.score_classes(X, labels)

    def class_tokens(self) -> Mapping[Label, object]:
        """Return the tokens of the head."""
        return self.head_.class_tokens()

    def softmax_factor(self) -> float:
        """Return the factor of the head."""
        return self.head_.softmax_factor()

    def input_width(self, memory: Memory) -> int:
        """Return the number of features that the head wants."""
        return self.head_.input_width(memory)

    def hold(self, memory: Memory, model: Any) -> Self:
        """Take up a memory and a model, in the head too."""
        inner = copy(self.head_)  # copies of this head share the one before
        inner.n_features_in_ = self.n_features_in_
        self.head_ = inner.hold(memory, model)
        return super().hold(memory, model)

    def apply_settings(self, settings: Mapping[str, Any]) -> None:
        """Take up what was chosen."""
        self._choose(settings["chosen"])
        self.head_.apply_settings(settings["head"])

    def extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return what the head must save, and what was chosen."""
        arrays, extra = self.head_.extra_state()
        return arrays, {"chosen": self.chosen_, "head": extra}

    def restore(self, memory: Memory, arrays: dict[str, Array], extra: dict[str, Any]) -> None:
        """Take up the state that was saved."""
        self._choose(extra["chosen"])
        self.head_.n_features_in_ = self.n_features_in_
        self.head_.restore(memory, arrays, extra["head"])
        self.hold(memory, self.head_.model_)

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
