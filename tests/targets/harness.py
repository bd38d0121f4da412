"""Runs kernels in the test process: emission, LLVM, and a call with arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from mlcc.ir import tir
from mlcc.passes.lowering.options import LowerOptions, cpu_options
from mlcc.targets.llvm.codegen.context import PACKED_CALL, EmitOptions, ModuleContext
from mlcc.targets.llvm.codegen.ir_text import ModuleText, Value
from mlcc.targets.llvm.codegen.kernel import Kernel, emit_kernel
from mlcc.targets.llvm.codegen.pool import carries_pool
from mlcc.targets.llvm.codegen.signature import llvm_params, param_type
from mlcc.targets.llvm.object.compile import Machine, compile_text, target_machine
from tests.lower import lower_all

HOST = Machine(cpu="generic")
_keep: list[Any] = []
_packed_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int32)

_SCALARS = {
    "i8": ctypes.c_uint8, "i16": ctypes.c_uint16, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "float": ctypes.c_float,
    "double": ctypes.c_double, "ptr": ctypes.c_void_p,
}  # fmt: skip


def lowering_for(machine: Machine, options: EmitOptions) -> LowerOptions:
    """What lowering may count on for a machine."""
    made = cpu_options(machine.triple.partition("-")[0], machine.enabled)
    return replace(made, reassociate=options.fast_math, threads=options.num_cores != 1)


def kernel_module(func: tir.PrimFunc, machine: Machine, options: EmitOptions | None = None) -> ModuleText:
    """A module with the kernel of a function, and `run`, which is exported and calls it."""
    options = options or EmitOptions()
    functions = lower_all({"f": func}, lowering_for(machine, options))
    text = ModuleText(machine.triple)
    kernel = emit_kernel("f", ModuleContext(text, functions, machine.enabled, options, machine.function_attrs))
    fn = text.function("i32", "run", llvm_params(kernel.signature), linkage="")
    fn.ret(fn.call("i32", f"@{kernel.symbol}", fn.params))
    return text


class Native:
    """A compiled kernel. Calling it with arrays and numbers gives the code that it returned."""

    def __init__(
        self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc] | None = None,
        options: EmitOptions | None = None, machine: Machine = HOST, level: int = 2,
        packed: Callable[[str, list[np.ndarray]], int] | None = None, externs: Mapping[str, int] | None = None,
        triple: str | None = None, formulas: Mapping[str, Callable[..., Any]] | None = None,
        lowering: LowerOptions | None = None,
    ) -> None:  # fmt: skip
        """`triple`: emit the code as for that machine, and compile it for this one all the same. `formulas` are
        elementary functions of float32 that the machine has its own way for; `lowering` is what lowering may count
        on, if not the machine's own."""
        options = options or EmitOptions()
        text = ModuleText(triple or machine.triple)
        lowering = lowering or lowering_for(replace(machine, triple=text.triple), options)
        given = {"f": func, **(functions or {})}
        self.ctx = ModuleContext(
            text,
            lower_all(given, lowering),
            machine.enabled,
            options,
            formulas=formulas or {},
        )
        self.kernel: Kernel = emit_kernel("f", self.ctx)
        self._packed = packed
        self._export()
        self.text = self.ctx.module.text()
        self.obj = compile_text(self.text, machine, level).obj
        for name, address in (externs or {}).items():
            llvm.add_symbol(name, address)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(machine, level))
        engine.add_object_file(llvm.ObjectFileRef.from_data(self.obj))
        engine.finalize_object()
        _keep.append(engine)
        if carries_pool(self.ctx.module):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))  # its threads outlive the interpreter
        types = [_SCALARS[t] for t, _ in llvm_params(self.kernel.signature)]
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(engine.get_function_address("run"))

    def _export(self) -> None:
        module, sig = self.ctx.module, self.kernel.signature
        fn = module.function("i32", "run", llvm_params(sig), linkage="")
        fn.ret(fn.call("i32", f"@{self.kernel.symbol}", fn.params))
        if self.ctx.packed:
            callback = _packed_type(self._on_packed)
            _keep.append(callback)
            address = ctypes.cast(callback, ctypes.c_void_p).value
            fn = module.function("i32", PACKED_CALL, [("i32", "slot"), ("ptr", "args"), ("i32", "count")])
            target = fn.convert("inttoptr", Value("i64", str(address)), "ptr")
            fn.ret(fn.call("i32", target.ref, fn.params))

    def _on_packed(self, slot: int, args: Any, count: int) -> int:
        assert self._packed is not None
        name = list(self.ctx.packed)[slot]
        return self._packed(name, [_array(args[i]) for i in range(count)])

    def __call__(self, *args: Any, symbols: tuple[int, ...] = ()) -> int:
        given: list[Any] = []
        for param, arg in zip(self.kernel.signature.params, args, strict=True):
            if isinstance(arg, np.ndarray):
                given.append(arg.ctypes.data)
            elif isinstance(arg, np.generic) and param_type(param) in ("i8", "i16"):
                given.append(int.from_bytes(arg.tobytes(), "little"))
            else:
                given.append(arg.item() if isinstance(arg, np.generic) else arg)
        given += symbols
        self.result = np.zeros(8, "uint8")
        if self.kernel.signature.result is not None:
            given.append(self.result.ctypes.data)
        size = self.workspace_bytes(args, symbols)
        room = np.full(size + 64, 0xAB, "uint8")
        start = -room.ctypes.data % 64
        given.append(room.ctypes.data + start if size else None)
        return int(self._call(*given))

    def workspace_bytes(self, args: tuple[Any, ...], symbols: tuple[int, ...]) -> int:
        values: dict[tir.Var, int] = dict(zip(self.kernel.signature.symbols, symbols, strict=True))
        for param, arg in zip(self.kernel.signature.params, args, strict=True):
            if param.buffer is None and not isinstance(arg, np.ndarray):
                values[param.var] = arg
        return int(_evaluate(self.kernel.workspace, values))

    def error(self, code: int) -> tuple[str, str]:
        """The kind and message of a returned code."""
        return {v: k for k, v in self.ctx.errors.items()}[code]


def _evaluate(node: tir.Expr, values: dict[tir.Var, int]) -> int:
    match node:
        case tir.IntImm():
            return node.value
        case tir.Var():
            return values[node]
        case tir.Cast():
            return _evaluate(node.value, values)
    assert isinstance(node, tir.BinaryOp)
    lhs, rhs = _evaluate(node.lhs, values), _evaluate(node.rhs, values)
    made = {
        tir.Add: lhs + rhs, tir.Sub: lhs - rhs, tir.Mul: lhs * rhs, tir.FloorDiv: lhs // (rhs or 1),
        tir.Min: min(lhs, rhs), tir.Max: max(lhs, rhs),
    }  # fmt: skip
    return made[type(node)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


def _array(address: int) -> np.ndarray:
    tensor = _DLTensor.from_address(address)
    assert tensor.device_type == 1 and tensor.byte_offset == 0 and tensor.lanes == 1
    kind = {0: "int", 1: "uint", 2: "float", 6: "bool"}[tensor.code]
    dtype = np.dtype("bool" if kind == "bool" else f"{kind}{tensor.bits}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    reach = 1 + sum((n - 1) * (s // dtype.itemsize) for n, s in zip(shape, strides or (), strict=False))
    count = reach if strides else int(np.prod(shape, dtype=int))
    memory = (ctypes.c_uint8 * (max(count, 0) * dtype.itemsize)).from_address(tensor.data)
    return np.ndarray(shape, dtype, memory, 0, strides)
