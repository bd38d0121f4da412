"""Loading artifacts: objects by our own linker, shared libraries by the system's.

A loaded artifact stays in memory for the life of the process, also when its `Executable` is gone: its code may be
running in another thread, and other objects may use its thread pool.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.errors import LoadError, error
from mlcc.runtime import elf, externs, machine, manifest, registry, threads
from mlcc.runtime.abi import MANIFEST_LINE, ZIP_START, SetSlotFn, TimeFn
from mlcc.runtime.call import Entry, Function
from mlcc.runtime.dlerror import said_by
from mlcc.runtime.executable import Functions
from mlcc.runtime.image import is_shared, link_image
from mlcc.runtime.manifest import Manifest
from mlcc.runtime.packed import Frames, make_trampoline
from mlcc.runtime.timing import Timer

if TYPE_CHECKING:
    from mlcc.runtime.launch.device import Device
    from mlcc.runtime.launch.files import Parts


_PLANS = (ZIP_START, MANIFEST_LINE)  # how files with a launch plan begin
_TO_EMULATE = "compile it for a GPU: `mlcc run model.mlc -t cuda --emulate`, or name a .ptx or .mlca file"


def load(
    artifact: Any, allow_extern: tuple[str, ...] | list[str] = (), device: Device | None = None, *,
    emulate: bool = False, check: bool = True,
) -> Functions:  # fmt: skip
    """Load an artifact: a path to an object, shared library, .ptx or .mlca, its bytes, or what `mlcc.build` returned.

    `allow_extern` names C symbols beyond libm that it may use; they must be in the process. Code for a GPU runs on
    `device`, by default the process's current CUDA device. With `emulate` what was built for a GPU runs on the CPU, and
    with `check` calls raise what threads do wrong. Raises LoadError, for an artifact of another machine MachineError.
    """
    path = None
    if emulate and hasattr(artifact, "emulator"):
        device = artifact.emulator(check)
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        data = bytes(artifact)
    elif isinstance(artifact, (str, os.PathLike)):
        path = os.fspath(artifact)
        data = read_file(path)
    elif hasattr(artifact, "emit"):
        data = artifact.emit(artifact.loadable)
    else:
        raise LoadError(error("E0850", f"cannot load a {type(artifact).__name__}: pass a path, bytes or an artifact"))
    try:
        if data.startswith(_PLANS):
            return _load_plan(data, path, device, check if emulate else None)
        if path is not None and path.endswith((".ptx", ".mlca")):
            text = "its start is lost, or mlcc did not write it: there is no manifest" if data else "the file is empty"
            raise LoadError(error("E0869", text, help="mlcc loads what `mlcc compile -t cuda` wrote, as a whole"))
        if emulate:
            text = "this was compiled for a CPU: there is nothing to emulate"
            raise LoadError(error("E0748", text, help=_TO_EMULATE))
        return _load(data, path, frozenset(allow_extern))
    except LoadError as exc:
        raise (_named(exc, path) if path is not None else exc) from None


def read_manifest(path: str) -> dict[str, Any]:
    """The manifest of an artifact file, as plain data. Nothing of the file is mapped or run. Raises LoadError."""
    try:
        data = read_file(path)
        if data.startswith(_PLANS):
            from mlcc.runtime.launch import files as plan_files

            raw = plan_files.read_parts(data, path, with_constants=False).manifest
            manifest.read(raw)
            return raw
        raw = manifest.extract(data)
        manifest.verify_checksum(data)
        manifest.read(raw)
        return raw
    except LoadError as exc:
        raise _named(exc, path) from None


def read_file(path: str) -> bytes:
    """All bytes of a file. Raises LoadError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as exc:
        raise LoadError(error("E0850", f"cannot read {path}: {exc.strerror or exc}")) from None


def _named(exc: LoadError, path: str) -> LoadError:
    """The same error with the file's name in front of each message."""
    from dataclasses import replace

    return type(exc)([d if path in d.message else replace(d, message=f"{path}: {d.message}") for d in exc.diagnostics])


def _load(data: bytes, path: str | None, allow_extern: frozenset[str]) -> Executable:
    kind, _, _ = elf.read_header(data)
    facts = manifest.read(manifest.extract(data))
    machine.check(facts.arch, facts.features)
    manifest.verify_checksum(data)
    if kind == elf.RELOCATABLE:
        return _load_object(data, facts, allow_extern)
    return _load_shared(data, facts, allow_extern)


