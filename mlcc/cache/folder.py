"""A persistent cache: a private folder of files, each named by the hash of all inputs of its content.

Any number of processes may read and write it concurrently: a file is written under a temporary name and renamed, and
readers verify the hash of its content. A failure never fails a command: without a safe folder, or with a full disk,
there is no cache.

MLCC_CACHE=0 switches it off, MLCC_CACHE_DIR is its folder (default: `mlcc` in XDG_CACHE_HOME or ~/.cache), and
MLCC_CACHE_SIZE its limit in MiB (1024). Eviction is least recently used first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mlcc.runtime.settings import is_off

Buffer = bytes | bytearray | memoryview

SWITCH, PLACE, SIZE = "MLCC_CACHE", "MLCC_CACHE_DIR", "MLCC_CACHE_SIZE"
SUFFIX = ".kept"
_MAGIC = b"mlcc 1 "  # followed by the hash of the content and a newline
_HEADER_SIZE = len(_MAGIC) + 64 + 1
_ENTRY = re.compile(r"[0-9a-f]{64}\.kept")  # other files in the folder are ignored
_STALE_SECONDS = 3600.0  # age at which a temporary file is considered abandoned


class CacheStatistics(NamedTuple):
    """The size of a cache and its limit, in bytes."""

    folder: str
    entries: int
    bytes: int
    limit: int


class FileCache:
    """The files of one folder, by key (hexadecimal)."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    def get(self, key: str) -> bytes | None:
        """Return the content stored under a key; None if it is absent or damaged."""
        path = self._path(key)
        try:
            if not is_private(path, stat.S_ISREG):
                return None
            with open(path, "rb") as file:
                header, content = file.read(_HEADER_SIZE), file.read()
            if header != _header((content,)):
                return None
            os.utime(path)  # marks it as most recently used
        except OSError:
            return None
        return content

    def put(self, key: str, *pieces: Buffer, trim: bool = True) -> None:
        """Store content, given in pieces, unless it is larger than a quarter of the limit.

        Without `trim`, call `trim` later: it scans every entry.
        """
        if sum(map(len, pieces)) > self.limit // 4:
            return
        temporary = os.path.join(self.folder, f".{key}.{os.getpid()}.{time.monotonic_ns()}")
        with contextlib.suppress(OSError):
            try:
                handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with open(handle, "wb") as file:
                    file.write(_header(pieces))
                    file.writelines(pieces)
                os.replace(temporary, self._path(key))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        if trim:
            self.trim()

    def stat(self) -> CacheStatistics:
        """Return the number of entries and their size."""
        sizes = [size for _, size, _ in self._files()]
        return CacheStatistics(self.folder, len(sizes), sum(sizes), self.limit)

    def clear(self) -> int:
        """Remove all entries. Return their number."""
        removed = 0
        for _, _, path in self._files():
            with contextlib.suppress(OSError):
                os.unlink(path)
                removed += 1
        self._sweep(0)
        return removed

    # ------------------------------------------------------------ parts

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, key + SUFFIX)

    def _files(self) -> list[tuple[float, int, str]]:
        """Return (time of last use, size, path) of every entry."""
        files = []
        for entry in self._entries():
            if _ENTRY.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, entry.path))
        return files

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            yield from entries

    def trim(self) -> None:
        """Evict entries down to three quarters of the limit if the cache exceeds it."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        if total <= self.limit:
            return
        self._sweep(_STALE_SECONDS)
        for _, size, path in sorted(files):
            if total <= self.limit * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size

    def _sweep(self, age: float) -> None:
        """Remove temporary files of writers that were interrupted."""
        limit = time.time() - age
        for entry in self._entries():
            with contextlib.suppress(OSError):
                if entry.name.startswith(".") and entry.stat(follow_symlinks=False).st_mtime <= limit:
                    os.unlink(entry.path)


def default_cache() -> FileCache | None:
    """Return the cache of compiled programs; None if it is disabled or has no private folder."""
    if is_off(SWITCH):
        return None
    folder = private_folder(os.environ.get(PLACE) or None, "compiled")
    size = os.environ.get(SIZE, "")
    limit = int(size) if size.isascii() and size.isdigit() and len(size) < 10 else 1024
    return None if folder is None or limit == 0 else FileCache(folder, limit << 20)


def private_folder(base: str | None = None, *below: str) -> str | None:
    """Return a folder that only this user can write, creating it if needed; None if there is none."""
    folders = _folders(base, below)
    return folders[-1] if all(_fault(folder) is None for folder in folders) else None


def unusable_folder(base: str | None = None, *below: str) -> str | None:
    """Return the reason why `private_folder` returns None; None if it returns a folder."""
    return next(filter(None, map(_fault, _folders(base, below))), None)


def _folders(base: str | None, below: tuple[str, ...]) -> list[str]:
    """The folder at `base`, or the default one, and those below it in turn."""
    if base is None:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "mlcc")
    folders = [os.path.abspath(base)]
    for part in below:
        folders.append(os.path.join(folders[-1], part))
    return folders


def _fault(folder: str) -> str | None:
    """Create a folder if needed, and return what keeps it from being private."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        private = is_private(folder, stat.S_ISDIR)
    except (OSError, ValueError) as exc:
        return f"{folder}: {getattr(exc, 'strerror', None) or exc}"
    return None if private else f"{folder} is a link, belongs to another user, or others may write it"


def is_private(path: str, kind: Callable[[int], bool]) -> bool:
    """Return True for a path of this user, of the kind (no link), not writable by group or others. Raises OSError."""
    status = os.lstat(path)
    is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return bool(kind(status.st_mode)) and is_own and not status.st_mode & 0o022


def _header(pieces: Iterable[Buffer]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return _MAGIC + digest.hexdigest().encode() + b"\n"
