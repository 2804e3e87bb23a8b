"""A page loads nothing from another host: what plugins put there is taken out, anything else fails."""

from __future__ import annotations

import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

MODULE = re.compile(r'<script type="module">.*?</script>', re.DOTALL)
LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]+src="https?://[^"]+"|<link[^>]+rel="stylesheet"[^>]+href="https?://'
)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Take out the loader of diagrams, which no notebook here has, and look for anything else."""
    kept = MODULE.sub(lambda script: "" if "https://" in script.group() else script.group(), output)
    foreign = LOADED.search(kept) or re.search(r'import\("https?://', kept)
    if foreign:
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {foreign.group()}")
    return kept
