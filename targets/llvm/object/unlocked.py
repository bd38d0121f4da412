"""LLVM's functions without llvmlite's lock, so that threads compile modules side by side.

llvmlite guards every call by one lock, and keeps it while LLVM works. LLVM itself asks only that a context, with what
belongs to it, is used by one thread at a time. Here are the calls that take long, for modules whose context no other
thread uses: those of the same library in a table of their own; ctypes lets other threads of Python run meanwhile.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


@cache
def _function(name: str) -> Any:
    from llvmlite.binding import ffi

    known = getattr(ffi.lib, f"LLVMPY_{name}")
    function = getattr(ctypes.CDLL(ffi.lib._name), f"LLVMPY_{name}")
    function.argtypes, function.restype = known.argtypes, known.restype
    return function


def parse(text: str, context: Any) -> Any:
    """`llvmlite.binding.parse_assembly`."""
    from llvmlite.binding import ffi
    from llvmlite.binding.module import ModuleRef

    with ffi.OutputString() as said:
        module = ModuleRef(_function("ParseAssembly")(context, text.encode(), said), context)
        if said:
            module.close()
            raise RuntimeError(f"LLVM IR parsing error\n{said}")
    return module


def verify(module: Any) -> None:
    """`ModuleRef.verify`."""
    from llvmlite.binding import ffi

    with ffi.OutputString() as said:
        if _function("VerifyModule")(module, said):
            raise RuntimeError(str(said))


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """`ModulePassManager.run`."""
    _function("RunNewModulePassManager")(manager, module, builder)


def run_function_passes(manager: Any, function: Any, builder: Any) -> None:
    """`FunctionPassManager.run`."""
    _function("RunNewFunctionPassManager")(manager, function, builder)


def emit(machine: Any, module: Any) -> bytes:
    """`TargetMachine.emit_object`."""
    from llvmlite.binding import ffi

    with ffi.OutputString() as said:
        buffer = _function("TargetMachineEmitToMemory")(machine, module, 1, said)
        if not buffer:
            raise RuntimeError(str(said))
    try:
        size = ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def close(module: Any) -> None:
    """`ModuleRef.close`."""
    if not module.closed:
        _function("DisposeModule")(module)
        module.detach()
