"""Files of the repository that are pages of the site too: cards, results of benchmarks, changes.

A page links to them where they lie, so that the link works beside the source as well. Here it is pointed at the
page. A link to any other file outside the documentation has no place on the site and becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "reference/changes.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "NOTICE.md": "reference/notice.md",
    "integrations/pilot/README.md": "how-to/pilot.md",
    "src/fiveshot/backbones/adapters/ADAPTER_CARD.md": "reference/cards/adapters.md",
    "src/fiveshot/backbones/weights/MODEL_CARD.md": "reference/cards/model.md",
    "src/fiveshot/features/packs/DATA_CARD.md": "reference/cards/data.md",
    "src/fiveshot/recognizer/README.md": "explanation/storage.md",
    **{
        f"benchmarks/results/{result.name}": f"results/{result.stem}.md"
        for result in sorted((ROOT / "benchmarks" / "results").iterdir())
    },
}
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of the folder."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if not source.endswith(".md"):
            text = f"# {Path(source).stem}\n\n```text\n{text}```\n"
        elif not text.startswith("# "):
            text = f"# {Path(source).stem}\n\n{text}"
        if page.startswith("results/"):
            text = f"---\nsearch:\n  exclude: true\n---\n{text}"  # numbers that no search is after
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside the documentation at their pages."""
    where = page.file.src_uri
    home = posixpath.dirname(SOURCES.get(where, f"docs/{where}"))  # the folder that links start from

    def pointed(link: re.Match[str]) -> str:
        text, target, anchor = link.group(1), link.group(2), link.group(3) or ""
        source = posixpath.normpath(posixpath.join(home, target))
        inside = PAGES.get(source) or (source.removeprefix("docs/") if source.startswith("docs/") else None)
        if inside is None:
            return text
        return f"[{text}]({posixpath.relpath(inside, posixpath.dirname(where) or '.')}{anchor})"

    return LINK.sub(pointed, markdown)
