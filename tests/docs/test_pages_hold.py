"""What pages name must exist: what links lead to, commands and options, tests; data and equations can be read."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from existing import CHECKS, complaints
from pages import ROOT, Page, all_pages, read_page, repository_anchors, site_anchors
from shell import programs

PAGES = all_pages()
BY_PATH = {page.path: page for page in PAGES}
LANGUAGES = {"sh", "console", "python", "json", "toml", "yaml", "math", "mermaid", "bibtex", "text"}
SOURCE = ROOT / "src" / "fiveshot"
NAMED_TEST = re.compile(r"`(?:tests/)?((?:\w+/)*test_\w+\.py|(?=::))(?:::(test_\w+))?`")
NAMED_IN_MODULE = re.compile(r"`(\w+(?:\.\w+)?)` in `((?:\w+/)*\w+\.py)`")
NAMED_MODULE = re.compile(r"`(?:src/fiveshot/)?((?:\w+/)+(?!test_)\w+\.py)`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_commands_are_fenced_and_languages_known(page: Page) -> None:
    assert page.indented_commands == []
    assert {block.language for block in page.blocks} <= LANGUAGES


@each_page
def test_links_lead_somewhere(page: Page) -> None:
    missing = [f"{path}#{anchor}" for path, anchor in page.links if not leads_somewhere(page, path, anchor)]
    assert missing == []


def leads_somewhere(page: Page, path: str, anchor: str) -> bool:
    target = (page.path.parent / path).resolve() if path else page.path
    if not target.exists():
        return is_generated(target)
    if not anchor:
        return True
    anchors = repository_anchors if page.path == ROOT / "README.md" else site_anchors
    return target.suffix == ".md" and anchor in anchors(BY_PATH.get(target) or read_page(target))


def is_generated(target: Path) -> bool:
    """Tell whether a page is made when the site is built: the reference of a module or of the command line."""
    known = (SOURCE / target.stem / "__init__.py", SOURCE / f"{target.stem}.py")
    is_module = any(path.is_file() for path in known)
    reference = ROOT / "docs" / "reference"
    return target == reference / "cli.md" or (target.parent == reference / "python" and is_module)


@each_page
def test_commands_and_options_exist(page: Page) -> None:
    typed = [command.text for command in page.commands]
    spoken = [code for code in page.mentioned if code.split()[0] in CHECKS and " " in code]
    wrong = [
        f"{text}: {said}" for text in (*typed, *spoken) for words in programs(text) for said in complaints(words)
    ]
    assert wrong == []


@each_page
def test_modules_that_a_page_names_exist(page: Page) -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    named = {
        (number, module)
        for number, line in page.prose
        for module in NAMED_MODULE.findall(line)
        if module.partition("/")[0] in packages
    }
    missing = [(number, module) for number, module in named if not (SOURCE / module).is_file()]
    assert [found for found in missing if not (ROOT / "tests" / found[1]).is_file()] == []


@each_page
def test_names_that_a_page_finds_in_a_module_are_defined_there(page: Page) -> None:
    for number, line in page.prose:
        for name, module in NAMED_IN_MODULE.findall(line):
            places = [place / module for place in (SOURCE, page.path.parent) if (place / module).is_file()]
            assert any(name in defined_in(place) for place in places), f"{number}: {name} in {module}"


def test_the_architecture_says_where_to_look() -> None:
    page = BY_PATH[ROOT / "docs" / "explanation" / "architecture.md"]
    rows = [line.strip("|").split("|") for _, line in page.prose if line.startswith("|") and "?" in line]
    assert len(rows) >= 12
    for question, files, answer in rows:
        named = re.findall(r"`([\w/]+\.py)`", files + answer)
        known = set[str]().union(*(defined_in(SOURCE / name) for name in named if (SOURCE / name).is_file()))
        wanted = re.findall(r"`(\w+(?:\.\w+)?)`", answer)
        assert [name for name in wanted if name not in known] == [], question


def defined_in(file: Path) -> set[str]:
    """Return the names of a module's functions, classes, methods (with their class) and constants."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.AsyncFunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return found


def test_the_quickstart_shows_every_verb() -> None:
    page = BY_PATH[ROOT / "docs" / "start" / "first-model.md"]
    shown = {words[1] for command in page.commands for words in programs(command.text)}
    assert shown >= {
        "new", "learn", "predict", "evaluate", "rename", "undo", "forget", "show", "check", "export", "import"
    }  # fmt: skip


def test_the_readme_is_short_and_names_backbones_that_exist() -> None:
    page = BY_PATH[ROOT / "README.md"]
    assert len(page.path.read_text(encoding="utf-8").splitlines()) < 160
    models = pytest.importorskip("timm").models
    named = [code for code in page.mentioned if re.fullmatch(r"vit_\w+\.\w+", code)]
    assert len(named) >= 4
    assert [name for name in named if not models.get_pretrained_cfg(name).has_weights] == []


def test_the_page_of_the_api_has_every_request() -> None:
    app = pytest.importorskip("fastapi").FastAPI()
    from fiveshot.service._routes import photo_routes, status_routes
    from fiveshot.service._second_look import second_look_routes
    from fiveshot.service._sightings import sighting_routes

    for routes in (photo_routes, status_routes, second_look_routes, sighting_routes):
        app.include_router(routes)
    known = {(method.upper(), path) for path, ways in app.openapi()["paths"].items() for method in ways}
    spoken = [code.split() for code in BY_PATH[ROOT / "docs" / "reference" / "http.md"].mentioned]
    named = {(words[0], words[1].partition("?")[0]) for words in spoken if len(words) == 2 and words[0].isupper()}
    assert len(known) > 20
    assert known == named


@each_page
def test_tests_that_a_page_names_exist(page: Page) -> None:
    missing, file = [], ""
    for number, line in page.prose:
        for named, test in NAMED_TEST.findall(line):
            file = named or file  # `::test_name` is in the file that was named last
            path = ROOT / "tests" / file
            if not path.is_file() or (test and f"def {test}(" not in path.read_text(encoding="utf-8")):
                missing.append(f"{page.name}:{number}: {file}::{test}")
    assert missing == []


@each_page
def test_data_can_be_read(page: Page) -> None:
    for block in page.blocks:
        if block.language == "toml":
            tomllib.loads(block.text)
        if block.language == "yaml":
            assert isinstance(yaml.safe_load(block.text), dict)
        if block.language == "json":
            try:
                json.loads(block.text)
            except json.JSONDecodeError:  # or one object in each line
                assert all(isinstance(json.loads(line), dict) for line in block.text.splitlines())


@each_page
def test_equations_render(page: Page) -> None:
    convert = pytest.importorskip("latex2mathml.converter").convert
    for block in page.blocks:
        if block.language == "math":
            for equation in filter(str.strip, block.text.split("\n\n")):
                assert "\\" not in convert(equation), f"{page.name}:{block.line}: a command that is not known"
