"""Code of the user's own: a file, or an installed package, that registers heads and datasets when it is imported.

Nothing is run unless it was asked for: by ``fiveshot --plugin FILE``, by the environment variable
``FIVESHOT_PLUGINS``, by :func:`load_plugin`, or by an installed package with an entry point of the group
``fiveshot.plugins``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, NoReturn

from fiveshot.errors import InputError, unknown_name

VARIABLE = "FIVESHOT_PLUGINS"  # files, separated as in PATH
GROUP = "fiveshot.plugins"  # entry points that name a module

_loaded: dict[Path, ModuleType] = {}
_imported: set[EntryPoint] = set()
_lock = threading.RLock()  # re-entrant: a plugin may itself look a name up


class _UncachedLoader(SourceFileLoader):
    """Compiles the file every time: bytecode is told apart by whole seconds, too coarse for a file under work."""

    def path_stats(self, path: Any) -> NoReturn:
        """Raise what a file without a date would."""
        raise OSError(f"no bytecode is kept of {path}")


def load_plugin(path: str | os.PathLike[str], *, again: bool = False) -> ModuleType:
    """Import one Python file, which registers what it brings; a second time does nothing, unless ``again``.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.py"
    >>> _ = file.write_text("ANSWER = 42")
    >>> load_plugin(file).ANSWER
    42
    """
    file = _plugin_file(path)
    with _lock:
        if file in _loaded and not again:
            return _loaded[file]
        before = _loaded.get(file)
        try:
            return _run(file)
        except Exception as error:
            _restore(file, before)
            raise InputError(f"the plugin {file} cannot be used: {_said(error, file)}") from error


def load_plugins() -> None:
    """Import all plugins that the environment names and those of installed packages, each once per process.

    Names that are not known are looked up after this, so that it need not be called by hand.

    >>> load_plugins()
    """
    with _lock:
        for file in _named_files():
            load_plugin(file)
        for entry in entry_points(group=GROUP):
            if entry not in _imported:
                _import_entry(entry)


def plugin_files() -> tuple[str, ...]:
    """Return the plugin files that are loaded or named in the environment, for a process elsewhere to load.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.py"
    >>> _ = file.write_text("ANSWER = 42")
    >>> _ = load_plugin(file)
    >>> Path(plugin_files()[-1]).name
    'mine.py'
    """
    return tuple(dict.fromkeys([*map(str, _named_files()), *map(str, _loaded)]))


def name_plugins(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Add files to the environment variable, so that this process and those it starts find them.

    >>> name_plugins(["my_head.txt"])
    Traceback (most recent call last):
    fiveshot.errors.InputError: no such plugin: .../my_head.txt; give the path of a Python file
    """
    files = [str(_plugin_file(path)) for path in paths]
    for file in files:
        if os.pathsep in file:
            raise InputError(f"the path of a plugin cannot contain {os.pathsep!r}: {file}; move it elsewhere")
    if files:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*map(str, _named_files()), *files]))


def unknown_or_unloaded(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """Return the error for an unknown name; where it resembles no known one, it may be one of a plugin.

    >>> print(unknown_or_unloaded("head", "mine", ["ncm", "ranpac"]))
    no head 'mine'; choose from ncm, ranpac, or name the file that brings it with --plugin or FIVESHOT_PLUGINS
    """
    error = unknown_name(kind, name, choices)
    if "did you mean" in str(error):
        return error
    return InputError(f"{error}, or name the file that brings it with --plugin or {VARIABLE}")


def same_origin(one: Any, other: Any) -> bool:
    """Tell whether two functions or classes come from one module or one file, as those of a reloaded one do.

    >>> same_origin(load_plugin, load_plugins), same_origin(load_plugin, Path)
    (True, False)
    """
    one, other = _unwrapped(one), _unwrapped(other)
    if one is other or one.__module__ == other.__module__:
        return True
    file = defining_file(one)
    return file is not None and file == defining_file(other)


def defining_file(thing: Any) -> Path | None:
    """Return the file in which a function or a class is defined; None for what was typed into an interpreter.

    >>> defining_file(load_plugin).name
    'plugins.py'
    """
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    return Path(file).resolve() if file else None


def _unwrapped(thing: Any) -> Any:
    return _unwrapped(thing.func) if isinstance(thing, partial) else thing


def _named_files() -> list[Path]:
    return [Path(part).resolve() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


def _plugin_file(path: str | os.PathLike[str]) -> Path:
    file = Path(path).resolve()
    if not file.is_file():
        raise InputError(f"no such plugin: {file}; give the path of a Python file")
    if file.suffix != ".py":
        raise InputError(f"the plugin {file} is not a Python file; its name must end in .py")
    return file


def _run(file: Path) -> ModuleType:
    # The same file has the same name in every process, and no other module has it.
    name = f"fiveshot_plugin_{file.stem}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:8]}"
    loader = _UncachedLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None, "a location with a loader always has a specification"
    module = importlib.util.module_from_spec(spec)
    _loaded[file] = sys.modules[name] = module
    loader.exec_module(module)
    return module


def _restore(file: Path, before: ModuleType | None) -> None:
    failed = _loaded.pop(file, None)
    if failed is not None:
        sys.modules.pop(failed.__name__, None)
    if before is not None:
        _loaded[file] = sys.modules[before.__name__] = before


def _import_entry(entry: EntryPoint) -> None:
    _imported.add(entry)
    try:
        entry.load()
    except Exception as error:
        _imported.discard(entry)
        package = entry.dist.name if entry.dist else "an installed package"
        raise InputError(
            f"the plugin {entry.value} of {package} cannot be used: {_said(error)}; repair or uninstall it"
        ) from error


def _said(error: Exception, file: Path | None = None) -> str:
    """Say what went wrong, and in which line of the file."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if file and frame.filename == str(file)]
    what = str(error)
    if isinstance(error, SyntaxError) and file and error.filename == str(file):
        lines, what = [error.lineno], error.msg
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{what}" if isinstance(error, InputError) else f"{where}{type(error).__name__}: {what}"
