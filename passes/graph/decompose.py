"""The pass `decompose`: replace composite operators by simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.tensor_data import TensorData
from mlcc.ops import bind_call
from mlcc.passes.graph.bind_params import relax_function
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import get_item, make_tuple, shape_expr, tensor_info
from mlcc.relax.queries import is_call


@dataclass(frozen=True)
class Decompose(Pass):
    """Decompose batch norms into arithmetic, for training also layer norms; bind computed shapes to symbolic variables.

    For inference, batch norms use the moving mean and variance, regardless of their attribute `training`. For training
    they use those of the batch, and update the moving ones. The dimensions of an `R.tensor_to_shape` become symbolic
    variables. `func` names the only function to change.

    Before:  lv = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1)
             gv = lv[0]
    After:   lv = R.expand_dims(mean, axis=[0, 2, 3])
             lv1 = R.subtract(x, lv)
             ...
             lv9 = R.add(lv7, lv8)
             lv10 = (lv9, mean, var)
             gv = lv10[0]
    """

    name: ClassVar[str] = "decompose"
    mode: Literal["inference", "training"] = "inference"
    func: str | None = None

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        if self.func is not None:
            relax_function(module, self.func, self.name)

        def change(name: str, func: relax.Function) -> relax.Function:
            if self.func not in (None, name):
                return func
            if self.mode == "training":
                func = _ForTraining(module).visit_function(func)
            return _Decomposer(module).visit_function(func)

        return map_relax_functions(module, change)


def scalar(value: float, dtype: DType) -> relax.Constant:
    """Return a constant without dimensions."""
    import numpy as np

    from mlcc.ir.narrow_floats import encode

    return relax.Constant(TensorData(dtype, (), encode(np.asarray(value), dtype)), tensor_info((), dtype))


def _has_known_type(call: relax.Expr) -> bool:
    """Return True if rank and dtype of the data operand are known; constants and axes are derived from them."""
    assert isinstance(call, relax.Call)
    info = call.args[0].struct_info
    return isinstance(info, relax.TensorStructInfo) and info.ndim >= 0 and info.dtype is not None


class _Decomposer(RelaxMutator):
    """Decompose the operators of a function; `shapes` maps variables to shapes with named dimensions."""

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.shapes: dict[relax.Expr, relax.Expr] = {}

    def rebind(self, binding: Any, value: relax.Expr) -> None:
        super().rebind(binding, value)
        if isinstance(value, relax.ShapeExpr) and value is not binding.value:
            self.shapes[self.remap.get(binding.var, binding.var)] = value

    def infer(self, call: relax.Call) -> relax.Call:
        known = tuple(self.shapes.get(a, a) for a in call.args)
        return replace(super().infer(replace(call, args=known)), args=call.args)

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if is_call(expr, "relax.nn.batch_norm") and _has_known_type(expr):
            return self.batch_norm(expr)
        return self.tensor_to_shape(expr) if is_call(expr, "relax.tensor_to_shape") else expr

    def tensor_to_shape(self, call: Any) -> relax.Expr:
        """Compute the shape by a packed call, and name its dimensions by a cast, unless their number is unknown."""
        info = call.struct_info
        if not isinstance(info, relax.ShapeStructInfo) or info.ndim < 0:
            return call  # type: ignore[no-any-return]
        function = relax.ExternFunc("vm.builtin.tensor_to_shape")
        op = tir.Op("relax.call_pure_packed")
        shape = self.emit(relax.Call(op, (function, *call.args), sinfo_args=(info,), struct_info=info))
        shape_value = shape_expr(tir.Var("x", INT64) for _ in range(info.ndim))
        assert shape_value.struct_info is not None
        self.put(relax.MatchCast(relax.Var("y", shape_value.struct_info), shape, shape_value.struct_info))
        return shape_value

    def batch_norm(self, call: Any) -> relax.Expr:
        """(x - mean) / sqrt(variance + epsilon) * gamma + beta."""
        data, gamma, beta, mean, variance = call.args
        others = [i for i in range(data.struct_info.ndim) if i != call.attrs["axis"] % data.struct_info.ndim]

        def expanded(expr: relax.Expr) -> relax.Expr:
            return self.emit_op("expand_dims", expr, axis=others)

        out = _standardized(self, data, expanded(mean), lambda: expanded(variance), call.attrs["epsilon"])
        if call.attrs["scale"]:
            out = bind_call("multiply", (self.emit(out), expanded(gamma)))
        if call.attrs["center"]:
            out = bind_call("add", (self.emit(out), expanded(beta)))
        return make_tuple((self.emit(out), mean, variance))


def _standardized(mutator: RelaxMutator, data: Any, mean: relax.Expr, variance: Any, epsilon: float) -> relax.Call:
    centred = mutator.emit_op("subtract", data, mean)
    shifted = mutator.emit_op("add", variance(), scalar(epsilon, data.struct_info.dtype))
    return bind_call("divide", (centred, mutator.emit_op("sqrt", shifted)))


class _ForTraining(RelaxMutator):
    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if is_call(expr, "relax.nn.batch_norm") and _has_known_type(expr):
            return self.batch_norm(expr)
        if is_call(expr, "relax.nn.layer_norm") and _has_known_type(expr):
            return self.layer_norm(expr)
        return expr

    def batch_norm(self, call: Any) -> relax.Expr:
        """Normalize by the batch's mean and variance, and update the moving ones by the momentum."""
        data, gamma, beta, *moving = call.args
        ndim = data.struct_info.ndim
        axes = [i for i in range(ndim) if i != call.attrs["axis"] % ndim]
        batch_statistics = [self.emit_op(name, data, axis=axes, keepdims=False) for name in ("mean", "variance")]
        inference_form = self.emit(self.infer(replace(call, args=(data, gamma, beta, *batch_statistics))))
        out = self.emit(get_item(inference_form, 0))
        momentum = scalar(call.attrs["momentum"], data.struct_info.dtype)
        retained = scalar(1 - call.attrs["momentum"], data.struct_info.dtype)
        pairs: Sequence[Any] = list(zip(moving, batch_statistics, strict=True))
        statistics = [
            self.emit_op("add", self.emit_op("multiply", retained, old), self.emit_op("multiply", momentum, new))
            for old, new in pairs
        ]
        return make_tuple((out, *statistics))

    def layer_norm(self, call: Any) -> relax.Expr:
        data, gamma, beta = call.args
        axes = call.attrs["axes"]
        mean = self.emit_op("mean", data, axis=axes, keepdims=True)

        def variance() -> relax.Expr:
            return self.emit_op("variance", data, axis=axes, keepdims=True)

        out = _standardized(self, data, mean, variance, call.attrs["epsilon"])
        if call.attrs["scale"]:
            out = bind_call("multiply", (self.emit(out), gamma))
        return bind_call("add", (self.emit(out), beta)) if call.attrs["center"] else out
