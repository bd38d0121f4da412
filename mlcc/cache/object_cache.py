"""The cache of objects compiled from text files: a repeated compilation only reads one file.

The key of an entry covers the text, the options, the machine if the target is native, and the compiler itself. An entry
lists other files that the compilation read (weights, scripts, rules), with their hashes: a changed file is a miss.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from mlcc.cache.folder import PLACE, SIZE, SWITCH, Buffer, FileCache, default_cache
from mlcc.files import read_bytes, record_cached_reads, recording_reads

_FORMAT = 1
_CPU_LINES = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features")
# environment variables that do not affect results
_IRRELEVANT_VARIABLES = (SWITCH, PLACE, SIZE, "MLCC_JOBS", "MLCC_CPU")
_FOLDERS = ("mlcc", "grammar", "passes", "targets", "runtime")


def cached_object(
    path: str, options: dict[str, Any], make: Callable[[], Sequence[Buffer]], keep: Callable[[], bool] = lambda: True
) -> Sequence[Buffer]:
    """Return the object of a text file with options (plain data) in pieces: from the cache, else from `make`.

    Stores the result of `make` if `keep()` is then true. Raises the exceptions of `make`; failures are not stored.
    """
    cache = default_cache() if path != "-" and os.path.isfile(path) else None
    if cache is None:
        return make()
    key = entry_key(path, options)
    cached = _read(cache, key)
    if cached is not None:
        return [cached]
    with recording_reads() as reads:
        pieces = make()
    if not keep():
        return pieces
    head = json.dumps(reads).encode()
    cache.put(key, b"%d\n" % len(head), head, *pieces)
    return pieces


def _read(cache: FileCache, key: str) -> bytes | None:
    """Return the object of an entry if all files that it depends on are unchanged."""
    data = cache.get(key)
    if data is None:
        return None
    line = data.index(b"\n") + 1
    start = line + int(data[:line])
    reads = json.loads(data[line:start])
    for path, digest in reads.items():
        try:
            with open(path, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return None
        except OSError:
            return None
    record_cached_reads(reads)
    return data[start:]


def entry_key(path: str, options: dict[str, Any]) -> str:
    """Return the cache key of a text's object: a hash of all its inputs except other files."""
    native = "native" in str(options.get("target", ""))
    inputs = [
        _FORMAT, compiler(), os.path.abspath(path), options, machine_key() if native else "",
        {k: v for k, v in sorted(os.environ.items()) if k.startswith("MLCC_") and k not in _IRRELEVANT_VARIABLES},
    ]  # fmt: skip
    text = json.dumps(inputs, sort_keys=True).encode()
    return hashlib.sha256(text + b"\0" + read_bytes(path)).hexdigest()


def covers_target(target: str) -> bool:
    """Return True if `compiler` covers the backend of a target; False for the backend of another package."""
    kind = target.strip().partition("{")[0].split(" ")[0]
    backend_file = os.path.join("targets", kind, "backend.py")
    return any(isinstance(entry, tuple) and str(entry[0]).endswith(backend_file) for entry in compiler())


def code_key(parts: list[Any]) -> str:
    """Return the hash of the compiler and plain data from which machine code is generated."""
    return hashlib.sha256(_compiler_hash() + json.dumps(parts).encode()).hexdigest()


@functools.cache
def _compiler_hash() -> bytes:
    return hashlib.sha256(json.dumps([_FORMAT, compiler()]).encode()).digest()


@functools.cache
def compiler() -> list[object]:
    """Return the compiler's part of a cache key: its version; sizes and times of its files and of LLVM's binding."""
    import importlib.util

    import mlcc

    facts: list[object] = [mlcc.__version__]
    base = os.path.dirname(mlcc.__file__)
    archive = getattr(mlcc.__loader__, "archive", None)
    if archive is not None:  # imported from a .zip
        facts.append(_file_state(archive))
    for part in _FOLDERS if archive is None else ():
        folder = base if part == "mlcc" else os.path.join(base, part)
        if not os.path.isdir(folder):
            folder = os.path.join(os.path.dirname(base), part)  # a checkout
        facts += _files(folder)
    for name in ("llvmlite", "numpy"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            facts.append((name, *_file_state(spec.origin)))
    return facts


def _file_state(path: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns


def _files(folder: str) -> list[object]:
    """(path, size, time) of the sources in a folder and those below."""
    sources: list[object] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.name.endswith((".py", ".lark", ".ll", ".mlc")):
                status = entry.stat()
                sources.append((entry.path, status.st_size, status.st_mtime_ns))
            elif entry.is_dir() and not entry.name.startswith((".", "__")):
                sources += _files(entry.path)
    return sources


def machine_key() -> list[object]:
    """Return the machine's part of the cache key of a native target: the CPU's features, caches and cores."""
    import platform

    from mlcc.machine.host import caches, num_cores

    lines: list[str] = []
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break
                name = line.partition(":")[0].strip()
                if name in _CPU_LINES or name.startswith("CPU "):  # the latter on aarch64
                    lines.append(line)
    except OSError:
        lines.append(platform.processor())
    levels = caches()
    return [platform.machine(), lines, [levels.l1, levels.l2, levels.l3, levels.line], num_cores()]
