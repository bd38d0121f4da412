"""Load artifacts: objects by mlcc's own linker, shared libraries by the system's loader.

A loaded artifact stays in memory for the life of the process, even without its `Executable`: its code may be
running in another thread, and other objects may use its thread pool.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mlcc.errors import LoadError, error
from mlcc.runtime import elf, externs, machine, manifest, static_library, threads
from mlcc.runtime.abi import MANIFEST_LINE, ZIP_START
from mlcc.runtime.dlerror import loader_message
from mlcc.runtime.executable import Executable
from mlcc.runtime.image import is_shared, link_image
from mlcc.runtime.large_file import LargeFile, open_large
from mlcc.runtime.manifest import Manifest
from mlcc.runtime.native import NativeExecutable

if TYPE_CHECKING:
    from mlcc.runtime.launch.device import Device
    from mlcc.runtime.launch.files import ArtifactContents

_PLANS = (ZIP_START, MANIFEST_LINE)  # first bytes of files with a launch plan
Maker = Callable[["ArtifactContents", "str | None"], "Device"]  # makes the device for the parts and path of an artifact


class Content(NamedTuple):
    """The bytes of an artifact, and its path if it is a file; a large object is in `file`."""

    data: bytes
    path: str | None = None
    file: LargeFile | None = None

    @property
    def has_plan(self) -> bool:
        """True for a launch plan for a device, by its first bytes or file name; otherwise it is machine code."""
        named = self.path is not None and self.path.endswith((".ptx", ".mlca"))
        return self.file is None and (self.data.startswith(_PLANS) or named)


def load(
    artifact: Any, allow_extern: tuple[str, ...] | list[str] = (), device: Device | Maker | None = None
) -> Executable:
    """Load an artifact: a path to an object, library, .ptx or .mlca, its bytes, or what `mlcc.build` returned.

    Of a static library it is the member with a manifest. `allow_extern` names C symbols beyond libm that it may use;
    they must be in the process. A launch plan runs on `device`, or on the one that `device` makes for it; by default on
    the process's current CUDA device. Raises LoadError, for an artifact of another machine MachineError.
    """
    content = content_of(artifact)
    try:
        return _load_plan(content, device) if content.has_plan else _load(content, frozenset(allow_extern))
    except LoadError as exc:
        raise named(exc, content.path) from None


def content_of(artifact: Any) -> Content:
    """Return the content of a path, of bytes, or of an artifact from `mlcc.build`. Raises LoadError, CompileError."""
    if isinstance(artifact, Content):
        return artifact
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        return _unpacked(Content(bytes(artifact)))
    if isinstance(artifact, (str, os.PathLike)):
        return _content_at(os.fspath(artifact))
    if hasattr(artifact, "emit"):
        return Content(artifact.emit(artifact.loadable))
    raise LoadError(error("E0850", f"cannot load a {type(artifact).__name__}: pass a path, bytes or an artifact"))


def is_loadable(start: bytes) -> bool:
    """Return True if a file that begins so, with one byte or more, is likely an artifact, and no text."""
    marks = (elf.MAGIC, static_library.MAGIC[:4], *(mark[:4] for mark in _PLANS))
    return bool(start) and any(start[:4] == mark[: len(start)] for mark in marks)


def read_manifest(artifact: str | bytes) -> dict[str, Any]:
    """The manifest of an artifact, a path or its bytes, as plain data. Nothing is mapped or run. Raises LoadError."""
    path = artifact if isinstance(artifact, str) else None
    try:
        data, _, file = content_of(artifact)
        if data.startswith(_PLANS):
            from mlcc.runtime.launch.files import read_contents

            raw = read_contents(data, path, with_constants=False).manifest
            manifest.read(raw)
            return raw
        raw = manifest.extract(data if file is None else file.data)
        manifest.verify_checksum(data if file is None else file.data, file)
        manifest.read(raw)
        return raw
    except LoadError as exc:
        raise named(exc, path) from None


def _content_at(path: str) -> Content:
    """Return the content of a file; a large one stays open instead of being read. Raises LoadError."""
    try:
        file = open_large(path)
    except (OSError, ValueError):
        file = None  # reading it says what is wrong
    return Content(b"", path, file) if file is not None else _unpacked(Content(read_file(path), path))


def _unpacked(content: Content) -> Content:
    """Return the artifact in a static library; any other content as it is. Raises LoadError."""
    if not content.data.startswith(static_library.MAGIC):
        return content
    return content._replace(data=static_library.artifact_in(content.data))


def read_file(path: str) -> bytes:
    """All bytes of a file. Raises LoadError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as exc:
        raise LoadError(error("E0850", f"cannot read {path}: {exc.strerror or exc}")) from None


