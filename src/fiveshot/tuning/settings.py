"""Recipe values as they are written on a command line: ``key=value``."""

from __future__ import annotations

from typing import Any, get_type_hints

from fiveshot.errors import InputError, unknown_name
from fiveshot.tuning.recipe import TuneRecipe


def parse_setting(text: str) -> tuple[str, Any]:
    """Read one ``key=value`` of the command line into the type that the recipe has for it.

    >>> from fiveshot.tuning import parse_setting
    >>> parse_setting("lr=1e-3"), parse_setting("crop_scale=0.2,1"), parse_setting("ema=0.9")
    (('lr', 0.001), ('crop_scale', (0.2, 1.0)), ('ema', 0.9))
    """
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    kinds = get_type_hints(TuneRecipe)
    if not equals:
        raise InputError(f"{text!r} is no setting; write key=value, such as epochs=10")
    if key not in kinds:
        raise unknown_name("recipe value", key, kinds)
    return key, _parsed(key, value.strip(), kinds[key])


def _parsed(key: str, value: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}[
                value.lower()
            ]
        if kind in (int, float):
            return kind(value)
        if key.startswith("crop_"):
            return None if value.lower() == "none" else tuple(float(part) for part in value.split(","))
    except (KeyError, ValueError):
        wanted = "two numbers such as 0.2,1" if key.startswith("crop_") else f"a value of type {kind.__name__}"
        raise InputError(f"{key}={value!r} cannot be read; give {wanted}") from None
    return value
