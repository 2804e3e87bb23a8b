"""Forgetting by identity: names pass from class to class, and what is forgotten is one class and not a name."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest
from models import files_with, held, new_model, photos

from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

BASE = ("Avocet-Q1", "Bittern-Q2")
NAMES = (*BASE, "Curlew-Q3", "Dunlin-Q4")
Verb = Callable[[Recognizer], object]


@dataclass(eq=False)
class Bird:
    """A class that the test follows, whatever its name is."""

    name: str | None  # None: it was deleted
    last: str
    names: set[str] = field(default_factory=set)
    needles: list[bytes] = field(default_factory=list)


@dataclass
class Oracle:
    """What a model should hold, told in terms of birds; ``log`` has each change and whose it was."""

    birds: list[Bird]
    stack: list[tuple[Bird, str | None]] = field(default_factory=list)  # whose change stands, its name before
    log: list[tuple[list[Bird], Verb]] = field(default_factory=list)

    def bearer(self, name: str) -> Bird | None:
        return next((bird for bird in self.birds if bird.name == name), None)

    def note(self, bird: Bird, name: str | None, verb: Verb) -> None:
        self.stack.append((bird, bird.name))
        self.name(bird, name)
        self.log.append(([bird], verb))

    def name(self, bird: Bird, name: str | None) -> None:
        bird.name = name
        bird.last = name or bird.last
        bird.names.add(bird.last)

    def learn(self, name: str, step: int) -> None:
        bird = self.bearer(name)
        if bird is None:
            bird = Bird(None, name)
            self.birds.append(bird)
        X = photos(f"photos {step}", 1 + step % 2)
        bird.needles += [row.tobytes() for row in X] + [sha256(row.tobytes()).hexdigest().encode() for row in X]
        self.note(bird, name, lambda model: model.learn_features(name, X, add=True))

    def rename(self, old: str, new: str) -> None:
        bird = self.bearer(old)
        self.note(bird, new, lambda model: model.rename(old, new))

    def forget(self, name: str) -> None:
        self.note(self.bearer(name), None, lambda model: model.forget(name))

    def undo(self) -> None:
        bird, name = self.stack.pop()
        self.name(bird, name)
        self.log.append(([bird], lambda model: model.undo(past_forget=True)))

    def purge(self, name: str) -> list[Bird]:
        gone = [bird for bird in self.birds if bird.last == name]
        self.birds = [bird for bird in self.birds if bird not in gone]
        self.stack = [(bird, before) for bird, before in self.stack if bird not in gone]
        self.log.append((gone, lambda model: model.forget(name, for_good=True)))
        return gone


def changed_at_random(data: st.DataObject, oracle: Oracle, step: int) -> None:
    known = sorted(bird.name for bird in oracle.birds if bird.name)
    free = sorted(set(NAMES) - set(known))
    verbs = ["learn"] * 2 + ["rename"] * 2 * bool(known and free) + ["forget", "forget"] * bool(known)
    verbs += ["undo"] * 2 * bool(oracle.stack) + ["purge"] * bool(oracle.birds)
    verb = data.draw(st.sampled_from(verbs))
    if verb == "learn":
        oracle.learn(data.draw(st.sampled_from(NAMES)), step)
    elif verb == "rename":
        oracle.rename(data.draw(st.sampled_from(known)), data.draw(st.sampled_from(free)))
    elif verb == "forget":
        oracle.forget(data.draw(st.sampled_from(known)))
    elif verb == "undo":
        oracle.undo()
    else:
        oracle.purge(data.draw(st.sampled_from(sorted({bird.last for bird in oracle.birds}))))


def content(model: Recognizer) -> dict[str, object]:
    """Return the classes to the bit, without the numbers that others before them have used up."""
    now = held(model)
    return {"classes": now["classes"], "photos": {name: row[1:] for name, row in now["photos"].items()}}


@given(st.data())
@settings(suppress_health_check=[hypothesis.HealthCheck.too_slow], max_examples=8)
def test_forgetting_one_class_is_as_if_it_had_never_been(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as folder,
        new_model(Path(folder) / "saw", base=BASE) as saw,
    ):
        means = [saw.snapshot.memory.base[name].mean.tobytes() for name in BASE]
        base = [Bird(name, name, {name}, [mean]) for name, mean in zip(BASE, means, strict=True)]
        oracle = Oracle(list(base))
        for step in range(data.draw(st.integers(1, 12))):
            changed_at_random(data, oracle, step)
        oracle.learn("Egret-Q5", 99)  # so that there is one to forget
        log = list(oracle.log)
        gone = oracle.purge(data.draw(st.sampled_from(sorted({bird.last for bird in oracle.birds}))))
        for _, verb in oracle.log:
            verb(saw)
        assert_no_byte(saw.path, gone, oracle.birds)
        assert saw.check() == []
        names = tuple(bird_name for bird, bird_name in zip(base, BASE, strict=True) if bird not in gone)
        with new_model(Path(folder) / "never", base=names) as never:
            for whose, verb in log:
                if not set(whose) & set(gone):
                    verb(never)
            assert_same_undo(saw, never, len(oracle.stack))
        assert saw.check() == []


def assert_no_byte(path: Path, gone: list[Bird], others: list[Bird]) -> None:
    names = set().union(*(bird.names for bird in gone)) - set().union(*(bird.names for bird in others))
    needles = [name.encode() for name in names] + [needle for bird in gone for needle in bird.needles]
    assert [needle for needle in needles if files_with(path, needle)] == []


def assert_same_undo(saw: Recognizer, never: Recognizer, depth: int) -> None:
    for _ in range(depth):
        assert content(saw) == content(never)
        assert saw.undo(past_forget=True).classes == never.undo(past_forget=True).classes
    assert content(saw) == content(never)
    for model in (saw, never):
        with pytest.raises(InputError, match="nothing to undo"):
            model.undo(past_forget=True)
