"""Attention becomes one kernel of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.backends import gpu_facts
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.visit import substitute
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.ops.shapes import shapes_known
from mlcc.passes.attention.kernel import kernel
from mlcc.passes.attention.operands import Operands
from mlcc.passes.attention.operator import NAMES, from_operator
from mlcc.passes.attention.spec import Attention
from mlcc.passes.attention.tail import Tail
from mlcc.passes.attention.written_out import WrittenOut, find, from_graph
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.patterns.pattern_match import Index
from mlcc.relax.construct import call_tir, prim_value
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import Uses


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Make attention one kernel of a GPU that never has all scores in memory.

    It goes over tiles of keys with a running maximum and sum for each query ("online softmax", as FlashAttention does).

    Before:  lv = R.nn.attention(q, k, v, causal_mask="TopLeft")
    After:   lv = R.call_tir(cls.attention, (q, k, v), ...)
    """

    name: ClassVar[str] = "fuse-attention"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        facts = gpu_facts(ctx.target)
        builder = ModuleBuilder(module)

        def change(name: str, func: relax.Function) -> relax.Function:
            return _Fuser(builder, func, facts).visit_function(func)

        fused = map_relax_functions(module, change, primitive=False)
        fused.functions = {n: fused.functions.get(n, f) for n, f in builder.module.functions.items()}
        return fused


class _Fuser(RelaxMutator):
    def __init__(self, builder: ModuleBuilder, func: relax.Function, facts: GpuFacts) -> None:
        super().__init__(builder.module)
        self.builder = builder
        self.facts = facts
        self.index = Index.of(func)
        self.uses = Uses.of(func)
        # what is to be fused, by the variable of the last result
        self.found: dict[relax.Var, tuple[Tail, WrittenOut | relax.Call]] = {}
        for var, value in self.index.value.items():
            one = value if _is_attention(value) else find(value, self.index, self.uses)
            if one is not None:
                tail = Tail.of(var, self.index, self.uses)
                self.found[tail.last] = tail, one  # type: ignore[assignment]

    def visit_binding(self, binding: relax.Binding) -> None:
        tail, one = self.found.get(binding.var, (None, None))
        if tail is None or one is None:
            super().visit_binding(binding)
            return
        operands = Operands(self.index)
        if isinstance(one, WrittenOut):
            call = self.fused(from_graph(one, tail, operands), operands, "attention", binding.var)
        else:
            call = self.fused(from_operator(one, tail, operands), operands, one.op.name.rpartition(".")[2], binding.var)
        if call is None:
            super().visit_binding(binding)
        else:
            self.rebind(binding, call)

    def fused(self, what: Attention | None, operands: Operands, hint: str, var: relax.Var) -> relax.Expr | None:
        """Return the call of a kernel for an attention, or None if no kernel is available."""
        if what is None or not supported(what):
            return None
        func = kernel(what, self.facts)
        if func is None:
            return None
        name = self.builder.add(func, hint)
        given = operands.given
        back = {new: old for old, new in given.fresh.items()}
        passed = [self.visit(e) for e in given.passed]
        sizes = [prim_value(substitute(p, back)) for p, b in zip(what.params, what.buffers, strict=True) if b is None]
        assert var.struct_info is not None
        return call_tir(name, func, [*passed, *sizes], var.struct_info)


def _is_attention(value: relax.Expr) -> bool:
    """Return True for a call of an attention operator whose shapes are known."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in NAMES and shapes_known(value)


def supported(what: Attention) -> bool:
    if what.dtype.kind not in ("float", "bfloat") or what.dtype.bits not in (16, 32):
        return False
    return 0 < what.width <= 256 and 0 < what.columns <= 256
