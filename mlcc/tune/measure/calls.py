"""Load a kernel into this process and call it on memory, without checks or conversions."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence

from mlcc.runtime import elf, externs, threads
from mlcc.runtime.image import is_shared, link_image
from mlcc.tune.measure.kernel import BUFFER, Entry, Kernel
from mlcc.tune.measure.memory import ALIGNMENT, GuardedMemory

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Function = Callable[[int, int, int, int], int]


class LoadedKernel:
    """The functions of a kernel, linked permanently into this process."""

    def __init__(self, kernel: Kernel) -> None:
        obj = elf.read_object(kernel.obj)
        has_pool = any(s.name == threads.RUN and is_shared(s) for s in obj.symbols)
        allowed = externs.ALLOWED | (externs.POOL if has_pool else frozenset())
        image = link_image(obj, lambda name: externs.address_of(name, allowed))
        self.kernel = kernel
        self.main: _Function = _ENTRY(image.functions[kernel.main.symbol])
        self.prepare: _Function | None = None
        if kernel.prepare is not None:
            self.prepare = _ENTRY(image.functions[kernel.prepare.symbol])


class BoundCall:
    """A kernel bound to sets of arguments, used in rotation. `prepare` has run on each set.

    Compared kernels share a `workspace`, whose address affects times by some percent. With `tight`, for checks, the
    call's own memory is poisoned with NaN.
    """

    def __init__(
        self, loaded: LoadedKernel, sets: Sequence[Sequence[GuardedMemory]], *, tight: bool = False,
        workspace: GuardedMemory | None = None,
    ) -> None:  # fmt: skip
        kernel = loaded.kernel
        self._call = loaded.main
        self._sets = len(sets)
        panels = [[GuardedMemory(size, tight=tight) for size in kernel.panels] for _ in sets]
        self.memories = [[*given, *own] for given, own in zip(sets, panels, strict=True)]
        self.workspace = workspace or workspace_of(kernel)
        if tight:
            for memory in (self.workspace, *(one for own in panels for one in own)):
                memory.poison()
        self._words, self._stride = _words(kernel.main, self.memories, self.workspace)
        if loaded.prepare is not None and kernel.prepare is not None:
            scratch = _scratch(kernel.prepare.workspace)
            words, stride = _words(kernel.prepare, self.memories, scratch)
            code = loaded.prepare(ctypes.addressof(words), stride, len(sets), len(sets))
            if code:
                raise KernelError(code)

    def __call__(self, count: int = 1) -> None:
        """Call the kernel `count` times. Raises KernelError for a code other than 0."""
        code = self._call(ctypes.addressof(self._words), self._stride, self._sets, count)
        if code:
            raise KernelError(code)

    def stray_writes(self) -> bool:
        """Return True if a call wrote out of bounds: into the slack around a tensor or the workspace."""
        held = [memory for one in self.memories for memory in one]
        return not all(memory.is_intact() for memory in (*held, self.workspace))


class KernelError(Exception):
    """An error code returned by a kernel: a failed assertion, or an index out of bounds."""

    def __init__(self, code: int) -> None:
        super().__init__(f"it returns the error code {code:#x}")
        self.code = code


def workspace_of(*kernels: Kernel) -> GuardedMemory:
    """Allocate a workspace large enough for any of these kernels."""
    return _scratch(max(kernel.main.workspace for kernel in kernels))


def _scratch(size: int) -> GuardedMemory:
    return GuardedMemory(-(-size // ALIGNMENT) * ALIGNMENT, tight=True)


def _words(
    entry: Entry, sets: Sequence[Sequence[GuardedMemory]], workspace: GuardedMemory
) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """Pack the words of all sets. Return them and the stride of a set in bytes."""
    packed = b""
    for memory in sets:
        words = [memory[n].address if kind == BUFFER else n & 0xFFFF_FFFF_FFFF_FFFF for kind, n in entry.words]
        packed += struct.pack(f"<{len(words) + 1}Q", *words, workspace.address)
    return ctypes.create_string_buffer(packed, len(packed)), len(packed) // len(sets)
