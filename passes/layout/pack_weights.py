"""The pass `pack-weights`: constant evaluation of kernel parts that depend on weights only, such as packing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import HANDLE, DType
from mlcc.ir.equal import structural_equal
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace, walk
from mlcc.ir.tensor_data import TensorData, storage_dtype
from mlcc.ir.versions import VERSIONS, version_names
from mlcc.ir.visit import substitute
from mlcc.passes.fusion.fused_kernel import extract_function
from mlcc.passes.graph.dead_code import entry_functions, keep_reachable
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.layout.element_order import in_element_order
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import CALL_TIR, call_tir, tensor_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import is_call, tir_callee


@dataclass(frozen=True)
class PackWeights(Pass):
    """Evaluate the loop nests of TIR functions that only read constants, and pass their results instead.

    A schedule packs an operand into panels in a loop nest of its own. If the operand is a weight with known values, the
    panels become a constant of the module. The results of a nest may take `growth` times the bytes of the constants
    that it reads, plus padding of a few panels.

    Before:  def dense(x, w, out):                  # R.call_tir(cls.dense, (x, R.const(...)), ...)
                 for ...: w_packed[...] = w[...]
                 for ...: out[...] += x[...] * w_packed[...]
    After:   def dense(x, w_packed, out):           # R.call_tir(cls.dense, (x, R.const(...)), ...)
                 for ...: out[...] += x[...] * w_packed[...]
    """

    name: ClassVar[str] = "pack-weights"
    needs_blocks: ClassVar[bool] = True
    growth: float = 2.0

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        packer = _Packer(module, self.growth)
        packed = map_relax_functions(module, lambda _, func: packer.visit_function(func))
        if not packer.changed:
            return module
        packed.functions = {
            name: packed.functions.get(name, func) for name, func in packer.builder.module.functions.items()
        }
        return keep_reachable(packed, entry_functions(module, (), self.name))


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """A kernel split into `prepare`, which packs constants, and the statements `later`, which read the results.

    `prepare` takes the `constants` (positions of arguments) and computes `packed`. `later` also reads the arguments at
    the positions `kept`. `computed` are the buffers computed before.
    """

    func: tir.PrimFunc
    inputs: int
    kept: tuple[int, ...]
    later: tuple[tir.Stmt, ...]
    prepare: tir.PrimFunc | None = None
    constants: tuple[int, ...] = ()
    packed: tuple[tir.Buffer, ...] = ()
    computed: frozenset[tir.Buffer] = frozenset()

    def packs_like(self, other: _Split) -> bool:
        """Return True if both pack the same arguments in the same way."""
        return self.constants == other.constants and structural_equal(self.prepare, other.prepare)

    def rest(
        self, kept: Sequence[int], panels: Sequence[_Panel | tir.Buffer], positions: Sequence[int]
    ) -> tir.PrimFunc:
        """Return the rest of the kernel, with packed arguments as parameters.

        It takes the arguments at the positions `kept`, then `panels`; `positions` are those of the panels that it
        packed.
        """
        func, root = self.func, self.func.root
        assert root is not None
        parameters = list(zip(func.params, func.buffers, strict=True))
        buffers = [c.make_buffer(p.name, p.shape, p.dtype) for p in panels]
        handles = [(tir.Var(f"p_{b.name}", HANDLE), b) for b in buffers]
        renamed: dict[Any, Any] = {}
        for old, at in zip(self.packed, positions, strict=True):
            renamed |= {old: buffers[at], old.data: buffers[at].data}
        params = [*(parameters[i] for i in kept), *handles, *parameters[self.inputs :]]
        later = substitute(self.later, renamed)
        kernel = extract_function(root, later, params, set(root.alloc_buffers) - self.computed)
        return replace(kernel, attrs=func.attrs, span=func.span)


_COMPARE_BYTES = 1 << 22  # bytes compared at a time


@dataclass(slots=True)
class _Panel:
    """A packed constant, shared by the versions of a kernel that pack it alike."""

    name: str
    dtype: DType
    data: Any

    @property
    def shape(self) -> tuple[tir.Expr, ...]:
        return tuple(c.const(n, "int64") for n in self.data.shape)

    def absorb(self, dtype: DType, data: Any) -> bool:
        """Return True if one of both data is a prefix of the other; this panel then holds the longer one."""
        own_data = self.data
        if own_data is data:
            return True
        if self.dtype is not dtype or not data.ndim or own_data.shape[1:] != data.shape[1:]:
            return False
        count = min(len(own_data), len(data))
        step = max(1, _COMPARE_BYTES * count // max(own_data[:count].nbytes, 1))  # avoids large copies
        if any(
            own_data[at : min(at + step, count)].tobytes() != data[at : min(at + step, count)].tobytes()
            for at in range(0, count, step)
        ):
            return False
        if len(data) > count:
            self.data = data
        return True

    def constant(self) -> relax.Constant:
        return relax.Constant(TensorData(self.dtype, self.data.shape, self.data), tensor_info(self.shape, self.dtype))


class _Packer(RelaxMutator):
    def __init__(self, module: IRModule, growth: float) -> None:
        super().__init__(module)
        self.builder = ModuleBuilder(module)
        self.changed = False
        self._growth = growth
        self._splits: dict[tuple[str, frozenset[int]], list[_Split] | None] = {}
        self._rests: dict[tuple[Any, ...], tuple[str, tir.PrimFunc]] = {}

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        callee = tir_callee(expr)
        func = self.module.functions.get(callee or "")
        if callee is None or not isinstance(func, tir.PrimFunc) or not is_call(expr, CALL_TIR.name):
            return expr
        arguments = expr.args[1]  # type: ignore[attr-defined]
        if not isinstance(arguments, relax.Tuple):
            return expr
        operands = arguments.fields
        known = {
            i: a.data for i, a in enumerate(operands) if isinstance(a, relax.Constant) and a.data.array is not None
        }
        key = callee, frozenset(known)
        if key not in self._splits:
            self._splits[key] = self._split_versions(func, len(operands), key[1])
        splits = self._splits[key]
        packed = None if splits is None else _pack(splits, known)
        if splits is None or packed is None:
            return expr
        self.changed = True
        panels, positions = packed
        kept = [i for i in range(len(operands)) if any(i in split.kept for split in splits)]
        cache_key = (*key, *(p.data.shape for p in panels), *map(tuple, positions))
        if cache_key not in self._rests:
            self._rests[cache_key] = self._add_remaining(
                callee, func, [s.rest(kept, panels, o) for s, o in zip(splits, positions, strict=True)]
            )
        name, remaining = self._rests[cache_key]
        new_operands = [*(operands[i] for i in kept), *(p.constant() for p in panels)]
        call = call_tir(name, remaining, new_operands, expr.struct_info)  # type: ignore[arg-type]
        symbolic = expr.args[2:]  # type: ignore[attr-defined]
        return replace(call, args=(*call.args, *symbolic), span=expr.span)

    def _split_versions(self, func: tir.PrimFunc, inputs: int, known: frozenset[int]) -> list[_Split] | None:
        """Split a kernel and its versions; None if none of them packs a known input."""
        kernels = [func]
        for name in version_names(func):
            version = self.module.functions.get(name)
            if not isinstance(version, tir.PrimFunc):
                return None
            kernels.append(version)
        splits = [split_packing(kernel, inputs, known, self._growth) for kernel in kernels]
        if not any(splits) or any(kernel.root is None for kernel in kernels):
            return None
        all_inputs = tuple(range(inputs))
        return [
            split or _Split(kernel, inputs, all_inputs, kernel.root.body)  # type: ignore[union-attr]
            for split, kernel in zip(splits, kernels, strict=True)
        ]

    def _add_remaining(self, callee: str, func: tir.PrimFunc, rests: list[tir.PrimFunc]) -> tuple[str, tir.PrimFunc]:
        """Add the rest of a kernel and its versions to the module; return its name and function."""
        names = [self.builder.add(r, v) for r, v in zip(rests[1:], version_names(func), strict=True)]
        rest = rests[0].with_attr(VERSIONS, tuple(names)) if names else rests[0]
        return self.builder.add(rest, callee), rest


def _pack(splits: list[_Split], known: dict[int, TensorData]) -> tuple[list[_Panel], list[list[int]]] | None:
    """Evaluate the panels of a kernel and its versions; return them, and for each version its panels' positions.

    Return None if the interpreter refuses one. Equal panels are shared, so that further versions add code but no
    weights.
    """
    panels: list[_Panel] = []
    positions: list[list[int]] = []
    evaluated: list[tuple[_Split, list[Any]]] = []
    for split in splits:
        arrays = next((arrays for other, arrays in evaluated if split.packs_like(other)), None)
        if arrays is None:
            arrays = _evaluate(split, known)
            if arrays is None:
                return None
            evaluated.append((split, arrays))
        positions_used: list[int] = []
        for buffer, data in zip(split.packed, arrays, strict=True):
            unused = [at for at in range(len(panels)) if at not in positions_used]
            position = next((at for at in unused if panels[at].absorb(buffer.dtype, data)), len(panels))
            if position == len(panels):
                panels.append(_Panel(buffer.name, buffer.dtype, data))
            positions_used.append(position)
        positions.append(positions_used)
    return panels, positions


def split_packing(func: tir.PrimFunc, inputs: int, known: frozenset[int], growth: float) -> _Split | None:
    """Split a function into the nests that depend on known inputs alone, and the rest; None if there are no such nests.

    The first `inputs` parameters are the function's inputs; `known` are positions among them.
    """
    root = func.root
    if root is None or not known or root.match_buffers or root.init:
        return None
    uses = [_StatementUses.of(stmt) for stmt in root.body]
    known_buffers = {func.buffers[i] for i in known}
    local = set(root.alloc_buffers)
    ready: set[Any] = set(known_buffers)
    packing: list[int] = []
    for at, use in enumerate(uses):
        elsewhere = {b for other in range(len(uses)) if other != at for b in uses[other].writes}
        depends = use.reads - use.writes
        if (
            use.plain
            and depends
            and depends <= ready
            and use.writes <= local - elsewhere
            and all(_is_compact(b) for b in use.writes)
        ):
            packing.append(at)
            ready |= use.writes
    remaining = [at for at in range(len(uses)) if at not in packing]
    if not packing or not remaining:
        return None
    read_later = {b for at in remaining for b in uses[at].reads}
    computed = {b for at in packing for b in uses[at].writes}
    packed = tuple(b for b in root.alloc_buffers if b in computed and b in read_later)
    sources = tuple(i for i in sorted(known) if any(func.buffers[i] in uses[at].reads for at in packing))
    if not packed or _bytes(packed) > growth * _bytes(func.buffers[i] for i in sources) + 4096:
        return None
    kept = tuple(i for i in range(inputs) if i not in sources or func.buffers[i] in read_later)
    inputs_used = [(func.params[i], func.buffers[i]) for i in sources]
    handles = [(tir.Var(f"p_{b.name}", HANDLE), c.make_buffer(b.name, b.shape, b.dtype)) for b in packed]
    renamed: dict[Any, Any] = {}
    for old, (_, new) in zip(packed, handles, strict=True):
        renamed |= {old: new, old.data: new.data}
    packing_body = substitute(tuple(in_element_order(root.body[i]) for i in packing), renamed)
    prepare = extract_function(root, packing_body, [*inputs_used, *handles], computed.difference(packed))
    later = tuple(root.body[i] for i in remaining)
    return _Split(func, inputs, kept, later, prepare, sources, packed, frozenset(computed))


@dataclass(frozen=True, slots=True)
class _StatementUses:
    """The buffers that a statement of a root block reads and writes; `plain` if it has no other effects."""

    reads: set[tir.Buffer]
    writes: set[tir.Buffer]
    plain: bool

    @staticmethod
    def of(stmt: tir.Stmt) -> _StatementUses:
        reads, writes, plain = set(), set(), isinstance(stmt, (tir.For, tir.BlockRealize))
        bound: set[tir.Var] = set()
        scalars: set[tir.Var] = set()
        for node in walk(stmt):
            match node:
                case tir.BufferLoad(buffer=buffer):
                    reads.add(buffer)
                case tir.BufferStore(buffer=buffer):
                    writes.add(buffer)
                case tir.For(var=var) | tir.Bind(var=var) | tir.IterVar(var=var) | tir.Let(var=var):
                    bound.add(var)
                case tir.Block(match_buffers=matched, alloc_buffers=inside):
                    plain = plain and not matched and not inside
                case tir.AllocBuffer() | tir.DeclBuffer():
                    plain = False
                case tir.Call(args=args):
                    handles = any(isinstance(a, tir.Var) and a.dtype.is_handle for a in args)
                    plain = plain and effect_of(node) <= Effect.READ and not handles
                case tir.Var() if not node.dtype.is_handle:
                    scalars.add(node)
        return _StatementUses(reads, writes, plain and scalars <= bound)  # sizes of other arguments are unknown


def _is_compact(buffer: tir.Buffer) -> bool:
    """Return True if a buffer has a known size and contiguous elements."""
    return not buffer.strides and all(tir.const_int(n) is not None for n in buffer.shape)


def _bytes(buffers: Any) -> int:
    """Return the bytes of buffers of known size."""
    return sum(math.prod(n.value for n in b.shape) * b.dtype.bits // 8 for b in buffers)


def _evaluate(split: _Split, known: dict[int, TensorData]) -> list[Any] | None:
    """Return the packed operands; None if the interpreter refuses the function."""
    import numpy as np

    from mlcc.errors import MlccError
    from mlcc.interp import run_prim_func

    if split.prepare is None:
        return []
    shapes = [tuple(n.value for n in b.shape) for b in split.packed]  # type: ignore[attr-defined]
    panels = [np.zeros(shape, storage_dtype(b.dtype)) for shape, b in zip(shapes, split.packed, strict=True)]
    try:
        run_prim_func(split.prepare, [*(known[i].array for i in split.constants), *panels])
    except MlccError:
        return None
    finally:
        for i in split.constants:
            known[i].release()
    return panels
