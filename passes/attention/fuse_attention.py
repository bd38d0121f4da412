"""The pass `fuse-attention`: replace attention by one GPU kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.backends import gpu_facts
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.visit import substitute
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.ops.shapes import shapes_known
from mlcc.passes.attention.kernel import attention_function
from mlcc.passes.attention.match_attention import AttentionMatch, from_match, match_attention
from mlcc.passes.attention.operands import Operands
from mlcc.passes.attention.operator import ATTENTION_OPERATORS, from_operator
from mlcc.passes.attention.result_layout import ResultLayout
from mlcc.passes.attention.spec import Attention
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_with_added_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.patterns.pattern_match import Index
from mlcc.relax.construct import call_tir, prim_value
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import DefUse


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Replace attention by one GPU kernel that never stores the full score matrix.

    The kernel visits tiles of keys with a running maximum and sum for each query (online softmax, as in
    FlashAttention).

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

        return map_with_added_functions(module, builder, change)


class _Fuser(RelaxMutator):
    def __init__(self, builder: ModuleBuilder, func: relax.Function, facts: GpuFacts) -> None:
        super().__init__(builder.module)
        self.builder = builder
        self.facts = facts
        self.index = Index.of(func)
        self.uses = DefUse.of(func)
        # matches to fuse, by the variable of the last result
        self.matches: dict[relax.Var, tuple[ResultLayout, AttentionMatch | relax.Call]] = {}
        for var, value in self.index.value.items():
            match = value if _is_attention(value) else match_attention(value, self.index, self.uses)
            if match is not None:
                tail = ResultLayout.of(var, self.index, self.uses)
                self.matches[tail.last] = tail, match  # type: ignore[assignment]

    def visit_binding(self, binding: relax.Binding) -> None:
        tail, match = self.matches.get(binding.var, (None, None))
        if tail is None or match is None:
            super().visit_binding(binding)
            return
        operands = Operands(self.index)
        if isinstance(match, AttentionMatch):
            call = self.kernel_call(from_match(match, tail, operands), operands, "attention", binding.var)
        else:
            call = self.kernel_call(
                from_operator(match, tail, operands), operands, match.op.name.rpartition(".")[2], binding.var
            )
        if call is None:
            super().visit_binding(binding)
        else:
            self.rebind(binding, call)

    def kernel_call(
        self, attention: Attention | None, operands: Operands, hint: str, var: relax.Var
    ) -> relax.Expr | None:
        """Return the call of a kernel that computes an attention, or None if no kernel is available."""
        if attention is None or not is_supported(attention):
            return None
        func = attention_function(attention, self.facts)
        if func is None:
            return None
        name = self.builder.add(func, hint)
        arguments = operands.arguments
        original_vars = {new: old for old, new in arguments.fresh.items()}
        passed = [self.visit(e) for e in arguments.passed]
        sizes = [
            prim_value(substitute(p, original_vars))
            for p, b in zip(attention.params, attention.buffers, strict=True)
            if b is None
        ]
        assert var.struct_info is not None
        return call_tir(name, func, [*passed, *sizes], var.struct_info)


def _is_attention(value: relax.Expr) -> bool:
    """Return True for a call of an attention operator with known shapes."""
    return (
        isinstance(value, relax.Call) and getattr(value.op, "name", "") in ATTENTION_OPERATORS and shapes_known(value)
    )


def is_supported(attention: Attention) -> bool:
    if attention.dtype.kind not in ("float", "bfloat") or attention.dtype.bits not in (16, 32):
        return False
    return 0 < attention.width <= 256 and 0 < attention.columns <= 256
