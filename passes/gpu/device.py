"""Define the result of lowering a PrimFunc for a GPU: kernels, and host code that launches them.

A kernel is a private PrimFunc with the attribute `tir.is_global_func`. Its code is loop code as `mlcc.passes.lowering`
makes it for a CPU (no blocks, one index per access, explicit vectors, allocations as statements), stated for one
thread inside of launch scopes:

    @T.prim_func(private=True)
    def f_kernel(A: T.Buffer((256,), "float32"), n: T.int64):
        T.func_attr({"tir.is_global_func": True})
        blockIdx_x = T.launch_thread("blockIdx.x", 2)
        threadIdx_x = T.launch_thread("threadIdx.x", 128)
        ...

- Parameters are pointers to global memory (buffers are flat, of one element type) and scalars, in the order in which a
  launch passes them. The extents of launch scopes are expressions over scalar parameters.
- The places of the thread in the grid are the variables of the launch scopes, int32. All threads of the grid run the
  body, and every loop around a barrier runs equally often in all of a block.
- Allocations have the scopes `local` (of a thread), `shared` and `shared.dyn` (of a block). Their sizes are constants;
  those of `shared.dyn` may depend on the parameters.
- What threads do together are calls: `tvm_storage_sync("shared")` is the barrier of a block, `tvm_storage_sync("warp")`
  that of a warp; `tvm_warp_shuffle`, `_up`, `_down`, `_xor` are (mask, value, lane or distance, width, 32) as in TVM;
  `ptx_*` and `mma_*` are TVM's.
- A parameter that is a tensor map is a handle; the attribute `mlcc.tensor_maps` has what is fixed of it, by its name.
  The argument of the launch is a `T.tensor_map` (`tensor_map`).
- An assertion of the program that fails stores its number, counted from 1 in `DeviceKernel.asserts`, to the int32 at a
  last parameter, which code has only where there are assertions and no text shows. Checked indices count among them:
  the first that fails also stores the index and the extent, int64 each, 8 and 16 bytes behind
  (`mlcc.runtime.abi.ERROR_RECORD_BYTES`).

The host's code is loop code whose statements are loops, conditions, bindings of scalars, allocations of global memory,
assertions and launches. A launch calls the kernel by name, with an argument for each of its parameters:
`Module.f_kernel(A.data, n)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.checked_index import INDEX_ERROR, checked_index
from mlcc.ir.dtypes import HANDLE, INT32, INT64, DType
from mlcc.ir.node import find, replace, walk
from mlcc.passes.gpu.shared_layout import dynamic_layout
from mlcc.passes.gpu.tensor_map import MapForm
from mlcc.passes.lowering.symbols import symbols_of

KERNEL = "tir.is_global_func"  # attribute of a function that is a kernel
TENSOR_MAPS = "mlcc.tensor_maps"  # attribute of a kernel: the fixed part of each tensor map, by parameter
VOID = DType.of("void")
GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
BLOCK = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
Body = tuple[tir.Stmt, ...]


def block_barrier() -> tir.Evaluate:
    """Return a barrier of all threads of a block, with the arguments of TVM's."""
    args = (tir.StringImm("shared"), c.const(False), c.const(-1))
    return tir.Evaluate(tir.Call(VOID, tir.Op("tir.tvm_storage_sync"), args))


def is_kernel(func: object) -> bool:
    """Return True if a function of a module is a kernel."""
    return isinstance(func, tir.PrimFunc) and bool(func.attrs.get(KERNEL))


def launch_scopes(func: tir.PrimFunc) -> tuple[list[tir.AttrStmt], Body]:
    """Return the launch scopes of a kernel, outermost first, and the code inside them."""
    scopes: list[tir.AttrStmt] = []
    body = func.body
    while len(body) == 1 and isinstance(body[0], tir.AttrStmt) and body[0].key == "thread_extent":
        scopes.append(body[0])
        body = body[0].body
    return scopes, body


