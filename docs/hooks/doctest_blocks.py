"""Examples in docstrings become highlighted blocks; to plain Markdown ``>>>`` would be three quotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

BEFORE_FENCES = 100  # the priority of a preprocessor; fenced blocks are read at 25


def fenced_examples(lines: list[str]) -> list[str]:
    """Return lines with every example, up to the next empty line, inside a fence.

    >>> fenced_examples(["So:", "", ">>> 1 + 1", "2", "", "Done."])
    ['So:', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'Done.']
    """
    found: list[str] = []
    in_fence = in_example = False
    for line in [*lines, ""]:
        if line.lstrip().startswith("```"):
            in_fence = not in_fence
        if in_example and not line.strip():
            found.append("```")
            in_example = False
        elif not in_fence and not in_example and line.startswith(">>> "):
            found.append("```pycon")
            in_example = True
        found.append(line)
    return found[:-1]


class _Examples(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return fenced_examples(lines)


class DoctestBlocks(Extension):
    """The extension of Markdown that does it."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  (Markdown's name)
        """Look for examples before anything else."""
        md.preprocessors.register(_Examples(md), "doctest_blocks", BEFORE_FENCES)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Use it on all pages, so that the reference has it too."""
    config.markdown_extensions.append(DoctestBlocks())
    return config
