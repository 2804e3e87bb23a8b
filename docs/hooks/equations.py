"""Blocks of the language ``math`` become MathML when the site is built: no script, no fonts from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from latex2mathml.converter import convert

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig


def mathml(source: str, *_: Any, **__: Any) -> str:
    """Return one displayed equation for each paragraph of LaTeX."""
    equations = (part for part in source.split("\n\n") if part.strip())
    return "".join(f'<div class="equation">{convert(part, display="block")}</div>' for part in equations)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Tell Markdown about such blocks."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "math", "format": mathml})
    return config
