"""What commands print with --json is what the page of schemas says, and nothing besides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
COLORS = {"warm/red": (220, 30, 30), "warm/orange": (220, 90, 30), "blue": (30, 30, 220)}
Run = Callable[..., tuple[int, str, str]]


def strict(schema: Any) -> Any:
    """Return a schema that allows only the properties it names."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: strict(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in inner else inner


def schemas() -> dict[str, Any]:
    """Return the schemas of the page by heading."""
    found = re.findall(r"^## (.+?)\n.*?```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return {name: strict(json.loads(text)) for name, text in found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    for name, color in COLORS.items():
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            noise = np.random.default_rng(number).integers(-25, 25, (48, 64, 3)) + np.array(color)
            Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / "photos" / name / f"{number}.png")
    (folder / "bad.png").write_bytes(b"not a photo")
    return folder


def test_answers_follow_their_schemas(run: Run, folder: Path) -> None:
    known, model, photos = schemas(), folder / "model", folder / "photos"
    photo = photos / "blue" / "0.png"
    asked = {
        "new": ("new", model),
        "empty": ("predict", model, photo),
        "first": ("learn", model, "blue", photos / "blue"),
        "rest": ("learn", model, photos, "--nested", "--new-only"),
        "twice": ("learn", model, "more", photo, photo),
        "parts": ("predict", model, photo, "--why", "--sure", "1", "--box", "1,1,20,20"),
        "bad": ("predict", model, photo, folder / "bad.png"),
        "missing": ("predict", model, folder / "none.png"),
    }
    statuses, results = {}, {}
    for name, arguments in asked.items():
        statuses[name], printed, _ = run(*arguments, "--json")
        answer = json.loads(printed)
        jsonschema.validate(answer, known["Every answer"])
        assert answer["ok"] == (statuses[name] == 0)
        results[name] = answer.get("result")
        if arguments[0] in known and results[name] is not None:
            jsonschema.validate(results[name], known[arguments[0]])
    assert {name for name, status in statuses.items() if status == 1} == {"empty", "missing"}
    assert statuses["bad"] == 3
    assert results["bad"]["left_out"]
    assert results["parts"]["predictions"][0]["why"]
    assert results["parts"]["predictions"][0]["box"]
    assert results["bad"]["predictions"][0]["levels"]
    assert results["twice"]["classes"][0]["duplicates"]


def test_a_field_that_is_not_named_is_found() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"predictions": [], "left_out": [], "more": 1}, schemas()["predict"])
