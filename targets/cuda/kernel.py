"""Emit a DeviceKernel as an NVVM function: `emit_kernel`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlcc.errors import CompileError, Diagnostic, error
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel
from mlcc.passes.gpu.wgmma_layout import accumulators
from mlcc.recursion import deep_recursion
from mlcc.runtime.launch.tensor_map import BYTES as MAP_BYTES
from mlcc.targets.cuda.context import DeviceContext
from mlcc.targets.cuda.emitter import DeviceEmitter
from mlcc.targets.cuda.storage import GLOBAL, DeviceStorage
from mlcc.targets.cuda.unrolling import loops_to_unroll, unroll_marked
from mlcc.targets.llvm.codegen import casts
from mlcc.targets.llvm.codegen.ir_text import integer
from mlcc.targets.llvm.codegen.types import memory_type

MAX_THREADS = 1024
MAP_ALIGNMENT = 64
MAX_STATIC_SHARED = 48 * 1024
MAX_ARGUMENT_BYTES, _MAX_ARGUMENT_BYTES_BEFORE_ISA_8_1 = 32764, 4096  # bytes
_AXIS_LIMITS = {"threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64}
_SREG = {**dict(zip(GRID, ("ctaid.x", "ctaid.y", "ctaid.z"), strict=True)),
         **dict(zip(BLOCK, ("tid.x", "tid.y", "tid.z"), strict=True))}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Facts of an emitted kernel: symbol, static shared memory in bytes, and constant block extents along x, y and
    z."""

    name: str
    symbol: str
    static_shared: int
    block: tuple[int | None, int | None, int | None]


def emit_kernel(kernel: DeviceKernel, ctx: DeviceContext) -> KernelFacts:
    """Emit a kernel into the module. Raises CompileError."""
    ctx.begin(kernel)
    try:
        with deep_recursion():
            facts = _emit(replace(kernel, body=unroll_marked(kernel.body)), ctx)
        if ctx.problems:
            raise CompileError(list({(p.code, p.message, p.primary.span): p for p in ctx.problems}.values()))
    except CompileError as exc:
        raise CompileError([_with_device_code(p) for p in exc.diagnostics]) from None
    return facts


def _with_device_code(diagnostic: Diagnostic) -> Diagnostic:
    """Change the code of a diagnostic of the shared emitter (E0701) to that for GPUs (E0730)."""
    return replace(diagnostic, code="E0730") if diagnostic.code == "E0701" else diagnostic


def _emit(kernel: DeviceKernel, ctx: DeviceContext) -> KernelFacts:
    block = _block_size(kernel)
    _check_arguments(kernel, ctx.arch.isa)
    symbol = ctx.symbol(kernel.name)
    storage = DeviceStorage(ctx, symbol, kernel.body)
    noalias = bool(kernel.attrs.get("tir.noalias"))
    written = _written_params(kernel)
    params, attrs = [], []
    for param, buffer in zip(kernel.params, kernel.buffers, strict=True):
        name = buffer.name if buffer is not None else param.name
        if param in kernel.maps:  # the copy engine reads it from parameter memory
            params.append(("ptr", name))
            attrs.append(f'byval([{MAP_BYTES} x i8]) align {MAP_ALIGNMENT} "nvvm.grid_constant"')
        elif param.dtype.is_handle:
            params.append((GLOBAL, name))
            access = [] if written is None or param in written else ["readonly"]
            attrs.append(" ".join([*(["noalias"] if noalias else []), *access, "align 16" if buffer else "align 4"]))
        else:
            params.append((memory_type(param.dtype), name))
            attrs.append("")
    fn = ctx.module.function("void", symbol, params, linkage="ptx_kernel", param_attrs=attrs, attrs=_attrs(block))
    e = DeviceEmitter(fn, ctx, storage)
    for param, value in zip(kernel.params, fn.params, strict=True):
        e.bind(param, casts.from_memory(e, value, param.dtype))
        if noalias and param.dtype.is_handle and param not in kernel.maps:
            e.distinct.add(param)
    e.aligned |= {p for p, buffer in zip(kernel.params, kernel.buffers, strict=True) if buffer is not None}
    if kernel.asserts:
        e.error = fn.params[-1]
    _bind_axes(e, kernel)
    _assume_sizes(e, kernel)
    e.unrolled = loops_to_unroll(kernel.body)
    e.accumulators = accumulators(kernel.body)
    e.body(kernel.body)
    e.finish()
    if storage.static_shared > MAX_STATIC_SHARED:
        message = f"`{kernel.name}` has {storage.static_shared} bytes of static shared memory"
        help = "allocate in the scope `shared.dyn`, which may be larger"
        raise CompileError(error("E0732", message, text=f"at most {MAX_STATIC_SHARED} fit", help=help))
    return KernelFacts(kernel.name, symbol, storage.static_shared, block)