def with_thread_code(func: tir.PrimFunc, body: Body) -> tir.PrimFunc:
    """Return a kernel with other code inside its launch scopes."""
    for scope in reversed(launch_scopes(func)[0]):
        body = (replace(scope, body=body),)
    return replace(func, body=body)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKernel:
    """A kernel in the form that emitters and planning use.

    `params` are pointers to global memory (those of buffers have theirs in `buffers`) and scalars, in the order in
    which a launch passes them, and that of the assertions. `extents` maps the thread axes in use to how many there are:
    expressions over the scalar parameters, constants for those of a block where they are known; an axis that is missing
    has one. `axes` are the variables of these axes. `dynamic_shared` is the size in bytes of all `shared.dyn`
    allocations together. `maps` are the parameters that are tensor maps, of type handle in the code.
    """

    name: str
    params: tuple[tir.Var, ...]
    buffers: tuple[tir.Buffer | None, ...]
    extents: Mapping[str, tir.Expr]
    axes: Mapping[str, tir.Var]
    body: Body
    dynamic_shared: tir.Expr
    asserts: tuple[tuple[str, str], ...] = ()  # (kind, message) as the CPU's code has them
    attrs: Mapping[str, object] = field(default_factory=dict)
    maps: Mapping[tir.Var, MapForm] = field(default_factory=dict)

    @staticmethod
    def of(name: str, func: tir.PrimFunc) -> DeviceKernel:
        """Read a kernel from its function. Raises CompileError E0730 for a malformed kernel, E0777 for invalid tensor
        maps."""
        scopes, body = launch_scopes(func)
        _check_form(name, func, scopes, body)
        extents: dict[str, tir.Expr] = {}
        axes: dict[str, tir.Var] = {}
        for scope in scopes:
            assert isinstance(scope.subject, tir.IterVar)
            extents[scope.subject.thread_tag] = _uncast(c.as_expr(scope.value))
            axes[scope.subject.thread_tag] = scope.subject.var
        params = [p if b is None else b.data for p, b in zip(func.params, func.buffers, strict=True)]
        asserts = assertions(body)
        error = [tir.Var("error", HANDLE, tir.PointerType(INT32, "global"))] if asserts else []
        return DeviceKernel(
            name, (*params, *error), (*func.buffers, *[None] * len(error)), extents, axes, body,
            dynamic_layout(body).size, asserts, func.attrs, _tensor_maps(func),
        )  # fmt: skip

    @property
    def dimensions(self) -> list[tir.Var]:
        """Return the variables that buffer sizes consist of, alone or in products: none of them is negative."""
        dims: dict[tir.Var, None] = {}
        for buffer in self.buffers:
            stack = list(buffer.shape) if buffer is not None else []
            while stack:
                node = stack.pop()
                if isinstance(node, tir.Mul):
                    stack += [node.lhs, node.rhs]
                elif isinstance(node, tir.Cast) and node.dtype.kind == "int":
                    stack.append(node.value)
                elif isinstance(node, tir.Var) and node.dtype.kind == "int":
                    dims[node] = None
        return list(dims)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProgram:
    """A PrimFunc for a GPU: the host code `func` and the kernels that it launches."""

    func: tir.PrimFunc
    kernels: tuple[DeviceKernel, ...]

    @staticmethod
    def of(func: tir.PrimFunc, functions: Mapping[str, Any]) -> DeviceProgram:
        """Return the host code with its kernels, which are functions of the module, in order of their launches."""
        called = (n.op.name for s in func.body for n in walk(s) if is_launch(n))
        kernels = {name: functions[name] for name in called if is_kernel(functions.get(name))}
        return DeviceProgram(func, tuple(DeviceKernel.of(name, kernel) for name, kernel in kernels.items()))


def is_launch(node: object) -> bool:
    """Return True if a node of the host code calls a function of the module."""
    return isinstance(node, tir.Call) and isinstance(node.op, relax.GlobalVar)


def assertions(body: Body) -> tuple[tuple[str, str], ...]:
    """Return the kind and message of each assertion and index check that may fail, without duplicates."""
    checks: dict[tuple[str, str], None] = {}
    for stmt in body:
        for node in walk(stmt):
            if isinstance(node, tir.AssertStmt) and not tir.const_int(node.condition):
                checks.setdefault((node.kind, "".join(node.message)))
            elif (check := checked_index(node)) is not None:
                checks.setdefault((INDEX_ERROR, check.message))
    return tuple(checks)


def _check_form(name: str, func: tir.PrimFunc, scopes: list[tir.AttrStmt], body: Body) -> None:
    """Raise CompileError E0730 for launch scopes inside the code, an axis with two launch scopes, and sizes that no
    parameter determines: a text may contain these.
    """
    tags = [scope.subject.thread_tag for scope in scopes if isinstance(scope.subject, tir.IterVar)]
    invalid_tags = [tag for tag in tags if tag not in (*GRID, *BLOCK) or tags.count(tag) > 1]
    if invalid_tags:
        why = f"`{invalid_tags[0]}` is not an axis of a launch, or has two launch scopes"
        raise _malformed_kernel(name, why, func)
    inside = (n for stmt in body for n in find(stmt, tir.For, tir.AttrStmt))
    bound = next((n for n in inside if _binds_threads(n)), None)
    if bound is not None:
        raise _malformed_kernel(name, "launch scopes must enclose all of its code", bound)
    unknown = symbols_of(func)
    if unknown:
        why = f"`{unknown[0].name}` is not one of its parameters, and a launch must pass all sizes"
        raise _malformed_kernel(name, why, func)


def _binds_threads(node: tir.For | tir.AttrStmt) -> bool:
    return node.key == "thread_extent" if isinstance(node, tir.AttrStmt) else node.thread is not None


def _malformed_kernel(name: str, why: str, at: tir.PrimFunc | tir.Stmt) -> CompileError:
    return CompileError(error("E0730", f"`{name}` is not a valid kernel: {why}", at.span))


def _uncast(extent: tir.Expr) -> tir.Expr:
    """Return the extent before it was cast to the int32 of the axis: a launch rejects values that do not fit."""
    return extent.value if isinstance(extent, tir.Cast) and extent.value.dtype is INT64 else extent


def _tensor_maps(func: tir.PrimFunc) -> dict[tir.Var, MapForm]:
    """Return the static part of each parameter that is a tensor map."""
    stated = func.attrs.get(TENSOR_MAPS) or {}
    by_name = {p.name: p for p in func.params if p.dtype.is_handle}
    unknown = [name for name in stated if name not in by_name]
    if unknown:
        message = f"`{TENSOR_MAPS}` names `{unknown[0]}`, which is not a parameter of type handle"
        raise CompileError(error("E0777", message, func.span))
    return {by_name[name]: MapForm.of(fields, func.span) for name, fields in stated.items()}
