"""Reading inputs and writing outputs: clear errors for what is unreadable, and nothing half-written."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, error
from mlcc.temporaries import forget, make_temporary

if TYPE_CHECKING:
    import mmap

    import numpy as np

    from mlcc.runtime.npz import Judge


_reads: ContextVar[tuple[dict[str, str], ...]] = ContextVar("reads", default=())
_seen: ContextVar[set[str] | None] = ContextVar("seen", default=None)

_DESCRIPTORS = re.compile(r"(?:/dev/fd|/proc/(?:self|\d+)(?:/task/\d+)?/fd)/(\d+)")


def read_bytes(path: str) -> bytes:
    """The content of a file; `-` is standard input. Raises CompileError E0001."""
    try:
        if path == "-":
            if sys.stdin is None:
                raise CompileError(error("E0001", "cannot read standard input: it is closed"))
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            data = file.read()
    except OSError as exc:
        raise CompileError(error("E0001", f"cannot read {path}: {exc.strerror or exc}")) from None
    except ValueError as exc:  # a zero byte in the name
        raise CompileError(error("E0001", f"cannot read {path!r}: {exc}")) from None
    note_read(path, data)
    return data


def note_read(path: str, data: bytes | memoryview) -> None:
    """Tell those who record reads of a file and its content."""
    recorders, seen = _reads.get(), _seen.get()
    if seen is not None:
        seen.add(path)
    if recorders:
        full, digest = os.path.abspath(path), hashlib.sha256(data).hexdigest()
        for reads in recorders:
            reads[full] = digest


def note_known_reads(known: Mapping[str, str]) -> None:
    """Tell those who record reads of the files that a result kept earlier was made of."""
    seen = _seen.get()
    if seen is not None:
        seen.update(known)
    for reads in _reads.get():
        reads.update(known)


@contextlib.contextmanager
def recorded_reads() -> Iterator[dict[str, str]]:
    """What `read_bytes` reads inside the block: absolute path -> SHA-256. Blocks nest; each sees all reads."""
    reads: dict[str, str] = {}
    token = _reads.set((*_reads.get(), reads))
    try:
        yield reads
    finally:
        _reads.reset(token)


def watch_reads() -> set[str]:
    """The paths of what `read_bytes` reads from now on, until somebody else watches."""
    seen: set[str] = set()
    _seen.set(seen)
    return seen


# ---------------------------------------------------------------- writing


@dataclass(frozen=True)
class Destination:
    """Where an output really goes: links are followed, `-` and `/dev/stdout` are a descriptor of this process."""

    path: str
    descriptor: int | None = None

    @staticmethod
    def of(path: str) -> Destination:
        """Raises OSError for links in a circle, ValueError for what is no path."""
        if path == "-":
            return Destination(path, 1)
        current = path
        for _ in range(40):
            folder = os.path.realpath(os.path.dirname(current) or ".")
            current = os.path.join(folder, os.path.basename(current))
            found = _DESCRIPTORS.fullmatch(current)
            if found is not None and _is_own(current):
                return Destination(path, int(found[1]))
            if not os.path.islink(current):
                return Destination(current)
            current = os.path.join(folder, os.readlink(current))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def status(self) -> os.stat_result | None:
        """What is there now; None if there is nothing."""
        try:
            return os.stat(self.path) if self.descriptor is None else os.fstat(self.descriptor)
        except (OSError, ValueError):
            return None

    @property
    def is_plain(self) -> bool:
        """Whether it is a file, or will be one: no device, pipe or descriptor."""
        known = None if self.descriptor is not None else self.status()
        return self.descriptor is None and (known is None or stat.S_ISREG(known.st_mode))


def _is_own(path: str) -> bool:
    return not path.startswith("/proc/") or path.startswith(("/proc/self/", f"/proc/{os.getpid()}/"))


Content = bytes | str | Sequence[bytes | bytearray | memoryview]


def write_atomic(path: str, data: Content) -> None:
    """Write a whole file or nothing: a temporary file beside it is renamed over it. `-` is standard output.

    A list is the content in pieces. Links are written through; permissions stay. Raises CompileError E0002.
    """
    write_files({path: data})


def write_files(contents: Mapping[str, Content]) -> None:
    """Write several files, each whole or not at all; none is replaced before all are on the disk.

    Raises CompileError E0002.
    """
    staged: list[tuple[str, str, str]] = []  # path as given, temporary file, place
    path = ""
    try:
        for path, data in contents.items():
            pieces = [data.encode()] if isinstance(data, str) else [data] if isinstance(data, bytes) else data
            to = Destination.of(path)
            if to.descriptor is not None:
                _write_descriptor(to.descriptor, pieces)
            elif not to.is_plain:  # /dev/null, a pipe: no renaming over those
                with open(to.path, "wb") as file:
                    file.writelines(pieces)
            else:
                staged.append((path, *_stage(to, pieces)))
        for path, part, place in staged:  # noqa: B007 - the message names it
            os.replace(part, place)
    except BrokenPipeError:  # the reader of standard output has gone: `main` knows what to do
        raise
    except (OSError, ValueError) as exc:
        shown = "standard output" if path == "-" else path
        reason = getattr(exc, "strerror", None) or exc
        raise CompileError(error("E0002", f"cannot write {shown}: {reason}")) from None
    finally:
        for _, part, _ in staged:
            with contextlib.suppress(OSError):
                os.unlink(part)
            forget(part)


def _write_descriptor(descriptor: int, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
    if descriptor == 1:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.stdout.flush()
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
        return
    with open(os.dup(descriptor), "wb") as file:
        file.writelines(pieces)


def _stage(to: Destination, pieces: Iterable[bytes | bytearray | memoryview]) -> tuple[str, str]:
    """(temporary file with the content and the permissions of the file that it will replace, that file)."""
    folder, name = os.path.split(to.path)
    known = to.status()
    handle, part = make_temporary(folder or ".", name[:40])
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        if known is not None and hasattr(os, "geteuid") and known.st_uid != os.geteuid():
            with contextlib.suppress(OSError):  # only an administrator can
                os.chown(part, known.st_uid, known.st_gid)
        os.chmod(part, known.st_mode & 0o777 if known is not None else 0o666 & ~_umask())
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        forget(part)
        raise
    return part, to.path


def make_folder(path: str) -> None:
    """The folder, and those above it, unless they are there. Raises CompileError E0002."""
    try:
        os.makedirs(path, exist_ok=True)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise CompileError(error("E0002", f"cannot make the folder {path}: {reason}")) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ---------------------------------------------------------------- arrays

_MAPPED = 16 << 20  # bytes from which on an archive is mapped, not read
ALIGNMENT = 64  # of the elements in archives that mlcc writes: a mapped one is used where it lies


class Npz(Mapping[str, "np.ndarray"]):
    """The arrays of an .npz, read when they are asked for. Raises CompileError E0003 for what is not sound."""

    def __init__(self, path: str) -> None:
        from mlcc.runtime.npz import Arrays, Damaged

        self.path = path
        self._read: dict[str, np.ndarray] = {}
        data = _mapped(path)
        if data[:2] != b"PK":
            help = "write it with numpy.savez(path, name=array, ...)"
            raise CompileError(error("E0003", f"{path} is not an .npz file", help=help))
        try:
            self._arrays = Arrays(data)
        except Damaged as exc:
            raise self._wrong(exc) from None
        self.comment = self._arrays.comment

    def read(self, name: str, judge: Judge | None = None) -> np.ndarray:
        """An array. `judge` looks at its shape and dtype before memory is taken for it; it raises what it likes, and
        says whether a declaration fixes the size."""
        from mlcc.runtime.npz import Damaged

        known = self._read.get(name)
        if known is None:
            try:
                self._read[name] = self._arrays.read(name, judge)
            except Damaged as exc:
                raise self._wrong(exc) from None
        elif judge is not None:
            judge(known.shape, known.dtype)
        return self._read[name]

    def _wrong(self, exc: Exception) -> CompileError:
        return CompileError(error("E0003", f"cannot read {self.path}: {exc}"))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays.members)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays.members

    def __len__(self) -> int:
        return len(self._arrays.members)


class Joined(Mapping[str, "np.ndarray"]):
    """The arrays of several .npz files, read when they are asked for.

    Raises CompileError E0004 for a name that two files have.
    """

    def __init__(self, files: Iterable[Npz]) -> None:
        self._files: dict[str, Npz] = {}
        for file in files:
            for name in file:
                if name in self._files:
                    raise CompileError(error("E0004", f"array `{name}` of {file.path} is in an earlier file too"))
                self._files[name] = file

    def read(self, name: str, judge: Judge | None = None) -> np.ndarray:
        """See `Npz.read`."""
        return self._files[name].read(name, judge)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __len__(self) -> int:
        return len(self._files)


def read_array(arrays: Mapping[str, np.ndarray], name: str, judge: Judge) -> np.ndarray:
    """An array that a declaration stands against, which `judge` holds it to; before it is read if it is in a file."""
    if isinstance(arrays, (Npz, Joined)):
        return arrays.read(name, judge)
    import numpy as np

    found = np.asarray(arrays[name])
    judge(found.shape, found.dtype)
    return found


@functools.cache
def file_map() -> type[mmap.mmap]:
    """The class of the maps of files that are opened here: their pages may be given back, to be read again."""
    import mmap

    return type("FileMap", (mmap.mmap,), {})


def _mapped(path: str) -> bytes | mmap.mmap:
    """The content of a file; a large one is mapped, privately. Raises CompileError E0001."""
    import mmap

    try:
        if path != "-" and os.path.isfile(path) and os.path.getsize(path) >= _MAPPED:
            with open(path, "rb") as file:
                found = file_map()(file.fileno(), 0, access=mmap.ACCESS_COPY)
            with memoryview(found) as view:
                note_read(path, view)
            return found
    except (OSError, ValueError):
        pass  # where there is no mapping, reading says what is wrong
    return read_bytes(path)


def load_npz(path: str) -> Npz:
    """The arrays of an .npz by name, each read when it is asked for. Never unpickles.

    Raises CompileError E0003 for what is no sound .npz.
    """
    return Npz(path)


def save_npz(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, atomically; equal arrays give equal bytes."""
    write_atomic(path, npz_bytes(arrays))


def npz_bytes(arrays: Mapping[str, np.ndarray], comment: bytes = b"") -> bytes:
    """An .npz without times of day in it, whose elements are aligned. `comment` is that of the zip."""
    import io
    import zipfile

    import numpy as np

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = comment
        for name, array in arrays.items():
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.extra = _padding(made.tell() + 30 + len(entry.filename.encode()))
            archive.writestr(entry, part.getvalue())
    return made.getvalue()


def _padding(at: int) -> bytes:
    """An extra field of a zip member, from `at` to an aligned address, as Android's zipalign writes it."""
    size = -(at + 6) % ALIGNMENT
    return b"\x35\xd9" + (2 + size).to_bytes(2, "little") + bytes(2 + size)
