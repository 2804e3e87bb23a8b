"""What a program of a user looks like; every name it uses must have a known type."""

from pathlib import Path

import numpy as np

from fiveshot import FiveshotError, Recognizer, Region, load_features, make_head
from fiveshot.client import Client
from fiveshot.recognizer import review
from fiveshot.values import Prediction


def recognize(folder: Path, photo: Path) -> list[tuple[str | None, float]]:
    with Recognizer.create(folder / "model", exist_ok=True) as model:
        for report in model.learn_many(folder / "photos", new_only=True):
            print(report.name, report.verdict, report.warnings)
        model.learn("owl", [photo, Region(photo, (0.1, 0.1, 0.5, 0.5))], add=True)
        seen: list[Prediction] = model.predict(photo, top=3, why=2)
        review(model)
        model.undo()
        return [(one.label, one.probability) for one in seen]


def vectors(path: Path) -> float:
    features = load_features(path)
    head = make_head("unbiased-lda").fit(features.train_x, features.train_y)
    head.partial_fit(np.zeros((5, 8)), ["new"] * 5)
    labels = head.predict(features.test_x)
    return float((labels == features.test_y).mean())


def ask(address: str) -> str | None:
    with Client(address) as service:
        try:
            return service.predict("photo.jpg")[0].label
        except FiveshotError as error:
            return error.hint or error.code