def _load_plan(data: bytes, path: str | None, device: Device | None, emulate: bool | None) -> Functions:
    """`emulate`: with checks, without, or not at all."""
    from mlcc.runtime.launch import files as plan_files
    from mlcc.runtime.launch.executable import PlanExecutable

    parts = plan_files.read_parts(data, path)
    facts = manifest.read(parts.manifest)
    if device is None and emulate is not None:
        device = _emulator(parts, path, emulate)
    if device is None:
        from mlcc.runtime.cuda import default_device

        device = default_device()
    device.require(facts.raw["target"])
    return PlanExecutable(facts, parts.plan, parts.constants, parts.code, device)


def _emulator(parts: Parts, path: str | None, check: bool) -> Device:
    """A device that runs the kernels of an artifact on the CPU. This takes the compiler, which runtime/ never imports
    for what it loads to run."""
    made: Device = importlib.import_module("mlcc.targets.emulate.archive").emulator(parts, path, check)
    return made


def _load_object(data: bytes, facts: Manifest, allow_extern: frozenset[str]) -> Executable:
    obj = elf.read_object(data)
    if elf.MACHINES[obj.machine] != facts.arch:
        raise elf.damaged("its manifest names another machine than its header")
    has_pool = any(s.name == threads.RUN and is_shared(s) for s in obj.symbols)
    allowed = externs.ALLOWED | allow_extern | (externs.POOL if has_pool else frozenset())
    image = link_image(obj, lambda name: externs.address_of(name, allowed))

    if has_pool:
        threads.tell_pool()

    def find(name: str) -> int:
        if name not in image.functions:
            raise elf.damaged(f"the function `{name}` of its manifest is not there")
        return image.functions[name]

    return Executable(facts, find, image.constants)


def _load_shared(data: bytes, facts: Manifest, allow_extern: frozenset[str]) -> Executable:
    if elf.MACHINES.get(elf.read_header(data)[1]) != facts.arch:
        raise elf.damaged("its manifest names another machine than its header")
    from mlcc.runtime import shared

    shared.verify(data, externs.ALLOWED | externs.POOL | allow_extern)
    try:
        library = _open_library(data)
    except (OSError, ValueError) as exc:  # the latter: a message that is no UTF-8
        raise LoadError(error("E0856", f"the system cannot load it: {said_by(exc)}")) from None
    threads.adopt_library(library)

    def find(name: str) -> int:
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            raise elf.damaged(f"the function `{name}` of its manifest is not there") from None
        return address or 0

    return Executable(facts, find, (0, 0))


def _open_library(data: bytes) -> ctypes.CDLL:
    """Have the system load a library from these very bytes, which nobody can exchange any more. Raises OSError."""
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


class Executable(Functions):
    """A loaded object or shared library."""

    def __init__(self, facts: Manifest, find: Callable[[str], int], constants: tuple[int, int]) -> None:
        super().__init__(facts)
        self._find = find
        self._frames = Frames() if facts.packed else None
        self._bound_at = -1
        self._slots: list[Any] = []
        if facts.packed:
            assert self._frames is not None
            self._set_slot = SetSlotFn(find(f"{facts.prefix}_set_packed_slot"))
            self._slots = [make_trampoline(spec, self._frames, constants) for spec in facts.packed]
        for name, spec in facts.functions.items():
            at = {part: find(f"{spec.symbol}_{part}") for part in ("query", "run", "error")}
            entry = Entry.at(at["query"], at["run"], at["error"], self._frames, self._bind_packed)
            self.functions[name] = Function(spec, entry)

    def time_evaluator(self, name: str, number: int = 10, repeat: int = 5, min_seconds: float = 0.0) -> Timer:
        """A timer for a function: `exe.time_evaluator("main", number=100)(x, w).median` is in seconds."""
        loop = TimeFn(self._find(f"{self._facts.prefix}_time_run"))
        return Timer(self[name], loop, number, repeat, min_seconds)

    def _bind_packed(self) -> None:
        """Point the slots of packed functions at what is registered now: native code directly, else a trampoline."""
        now = registry.version()
        if not self._slots or self._bound_at == now:
            return
        self._bound_at = now
        for index, (spec, trampoline) in enumerate(zip(self._facts.packed, self._slots, strict=True)):
            function = registry.get_func(spec.name)
            if isinstance(function, registry.NativeFunction):
                self._set_slot(index, function.address, function.context)
            else:
                self._set_slot(index, ctypes.cast(trampoline, ctypes.c_void_p), None)
