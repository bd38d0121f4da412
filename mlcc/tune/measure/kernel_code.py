"""Compile the kernel of one scheduled function, without the host code of an artifact."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.driver import build_pipeline, run_passes
from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.effects import READ, WRITE, effects
from mlcc.ir.module import IRModule
from mlcc.ir.visit import substitute
from mlcc.machine.target import LlvmTarget, Target
from mlcc.passes.layout.pack_weights import PackWeights, split_packing
from mlcc.recursion import FRAMES_WITH_C, deep_recursion, gc_disabled
from mlcc.targets.llvm.codegen.context import EmitOptions, ModuleContext
from mlcc.targets.llvm.codegen.ir_text import FunctionText, ModuleText
from mlcc.targets.llvm.codegen.signature import Kernel as EmittedKernel
from mlcc.targets.llvm.codegen.signature import llvm_params
from mlcc.targets.llvm.codegen.versions import Version
from mlcc.targets.llvm.object.compile import Machine, compile_unit, target_machine
from mlcc.targets.llvm.object.merge import merge_objects
from mlcc.targets.llvm.object.native import compile_with, import_kernels
from mlcc.targets.llvm.object.passes import Code, codegen_level
from mlcc.tune.measure.kernel import BUFFER, VALUE, Argument, Entry, Kernel, Word

MAIN, PREPARE = "main", "prepare"


@dataclass(frozen=True)
class CompileOptions:
    """The compile options of a task's candidates.

    `known` are positions of constant parameters, `sizes` the values of symbolic sizes and scalar parameters by name.
    """

    target: LlvmTarget
    level: int = 2
    known: frozenset[int] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)


def build_kernel(
    func: tir.PrimFunc, recipe: CompileOptions, known_kernel: Callable[[str], Kernel | None] = lambda digest: None
) -> Kernel:
    """Compile a scheduled function as a build at that level would. LLVM is skipped if the digest's kernel is known.

    Raises CompileError for functions that no build accepts, E1141 for those that only a whole program can run.
    """
    with deep_recursion(FRAMES_WITH_C), gc_disabled():
        return _build(func, recipe, known_kernel)


def kernel_arguments(func: tir.PrimFunc, sizes: Mapping[str, int]) -> tuple[Argument, ...]:
    """The parameters of a function at these sizes. Raises CompileError E1141 where a size is not among them."""
    uses = effects(func)
    values = _symbol_values(func, sizes)
    limits = _index_limits(func)
    arguments = []
    for var, buffer in zip(func.params, func.buffers, strict=True):
        if buffer is None:
            arguments.append(Argument(var.name, str(var.dtype), None, value=sizes.get(var.name, 1)))
            continue
        use = uses.get(buffer.data, 0)
        shape = tuple(_number(n, values, buffer) for n in buffer.shape)
        limit = limits.get(buffer)
        below = None if limit is None else _number(limit, values, buffer)
        arguments.append(Argument(buffer.name, str(buffer.dtype), shape, bool(use & READ), bool(use & WRITE), below))
    return tuple(arguments)


def _build(func: tir.PrimFunc, recipe: CompileOptions, known_kernel: Callable[[str], Kernel | None]) -> Kernel:
    functions, panels = _split_packing(func, recipe)
    module = IRModule({name: one.with_attr("global_symbol", name) for name, one in functions.items()})
    passes = build_pipeline(module, recipe.target, recipe.level, "")
    lowered = run_passes(module, passes, target=recipe.target, verify_each=False, builds=True)
    return _Emission(lowered, recipe).kernel(func, panels, known_kernel)


@dataclass(frozen=True)
class _PackedPanels:
    """The packed weights that `prepare` produces.

    `kept` and `constants` are positions: of the arguments that remain, and of those that `prepare` reads.
    """

    kept: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    buffers: tuple[tir.Buffer, ...] = ()


def _split_packing(func: tir.PrimFunc, recipe: CompileOptions) -> tuple[dict[str, tir.PrimFunc], _PackedPanels | None]:
    """Split off the packing of constant parameters, as a build does: the kernel and, if there is any, `prepare`."""
    uses = effects(func, certain=True)
    inputs = next(
        (i for i, b in enumerate(func.buffers) if b is not None and uses.get(b.data, 0) & WRITE), len(func.params)
    )
    split = split_packing(func, inputs, recipe.known, PackWeights.growth)
    if split is None or split.prepare is None:
        return {MAIN: func}, None
    rest = split.rest(split.kept, split.packed, range(len(split.packed)))
    outputs = range(inputs, len(func.params))
    panels = _PackedPanels(
        (*split.kept, *(-1 - i for i in range(len(split.packed))), *outputs), split.constants, split.packed
    )
    return {MAIN: rest, PREPARE: split.prepare}, panels


class _Emission:
    """Emits a lowered module as LLVM IR and compiles it."""

    def __init__(self, module: IRModule, recipe: CompileOptions) -> None:
        self.recipe = recipe
        self.machine = _machine(recipe.target)
        self.functions = {n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
        target = recipe.target
        options = EmitOptions(num_cores=target.num_cores, fast_math=target.fast_math)
        self.natives = import_kernels(module, self.machine, frozenset(), True)
        self.text = ModuleText(self.machine.triple, names=False)
        self.ctx = ModuleContext(
            self.text, self.functions, self.machine.enabled, options, self.machine.function_attrs,
            self.natives.functions,
        )  # fmt: skip
        self.ctx.least = Version(self.machine.cpu, self.machine.enabled, self.machine.function_attrs)

    def kernel(
        self, func: tir.PrimFunc, panels: _PackedPanels | None, known_kernel: Callable[[str], Kernel | None]
    ) -> Kernel:
        emitted = {name: self.ctx.kernel(name) for name in (MAIN, PREPARE) if name in self.functions}
        if self.ctx.packed:
            raise CompileError(
                error("E1141", "the kernel calls packed functions, which are not available for measurements")
            )
        units = self._units(emitted)
        digest = self._digest(units)
        known = known_kernel(digest)
        if known is not None:
            return known
        values = _symbol_values(func, self.recipe.sizes)
        sizes = () if panels is None else tuple(_bytes(b, values) for b in panels.buffers)
        numbers = range(len(func.params)) if panels is None else [_memory(at, func) for at in panels.kept]
        main = self._entry(MAIN, emitted[MAIN], numbers)
        prepare = None
        if panels is not None:
            packed = range(len(func.params), len(func.params) + len(panels.buffers))
            prepare = self._entry(PREPARE, emitted[PREPARE], [*panels.constants, *packed])
        return Kernel(digest, self._object(units), main, prepare, sizes)

    def _units(self, emitted: Mapping[str, EmittedKernel]) -> list[tuple[str, Code]]:
        """Divide the module into LLVM units as a build does, with an entry after each kernel."""
        entries = {k.symbol: _entry_text(name, k) for name, k in emitted.items()}
        if self.natives.texts:
            return [("\n".join([self.text.text(), *entries.values()]), Code.LOOPS)]
        units = []
        for code in (Code.VECTORS, Code.LOOPS):
            functions = [f for f in self.text.functions if f.scalar_loops == (code is Code.LOOPS)]
            if functions:
                units.append((self._with_entries(functions, entries), code))
        helpers, _, _ = self.text.rest()
        return [*units, (helpers, Code.HOST)] if "\ndefine" in helpers else units

    def _with_entries(self, functions: Sequence[FunctionText], entries: Mapping[str, str]) -> str:
        own = [entries[f.symbol] for f in functions if f.symbol in entries]
        return "\n".join([self.text.part(functions), *own])

    def _digest(self, units: Sequence[tuple[str, Code]]) -> str:
        """A hash of the code, which has no names of variables."""
        hasher = hashlib.sha256(repr((self.machine, self.recipe.level, self.natives.texts)).encode())
        for text, code in units:
            hasher.update(code.value.encode())
            hasher.update(text.encode())
        return hasher.hexdigest()[:32]

    def _object(self, units: Sequence[tuple[str, Code]]) -> bytes:
        level = self.recipe.level
        if self.natives.texts:
            ((text, _),) = units
            allowed = frozenset(self.ctx.externs)
            return compile_with(text, self.natives, self.machine, level, frozenset({"obj"}), allowed).obj
        return merge_objects([_compiled(text, code, self.machine, level) for text, code in units])

    def _entry(self, name: str, emitted: EmittedKernel, numbers: Sequence[int]) -> Entry:
        """Return the call of a kernel: memory numbers for buffer parameters, values for scalars and symbols."""
        func = self.functions[name]
        values = _symbol_values(func, self.recipe.sizes)
        words: list[Word] = []
        for param, number in zip(emitted.signature.params, numbers, strict=True):
            is_buffer = param.buffer is not None
            words.append((BUFFER, number) if is_buffer else (VALUE, _bits(param.var, self.recipe.sizes)))
        words += [(VALUE, values[symbol]) for symbol in emitted.signature.symbols]
        workspace = _number(emitted.workspace, {**values, **_scalars(func, self.recipe.sizes)}, None)
        return Entry(f"mlcc_measure_{name}", tuple(words), workspace)


def _memory(at: int, func: tir.PrimFunc) -> int:
    """The number of the memory at a position: negative ones are panels, which lie behind all arguments."""
    return at if at >= 0 else len(func.params) - 1 - at


@functools.cache
def _machine(target: LlvmTarget) -> Machine:
    return Machine.of(target)


@functools.cache
def _llvm_machine(machine: Machine, level: int) -> Any:
    return target_machine(machine, level)


@functools.lru_cache(maxsize=64)
def _compiled(text: str, code: Code, machine: Machine, level: int) -> bytes:
    """Compile a unit to an object. Memoized: candidates share the thread pool, and often the surrounding loops."""
    return compile_unit(text, machine, level, code, _llvm_machine(machine, codegen_level(level, code)))


def _entry_text(name: str, kernel: EmittedKernel) -> str:
    """The LLVM IR of `Entry.symbol`."""
    if kernel.signature.result is not None:
        raise CompileError(error("E1141", "the kernel returns a value instead of a tensor"))
    types = [type for type, _ in llvm_params(kernel.signature)]
    loads = "".join(
        f"  %at{i} = getelementptr i8, ptr %set, i64 {8 * i}\n  %p{i} = load {type}, ptr %at{i}, align 8\n"
        for i, type in enumerate(types)
    )
    given = ", ".join(f"{type} %p{i}" for i, type in enumerate(types))
    return f"""
