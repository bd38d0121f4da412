"""The pass `broadcast-operands`: broadcast operands with symbolic extents, so that every result has a known shape."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops, te
from mlcc.arith.proofs import is_one
from mlcc.ir import calls, construct, relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ops import OpDef, topi
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import Dims, common_extents, known_dims, prove_equal, result_dims
from mlcc.passes.graph.lower_to_tir import Cache, lower_call
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import shape_expr
from mlcc.relax.module_builder import ModuleBuilder


@dataclass(frozen=True)
class BroadcastOperands(Pass):
    """Broadcast operands whose extents are only known at run time: each must equal the result's, or be 1.

    Extents `n` and `m` give the extent `m if n == 1 else n`; `n` and 4 give 4. Any other sizes are an error on entry to
    the function. TVM leaves such a call with a result of unknown shape.

    Before:  lv = R.add(x, w)       # (n, 4) and (4, 4)
    After:   sizes = R.match_cast(R.shape([T.if_then_else(n == 1, 4, n)]), R.Shape([4]))
             lv = R.call_tir(cls.broadcast_operand, (x,), out_sinfo=R.Tensor((4, 4), "float32"))
             lv1 = R.add(lv, w)
    """

    name: ClassVar[str] = "broadcast-operands"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        builder = ModuleBuilder(module)
        cache: Cache = {}
        for name, func in module.functions.items():
            if isinstance(func, relax.Function):
                builder.module.functions[name] = _Broadcaster(builder, cache).visit_function(func)
        return builder.module


class _Broadcaster(RelaxMutator):
    def __init__(self, builder: ModuleBuilder, cache: Cache) -> None:
        super().__init__(builder.module)
        self.builder = builder
        self.cache = cache

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not (isinstance(expr, relax.Call) and isinstance(expr.op, tir.Op)):
            return expr
        op = ops.get(expr.op.name)
        if op is None or op.impl.infer is None:
            return expr
        if op.short == "broadcast_to":
            return self._broadcast_to(expr)
        if op.impl.kind is FusionKind.BROADCAST or op.short == "matmul":
            return self._operator(op, expr, matrix_axes=2 if op.short == "matmul" else 0)
        return expr

    def _broadcast_to(self, call: relax.Call) -> relax.Expr:
        """Handle `broadcast_to` itself, whose lowering takes symbolic extents to be equal."""
        data, target = _dims(call.args[0]), _dims(call)
        if data is None or target is None:
            return call
        stretched = self._stretch(call.args[0], data, target, call)
        return call if stretched is call.args[0] else stretched

    def _operator(self, op: OpDef, call: relax.Call, matrix_axes: int) -> relax.Expr:
        """Rewrite a call whose operands broadcast, except for the last `matrix_axes` axes of each."""
        operands = [_dims(a) for a in call.args if isinstance(a.struct_info, relax.TensorStructInfo)]
        if _dims(call) is not None or None in operands:
            return call
        infer = op.impl.infer
        assert infer is not None
        with common_extents():
            result = infer(call)
        if not isinstance(result, relax.TensorStructInfo) or result.dims is None:
            return call
        inner_dims = sum(len(dims or ()) > 1 for dims in operands) if matrix_axes else 0
        outer_dims = result.dims[: len(result.dims) - inner_dims]
        new_call: relax.Call = replace(
            call, args=tuple(self._operand(a, outer_dims, matrix_axes, call) for a in call.args)
        )
        return replace(new_call, struct_info=infer(new_call))

    def _operand(self, operand: relax.Expr, outer_dims: Dims, matrix_axes: int, user: relax.Call) -> relax.Expr:
        """Return an operand, broadcast to those extents of the result that it may not have."""
        dims = _dims(operand)
        if dims is None:
            return operand
        outer = dims[: max(len(dims) - matrix_axes, 0)]
        wanted_dims = outer_dims[len(outer_dims) - len(outer) :]
        target = tuple(have if is_one(have) else want for have, want in zip(outer, wanted_dims, strict=True))
        return self._stretch(operand, dims, (*target, *dims[len(outer) :]), user)

    def _stretch(self, operand: relax.Expr, dims: Dims, target: Dims, user: relax.Call) -> relax.Expr:
        """Return an operand broadcast to `target`, after a check that its extents allow it."""
        aligned = target[len(target) - len(dims) :]
        unproven = [(a, b) for a, b in zip(dims, aligned, strict=True) if not is_one(a) and not prove_equal(a, b)]
        if not unproven:
            return operand
        checked = shape_expr([calls.if_then_else(construct.equal(a, 1), b, a) for a, b in unproven])
        required = shape_expr([b for _, b in unproven])
        kind = relax.DataflowVar if self.in_dataflow else relax.Var
        info = relax.ShapeStructInfo(required.values, len(required.values))
        self.put(relax.MatchCast(kind("sizes", info), checked, info, span=user.span))
        if not isinstance(operand, (relax.Var, relax.Constant)):
            operand = self.emit(operand)
        call = ops.bind_call("broadcast_to", (operand, shape_expr(target)), span=user.span)
        return self.emit(lower_call(_BROADCAST_OPERAND, call, self.builder, self.cache))


def _lower_broadcast_operand(call: relax.Call, x: te.Tensor, *shape: Any) -> te.Tensor:
    dims = result_dims(call)
    return topi.compute_ax(dims, lambda *i: x(*topi.broadcast_index(x, dims, i, equal=False)), "T_broadcast_to")


_BROADCAST_TO = ops.get("broadcast_to")
assert _BROADCAST_TO is not None
# `R.broadcast_to` for extents that may be 1; TVM's function assumes equality
_BROADCAST_OPERAND = dataclasses.replace(
    _BROADCAST_TO, name="relax.broadcast_operand", impl=Impl("x", lower=_lower_broadcast_operand)
)


def _dims(expr: relax.Expr) -> Dims | None:
    return known_dims(expr.struct_info) if isinstance(expr.struct_info, relax.TensorStructInfo) else None
