"""Reading inputs with clear errors, and writing outputs atomically."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from io import BufferedReader
from typing import IO, TYPE_CHECKING

from mlcc.errors import CompileError, error
from mlcc.temporaries import forget_temporary, make_temporary

if TYPE_CHECKING:
    import mmap

    import numpy as np

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
        help = _other_file(path, exc)
        raise CompileError(error("E0001", f"cannot read {path}: {exc.strerror or exc}", help=help, file=path)) from None
    except ValueError as exc:  # a null byte in the path
        raise CompileError(error("E0001", f"cannot read {path!r}: {exc}")) from None
    record_read(path, data)
    return data


def first_bytes(path: str, count: int) -> bytes:
    """The first bytes of a file, or of standard input, which can be read from its start afterwards.

    A pipe may have fewer at first. There are none of what cannot be read, nor of a named pipe.
    """
    try:
        if path == "-":
            peek = getattr(sys.stdin.buffer, "peek", None)
            return b"" if peek is None else bytes(peek(count)[:count])
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            return file.read(count)
    except (OSError, ValueError, AttributeError):  # the last: standard input is closed
        return b""


def _other_file(path: str, exc: OSError) -> str | None:
    """The help for a path that cannot be read: a file of a similar name, or one in the folder that it is."""
    from mlcc.errors import did_you_mean

    folder = path if isinstance(exc, IsADirectoryError) else os.path.dirname(path)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return None if folder == path else f"there is no folder {folder}"
    if folder == path:
        texts = [name for name in names if name.endswith(".mlc")]
        return f"name a file in it, such as {os.path.join(path, texts[0])}" if texts else "name a file"
    name = os.path.basename(path)
    same = next((other for other in names if os.path.splitext(other)[0] == name), None)
    return did_you_mean(path, [os.path.join(folder, same)] if same else [os.path.join(folder, n) for n in names])


def record_read(path: str, data: bytes | BufferedReader) -> None:
    """Report a read to active recorders. `data` is the content, or the file opened at its start."""
    recorders, seen = _reads.get(), _seen.get()
    if seen is not None:
        seen.add(path)
    if recorders:
        import hashlib  # loads OpenSSL

        full = os.path.abspath(path)
        hashed = hashlib.sha256(data) if isinstance(data, bytes) else hashlib.file_digest(data, "sha256")
        for reads in recorders:
            reads[full] = hashed.hexdigest()


def record_cached_reads(known: Mapping[str, str]) -> None:
    """Report to active recorders the files from which a cached result was made."""
    seen = _seen.get()
    if seen is not None:
        seen.update(known)
    for reads in _reads.get():
        reads.update(known)


# ---------------------------------------------------------------- mapping

_MMAP_THRESHOLD = 16 << 20  # array files of at least this many bytes are memory-mapped, not read


@functools.cache
def file_mmap_class() -> type[mmap.mmap]:
    """Return the class of the memory maps created here, whose pages may be released and are then read again."""
    import mmap

    return type("FileMap", (mmap.mmap,), {})


def map_file(path: str) -> bytes | mmap.mmap:
    """Return the content of a file; a large one is memory-mapped privately, so that pages load on first access.

    A file larger than the writable memory of a process is mapped read-only. Raises CompileError E0001.
    """
    import mmap

    try:
        if path != "-" and os.path.isfile(path) and os.path.getsize(path) >= _MMAP_THRESHOLD:
            with open(path, "rb") as file:
                record_read(path, file)
                try:
                    return file_mmap_class()(file.fileno(), 0, access=mmap.ACCESS_COPY)
                except OSError:
                    return file_mmap_class()(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        pass  # if mapping fails, reading reports the reason
    return read_bytes(path)


def release_pages(array: np.ndarray) -> None:
    """Release the pages of elements in a file mapped by `map_file`; the next access reads them again.

    Otherwise weights that are no longer needed would stay resident beside the data made from them. Other mappings and
    writable arrays are left alone, since their changes exist nowhere else.
    """
    import mmap

    import numpy as np

    mapped: object = array
    while isinstance(mapped, (np.ndarray, memoryview)):
        mapped = mapped.base if isinstance(mapped, np.ndarray) else mapped.obj
    if array.flags.writeable or not isinstance(mapped, file_mmap_class()) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = _address(array) - _address(np.frombuffer(mapped, np.uint8))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + array.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if length > 0:
        mapped.madvise(mmap.MADV_DONTNEED, first, length)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


_CHUNK_BYTES = 1 << 22  # bytes; a multiple of the page size


def byte_chunks(array: np.ndarray) -> Iterator[memoryview]:
    """Yield the bytes of a C-contiguous array in little-endian chunks, and release the pages of chunks already used."""
    import numpy as np

    if array.size:
        raw = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8)
        for at in range(0, raw.size, _CHUNK_BYTES):
            yield memoryview(raw[at : at + _CHUNK_BYTES].data)
            release_pages(raw[max(at - _CHUNK_BYTES, 0) : at + _CHUNK_BYTES])


@contextlib.contextmanager
def recording_reads() -> Iterator[dict[str, str]]:
    """Record the files read inside the `with`: absolute path -> SHA-256. Nested blocks each record all reads."""
    reads: dict[str, str] = {}
    token = _reads.set((*_reads.get(), reads))
    try:
        yield reads
    finally:
        _reads.reset(token)


def watch_reads() -> set[str]:
    """Return a set that collects the paths read from now on, until the next call of this function."""
    seen: set[str] = set()
    _seen.set(seen)
    return seen


# ---------------------------------------------------------------- writing


@dataclass(frozen=True)
class Destination:
    """The resolved destination of an output: links are followed, `-` and `/dev/stdout` are a file descriptor."""

    path: str
    descriptor: int | None = None

    @staticmethod
    def of(path: str) -> Destination:
        """Resolve a path. Raises OSError for a cycle of links, ValueError for an invalid path."""
        if path == "-":
            return Destination(path, 1)
        current = path
        for _ in range(40):
            folder = os.path.realpath(os.path.dirname(current) or ".")
            current = os.path.join(folder, os.path.basename(current))
            match = _DESCRIPTORS.fullmatch(current)
            if match is not None and _is_own_process(current):
                return Destination(path, int(match[1]))
            if not os.path.islink(current):
                return Destination(current)
            current = os.path.join(folder, os.readlink(current))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def status(self) -> os.stat_result | None:
        """Return the status of the existing file or descriptor; None if there is none."""
        try:
            return os.stat(self.path) if self.descriptor is None else os.fstat(self.descriptor)
        except (OSError, ValueError):
            return None

    @property
    def is_plain(self) -> bool:
        """Return True for a regular file, existing or to be created: no device, pipe or descriptor."""
        known = None if self.descriptor is not None else self.status()
        return self.descriptor is None and (known is None or stat.S_ISREG(known.st_mode))


def _is_own_process(path: str) -> bool:
    return not path.startswith("/proc/") or path.startswith(("/proc/self/", f"/proc/{os.getpid()}/"))


Chunks = Sequence[bytes | bytearray | memoryview]
Content = bytes | str | Chunks | Callable[[IO[bytes]], None]  # a function writes to a seekable file


def write_atomic(path: str, data: Content) -> None:
    """Write a file atomically: a temporary file beside it is renamed over it. `-` is standard output.

    A list holds the content in chunks; a function writes the content to the file it is given. Links are followed,
    permissions are kept. Raises CompileError E0002.
    """
    write_files({path: data})


def write_files(contents: Mapping[str, Content]) -> None:
    """Write several files atomically; no file is replaced before all are on the disk.

    Raises CompileError E0002.
    """
    staged: list[tuple[str, str, str]] = []  # path as given, temporary file, place
    path = ""
    try:
        for path, data in contents.items():
            to = Destination.of(path)
            if to.descriptor is not None:
                _write_descriptor(to.descriptor, _pieces(data))
            elif not to.is_plain:  # /dev/null or a pipe cannot be renamed over
                with open(to.path, "wb") as file:
                    file.writelines(_pieces(data))
            else:
                staged.append((path, *_stage(to, data)))
        for path, part, place in staged:  # noqa: B007 - the message names it
            os.replace(part, place)
    except BrokenPipeError:  # the reader of standard output has gone, which `main` handles
        raise
    except (OSError, ValueError) as exc:
        shown = "standard output" if path == "-" else path
        reason = getattr(exc, "strerror", None) or exc
        raise CompileError(error("E0002", f"cannot write {shown}: {reason}", file=shown)) from None
    finally:
        for _, part, _ in staged:
            with contextlib.suppress(OSError):
                os.unlink(part)
            forget_temporary(part)


def _pieces(data: Content) -> Chunks:
    """Return the content in chunks, for an output that cannot seek."""
    if callable(data):
        import io

        file = io.BytesIO()
        data(file)
        return [file.getbuffer()]
    return [data.encode()] if isinstance(data, str) else [data] if isinstance(data, bytes) else data


def _write_descriptor(descriptor: int, pieces: Chunks) -> None:
    if descriptor == 1:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.stdout.flush()
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
        return
    with open(os.dup(descriptor), "wb") as file:
        file.writelines(pieces)


def probe(to: Destination) -> None:
    """Raise OSError for a plain destination that `write_files` could not write: its folder takes no new file, or its
    name is one that no file may have. No file is left, and the destination stays as it is."""
    import tempfile

    with contextlib.suppress(FileNotFoundError):
        os.lstat(to.path)  # a name that is too long
    with tempfile.TemporaryFile(dir=os.path.dirname(to.path) or "."):
        pass


def _stage(to: Destination, data: Content) -> tuple[str, str]:
    """Write a temporary file with the permissions of the destination. Return (temporary path, destination)."""
    folder, name = os.path.split(to.path)
    known = to.status()
    handle, part = make_temporary(folder or ".", name[:40])
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(data):
                data(file)
            else:
                file.writelines(_pieces(data))
        if known is not None and hasattr(os, "geteuid") and known.st_uid != os.geteuid():
            with contextlib.suppress(OSError):  # only an administrator may change the owner
                os.chown(part, known.st_uid, known.st_gid)
        os.chmod(part, known.st_mode & 0o777 if known is not None else 0o666 & ~_umask())
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        forget_temporary(part)
        raise
    return part, to.path


def make_folder(path: str) -> None:
    """Create a folder and its parents if they do not exist. Raises CompileError E0002."""
    try:
        os.makedirs(path, exist_ok=True)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise CompileError(error("E0002", f"cannot make the folder {path}: {reason}", file=path)) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
