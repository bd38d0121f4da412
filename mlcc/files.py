"""Reading inputs and writing outputs: clear errors for what is unreadable, and nothing half-written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, error
from mlcc.temporaries import forget, make_temporary

if TYPE_CHECKING:
    import numpy as np


_reads: ContextVar[dict[str, str] | None] = ContextVar("reads", default=None)


def read_bytes(path: str) -> bytes:
    """The content of a file; `-` is standard input. Raises CompileError E0001."""
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            data = file.read()
    except OSError as exc:
        raise CompileError(error("E0001", f"cannot read {path}: {exc.strerror or exc}")) from None
    reads = _reads.get()
    if reads is not None:
        reads[os.path.abspath(path)] = hashlib.sha256(data).hexdigest()
    return data


@contextlib.contextmanager
def recorded_reads() -> Iterator[dict[str, str]]:
    """What `read_bytes` reads inside the block: absolute path -> SHA-256."""
    reads: dict[str, str] = {}
    token = _reads.set(reads)
    try:
        yield reads
    finally:
        _reads.reset(token)


def write_atomic(path: str, data: bytes | str | Sequence[bytes | bytearray | memoryview]) -> None:
    """Write a whole file or nothing: a temporary file beside it is renamed over it. `-` is standard output.

    A list is the content in pieces.

    Raises CompileError E0002.
    """
    pieces = [data.encode()] if isinstance(data, str) else [data] if isinstance(data, bytes) else data
    if path == "-":
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
        return
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # /dev/null, a pipe: no renaming over those
            with open(path, "wb") as file:
                file.writelines(pieces)
            return
        handle, name = make_temporary(os.path.dirname(path) or ".", os.path.basename(path)[:40])
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(pieces)
            os.chmod(name, os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        finally:
            forget(name)
    except OSError as exc:
        raise CompileError(error("E0002", f"cannot write {path}: {exc.strerror or exc}")) from None


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


def load_npz(path: str) -> dict[str, np.ndarray]:
    """All arrays of an .npz by name. Never unpickles. Raises CompileError E0003 for what is no sound .npz."""
    import io
    import zipfile
    import zlib

    import numpy as np

    raw = read_bytes(path)
    if not raw.startswith(b"PK"):
        raise CompileError(
            error("E0003", f"{path} is not an .npz file", help="write it with numpy.savez(path, name=array, ...)")
        )
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as exc:
        reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        if "pickle" in reason.lower():
            reason = "it holds Python objects, which are never loaded"
        raise CompileError(error("E0003", f"cannot read {path}: {reason}")) from None


def save_npz(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays by name, atomically; equal arrays give equal bytes."""
    write_atomic(path, npz_bytes(arrays))


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz without times of day in it."""
    import io
    import zipfile

    import numpy as np

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), part.getvalue())
    return made.getvalue()
