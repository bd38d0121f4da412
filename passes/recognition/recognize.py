"""The pass `recognize-operators`: replace subgraphs by single operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ops.shapes import prove_equal
from mlcc.passes.graph.canonicalize import renamed
from mlcc.passes.graph.dead_code import remove_unused
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.recognition.activations import activation
from mlcc.passes.recognition.attention import attention
from mlcc.passes.recognition.graph import Graph, axes_of, dims_of, is_elementwise
from mlcc.passes.recognition.norms import group_norm, norm
from mlcc.relax.construct import equal_struct_info, shape_expr


@dataclass(frozen=True)
class RecognizeOperators(Pass):
    """Replace GELU, SiLU, norms and attention that are written out in a dataflow block by one operator each.

    Products and sums may have any order, scales any place; square roots may be divisors or factors. Masks are added to
    scores, or replace them; values may be computed in a wider dtype than their inputs. Results change only by rounding.
    Values with other uses are kept beside the operator; attention whose scores have other uses stays as it is.

    Before:  lv = R.multiply(x, R.const(0.70710678, "float32"))
             lv1 = R.add(R.erf(lv), R.const(1.0, "float32"))
             gv = R.multiply(R.multiply(x, lv1), R.const(0.5, "float32"))
    After:   gv = R.nn.gelu(x)
    """

    name: ClassVar[str] = "recognize-operators"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def change(_: str, func: relax.Function) -> relax.Function:
            recognized = _Recognizer(module, Graph(func)).visit_function(func)
            return func if recognized is func else remove_unused(renamed(recognized, module), module)

        return map_relax_functions(module, change, primitive=False)


class _Recognizer(RelaxMutator):
    def __init__(self, module: IRModule, graph: Graph) -> None:
        super().__init__(module)
        self.graph = graph

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        outer, self.graph.block = self.graph.block, {binding.var for binding in block.bindings}
        rewritten = super().visit_block(block)
        self.graph.block = outer
        return rewritten

    def put(self, binding: relax.Binding) -> None:
        """Append a binding and record it in the graph."""
        if isinstance(binding, relax.VarBinding):
            self.graph.uses.value.setdefault(binding.var, binding.value)
            self.graph.block.add(binding.var)
        super().put(binding)

    def visit_binding(self, binding: relax.Binding) -> None:
        value = binding.value  # type: ignore[attr-defined]
        plain = self.in_dataflow and isinstance(binding, relax.VarBinding)
        replacement = self._recognized(binding.var, value) if plain else None
        if replacement is None or not equal_struct_info(replacement.struct_info, value.struct_info):
            super().visit_binding(binding)
            return
        self.rebind(
            binding, replace(replacement, span=value.span) if isinstance(replacement, relax.Call) else replacement
        )

    def _recognized(self, var: relax.Var, value: relax.Expr) -> relax.Expr | None:
        call = self.graph.call(value)
        if call is None or value is not call:
            return None
        name = call.op.name
        replacement = None
        if is_elementwise(call) and name not in ("relax.permute_dims", "relax.reshape"):
            return self._arithmetic(var)
        if name == "relax.matmul":
            replacement = attention(self.graph, var, self)
        elif name == "relax.permute_dims":
            replacement = self._fold_transposes(call)
        elif name == "relax.reshape":
            replacement = self._fold_batched_transpose(call)
        if replacement is not None:
            self.graph.uses.value[var] = replacement
        return replacement

    def _arithmetic(self, var: relax.Var) -> relax.Expr | None:
        return activation(self.graph, var) or norm(self.graph, var, self) or group_norm(self.graph, var, self)

    def _fold_transposes(self, call: relax.Call) -> relax.Expr | None:
        """Fold two consecutive transposes into one, or none."""
        inner = self.graph.call(call.args[0], "permute_dims")
        if inner is None:
            return None
        first, second = axes_of(inner), axes_of(call)
        axes = [first[at] for at in second]
        if axes == sorted(axes):
            return inner.args[0]
        return ops.bind_call("permute_dims", (inner.args[0],), {"axes": axes})

    def _fold_batched_transpose(self, call: relax.Call) -> relax.Expr | None:
        """Fold a matrix transpose between two reshapes of the batch dimensions into a single transpose."""
        middle = self.graph.call(call.args[0], "permute_dims")
        first = None if middle is None else self.graph.call(middle.args[0], "reshape")
        if middle is None or first is None or axes_of(middle) != [0, 2, 1]:
            return None
        source_dims, result = dims_of(first.args[0]), dims_of(call)
        flat = dims_of(first)
        if source_dims is None or result is None or flat is None or len(result) < 3 or len(source_dims) < 3:
            return None
        pairs = (*zip(source_dims[-2:], flat[-2:], strict=True), *zip(result[:-3:-1], source_dims[-2:], strict=True))
        if not all(prove_equal(a, b) for a, b in pairs):
            return None
        reshaped = self._reshaped(first.args[0], (*result[:-2], *source_dims[-2:]))
        rank = len(result)
        return ops.bind_call("permute_dims", (reshaped,), {"axes": [*range(rank - 2), rank - 1, rank - 2]})

    def _reshaped(self, value: relax.Expr, dims: tuple[tir.Expr, ...]) -> relax.Expr:
        own_dims = dims_of(value) or ()
        if len(own_dims) == len(dims) and all(prove_equal(a, b) for a, b in zip(own_dims, dims, strict=True)):
            return value
        return self.emit_op("reshape", value, shape_expr(dims))
