"""Plugins: files or installed packages that register heads and datasets when they are imported.

Nothing is run unless it was asked for: by ``fiveshot --plugin FILE``, by the environment variable
``FIVESHOT_PLUGINS``, by :func:`load_plugin`, or by an installed package with an entry point of the group
``fiveshot.plugins``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fiveshot.errors import InputError, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

VARIABLE = "FIVESHOT_PLUGINS"  # files, separated as in PATH
GROUP = "fiveshot.plugins"  # entry points that name a module

_loaded: dict[Path, ModuleType] = {}
_imported: set[EntryPoint] = set()
_lock = threading.RLock()  # re-entrant: a plugin may look up a name itself


def load_plugin(path: str | os.PathLike[str]) -> ModuleType:
    """Run a Python file, which registers heads and datasets. Each file runs once in a process.

    Parameters
    ----------
    path : str or PathLike
        The file; its name ends in ``.py``.

    Returns
    -------
    ModuleType
        The module that the file makes.

    Raises
    ------
    InputError
        If there is no such file, or if it raises an error; the message says which, and in which line.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.py"
    >>> _ = file.write_text("ANSWER = 42")
    >>> load_plugin(file).ANSWER
    42
    """
    file = _plugin_file(path)
    with _lock:
        if file not in _loaded:
            try:
                _run(file)
            except Exception as error:
                sys.modules.pop(_loaded.pop(file).__name__, None)
                raise _unusable(f"the plugin {file}", error, file=file) from error
        return _loaded[file]


def load_plugins() -> None:
    """Load all plugins that the environment names and those of installed packages, each once in a process.

    Looking up an unknown name calls this, so users need not call it.

    Raises
    ------
    InputError
        If a plugin cannot be used.

    Examples
    --------
    >>> load_plugins()
    """
    from importlib.metadata import entry_points

    with _lock:
        for file in _named_files():
            load_plugin(file)
        for entry in entry_points(group=GROUP):
            if entry not in _imported:
                _import_entry(entry)


def plugin_files() -> tuple[str, ...]:
    """Return the plugin files that are loaded or named in the environment, so that other processes can load them.

    Returns
    -------
    tuple of str
        Absolute paths.

    Examples
    --------
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

    Parameters
    ----------
    paths : iterable of str or PathLike
        Python files; none of them is run yet.

    Raises
    ------
    InputError
        If there is no such file.

    Examples
    --------
    >>> name_plugins(["my_head.txt"])
    Traceback (most recent call last):
    fiveshot.errors.InputError: no such plugin: .../my_head.txt; give the path of a Python file
    """
    files = [str(_plugin_file(path)) for path in paths]
    for file in files:
        if os.pathsep in file:
            raise InputError(
                f"the path of a plugin cannot contain {os.pathsep!r}: {file}", hint="move it elsewhere"
            )
    if files:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*map(str, _named_files()), *files]))


def unknown_or_unloaded(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """Return the error for an unknown name. If no known name is similar, the hint mentions plugins.

    Parameters
    ----------
    kind : str
        What the name is of, such as ``"head"``.
    name : str
        The name that is not known.
    choices : iterable of str
        The names that are.

    Returns
    -------
    InputError
        The error to raise, with the code ``unknown_name``.

    Examples
    --------
    >>> print(unknown_or_unloaded("head", "mine", ["ncm", "ranpac"]))
    no head 'mine'; choose from ncm, ranpac, or load the file that registers it with --plugin or FIVESHOT_PLUGINS
    """
    elsewhere = f"or load the file that registers it with --plugin or {VARIABLE}"
    return unknown_name(kind, name, choices, elsewhere=elsewhere)


def same_origin(one: Any, other: Any) -> bool:
    """Return whether two functions or classes come from the same module or file.

    A file may be imported under two names, and a cell of a notebook may be run twice: what it registers replaces
    what it registered before.

    Parameters
    ----------
    one, other : function or class
        The two; of a ``functools.partial`` its function counts.

    Returns
    -------
    bool
        True if they have one origin.

    Examples
    --------
    >>> same_origin(load_plugin, load_plugins), same_origin(load_plugin, Path)
    (True, False)
    """
    one, other = _unwrapped(one), _unwrapped(other)
    if one is other or one.__module__ == other.__module__:
        return True
    file = defining_file(one)
    return file is not None and file == defining_file(other)


def defining_file(thing: Any) -> Path | None:
    """Return the file in which a function or a class is defined.

    Parameters
    ----------
    thing : function or class
        What to look up.

    Returns
    -------
    Path or None
        The file; None for what was typed into an interpreter.

    Examples
    --------
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
        raise InputError(f"no such plugin: {file}", hint="give the path of a Python file", code="no_plugin")
    if file.suffix != ".py":
        raise InputError(f"the plugin {file} is not a Python file", hint="its name must end in .py")
    return file


def _run(file: Path) -> None:
    """Run a file as a module; compiled here, because bytecode beside it would outlive an edit within a second."""
    from hashlib import sha256

    # The same file has the same name in every process, and no other module has it.
    module = ModuleType(f"fiveshot_plugin_{file.stem}_{sha256(os.fsencode(file)).hexdigest()[:8]}")
    module.__file__ = str(file)
    _loaded[file] = sys.modules[module.__name__] = module
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))


def _import_entry(entry: EntryPoint) -> None:
    _imported.add(entry)
    try:
        entry.load()
    except Exception as error:
        _imported.discard(entry)
        package = entry.dist.name if entry.dist else "an installed package"
        raise _unusable(f"the plugin {entry.value} of {package}", error, hint="repair or uninstall it") from error


def _unusable(plugin: str, error: Exception, *, file: Path | None = None, hint: str = "") -> InputError:
    """Return the error for a plugin that failed: what went wrong, and in which line of the file."""
    from traceback import extract_tb

    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if file and frame.filename == str(file)]
    what = str(error)
    if isinstance(error, SyntaxError) and file and error.filename == str(file):
        lines, what = [error.lineno], error.msg
    where = f"line {lines[-1]}: " if lines else ""
    kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    return InputError(f"{plugin} cannot be used: {where}{kind}{what}", hint=hint, code="bad_plugin")