define i32 @mlcc_measure_{name}(ptr %words, i64 %stride, i64 %sets, i64 %count) nounwind {{
entry:
  br label %again
again:
  %left = phi i64 [ %count, %entry ], [ %less, %done ]
  %turn = phi i64 [ 0, %entry ], [ %next, %done ]
  %offset = mul i64 %turn, %stride
  %set = getelementptr i8, ptr %words, i64 %offset
{loads}  %code = call i32 @"{kernel.symbol}"({given})
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %end, label %done
done:
  %less = sub i64 %left, 1
  %following = add i64 %turn, 1
  %wraps = icmp eq i64 %following, %sets
  %next = select i1 %wraps, i64 0, i64 %following
  %finished = icmp eq i64 %less, 0
  br i1 %finished, label %end, label %again
end:
  ret i32 %code
}}
"""


# ---------------------------------------------------------------- sizes


def _symbol_values(func: tir.PrimFunc, sizes: Mapping[str, int]) -> dict[tir.Var, int]:
    """Return the values of all variables in shapes, strides and offsets. Raises CompileError E1141."""
    from mlcc.passes.lowering.symbols import symbols_of

    offsets = {b.elem_offset for b in func.buffers if b is not None}
    symbol_values = {}
    for symbol in symbols_of(func):
        if symbol.name not in sizes and symbol not in offsets:
            help = f"pass one: --size {symbol.name}=128"
            raise CompileError(error("E1141", f"`{symbol.name}` has no value to measure with", symbol.span, help=help))
        symbol_values[symbol] = sizes.get(symbol.name, 0)
    return symbol_values | _scalars(func, sizes)


def _scalars(func: tir.PrimFunc, sizes: Mapping[str, int]) -> dict[tir.Var, int]:
    """The values of integer parameters."""
    given = zip(func.params, func.buffers, strict=True)
    return {v: sizes.get(v.name, 1) for v, b in given if b is None and (v.dtype.is_int or v.dtype.is_bool)}


def _bits(var: tir.Var, sizes: Mapping[str, int]) -> int:
    """The value of a scalar parameter as a word of memory."""
    import numpy as np

    value = sizes.get(var.name, 1)
    if var.dtype.is_int or var.dtype.is_bool:
        return value & 0xFFFF_FFFF_FFFF_FFFF
    if var.dtype.is_handle:
        raise CompileError(error("E1141", f"`{var.name}` is a pointer that only a whole program has", var.span))
    if str(var.dtype) == "bfloat16":
        return int(np.float32(value).view(np.uint32)) >> 16
    word = np.zeros(1, np.uint64)
    word.view(np.dtype(str(var.dtype)))[0] = value
    return int(word[0])


def _number(expr: tir.Expr, values: Mapping[tir.Var, int], buffer: tir.Buffer | None) -> int:
    """Evaluate an expression over sizes. Raises CompileError E1141."""
    known = tir.const_int(expr)
    if known is not None:
        return known
    given: dict[Any, Any] = {v: tir.IntImm(v.dtype, n) for v, n in values.items()}
    value = tir.const_int(Analyzer().simplify(substitute(expr, given)))
    if value is None:
        raise CompileError(error("E1141", f"`{expr}` has no value to measure with", buffer.span if buffer else None))
    return value


def _bytes(buffer: tir.Buffer, values: Mapping[tir.Var, int]) -> int:
    total = buffer.dtype.bytes * buffer.dtype.lanes
    for n in buffer.shape:
        total *= _number(n, values, buffer)
    return total


def _index_limits(func: tir.PrimFunc) -> dict[tir.Buffer, tir.Expr]:
    """Map the integer buffers whose elements index other buffers to the indexed extents."""
    from mlcc.ir.node import find

    extents: dict[tir.Buffer, tir.Expr] = {}
    for access in find(func.body, tir.BufferLoad, tir.BufferStore):
        for index, extent in zip(access.indices, access.buffer.shape, strict=False):
            for inner in find(index, tir.BufferLoad):
                extents.setdefault(inner.buffer, extent)
    return extents


def llvm_target(target: Target) -> LlvmTarget:
    """The target as one of CPUs. Raises CompileError E0794."""
    return LlvmTarget.parse(target)