def named(exc: LoadError, path: str | None) -> LoadError:
    """Prefix each message of an error with the file's name, if there is one."""
    from dataclasses import replace

    if path is None:
        return exc
    about = [replace(d, file=path) for d in exc.diagnostics]
    return type(exc)([d if path in d.message else replace(d, message=f"{path}: {d.message}") for d in about])


def _load(content: Content, allow_extern: frozenset[str]) -> Executable:
    data, file = content.data if content.file is None else content.file.data, content.file
    kind, _, _ = elf.read_header(data)
    facts = manifest.read(manifest.extract(data))
    machine.check(facts.arch, facts.features)
    machine.check_version(facts.arch, facts.versions)
    try:
        manifest.verify_checksum(data, file)
        if kind == elf.RELOCATABLE:
            return _load_object(data, facts, allow_extern, file)
    except OSError as exc:
        raise LoadError(error("E0850", f"cannot read it: {exc.strerror or exc}")) from None
    return _load_shared(content.data, facts, allow_extern)


def _load_plan(content: Content, device: Device | Maker | None) -> Executable:
    from mlcc.runtime.launch.executable import LaunchExecutable
    from mlcc.runtime.launch.files import read_contents

    if not content.data.startswith(_PLANS):
        start = "it has no manifest: its start is missing, or mlcc did not write it"
        text = start if content.data else "the file is empty"
        raise LoadError(error("E0869", text, help="load a complete file written by `mlcc compile -t cuda`"))
    parts = read_contents(content.data, content.path)
    facts = manifest.read(parts.manifest)
    if callable(device):
        device = device(parts, content.path)
    if device is None:
        from mlcc.runtime.cuda import default_device

        device = default_device()
    device.require(facts.raw["target"])
    return LaunchExecutable(facts, parts.plan, parts.constants, parts.code, device)


def _load_object(data: elf.Data, facts: Manifest, allow_extern: frozenset[str], file: LargeFile | None) -> Executable:
    obj = elf.read_object(data)
    if elf.MACHINES[obj.machine] != facts.arch:
        raise elf.damaged("its manifest and its header name different machines")
    has_pool = any(s.name == threads.RUN and is_shared(s) for s in obj.symbols)
    allowed = externs.ALLOWED | allow_extern | (externs.POOL if has_pool else frozenset())
    if facts.versions:
        allowed |= externs.VERSIONS
    image = link_image(obj, lambda name: externs.address_of(name, allowed), file)

    if has_pool:
        threads.configure_pool()

    def find(name: str) -> int:
        if name not in image.functions:
            raise elf.damaged(f"the function `{name}` of its manifest is missing")
        return image.functions[name]

    return NativeExecutable(facts, find, image.constants)


def _load_shared(data: bytes, facts: Manifest, allow_extern: frozenset[str]) -> Executable:
    if elf.MACHINES.get(elf.read_header(data)[1]) != facts.arch:
        raise elf.damaged("its manifest and its header name different machines")
    from mlcc.runtime import shared_library

    shared_library.verify(data, externs.ALLOWED | externs.POOL | externs.VERSIONS | allow_extern)
    try:
        library = _open_library(data)
    except (OSError, ValueError) as exc:  # the latter: a message that is no UTF-8
        raise LoadError(error("E0856", f"the system's loader failed: {loader_message(exc)}")) from None
    threads.adopt_library(library)

    def find(name: str) -> int:
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            raise elf.damaged(f"the function `{name}` of its manifest is missing") from None
        return address or 0

    return NativeExecutable(facts, find, (0, 0))


def _open_library(data: bytes) -> ctypes.CDLL:
    """Load a shared library from bytes with the system's loader, so that no other process can replace them.

    Raises OSError.
    """
    mode = os.RTLD_NOW | os.RTLD_LOCAL
    if not hasattr(os, "memfd_create"):
        import tempfile

        with tempfile.TemporaryDirectory(prefix="mlcc-load-") as folder:  # ours alone
            path = os.path.join(folder, "m.so")
            with open(path, "wb") as file:
                file.write(data)
            return ctypes.CDLL(path, mode=mode)
    import fcntl

    handle = os.memfd_create("mlcc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        # left open, as the library is: symbols are read from it under this name, which no other library may get
        return ctypes.CDLL(f"/proc/self/fd/{handle}", mode=mode)
    except BaseException:
        os.close(handle)
        raise
