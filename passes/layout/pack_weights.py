"""What a kernel makes from weights alone is made once, at compile time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import HANDLE
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace, walk
from mlcc.ir.tensor_data import TensorData, storage_dtype
from mlcc.ir.visit import substitute
from mlcc.passes.fusion.fused_kernel import part_of
from mlcc.passes.graph.dead_code import entry_functions, keep_reachable
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import CALL_TIR, call_tir, tensor_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import is_call, tir_callee


@dataclass(frozen=True)
class PackWeights(Pass):
    """Evaluate the loop nests of TIR functions that read constants only, and pass their results instead.

    A schedule that packs an operand into panels does so in a loop nest of its own. Where the operand is a weight that
    is known, the panels become a constant of the module. What a nest makes may take `growth` times the bytes of the
    constants that it reads, padding of a few panels beside.

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
        made = map_relax_functions(module, lambda _, func: packer.visit_function(func))
        if not packer.found:
            return module
        made.functions = {
            name: made.functions.get(name, func) for name, func in packer.builder.module.functions.items()
        }
        return keep_reachable(made, entry_functions(module, (), self.name))


@dataclass(frozen=True, slots=True)
class _Split:
    """A kernel taken apart: `prepare` takes the `constants` (positions of arguments) and makes `packed`; `rest` takes
    the arguments at the positions `kept` and then `packed`."""

    prepare: tir.PrimFunc
    constants: tuple[int, ...]
    packed: tuple[tir.Buffer, ...]
    rest: tir.PrimFunc
    kept: tuple[int, ...]


class _Packer(RelaxMutator):
    def __init__(self, module: IRModule, growth: float) -> None:
        super().__init__(module)
        self.builder = ModuleBuilder(module)
        self.found = False
        self._growth = growth
        self._splits: dict[tuple[str, frozenset[int]], _Split | None] = {}

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        callee = tir_callee(expr)
        func = self.module.functions.get(callee or "")
        if callee is None or not isinstance(func, tir.PrimFunc) or not is_call(expr, CALL_TIR.name):
            return expr
        arguments = expr.args[1]  # type: ignore[attr-defined]
        if not isinstance(arguments, relax.Tuple):
            return expr
        given = arguments.fields
        known = {i: a.data for i, a in enumerate(given) if isinstance(a, relax.Constant) and a.data.array is not None}
        key = callee, frozenset(known)
        if key not in self._splits:
            self._splits[key] = split_off(func, len(given), key[1], self._growth)
        split = self._splits[key]
        if split is None:
            return expr
        panels = _evaluate(split, known)
        if panels is None:
            return expr
        self.found = True
        name = self.builder.add(split.rest, callee)
        made = call_tir(name, split.rest, [*(given[i] for i in split.kept), *panels], expr.struct_info)  # type: ignore[arg-type]
        symbolic = expr.args[2:]  # type: ignore[attr-defined]
        return replace(made, args=(*made.args, *symbolic), span=expr.span)


def split_off(func: tir.PrimFunc, inputs: int, known: frozenset[int], growth: float) -> _Split | None:
    """Take the nests of the root block that depend on known inputs alone out of a function; None if there are none.

    The first `inputs` parameters are what the function reads; `known` are positions among them.
    """
    root = func.root
    if root is None or not known or root.match_buffers or root.init:
        return None
    uses = [_Uses.of(stmt) for stmt in root.body]
    known_buffers = {func.buffers[i] for i in known}
    local = set(root.alloc_buffers)
    ready: set[Any] = set(known_buffers)
    taken: list[int] = []
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
            taken.append(at)
            ready |= use.writes
    left = [at for at in range(len(uses)) if at not in taken]
    if not taken or not left:
        return None
    read_later = {b for at in left for b in uses[at].reads}
    made = {b for at in taken for b in uses[at].writes}
    packed = tuple(b for b in root.alloc_buffers if b in made and b in read_later)
    sources = tuple(i for i in sorted(known) if any(func.buffers[i] in uses[at].reads for at in taken))
    if not packed or _bytes(packed) > growth * _bytes(func.buffers[i] for i in sources) + 4096:
        return None
    kept = tuple(i for i in range(inputs) if i not in sources or func.buffers[i] in read_later)
    given = [(func.params[i], func.buffers[i]) for i in range(len(func.params))]
    handles = [(tir.Var(f"p_{b.name}", HANDLE), c.make_buffer(b.name, b.shape, b.dtype)) for b in packed]
    renamed: dict[Any, Any] = {}
    for old, (_, new) in zip(packed, handles, strict=True):
        renamed |= {old: new, old.data: new.data}
    first, later = (substitute(tuple(root.body[i] for i in part), renamed) for part in (taken, left))
    prepare = part_of(root, first, [*(given[i] for i in sources), *handles], made.difference(packed))
    params = [*(given[i] for i in kept), *handles, *given[inputs:]]
    rest = part_of(root, later, params, local - made)
    return _Split(prepare, sources, packed, replace(rest, attrs=func.attrs, span=func.span), kept)


@dataclass(frozen=True, slots=True)
class _Uses:
    """What a statement of a root block reads and writes; `plain` if that is all that it does."""

    reads: set[tir.Buffer]
    writes: set[tir.Buffer]
    plain: bool

    @staticmethod
    def of(stmt: tir.Stmt) -> _Uses:
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
        return _Uses(reads, writes, plain and scalars <= bound)  # a size of another argument is not known


def _is_compact(buffer: tir.Buffer) -> bool:
    """Of known size, one element after the other."""
    return not buffer.strides and all(tir.const_int(n) is not None for n in buffer.shape)


def _bytes(buffers: Any) -> int:
    """Of buffers of known size."""
    return sum(math.prod(n.value for n in b.shape) * b.dtype.bits // 8 for b in buffers)


def _evaluate(split: _Split, known: dict[int, TensorData]) -> list[relax.Constant] | None:
    """The packed operands; None if the interpreter refuses the function."""
    import numpy as np

    from mlcc.errors import MlccError
    from mlcc.interp import run_prim_func

    shapes = [tuple(n.value for n in b.shape) for b in split.packed]  # type: ignore[attr-defined]
    panels = [np.zeros(shape, storage_dtype(b.dtype)) for shape, b in zip(shapes, split.packed, strict=True)]
    try:
        run_prim_func(split.prepare, [*(known[i].array for i in split.constants), *panels])
    except MlccError:
        return None
    finally:
        for i in split.constants:
            known[i].release()
    made = []
    for shape, buffer, panel in zip(shapes, split.packed, panels, strict=True):
        info = tensor_info((c.const(n, "int64") for n in shape), buffer.dtype)
        made.append(relax.Constant(TensorData(buffer.dtype, shape, panel), info))
    return made
