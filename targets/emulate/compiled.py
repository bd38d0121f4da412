"""Kernels to functions in memory: machine code by LLVM, mapped by the loader of objects."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcc.errors import CompileError
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.runtime import elf, externs
from mlcc.runtime.image import link_image
from mlcc.target import Target
from mlcc.targets.emulate.kernel import emit_kernel
from mlcc.targets.llvm.compile import Machine, compile_text
from mlcc.targets.llvm.context import ModuleContext
from mlcc.targets.llvm.ir_text import ModuleText
from mlcc.targets.llvm.types import memory_type

_TYPES: dict[str, Any] = {
    "ptr": ctypes.c_void_p, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "float": ctypes.c_float, "double": ctypes.c_double,
}  # fmt: skip


def kernels_text(kernels: Sequence[DeviceKernel], machine: Machine, serial: bool = False) -> tuple[str, ModuleContext]:
    """The LLVM IR of all kernels. Raises CompileError."""
    ctx = ModuleContext(ModuleText(machine.triple), {}, machine.enabled, function_attrs=machine.function_attrs)
    for kernel in kernels:
        emit_kernel(kernel, ctx, serial)
        if ctx.problems:
            raise CompileError(ctx.problems)
    return ctx.module.text(), ctx


def load_kernels(kernels: Sequence[DeviceKernel]) -> Mapping[str, Callable[..., int]]:
    """The kernels as functions of this process. Raises CompileError."""
    machine = Machine.of(Target.parse("llvm{cpu=native}"))
    text, _ = kernels_text(kernels, machine)
    image = link_image(
        elf.read_object(compile_text(text, machine).obj),
        lambda name: externs.address_of(name, externs.ALLOWED | externs.POOL),
    )
    return {k.name: ctypes.CFUNCTYPE(ctypes.c_int32, *_signature(k))(image.functions[k.name]) for k in kernels}


def _signature(kernel: DeviceKernel) -> list[Any]:
    head = [ctypes.c_void_p, *[ctypes.c_int64] * 3, *[ctypes.c_int32] * 3, ctypes.c_int64]
    return head + [_TYPES["ptr" if p.dtype.is_handle else memory_type(p.dtype)] for p in kernel.params]
