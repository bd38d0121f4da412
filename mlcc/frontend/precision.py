"""Conversion of imported models to 16-bit floats: weights, inputs, and values computed from them."""

from __future__ import annotations

from typing import Any

from mlcc import ops
from mlcc.errors import CompileError, Diagnostic, error
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import FLOAT32, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.ir.tensor_data import TensorData
from mlcc.ir.visit import Rewriter
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.relax.construct import flatten_block, get_item, make_function, make_seq, make_tuple

DTYPES = ("float16", "bfloat16")
_MAX_FINITE = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}

# computed in float32, with float32 results
_FLOAT32_SUMS = frozenset(f"relax.{name}" for name in ("mean", "sum", "variance", "std", "prod", "cumsum", "cumprod"))
# computed in float32 and rounded once
_COMPUTED_IN_FLOAT32 = frozenset(f"relax.nn.{name}" for name in ("softmax", "log_softmax"))
_SQUARES = frozenset(f"relax.{name}" for name in ("multiply", "power", "square"))
_FLOAT32_OPERANDS = frozenset(
    ["relax.quantize", "relax.dequantize"]
)  # operands and results are float32, scales keep their bits
_OPAQUE = frozenset(f"relax.{name}" for name in ("call_tir", "call_tir_inplace", "call_dps_packed", "call_pure_packed"))


def convert_precision(module: IRModule, dtype: str | None) -> IRModule:
    """Convert a module to `float16` or `bfloat16`; None leaves it as it is.

    Float32 inputs, results, weights, and values computed from them become `dtype`; all other dtypes stay. A value that
    depends neither on float inputs nor on weights of two or more dimensions, for example angles of positions, stays
    float32 until it is combined with one that does. Sums, means and variances, with the squares that they add up, and
    `softmax` and its logarithm are computed in float32; norms, products and attention accumulate in float32. Constants
    out of the range of `dtype` become its largest finite number. Raises CompileError E1086 for another dtype, and for
    called functions whose code uses float32.
    """
    if dtype is None:
        return module
    if dtype not in DTYPES:
        raise CompileError(
            error("E1086", f"models cannot be converted to `{dtype}`", help=f"use {' or '.join(DTYPES)}")
        )
    converted, wrong = module.copy(), list[Diagnostic]()
    for name, func in module.functions.items():
        if isinstance(func, relax.Function):
            change = _Narrow(module, DType.of(dtype), wrong)
            converted.functions[name] = change.visit_function(func)
    if wrong:
        raise CompileError(wrong)
    from mlcc.driver import run_passes

    return run_passes(converted, "to-dataflow{min_size=1},dead-code")


class _ReplaceFloat32(Rewriter):
    """Replaces float32 by another dtype in struct info."""

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self.dtype = dtype

    def rewrite(self, node: Any) -> Any:
        if isinstance(node, relax.TensorStructInfo) and node.dtype is FLOAT32:
            return replace(node, dtype=self.dtype)
        return node


