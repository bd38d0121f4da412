"""Code from outside mlcc: Python files that a command loads (`--load`), and entry points of installed packages.

Passes, operators and schedule rules each have a registry; what a file registers is registered until `unload_all`. Code
of both kinds runs with the user's rights. Its exceptions are diagnostics at the innermost line of its own.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, MlccError, Source, Span, error
from mlcc.files import read_bytes

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PASSES, OPERATORS, RULES = "mlcc.passes", "mlcc.operators", "mlcc.schedule_rules"  # the groups of entry points
_GROUPS = (PASSES, OPERATORS, RULES)
_TRACEBACK_HELP = "MLCC_TRACEBACK=1 shows the traceback"


class NameTaken(ValueError):
    """Raised by a registry for a name that it has already."""


class PluginError(CompileError):
    """Raised for an exception of code from outside mlcc, which is its cause."""


@dataclass
class LoadedFile:
    """A Python file that was run; `undo` removes what it registered."""

    path: str
    module: ModuleType
    source: Source
    digest: str
    undo: list[Callable[[], None]] = field(default_factory=list)


_files: dict[str, LoadedFile] = {}  # by absolute path
_running: list[LoadedFile] = []  # the file that is being loaded
_imported: set[str] = set()  # modules that loaded files imported
_values: dict[tuple[str, str], Any] = {}  # what entry points name, by group and name
_packages: set[str] = set()  # folders, or files, of the packages whose entry points were loaded


# ---------------------------------------------------------------- files


def load_file(path: str, register: Callable[[LoadedFile], None]) -> None:
    """Run a Python file, then `register` for what it defines. A file that is loaded already is left alone.

    Raises CompileError: E0001 for a file that cannot be read, E0550 with its place for one that fails, E0551 for a name
    that is taken; nothing of the file is then registered.
    """
    full = os.path.abspath(path)
    if full in _files:
        return
    if not path.endswith(".py"):
        help = "--load takes Python files: programs are given as FILE, schedules as --script FILE"
        raise CompileError(error("E0550", f"{path} is not a Python file (.py)", help=help, file=path))
    data = read_bytes(path)
    name = f"mlcc_loaded_{len(_files)}_{os.path.splitext(os.path.basename(path))[0]}"
    module = ModuleType(name)
    module.__file__ = full
    source = Source(path, data.decode("utf-8", "replace"))
    import hashlib

    loaded = LoadedFile(path, module, source, hashlib.sha256(data).hexdigest())
    before = set(sys.modules)
    _files[full], sys.modules[name] = loaded, module
    _running.append(loaded)
    try:
        exec(compile(data, full, "exec", dont_inherit=True), module.__dict__)
        register(loaded)
    except BaseException as exc:
        problem = None if isinstance(exc, MlccError) else _load_failure(exc, loaded)
        _unload(full)
        if problem is None:
            raise
        raise problem from exc
    finally:
        _running.pop()
        _imported.update(set(sys.modules) - before - {name})


def _load_failure(exc: BaseException, loaded: LoadedFile) -> MlccError | None:
    """Return the error for an exception of a file that is loaded; None for an interruption."""
    if isinstance(exc, SyntaxError) and _innermost(exc) is None:
        span = _line_span(loaded.source, exc.lineno or 1, (exc.offset or 1) - 1, None)
        return PluginError(error("E0550", f"{loaded.path} is not valid Python: {exc.msg}", span))
    if not isinstance(exc, (Exception, SystemExit)):
        return None
    span = _innermost(exc) or Span(loaded.source, 0, 0)
    if isinstance(exc, NameTaken):
        return PluginError(error("E0551", str(exc), span, help="rename it"))
    text = f"{loaded.path} failed: {_describe(exc)}"
    return PluginError(error("E0550", text, span, help=_TRACEBACK_HELP))


def unload_all() -> None:
    """Remove what files registered, the latest first."""
    for full in reversed(list(_files)):
        _unload(full)


def _unload(full: str) -> None:
    loaded = _files.pop(full)
    for undo in reversed(loaded.undo):
        undo()
    sys.modules.pop(loaded.module.__name__, None)


def on_unload(undo: Callable[[], None]) -> None:
    """Have a registration undone when the file that is being loaded, if any, is unloaded."""
    if _running:
        _running[-1].undo.append(undo)


def loaded_paths() -> list[str]:
    """Return the paths of the loaded files, as they were given."""
    return [loaded.path for loaded in _files.values()]


def class_span(cls: type) -> Span | None:
    """Return the place of a class's name in the loaded file that defines it."""
    for loaded in _files.values():
        if loaded.module.__name__ == cls.__module__:
            for node in ast.walk(ast.parse(loaded.source.text)):
                if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                    return _line_span(loaded.source, node.lineno, node.col_offset, None)
    return None


