"""The pass `fold-transposes`: fold transposed copies into the matrix products that read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.visit import Rewriter, renew_vars
from mlcc.passes.auto_schedule.contraction import match_contraction
from mlcc.passes.auto_schedule.eligibility import why_ineligible
from mlcc.passes.auto_schedule.stage import stages_of
from mlcc.passes.fusion.transposed_copies import Axes, permutation
from mlcc.passes.graph.dead_code import entry_functions, keep_reachable
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import CALL_TIR, call_tir
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import is_call, tir_callee


@dataclass(frozen=True)
class FoldTransposes(Pass):
    """Let matrix products read the source of a transposed copy instead of the copy.

    The copy that a schedule makes of an operand transposes it at no extra cost. The operand must have no other use in
    the product's function; functions that are scheduled already are left alone.

    Before:  t = R.call_tir(cls.transpose, (b,), ...); y = R.call_tir(cls.matmul, (a, t), ...)
    After:   y = R.call_tir(cls.matmul_T, (a, b), ...)         # b[vj, vk] in the place of t[vk, vj]
    """

    name: ClassVar[str] = "fold-transposes"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        folder = _Folder(module)
        folded = map_relax_functions(module, lambda _, func: folder.visit_function(func), primitive=False)
        if not folder.changed:
            return module
        folded.functions = {
            name: folded.functions.get(name, func) for name, func in folder.builder.module.functions.items()
        }
        return keep_reachable(folded, entry_functions(module, (), self.name))


class _Folder(RelaxMutator):
    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.builder = ModuleBuilder(module)
        self.changed = False
        self._copies: dict[relax.Expr, tuple[relax.Expr, Axes]] = {}  # the source of each copy, and its permutation
        self._reading: dict[tuple[str, tuple[Axes | None, ...]], tir.PrimFunc | None] = {}

    def visit_binding(self, binding: relax.Binding) -> None:
        super().visit_binding(binding)
        value: Any = binding.value  # type: ignore[attr-defined]
        func = self._function(value)
        tensors = [] if func is None else [a for a in value.args[1].fields if not isinstance(a, relax.PrimValue)]
        axes = permutation(func) if func is not None and len(tensors) == 1 else None
        if axes is not None and isinstance(binding, relax.VarBinding):
            self._copies[binding.var] = (self.visit(tensors[0]), axes)

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        func = self._function(expr)
        if func is None:
            return expr
        operands = expr.args[1].fields  # type: ignore[attr-defined]
        permutations = tuple(self._copies[a][1] if a in self._copies else None for a in operands)
        name = tir_callee(expr) or ""
        if not any(permutations) or len(func.params) != len(operands) + 1:
            return expr
        if (name, permutations) not in self._reading:
            self._reading[name, permutations] = _fold_into_product(func, permutations)
        product = self._reading[name, permutations]
        if product is None:
            return expr
        self.changed = True
        arguments = [self._copies[a][0] if a in self._copies else a for a in operands]
        return call_tir(self.builder.add(product, f"{name}_T"), product, arguments, expr.struct_info)  # type: ignore[arg-type]

    def _function(self, expr: Any) -> tir.PrimFunc | None:
        """Return the unscheduled TIR function that a call calls with tensors and sizes, or None."""
        func = self.module.functions.get(tir_callee(expr) or "")
        if not is_call(expr, CALL_TIR.name) or not isinstance(func, tir.PrimFunc) or len(expr.args) != 2:
            return None
        if not isinstance(expr.args[1], relax.Tuple) or why_ineligible(func) is not None:
            return None
        numbers = [isinstance(a, relax.PrimValue) for a in expr.args[1].fields]
        return func if [b is None for b in func.buffers] == [*numbers, False] else None


def _fold_into_product(func: tir.PrimFunc, permutations: tuple[Axes | None, ...]) -> tir.PrimFunc | None:
    """Return a product that reads the sources of operands that are transposed copies.

    Return None for any other function, and if the product uses such an operand elsewhere.
    """
    stages = stages_of(func)
    products = [s for s in stages if s.reduced and not isinstance(match_contraction(s), str)]
    if len(products) != 1:
        return None
    product = match_contraction(products[0])
    assert not isinstance(product, str)
    rewritten = func
    for buffer, axes in zip(func.buffers, (*permutations, None), strict=True):
        if axes is None:
            continue
        readers = [s for s in stages if any(a.buffer is buffer for a in s.accesses)]
        if buffer is None or len(readers) != 1:
            return None
        operand = next((o for o in (product.lhs, product.rhs) if o.buffer is buffer), None)
        windows = product.lhs.windows or product.rhs.windows
        copied = not windows and readers[0].only_moves_elements
        if not copied and (readers != products or operand is None or operand.windows):
            return None
        rewritten = _TransposeRewriter(buffer, axes).visit(rewritten)
    return renew_vars(rewritten)


class _TransposeRewriter(Rewriter):
    """Replace a transposed copy by its source, with permuted indices."""

    def __init__(self, copy: tir.Buffer, axes: Axes) -> None:
        super().__init__()
        self._axes = axes
        self._source = c.make_buffer(copy.name, tuple(copy.shape[n] for n in axes), copy.dtype)
        self._memo[id(copy)] = (copy, self._source)

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.BufferLoad(buffer=buffer, indices=indices) if buffer is self._source:
                return replace(node, indices=tuple(indices[n] for n in self._axes))
            case tir.BufferRegion(buffer=buffer, region=region) if buffer is self._source:
                return replace(node, region=tuple(region[n] for n in self._axes))
        return node
