"""Build a release and check it as somebody will meet it; nothing is uploaded.

python tools/release.py [--out dist] [--only python3.12 ...]

Builds what is committed, twice, in two places: the bytes must be the same. Then size, description (twine), version
and changelog, license of every shipped file (NOTICE.md), a list of parts (CycloneDX), an installation without a
compiler and the everyday path on every Python that is here, and types as pyright shows them to a user. It ends
with status 1 at the first check that fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 30_000_000  # bytes of the wheel
KNOWN = 0.94  # of the names in all modules, those whose types are written down and not only inferred
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CODE = ("*.py", "*.dist-info/*")
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
EVERYDAY = (
    "data samples samples",
    "new things",
    "learn things samples/learn",
    "predict things samples/test/fish/1.jpg",
    "evaluate things samples/test",
    "review things",
    "export things things.fiveshot",
    "import things.fiveshot copy",
    "check copy",
    "bench cub200/big --methods ncm --seeds 1",
)


class Failed(Exception):
    """A check that a release must pass."""


@dataclass(frozen=True)
class Shipped:
    """A row of NOTICE.md: which files, what they are, under which license, and where they come from."""

    pattern: str
    what: str
    license: str
    origin: str


def must(holds: bool, otherwise: str) -> None:
    """Fail with a sentence unless something holds."""
    if not holds:
        raise Failed(otherwise)


def run(words: Sequence[str | Path], **how: object) -> str:
    """Run a program that must succeed; return what it printed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **how)
    must(done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def version() -> str:
    """Return the version that the package says it has."""
    text = (ROOT / "src" / "fiveshot" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)[0]


def check_changelog(text: str, current: str) -> None:
    """Fail unless the changelog begins with this version, and a date."""
    first = next((line for line in text.splitlines() if line.startswith("## ")), "")
    must(re.fullmatch(rf"## {re.escape(current)} \(\d{{4}}-\d\d-\d\d\)", first) is not None,
         f"CHANGELOG.md begins with {first!r}, not with '## {current} (DATE)'")  # fmt: skip


def built(commit: str, folder: Path, *, age: float) -> list[Path]:
    """Build a commit, from a copy whose files have this age in seconds; return source archive and wheel."""
    copy, out = folder / "copy", folder / "out"
    copy.mkdir(parents=True)
    archive = folder / "committed.tar"
    run(["git", "-C", ROOT, "archive", "--output", archive, commit])
    with tarfile.open(archive) as packed:
        packed.extractall(copy, filter="data")
    for path in copy.rglob("*"):
        os.utime(path, (time.time() - age,) * 2)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy])
    return sorted(out.iterdir())


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_same(one: Sequence[Path], other: Sequence[Path]) -> None:
    """Fail unless two builds have the same files, byte for byte."""
    sums = [{path.name: digest(path) for path in files} for files in (one, other)]
    must(sums[0] == sums[1], f"two builds differ: {sums}")


def shipped(notice: str) -> list[Shipped]:
    """Return the rows of NOTICE.md."""
    return [Shipped(*(part.strip() for part in row)) for row in ROW.findall(notice)]


def check_licenses(names: Iterable[str], rows: Sequence[Shipped]) -> dict[str, Shipped]:
    """Return the row of every file that is not code; fail if a file has no row, or a row has no file."""
    others = [name for name in names if not any(fnmatch(name, pattern) for pattern in CODE)]
    found = {name: row for name in others for row in rows if fnmatch(name, row.pattern)}
    missing = sorted(set(others) - set(found))
    must(not missing, f"NOTICE.md says nothing of {', '.join(missing)}")
    idle = [row.pattern for row in rows if row not in found.values()]
    must(not idle, f"NOTICE.md names files that are not shipped: {', '.join(idle)}")
    return found


def installed(python: str, wheel: Path, folder: Path) -> Path:
    """Install a wheel into an empty environment, from wheels alone and without a compiler; return its programs."""
    run([python, "-m", "venv", folder])
    without = os.environ | {"CC": "/bin/false", "CXX": "/bin/false", "PYTHONPATH": ""}
    run([folder / "bin" / "pip", "install", "--quiet", "--only-binary=:all:", wheel], env=without)
    return folder / "bin"


