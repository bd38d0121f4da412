"""The pass `fold-batch-norm`: fold batch norms into the weights of preceding convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.passes.graph.clean_up import clean_up_rewritten
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import prim_value, shape_expr
from mlcc.relax.queries import DefUse, is_call, is_primitive


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Fold a batch norm for inference into the constant weight of the `conv2d` before it.

    Everything but the convolution and one addition then consists of constants, which `fold-constants` evaluates.
    Weights in OIHW or IOHW and results in NCHW are supported. As in TVM, the moving mean and variance are used
    regardless of the batch norm's attribute `training`, and values with other uses are computed twice. With `strict`
    such cases are left alone, and a constant bias between the two is folded as well.

    Before:  lv = R.nn.conv2d(x, W)
             lv1 = R.nn.batch_norm(lv, GAMMA, BETA, MEAN, VAR, axis=1)
             gv = lv1[0]
    After:   lv = R.nn.conv2d(x, W1)
             gv = R.add(lv, B1)                   # fold-batch-norm,fold-constants
    """

    name: ClassVar[str] = "fold-batch-norm"
    strict: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def change(_: str, func: relax.Function) -> relax.Function:
            if is_primitive(func):
                return func
            return clean_up_rewritten(_Folder(module, DefUse.of(func), self.strict).visit_function(func), func, module)

        return map_relax_functions(module, change)


class _Folder(RelaxMutator):
    def __init__(self, module: IRModule, uses: DefUse, strict: bool) -> None:
        super().__init__(module)
        self.uses, self.strict = uses, strict

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.TupleGetItem) or expr.index != 0:
            return expr
        norm: Any = self.uses.resolve(expr.tuple_value)
        if not is_call(norm, "relax.nn.batch_norm"):
            return expr
        source, bias = self.without_bias(norm.args[0]) if self.strict else (norm.args[0], None)
        conv: Any = self.uses.resolve(source)
        if not is_call(conv, "relax.nn.conv2d"):
            return expr
        shared = any(self.uses.count.get(v, 0) > 1 for v in (expr.tuple_value, norm.args[0], source))  # type: ignore[arg-type]
        if self.strict and (shared or norm.attrs["training"]):
            return expr
        constants = [self.uses.resolve(a) for a in (conv.args[1], *norm.args[1:])]
        return self.folded(conv, norm, constants, bias) if _can_fold(conv, norm, constants) else expr

    def without_bias(self, expr: relax.Expr) -> tuple[relax.Expr, relax.Expr | None]:
        """Split a sum into the data and a constant per-channel bias; return the expression and None otherwise."""
        total: Any = self.uses.resolve(expr)
        if is_call(total, "relax.add"):
            for source, bias in (total.args, total.args[::-1]):
                bias_value: Any = self.uses.resolve(bias)
                bias_constant = (
                    self.uses.resolve(bias_value.args[0]) if is_call(bias_value, "relax.reshape") else bias_value
                )
                dims = getattr(bias.struct_info, "dims", None) or ()
                by_channel = len(dims) == 4 and all(tir.const_int(dims[at]) == 1 for at in (0, 2, 3))
                if isinstance(bias_constant, relax.Constant) and by_channel:
                    return source, self.visit(bias)
        return expr, None

    def folded(self, conv: Any, norm: Any, constants: list[Any], bias: relax.Expr | None) -> relax.Expr:
        """Return conv(x, w * s) + (beta - mean * s + bias * s), where s is gamma / sqrt(variance + epsilon)."""
        weight, gamma, beta, mean, variance = constants
        channels, one = gamma.struct_info.dims[0], c.const(1, "int64")
        channel_axis = conv.attrs["kernel_layout"].index("O")
        epsilon = prim_value(c.const(norm.attrs["epsilon"], gamma.struct_info.dtype))
        deviation = self.emit_op("sqrt", self.emit_op("add", variance, epsilon))
        scale = self.emit_op("divide", gamma, deviation)
        channel_scale = self.emit_op(
            "reshape", scale, shape_expr(channels if i == channel_axis else one for i in range(4))
        )
        scaled = self.emit_op("multiply", weight, channel_scale)
        product = ops.bind_call("nn.conv2d", (self.visit(conv.args[0]), scaled), dict(conv.attrs), span=conv.span)
        convolved = self.emit(product)
        shift = self.emit_op("subtract", beta, self.emit_op("multiply", mean, scale))
        by_channel = shape_expr((one, channels, one, one))
        shift = self.emit_op("reshape", shift, by_channel)
        if bias is not None:
            scaled = self.emit_op("multiply", bias, self.emit_op("reshape", scale, by_channel))
            shift = self.emit_op("add", shift, scaled)
        return ops.bind_call("add", (convolved, shift))


def _can_fold(conv: Any, norm: Any, constants: list[Any]) -> bool:
    if not all(isinstance(constant, relax.Constant) for constant in constants):
        return False
    dtypes = {constant.struct_info.dtype for constant in constants} | {conv.struct_info.dtype}
    layouts = conv.attrs["kernel_layout"] in ("OIHW", "IOHW") and conv.attrs["out_layout"] == "NCHW"
    is_full_norm = norm.attrs["scale"] and norm.attrs["center"] and norm.attrs["axis"] % 4 == 1
    return layouts and is_full_norm and len(dtypes) == 1
