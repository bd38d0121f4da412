"""The pass `rewrite-dataflow-reshape`: replace TIR functions that only reshape by reshapes, which copy nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import iter_map_simplify
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.ops import bind_call
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.queries import tir_callee


@dataclass(frozen=True)
class RewriteDataflowReshape(Pass):
    """Replace calls of TIR functions that only change the shape of a tensor by `R.reshape`.

    This applies to values that stay inside a dataflow block, if source and result have the same layout in memory.

    Before:  lv = R.call_tir(cls.expand_dims, (x,), out_sinfo=R.Tensor((1, 4), dtype="float32"))
    After:   lv = R.reshape(x, R.shape([1, 4]))
    """

    name: ClassVar[str] = "rewrite-dataflow-reshape"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        sources: dict[str, int | None] = {}
        return map_relax_functions(module, lambda _, func: _Reshaper(module, sources).visit_function(func))


class _Reshaper(RelaxMutator):
    """Rewrite a function; `sources` maps functions to the parameter that they reshape, or None."""

    def __init__(self, module: IRModule, sources: dict[str, int | None]) -> None:
        super().__init__(module)
        self.sources = sources

    def visit_binding(self, binding: Any) -> None:
        local = isinstance(binding.var, relax.DataflowVar) and isinstance(binding, relax.VarBinding)
        reshape = self.reshaped(binding.value) if local and self.in_dataflow else None
        if reshape is None:
            super().visit_binding(binding)
        else:
            self.rebind(binding, reshape)

    def reshaped(self, call: Any) -> relax.Expr | None:
        name = tir_callee(call)
        func = self.module.functions.get(name or "")
        if name is None or not isinstance(func, tir.PrimFunc) or not isinstance(call.args[1], relax.Tuple):
            return None
        if name not in self.sources:
            self.sources[name] = reshaped_parameter(func)
        at = self.sources[name]
        if at is None or at >= len(call.args[1].fields):
            return None
        source = self.visit(call.args[1].fields[at])
        old, new = source.struct_info, call.struct_info
        if not isinstance(old, relax.TensorStructInfo) or not isinstance(new, relax.TensorStructInfo):
            return None
        if old.dims is None or new.dims is None or new.shape is None or old.dtype is None or old.dtype is not new.dtype:
            return None
        if not Analyzer().prove_equal(_product(old.dims), _product(new.dims)):
            return None
        return bind_call("reshape", (source, new.shape))


def _product(dims: Sequence[tir.Expr]) -> tir.Expr:
    total: tir.Expr = c.const(1, "int64")
    for dim in dims:
        total = c.mul(total, dim)
    return total


def reshaped_parameter(func: tir.PrimFunc) -> int | None:
    """Return the index of the parameter that a function copies to its last one in row-major order, or None.

    The function is then a reshape: both accesses have equal linear offsets.
    """
    blocks = [n for stmt in func.body for n in find(stmt, tir.Block) if n is not func.root]
    if len(blocks) != 1 or len(blocks[0].body) != 1 or blocks[0].init is not None or blocks[0].match_buffers:
        return None
    store = blocks[0].body[0]
    if not isinstance(store, tir.BufferStore) or not isinstance(store.value, tir.BufferLoad):
        return None
    load = store.value
    if store.buffer is not func.buffers[-1] or load.buffer not in func.buffers[:-1]:
        return None
    if any(b.strides for b in (store.buffer, load.buffer)) or load.buffer.dtype is not store.buffer.dtype:
        return None
    analyzer = Analyzer()
    for axis in blocks[0].iter_vars:
        analyzer.bind(axis.var, axis.dom)
    ranges = {axis.var: axis.dom for axis in blocks[0].iter_vars}
    offsets = [_linear_offset(a.buffer, map(analyzer.simplify, a.indices)) for a in (store, load)]
    is_reshape = analyzer.prove_equal(offsets[0], offsets[1])
    if not is_reshape:
        simplified = [iter_map_simplify([place], ranges)[0] for place in offsets]
        is_reshape = analyzer.prove_equal(simplified[0], simplified[1])
    return func.buffers.index(load.buffer) if is_reshape else None


def _linear_offset(buffer: tir.Buffer, indices: Iterable[tir.Expr]) -> tir.Expr:
    """Return the linear offset of an element, in the dtype of the indices.

    Casts would hide the variables from the analysis.
    """
    offset: tir.Expr = c.const(0, "int64")
    for at, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
        offset = c.add(c.mul(offset, extent), index) if at else index
    return offset
