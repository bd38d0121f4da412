"""The pass `eliminate-common-subexpr`: compute equal values once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.equal import structural_equal, structural_hash
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.queries import is_impure, used_constants, used_vars


@dataclass(frozen=True)
class EliminateCommonSubexpr(Pass):
    """Replace later ones of equal values by the first, so that their bindings become renamings.

    With `call_only` only calls are considered, not tuples and other values. Values with side effects or allocations are
    left alone. `canonicalize` or `dead-code` removes the renamings.

    Before:  lv = R.add(x, y)
             lv1 = R.add(x, y)
             gv = R.multiply(lv, lv1)
    After:   lv = R.add(x, y)
             lv1 = lv
             gv = R.multiply(lv, lv)
    """

    name: ClassVar[str] = "eliminate-common-subexpr"
    call_only: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return map_relax_functions(module, lambda _, f: deduplicated(f, module, self.call_only))


def deduplicated(func: relax.Function, module: IRModule, call_only: bool = False) -> relax.Function:
    """Return the function with common subexpressions eliminated; the same object if there are none."""
    return _Eliminator(module, call_only).visit_function(func)


class _Eliminator(RelaxMutator):
    def __init__(self, module: IRModule, call_only: bool) -> None:
        super().__init__(module)
        self.call_only = call_only
        self.known: dict[tuple[Any, ...], list[Any]] = {}

    def visit_binding(self, binding: relax.Binding) -> None:
        value = self.visit(binding.value)  # type: ignore[attr-defined]
        new_binding: Any = replace(binding, value=value)
        if not self.is_candidate(value):
            self.put(new_binding)
            return
        # the hash ignores the identity of variables and the values of constants
        key = (structural_hash(value), *used_vars(value), *map(_content_sample, used_constants(value)))
        for earlier in self.known.get(key, ()):
            if _equal_bindings(earlier, new_binding):
                self.put(relax.VarBinding(binding.var, earlier.var, span=binding.span))
                self.remap[binding.var] = earlier.var
                self.known[key].append(new_binding)  # after a dataflow block only its outputs are visible
                return
        self.put(new_binding)
        self.known.setdefault(key, []).append(new_binding)

    def is_candidate(self, value: relax.Expr) -> bool:
        if self.call_only and not isinstance(value, relax.Call):
            return False
        return not is_impure(value, self.module) and not _allocates(value)

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        outer = dict(self.remap)
        new_block = super().visit_block(block)
        if isinstance(block, relax.DataflowBlock):  # its local variables are not visible outside
            for bindings in self.known.values():
                bindings[:] = [b for b in bindings if not isinstance(b.var, relax.DataflowVar)]
            self.remap = outer
        return new_block

    def visit_scope(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        outer, self.known = self.known, {k: list(v) for k, v in self.known.items()}
        new_seq = super().visit_scope(seq)
        self.known = outer
        return new_seq

    def visit_function(self, func: relax.Function) -> relax.Function:
        outer, self.known = self.known, {}  # values of the enclosing function are not shared
        new_func = super().visit_function(func)
        self.known = outer
        return new_func


def _content_sample(constant: relax.Constant) -> tuple[object, ...]:
    """Return some elements of a constant, which tell most different constants apart without comparing all elements."""
    array = constant.data.array
    if array is None:
        return ((constant.data.sha256 or constant.data.key)[:16],)
    flat = array.reshape(-1)
    return (flat[:: max(1, flat.size // 16)].tobytes(), flat[-16:].tobytes())


def _allocates(value: relax.Expr) -> bool:
    """Return True if a value allocates memory: equal calls then give distinct buffers and must not be merged."""
    op = ops.get(value.op.name) if isinstance(value, relax.Call) and isinstance(value.op, tir.Op) else None
    return op is not None and op.impl.allocates


def _equal_bindings(a: Any, b: Any) -> bool:
    """Return True if two bindings bind equal values, and for `match_cast` also equal struct infos."""
    if isinstance(a, relax.MatchCast) != isinstance(b, relax.MatchCast):
        return False
    if isinstance(a, relax.MatchCast) and not structural_equal(a.struct_info, b.struct_info):
        return False
    return structural_equal(a.value, b.value)
