"""The emission context that all kernels of one PTX module share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mlcc.machine.gpu import Arch
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.targets.llvm.codegen.context import ModuleContext
from mlcc.targets.llvm.codegen.refuse import unsupported

DYNAMIC_SHARED = "mlcc_shared"  # symbol of the dynamic shared memory, which follows the static one
_NOT_IN_SYMBOLS = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(slots=True)
class DeviceContext(ModuleContext):
    """The module context with PTX's additions.

    `asserts` are the assertions of the current kernel, `symbols` the PTX names in use. `shared_alignment` is the
    alignment of the dynamic shared memory, a symbol common to all kernels.
    """

    arch: Arch = field(kw_only=True)
    shared_alignment: int = 16
    isa: tuple[int, int] = (0, 0)  # minimum PTX ISA of the instructions so far
    asserts: tuple[tuple[str, str], ...] = ()
    symbols: set[str] = field(default_factory=lambda: {DYNAMIC_SHARED})

    def begin(self, kernel: DeviceKernel) -> None:
        """Start another kernel."""
        self.asserts = kernel.asserts
        self.problems = []

    def error_code(self, kind: str, message: str) -> int:
        """Return the number of an assertion in its kernel, from 1."""
        if (kind, message) not in self.asserts:
            raise unsupported(f"the kernel has no error record to report `{message}`")
        return self.asserts.index((kind, message)) + 1

    def symbol(self, name: str) -> str:
        """Return a unique symbol that PTX accepts."""
        base = _NOT_IN_SYMBOLS.sub("_", name)
        unique, number = base, 1
        while unique in self.symbols:
            unique, number = f"{base}_{number}", number + 1
        self.symbols.add(unique)
        return unique