# ---------------------------------------------------------------- installed packages


@functools.cache
def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name. Nothing is imported.

    Raises CompileError E0551 for a name that two packages have.
    """
    found: dict[str, EntryPoint] = {}
    if not _any_installed():
        return found
    from importlib.metadata import entry_points

    for entry in sorted(set(entry_points(group=group)), key=lambda e: (e.name, e.value)):
        other = found.setdefault(entry.name, entry)
        if other is not entry:
            message = f"two packages have `{entry.name}` in {group}: {owner(other)} and {owner(entry)}"
            raise CompileError(error("E0551", message, help="uninstall one of them"))
    return found


def owner(entry: EntryPoint) -> str:
    """Return the package of an entry point, and what it names there."""
    return f"{entry.dist.name} ({entry.value})" if entry.dist is not None else entry.value


@functools.cache
def _any_installed() -> bool:
    """Return True if an installed package has entry points of mlcc's. Quicker than importing importlib.metadata."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            # Python lists an archive of its own library, which hardly any installation has
            if folder.endswith((".zip", ".egg", ".whl")) and os.path.exists(folder):
                return True
            continue
        for name in names:
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if any(f"[{group}]".encode() in data for data in [file.read()] for group in _GROUPS):
                        return True
            except OSError:
                continue
    return False


def load_installed(group: str, name: str, check: Callable[[Any], str | None]) -> Any:
    """Import what an entry point names; None if there is none. `check` says what is wrong with it, if anything.

    Raises CompileError E0552 if it cannot be imported or is wrong.
    """
    entry = installed(group).get(name)
    if entry is None or (group, name) in _values:
        return _values.get((group, name))
    try:
        value = entry.load()
    except Exception as exc:
        message = f"`{name}` of the package {owner(entry)} cannot be loaded: {_describe(exc)}"
        raise PluginError(error("E0552", message, help=_TRACEBACK_HELP)) from exc
    problem = check(value)
    if problem is not None:
        raise CompileError(error("E0552", f"`{name}` of the package {owner(entry)} {problem}"))
    place = _place(entry.value)
    if place is not None:
        _packages.add(place)
    _values[group, name] = value
    return value


def _place(value: str) -> str | None:
    """Return the folder of the package of an entry point, or the file if it is a single module."""
    from importlib.util import find_spec

    spec = find_spec(value.partition(":")[0].strip().partition(".")[0])
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return folders[0] if folders else spec.origin


def forget_installed() -> None:
    """Look for installed packages again."""
    installed.cache_clear()
    _values.clear()
    _any_installed.cache_clear()


# ---------------------------------------------------------------- cache keys


