"""The pages of the documentation as data: their fenced blocks and commands in order, their headings and links.

Everything a reader types is in a fenced block: ``sh`` holds commands, ``console`` holds commands after ``$`` and
their answers, ``python`` holds whole programs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>\S*).*$")
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$")
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
TYPED = re.compile(r"^(?: {4}|\t)\s*(?:fiveshot|python|pip|make|\$|curl|ray) ")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line it begins in."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """What a reader types, and the lines that the page shows for it; None where it shows nothing."""

    text: str
    line: int
    shown: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Page:
    """One page, parted into fenced blocks and the prose around them."""

    path: Path
    blocks: tuple[Block, ...]
    prose: tuple[tuple[int, str], ...]  # number and text of the lines outside of fences

    @property
    def name(self) -> str:
        """The page's path in the repository."""
        return self.path.relative_to(ROOT).as_posix() if self.path.is_relative_to(ROOT) else self.path.name

    @property
    def commands(self) -> tuple[Command, ...]:
        """Everything that is typed into a shell, in order."""
        return tuple(command for block in self.blocks for command in commands_of(block))

    @property
    def indented_commands(self) -> list[str]:
        """Commands that are indented instead of fenced."""
        return [f"{self.name}:{number}: {line.strip()}" for number, line in self.prose if TYPED.match(line)]

    @property
    def mentioned(self) -> list[str]:
        """Code in the prose, such as `fiveshot show MODEL`."""
        text = "\n".join(line for _, line in self.prose)
        return [" ".join(code.split()) for code in CODE.findall(text)]

    @property
    def links(self) -> list[tuple[str, str]]:
        """Path and anchor of every relative link."""
        text = CODE.sub("", "\n".join(line for _, line in self.prose))
        return [link for link in LINK.findall(text) if any(link)]

    def anchors(self, slug: Callable[[str], str], counted: str) -> set[str]:
        """Return what its headings are called in links; equal ones are counted."""
        found: set[str] = set()
        for heading in self.headings:
            name = unique = slug(heading)
            number = 0
            while unique in found:
                number += 1
                unique = f"{name}{counted}{number}"
            found.add(unique)
        return found

    @property
    def headings(self) -> list[str]:
        """The text of its headings, without markup."""
        found = (HEADING.match(line) for _, line in self.prose)
        return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).replace("`", "") for match in found if match]


def site_anchors(page: Page) -> set[str]:
    """Return the anchors that the site (Python-Markdown) gives to the headings."""
    return page.anchors(_site_slug, "_")


def repository_anchors(page: Page) -> set[str]:
    """Return the anchors that a viewer of the repository gives to the headings."""
    return page.anchors(_repository_slug, "-")


def _site_slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _repository_slug(heading: str) -> str:
    return re.sub(r"[^\w\s-]", "", heading.strip().lower()).replace(" ", "-")


def all_pages() -> list[Page]:
    """Return every page that a reader may follow."""
    source = ROOT / "src" / "fiveshot"
    paths = [
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
        *sorted((ROOT / "docs").rglob("*.md")),
        *(*sorted(source.rglob("*CARD.md")), source / "recognizer" / "README.md"),
    ]
    return [read_page(path) for path in paths]


def read_page(path: Path) -> Page:
    """Read a page; a fence that is not closed is an error."""
    return parse(path, path.read_text(encoding="utf-8"))


def parse(path: Path, text: str) -> Page:
    """Part a page into blocks and prose."""
    blocks: list[Block] = []
    prose: list[tuple[int, str]] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        opened = FENCE.match(line)
        if opened is None:
            prose.append((number, line))
            continue
        inside = list(_until(lines, opened["fence"], f"{path}:{number}"))
        blocks.append(Block(opened["language"], dedent("".join(f"{part}\n" for part in inside)), number))
    return Page(path, tuple(blocks), tuple(prose))


def _until(lines: Iterator[tuple[int, str]], fence: str, where: str) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == fence:
            return
        yield line
    raise ValueError(f"{where}: this block is not closed")


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a block; a program or data holds none."""
    if block.language == "sh":
        return _plain_commands(block)
    return _answered_commands(block) if block.language == "console" else []


def _plain_commands(block: Block) -> list[Command]:
    joined = ((line, without_comment(text)) for line, text in _joined(block))
    return [Command(text, line) for line, text in joined if text]


def _answered_commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for line, text in _joined(block):
        if text.startswith("$ "):
            found.append(Command(without_comment(text[2:]), line, ()))
        elif not found:
            raise ValueError(f"line {line}: an answer without a command before it")
        else:
            last = found[-1]
            found[-1] = Command(last.text, last.line, (*(last.shown or ()), text))
    return found


def _joined(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the lines of a block, those that end in a backslash with the next."""
    begun, first = "", 0
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        first = first or number
        if line.endswith("\\"):
            begun += line[:-1].rstrip() + " "
            continue
        yield first, begun + (line.strip() if begun else line.rstrip())
        begun, first = "", 0


def without_comment(text: str) -> str:
    """Return a command without what follows a # that begins a word outside of quotes."""
    quote = ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (place == 0 or text[place - 1].isspace()):
            return text[:place].strip()
    return text.strip()