class _Narrow(RelaxMutator):
    """Narrows a function. `remap` maps variables to their replacements: in the new dtype, or in float32 if they depend
    only on sums and scalars."""

    def __init__(self, module: IRModule, dtype: DType, wrong: list[Diagnostic]) -> None:
        super().__init__(module)
        self.dtype = dtype
        self.wrong = wrong
        self._casts: dict[relax.Expr, relax.Expr] = {}  # in the current block
        self._constants: dict[TensorData, relax.Constant] = {}
        self._squares: dict[relax.Var, relax.Call] = {}

    def stated(self, info: relax.StructInfo | None) -> Any:
        """Convert the struct info of a function or a check to the new dtype."""
        return None if info is None else _ReplaceFloat32(self.dtype).visit(info)

    # ------------------------------------------------------------ traversal

    def visit_function(self, func: relax.Function) -> relax.Function:
        params = tuple(self.retype(p, self.stated(p.struct_info)) for p in func.params)
        body = self.visit_scope(func.body)
        info = self.stated(func.ret_struct_info)
        return make_function(params, body, self.attributes(func), info, func.is_pure, func.span)

    def attributes(self, func: relax.Function) -> Attrs:
        """Return the function's attributes, with the arrays in `params` (weights that are parameters) converted."""
        if "params" not in func.attrs:
            return func.attrs
        arrays = [
            narrow_tensor(TensorData.of(a), self.dtype).array if a.dtype == "float32" else a
            for a in func.attrs["params"]
        ]
        return Attrs({**func.attrs, "params": arrays})

    def visit_seq(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        """Narrow the results of a sequence, so that both branches of an `if` have one dtype."""
        visited = super().visit_seq(seq)
        self._binding_stack.append([])
        before, self._casts = self._casts, {}
        body = self.narrow(visited.body)
        self._casts = before
        rest = flatten_block(relax.BindingBlock(tuple(self._binding_stack.pop())))
        return visited if body is visited.body else replace(make_seq([*visited.blocks, *rest], body), span=seq.span)

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        before, self._casts = self._casts, {}
        visited = super().visit_block(block)
        self._casts = before
        return visited

    def visit_binding(self, binding: relax.Binding) -> None:
        if not isinstance(binding, relax.MatchCast):
            super().visit_binding(binding)
            if isinstance(call := binding.value, relax.Call):  # type: ignore[attr-defined]
                self._note_square(binding.var, call)
            return
        value = self.visit(binding.value)
        info = binding.struct_info
        if isinstance(info, relax.TensorStructInfo) and isinstance(value.struct_info, relax.TensorStructInfo):
            info = replace(info, dtype=value.struct_info.dtype)
        self.put(replace(binding, value=value, struct_info=info, var=self.retype(binding.var, info)))

    def visit(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Constant):
            return self.constant(expr) if len(expr.data.shape) > 1 else expr
        return self._call(expr) if isinstance(expr, relax.Call) else super().visit(expr)

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        return replace(expr, struct_info=self.stated(expr.struct_info)) if isinstance(expr, relax.If) else expr

    # ------------------------------------------------------------ calls

    def _call(self, call: relax.Call) -> relax.Expr:
        if not isinstance(call.op, tir.Op) or call.op.name in _OPAQUE:
            return self._function_call(call)
        name = call.op.name
        args = tuple(self.visit(arg) for arg in call.args)
        if name in _FLOAT32_SUMS:
            return self._with_args(
                call, tuple(self._summand(old, new) for old, new in zip(call.args, args, strict=True))
            )
        if name in _FLOAT32_OPERANDS:
            full = (
                old if isinstance(old, relax.Constant) else self.wide(new)
                for old, new in zip(call.args, args, strict=True)
            )
            return self._with_args(call, tuple(full))
        if name in _COMPUTED_IN_FLOAT32 and any(map(self.is_narrow, args)):
            value = self.emit(self._with_args(call, tuple(self.wide(arg) for arg in args)), "wide")
            return self._cast(value, self.dtype)
        if any(self.is_narrow(leaf) for arg in args for leaf in _leaves(arg)):
            return self._with_args(call, tuple(self.narrow(arg) for arg in args))
        return call if all(a is b for a, b in zip(args, call.args, strict=True)) else self._with_args(call, args)

    def _function_call(self, call: relax.Call) -> relax.Expr:
        """Convert a call of a function of the module, whose parameters have the new dtype; leave other calls as is."""
        args = tuple(self.visit(arg) for arg in call.args)
        if isinstance(call.op, relax.GlobalVar):
            op = replace(call.op, struct_info=self.stated(call.op.struct_info))
            narrow = tuple(self.narrow(arg) for arg in args)
            return replace(call, op=op, args=narrow, struct_info=self.stated(call.struct_info))
        infos = (call.struct_info, *call.sinfo_args, *(arg.struct_info for arg in call.args))
        if any(info is not None and self.stated(info) is not info for info in infos):
            text = "a called function uses float32 in its code"
            self.wrong.append(error("E1086", text, call.span, help="import the model without converting its dtype"))
        return call

    def _with_args(self, call: relax.Call, args: tuple[relax.Expr, ...]) -> relax.Call:
        attrs = dict(call.attrs)
        if attrs.get("out_dtype") == "float32" and any(map(self.is_narrow, args)):
            attrs["out_dtype"] = None
        bare = replace(call, args=args, attrs=type(call.attrs)(attrs))
        return replace(bare, struct_info=ops.infer_struct_info(replace(bare, struct_info=None)))

    def _note_square(self, var: relax.Var, call: relax.Call) -> None:
        if isinstance(call.op, tir.Op) and call.op.name in _SQUARES and isinstance(self.remap.get(var), relax.Var):
            self._squares[var] = call

    def _summand(self, old: relax.Expr, new: relax.Expr) -> relax.Expr:
        """Return the summand of a sum. Squares are computed in float32, as they may overflow the narrow dtype."""
        square = self._squares.get(old) if isinstance(old, relax.Var) else None
        if square is None or not self.is_narrow(new):
            return self.wide(new)
        operands = tuple(self.wide(self.visit(arg)) for arg in square.args)
        return self.emit(self._with_args(square, operands), "square")

    # ------------------------------------------------------------ values

    def is_narrow(self, expr: relax.Expr) -> bool:
        info = expr.struct_info
        return isinstance(info, relax.TensorStructInfo) and info.dtype is self.dtype

    def narrow(self, expr: relax.Expr) -> relax.Expr:
        """Cast a float32 value to the new dtype; leave others unchanged."""
        return self._convert(expr, self.dtype)

    def wide(self, expr: relax.Expr) -> relax.Expr:
        """Cast a value of the new dtype to float32; leave others unchanged."""
        return self._convert(expr, FLOAT32)

    def _convert(self, expr: relax.Expr, dtype: DType) -> relax.Expr:
        info = expr.struct_info
        if isinstance(info, relax.TupleStructInfo):
            if self.stated(info) is info:
                return expr
            fields = expr.fields if isinstance(expr, relax.Tuple) else _tuple_items(self, expr, info)
            return make_tuple(tuple(self._convert(field, dtype) for field in fields))
        if not isinstance(info, relax.TensorStructInfo) or info.dtype not in (FLOAT32, self.dtype):
            return expr
        if isinstance(expr, relax.Constant) and info.dtype is FLOAT32 and dtype is not FLOAT32:
            return self.constant(expr)
        return expr if info.dtype is dtype else self._cast(expr, dtype)

    def _cast(self, expr: relax.Expr, dtype: DType) -> relax.Expr:
        if expr not in self._casts:
            name = f"{expr.name}_{dtype}" if isinstance(expr, relax.Var) else str(dtype)
            self._casts[expr] = self.emit(ops.bind_call("astype", (expr,), {"dtype": str(dtype)}), name)
        return self._casts[expr]

    def constant(self, constant: relax.Constant) -> relax.Constant:
        """Convert a float32 constant to the new dtype; finite numbers stay finite."""
        if constant.data.dtype is not FLOAT32:
            return constant
        if constant.data not in self._constants:
            data = narrow_tensor(constant.data, self.dtype)
            info = self.stated(constant.struct_info)
            self._constants[constant.data] = relax.Constant(data, info, span=constant.span)
        return self._constants[constant.data]


def narrow_tensor(data: TensorData, dtype: DType) -> TensorData:
    """Round a float32 tensor to the nearest `float16` or `bfloat16` numbers; finite numbers stay finite."""
    from mlcc.ir.narrow_floats import encode

    if data.array is None:
        return TensorData(dtype, data.shape, None, data.key)
    import numpy as np

    most = _MAX_FINITE[str(dtype)]
    within = np.where(np.isfinite(data.array), np.clip(data.array, -most, most), data.array)
    return TensorData(dtype, data.shape, encode(within, dtype), data.key)


def _leaves(expr: relax.Expr) -> list[relax.Expr]:
    return [leaf for field in expr.fields for leaf in _leaves(field)] if isinstance(expr, relax.Tuple) else [expr]


def _tuple_items(change: RelaxMutator, expr: relax.Expr, info: relax.TupleStructInfo) -> tuple[relax.Expr, ...]:
    return tuple(change.emit(get_item(expr, index), "item") for index in range(len(info.fields)))