def check_wheels(wanted: str, wheel: Path, folder: Path) -> None:
    """Fail unless all that a wheel requires can be had as wheels for a Python that is not here."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    run([*words, "--target", folder, "--python-version", wanted, "--only-binary=:all:", wheel])


def check_everyday(programs: Path, folder: Path) -> None:
    """Fail unless the everyday path works in an empty folder, with nothing but the installation."""
    folder.mkdir()
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    for command in EVERYDAY:
        said = run([programs / "fiveshot", *command.split()], cwd=folder, env=environment)
        if command.startswith("predict"):
            must(": fish " in said, f"{command} answered {said}")


def parts(programs: Path, wheel: Path, found: dict[str, Shipped], target: Path) -> int:
    """Write the list of parts: what pip installed, and what the wheel carries; return how many there are."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    words = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", ROOT / "pyproject.toml"]
    made = run([*words, "--mc-type", "library", "--output-reproducible", programs / "python"])
    bom = Bom.from_json(json.loads(made))
    bom.metadata.component.version = version()  # pyproject.toml does not say it
    for name, row in found.items():
        if not name.endswith((".safetensors", ".onnx", ".js", ".mjs", ".wasm.gz")):
            continue
        with zipfile.ZipFile(wheel) as archive:
            content = hashlib.sha256(archive.read(name)).hexdigest()
        is_model = name.endswith((".safetensors", ".onnx"))
        kind = ComponentType.MACHINE_LEARNING_MODEL if is_model else ComponentType.FILE
        kind = ComponentType.DATA if "/packs/" in name else kind
        bom.components.add(
            Component(
                name=name,
                type=kind,
                description=f"{row.what}; {row.origin}",
                licenses=[LicenseExpression(row.license)],
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content)],
            )
        )
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    must(wrong is None, f"the list of parts is not valid: {wrong}")
    target.write_text(text + "\n", encoding="utf-8")
    return len(bom.components)


def check_types(programs: Path, folder: Path) -> None:
    """Fail where pyright, as strict as it can be, does not know a type in a program of a user."""
    run([programs / "pip", "install", "--quiet", "--only-binary=:all:", "httpx"])
    folder.mkdir()
    shutil.copy(ROOT / "tools" / "user_program.py", folder)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": ""}
    pyright = Path(sys.executable).parent / "pyright"
    run([pyright, "--pythonpath", programs / "python", "user_program.py"], cwd=folder, env=environment)
    # Its status is 1 where not all of them are known.
    words = [pyright, "--verifytypes", "fiveshot", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
    known = json.loads(done.stdout)["typeCompleteness"]["completenessScore"]
    must(known >= KNOWN, f"pyright knows the types of {known:.1%} of all names, not of {KNOWN:.0%}")


def pythons(only: Sequence[str]) -> dict[str, str]:
    """Return the interpreters that are here by version, those of pyenv among them."""
    found = {}
    for wanted in only or PYTHONS:
        beside = sorted(Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python"))
        for program in (*beside[-1:], f"python{wanted}"):  # a name may be a shim of pyenv's that leads nowhere
            words = [program, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
            try:
                said = subprocess.run(words, capture_output=True, text=True).stdout
            except OSError:
                continue
            if said.strip() == wanted:
                found.setdefault(wanted, str(program))
    return found


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", nargs="*", default=[], metavar="VERSION", help="Pythons to install it on")
    given = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    current = version()
    check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), current)
    changed = run(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no"])
    say(f"fiveshot {current}" + ("; what is not committed is left out" if changed else ""))
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        commit = run(["git", "-C", ROOT, "rev-parse", "HEAD"]).strip()
        first, second = built(commit, folder / "one", age=0), built(commit, folder / "two", age=9e6)
        check_same(first, second)
        say("built twice: the same bytes")
        wheel = next(path for path in first if path.suffix == ".whl")
        must(wheel.stat().st_size < LIMIT, f"{wheel.name} has {wheel.stat().st_size:,} bytes of {LIMIT:,}")
        run([sys.executable, "-m", "twine", "check", "--strict", *first])
        say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB; its description is sound")
        with zipfile.ZipFile(wheel) as archive:
            rows = shipped((ROOT / "NOTICE.md").read_text(encoding="utf-8"))
            found = check_licenses(archive.namelist(), rows)
        say(f"{len(found)} files that are not code have a license")
        here = pythons(given.only)
        must(bool(here), f"none of Python {', '.join(PYTHONS)} is here")
        for wanted, python in here.items():
            programs = installed(python, wheel, folder / wanted)
            check_everyday(programs, folder / f"{wanted}-use")
            say(f"Python {wanted}: installed without a compiler, the everyday path works")
        for wanted in sorted(set(given.only or PYTHONS) - set(here)):
            check_wheels(wanted, wheel, folder / wanted)
            say(f"Python {wanted} is not here; what is required can be had as wheels")
        given.out.mkdir(exist_ok=True)
        count = parts(programs, wheel, found, given.out / f"fiveshot-{current}.cdx.json")
        say(f"fiveshot-{current}.cdx.json: {count} parts")
        check_types(programs, folder / "types")
        say("types are known: a user's program has none that pyright misses")
        for path in first:
            shutil.copy(path, given.out)
            say(f"{digest(path)}  {path.name}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"error: {failure}")