def state() -> list[Any]:
    """Return the part of a cache key for code from outside: loaded files by content, and files that they imported and
    installed packages by path, size and time."""
    loaded: list[Any] = []
    for full, file in _files.items():
        loaded.append([full, file.digest])
    for name in sorted(_imported):
        origin = getattr(sys.modules.get(name), "__file__", None)
        top = name.partition(".")[0]
        if origin is not None and top != "mlcc" and top not in sys.stdlib_module_names:
            loaded += _file_states(origin)
    packages: list[Any] = []
    for group in _GROUPS:
        for entry in installed(group).values():
            packages.append([group, entry.name, entry.value, entry.dist.version if entry.dist is not None else ""])
            place = _place(entry.value)
            if place is not None:
                packages += _file_states(place)
    return [loaded, packages] if loaded or packages else []


def _file_states(place: str) -> Iterator[list[Any]]:
    """Yield [path, size, time] of a file, or of all Python files below a folder."""
    if os.path.isdir(place):
        for folder, folders, names in os.walk(place):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".py", ".so")):
                    yield from _file_states(os.path.join(folder, name))
    elif os.path.isfile(place):
        status = os.stat(place)
        yield [place, status.st_size, status.st_mtime_ns]


# ---------------------------------------------------------------- places of exceptions


def failure(exc: BaseException, what: str | None = None, at_fault: object = None) -> PluginError | None:
    """Return the error for an exception inside code from outside mlcc; None if none of it was running.

    `what` begins the message, by default it names the file. `at_fault` is a class to which an exception that was raised
    elsewhere belongs, if the class is from outside.
    """
    span = _innermost(exc)
    if span is None:
        if not isinstance(at_fault, type) or not is_foreign(at_fault):
            return None
        span = class_span(at_fault)
    what = what or (f"{span.source.name} failed" if span is not None else "code from outside mlcc failed")
    return PluginError(error("E0553", f"{what}: {_describe(exc)}", span, help=_TRACEBACK_HELP))


def is_foreign(owner: Any) -> bool:
    """Return True for a class or function of a loaded file or an installed package."""
    module = sys.modules.get(getattr(owner, "__module__", "") or "")
    return module is not None and _source_of(getattr(module, "__file__", None) or "") is not None


def _describe(exc: BaseException) -> str:
    text = str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _innermost(exc: BaseException) -> Span | None:
    """Return the place of the innermost frame of an exception that is code from outside."""
    found: Span | None = None
    trace: TracebackType | None = exc.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        source = _source_of(code.co_filename)
        if source is not None:
            found = _frame_span(source, code, trace)
        trace = trace.tb_next
    return found


def _source_of(filename: str) -> Source | None:
    """Return the text of a file from outside: a loaded one, or one of an installed package that is in use."""
    if filename in _files:
        return _files[filename].source
    if any(filename == place or filename.startswith(place + os.sep) for place in _packages):
        try:
            with open(filename, encoding="utf-8", errors="replace") as file:
                return Source(filename, file.read())
        except OSError:
            return Source(filename, "")
    return None


def _frame_span(source: Source, code: CodeType, trace: TracebackType) -> Span:
    positions = list(code.co_positions())
    at = trace.tb_lasti // 2
    line, last, start, end = positions[at] if 0 <= at < len(positions) else (None, None, None, None)
    if line is None or start is None:
        return _line_span(source, trace.tb_lineno, None, None)
    text = _line(source, line).encode()
    column = len(text[:start].decode(errors="replace"))
    stop = len(text[:end].decode(errors="replace")) if last == line and end is not None else None
    return _line_span(source, line, column, stop)


def _line_span(source: Source, line: int, start: int | None, end: int | None) -> Span:
    """Return the span of columns of a line (both 0-based, `end` exclusive), by default to the ends of its text."""
    lines = source.text.split("\n")
    offset = sum(len(before) + 1 for before in lines[: line - 1])
    text = _line(source, line)
    first = len(text) - len(text.lstrip()) if start is None else min(start, len(text))
    return Span(source, offset + first, offset + (len(text) if end is None else end))


def _line(source: Source, line: int) -> str:
    lines = source.text.split("\n")
    return lines[line - 1].rstrip("\r") if 0 < line <= len(lines) else ""
