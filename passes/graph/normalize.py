"""The pass `normalize`: A-normal form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import flatten_block, make_seq, merge_blocks

_LEAVES = (
    relax.Var, relax.Constant, relax.GlobalVar, relax.ExternFunc, relax.ShapeExpr, relax.PrimValue, relax.StringImm,
    relax.DataTypeImm,
)  # fmt: skip


@dataclass(frozen=True)
class Normalize(Pass):
    """Bind every intermediate result to its own variable, join adjacent blocks, and remove empty ones.

    Operands are then variables, constants, or tuples of these, and so are results of functions and branches.

    Before:  gv = R.add(R.multiply(x, y), y)
    After:   lv = R.multiply(x, y)
             gv = R.add(lv, y)
    """

    name: ClassVar[str] = "normalize"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return map_relax_functions(module, lambda _, func: normalized(func, module))


def normalized(func: relax.Function, module: IRModule) -> relax.Function:
    """Return the function in A-normal form; the same object if it is already."""
    return _Normalizer(module).visit_function(func)


def is_leaf(expr: relax.Expr) -> bool:
    """Return True for a leaf of A-normal form: an expression that may be an operand without being bound."""
    return isinstance(expr, _LEAVES)


class _Normalizer(RelaxMutator):
    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        match expr:
            case relax.Call(args=args):
                op = expr.op if not isinstance(expr.op, relax.Function) else self.emit(expr.op)
                return replace(expr, op=op, args=self.operands(args))
            case relax.Tuple(fields=fields):
                return replace(expr, fields=self.operands(fields))
            case relax.TupleGetItem(tuple_value=value):
                return replace(expr, tuple_value=self.operand(value))
        return expr

    def operands(self, exprs: tuple[relax.Expr, ...]) -> tuple[relax.Expr, ...]:
        leaves = tuple(self.operand(e) for e in exprs)
        return exprs if all(a is b for a, b in zip(leaves, exprs, strict=True)) else leaves

    def operand(self, expr: relax.Expr) -> relax.Expr:
        return expr if is_leaf(expr) or isinstance(expr, relax.Tuple) else self.emit(expr)

    def visit_binding(self, binding: relax.Binding) -> None:
        value = self.visit(binding.value)  # type: ignore[attr-defined]
        if isinstance(binding, relax.MatchCast):
            value = self.operand(value)
        self.put(replace(binding, value=value))

    def _if(self, expr: relax.If) -> relax.If:
        new_if = super()._if(expr)
        return replace(new_if, condition=self.operand(new_if.condition))

    def visit_seq(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [part for b in merge_blocks(seq.blocks) for part in flatten_block(self.visit_block(b))]
        self._binding_stack.append([])
        body = self.operand(self.visit(seq.body))
        blocks += flatten_block(relax.BindingBlock(tuple(self._binding_stack.pop())))
        new_seq = replace(make_seq(blocks, body), span=seq.span)
        same = len(new_seq.blocks) == len(seq.blocks) and all(
            a is b for a, b in zip(new_seq.blocks, seq.blocks, strict=True)
        )
        return seq if same and body is seq.body else new_seq