def _block_size(kernel: DeviceKernel) -> tuple[int | None, int | None, int | None]:
    """Return the threads of a block along each axis; None if known only at launch. Raises CompileError for too many."""
    sizes: list[int | None] = []
    for tag in BLOCK:
        extent = kernel.extents.get(tag)
        size = 1 if extent is None else tir.const_int(extent)
        if size is not None and size > _AXIS_LIMITS[tag]:
            message = f"`{kernel.name}` has {size} threads along {tag}"
            raise CompileError(error("E0732", message, extent.span if extent else None, f"at most {_AXIS_LIMITS[tag]}"))
        sizes.append(size)
    x, y, z = sizes
    if x is not None and y is not None and z is not None and x * y * z > MAX_THREADS:
        message = f"`{kernel.name}` has {x * y * z} threads in a block"
        raise CompileError(error("E0732", message, text=f"at most {MAX_THREADS}", help="bind smaller loops"))
    return x, y, z


def _check_arguments(kernel: DeviceKernel, isa: tuple[int, int]) -> None:
    """Raise CompileError E0732 if the arguments exceed the limit of a launch."""
    size = 0
    for param in kernel.params:
        bytes_ = 8 if param.dtype.is_handle else param.dtype.bytes * param.dtype.lanes
        align = bytes_
        if param in kernel.maps:
            bytes_, align = MAP_BYTES, MAP_ALIGNMENT
        size = -(-size // align) * align + bytes_
    limit = MAX_ARGUMENT_BYTES if isa >= (8, 1) else _MAX_ARGUMENT_BYTES_BEFORE_ISA_8_1
    if size > limit:
        message = f"`{kernel.name}` has {size} bytes of arguments"
        help = "use fewer buffers per kernel: `split-kernels`, or less fusion"
        raise CompileError(
            error("E0732", message, text=f"at most {limit} fit with PTX ISA {isa[0]}.{isa[1]}", help=help)
        )


def _attrs(block: tuple[int | None, int | None, int | None]) -> str:
    """Return the attributes of a kernel.

    The block size tells LLVM the ranges of thread indices, and ptxas the number of registers per thread.
    """
    known = [max(size, 1) for size in block if size is not None]
    if len(known) < 3:
        return f'convergent nounwind "nvvm.maxntid"="{MAX_THREADS}"'
    return f'convergent nounwind "nvvm.reqntid"="{",".join(map(str, known))}"'


def _bind_axes(e: DeviceEmitter, kernel: DeviceKernel) -> None:
    for tag, var in kernel.axes.items():
        callee = e.ctx.module.declare(f"llvm.nvvm.read.ptx.sreg.{_SREG[tag]}", "i32", [])
        index = e.fn.call("i32", callee, [])
        e.bind(var, index if var.dtype.bits == 32 else e.fn.convert("zext", index, f"i{var.dtype.bits}"))


def _assume_sizes(e: DeviceEmitter, kernel: DeviceKernel) -> None:
    """Assume in LLVM that dimensions of buffers are not negative, so that divisions by them become unsigned."""
    factors = kernel.dimensions
    assume = e.ctx.module.declare("llvm.assume", "void", ["i1"]) if factors else ""
    for var in factors:
        value = e.values.get(var)
        if value is not None:
            e.fn.call("void", assume, [e.fn.icmp("sge", value, integer(value.type, 0))])


def _written_params(kernel: DeviceKernel) -> set[tir.Var] | None:
    """Return the pointer parameters that the kernel may write through; None if unknown."""
    sources: dict[tir.Var, tir.Var] = {}  # buffer declared as a view -> its base
    written: set[tir.Var] = set()
    for stmt in kernel.body:
        for node in walk(stmt):
            match node:
                case tir.DeclBuffer(data=tir.Var() as data, buffer=buffer):
                    sources[buffer.data] = data
                case tir.BufferStore(buffer=buffer):
                    written.add(buffer.data)
                case tir.Call() if any(a.dtype.is_handle for a in node.args) or _escapes(node):
                    return None
    for data in tuple(written):
        while data in sources:
            data = sources[data]
            written.add(data)
    return written


def _escapes(node: tir.Call) -> bool:
    return node.op in (tir.Op("tir.address_of"), tir.Op("tir.tvm_access_ptr"))
