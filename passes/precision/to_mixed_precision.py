"""The pass `to-mixed-precision`: compute products in float16, and what depends on them where that is safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mlcc import ops
from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ops.registry import Precision
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.precision.mixed_precision_rules import FULL, HALF, Dtypes, policy, precision, requirements
from mlcc.relax.construct import get_item, make_function, make_tuple
from mlcc.relax.queries import is_call, is_tensor_or_tuple

_FLOAT16_MAX = 65504  # the largest float16 number


@dataclass(frozen=True)
class ToMixedPrecision(Pass):
    """Compute products in float16, and dataflow values that depend on them where that is safe.

    Matrix products and convolutions take float16, accumulate in `out-dtype` and return float16. Elementwise operators
    are computed in float16 if all their operands are. Everything else, including sums and `softmax`, stays in float32,
    and so do the outputs of a block. `fp16-input-names` names parameters that will be float16 arrays.

    Before:  gv = R.matmul(x, w)
    After:   lv = R.astype(x, dtype="float16")
             lv1 = R.astype(w, dtype="float16")
             gv = R.matmul(lv, lv1, out_dtype="float32")
    """

    name: ClassVar[str] = "to-mixed-precision"
    out_dtype: Literal["float32", "float16"] = "float32"
    fp16_input_names: tuple[str, ...] = ()

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        _check_names(self.fp16_input_names, module)
        names = set(self.fp16_input_names)
        return map_relax_functions(
            module, lambda _, func: _Rewriter(module, func, self.out_dtype, names).visit_function(func)
        )


def _check_names(names: tuple[str, ...], module: IRModule) -> None:
    """Raise CompileError (E0515) for names that no function has a parameter for."""
    functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
    known = list(dict.fromkeys(p.name for f in functions for p in f.params))
    errors = [
        error("E0515", f"`to-mixed-precision`: no function has a parameter `{name}`", help=did_you_mean(name, known))
        for name in names
        if name not in known
    ]
    if errors:
        raise CompileError(errors)


class _Rewriter(RelaxMutator):
    """Rewrite a function. `remap` maps variables to replacements, which may have another precision."""

    def __init__(self, module: IRModule, func: relax.Function, out_dtype: str, names: set[str]) -> None:
        super().__init__(module)
        self.needs = requirements(func)
        self.out_dtype = out_dtype
        self.names = names
        self.params = func.params

    def visit_function(self, func: relax.Function) -> relax.Function:
        if func.params is not self.params:  # a nested function
            return _Rewriter(self.module, func, self.out_dtype, set()).visit_function(func)
        params = tuple(map(self.parameter, func.params))
        if all(a is b for a, b in zip(params, func.params, strict=True)):
            return super().visit_function(func)
        body = self.visit_scope(func.body)
        return make_function(params, body, func.attrs, func.ret_struct_info, func.is_pure, func.span)

    def parameter(self, var: relax.Var) -> relax.Var:
        """Return a parameter, as float16 if it is float32 and one of `names`."""
        info = var.struct_info
        if var.name not in self.names or not isinstance(info, relax.TensorStructInfo) or str(info.dtype) != FULL:
            return var
        return self.retype(var, replace(info, dtype=DType.of(HALF)))

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        if not isinstance(block, relax.DataflowBlock):
            return super().visit_block(block)
        outer = dict(self.remap)
        self._binding_stack.append([])
        self.in_dataflow = True
        for param in self.params:
            self.add_half_copy(param)
        copies = self._binding_stack.pop()
        rewritten = super().visit_block(block)
        self.in_dataflow = False
        self.remap = outer | {k: v for k, v in self.remap.items() if k not in outer and _outlives(v)}
        return replace(rewritten, bindings=(*copies, *rewritten.bindings)) if copies else rewritten

    def visit(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return self.cast(self.remap.get(expr, expr), precision(expr.struct_info))
        return super().visit(expr)

    # ------------------------------------------------------------ casts

    def remapped(self, expr: relax.Expr) -> relax.Expr:
        """Replace the variables of an expression; the replacements keep their precision."""
        if isinstance(expr, relax.Var):
            return self.remap.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            fields = tuple(map(self.remapped, expr.fields))
            return expr if all(a is b for a, b in zip(fields, expr.fields, strict=True)) else make_tuple(fields)
        return expr

    def cast(self, expr: relax.Expr, to: Dtypes) -> relax.Expr:
        """Return an expression in the precision `to`; casts are bound before."""
        if isinstance(to, tuple):
            return self.cast_fields(expr, to)
        return self.emit(_astype(expr, to)) if _differs(expr, to) else expr

    def cast_fields(self, expr: relax.Expr, to: tuple[Dtypes, ...]) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            fields = tuple(self.cast(f, t) for f, t in zip(expr.fields, to, strict=True))
            return expr if all(a is b for a, b in zip(fields, expr.fields, strict=True)) else make_tuple(fields)
        if not _differs(expr, to):
            return expr
        return make_tuple(self.cast(self.emit(get_item(expr, at)), part) for at, part in enumerate(to))

    def result(self, value: relax.Expr, to: Dtypes) -> relax.Expr:
        """Return a value for a binding in the precision `to`; the last cast is not bound."""
        if isinstance(value, relax.Tuple):
            return self.cast(value, to)
        if not _differs(value, to):
            return value
        source = value if isinstance(value, relax.Var) else self.emit(value)
        return self.cast(source, to) if isinstance(to, tuple) else _astype(source, to)

    def add_half_copy(self, var: relax.Var) -> None:
        """Make a half-precision copy of a value that no use needs in full precision."""
        need = self.needs.get(var)
        if need is None:
            return
        have = self.remap.get(var, var)
        converted = self.cast(have, _half_where_allowed(precision(have.struct_info), need))
        if converted is not have:
            self.remap[var] = converted if isinstance(converted, relax.Var) else self.emit(converted)

    # ------------------------------------------------------------ bindings

    def visit_binding(self, binding: Any) -> None:
        if not self.in_dataflow:
            super().visit_binding(binding)
            return
        value = binding.value
        kind = policy(value) if isinstance(value, relax.Call) else None
        if isinstance(binding, relax.VarBinding) and isinstance(value, relax.Call) and kind is not None:
            self.call(binding, value, kind)
        elif isinstance(binding, relax.VarBinding) and isinstance(value, (relax.Tuple, relax.TupleGetItem)):
            self.rebind(binding, self.block_output(binding.var, self.remapped_fields(value)))
        elif isinstance(binding, relax.VarBinding) and isinstance(value, relax.Var):
            self.rebind(binding, self.result(self.remapped(value), precision(value.struct_info)))
        else:
            super().visit_binding(binding)
        self.add_half_copy(binding.var)

    def block_output(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Return a value for a binding; an output of the block keeps its original precision."""
        return value if isinstance(var, relax.DataflowVar) else self.result(value, precision(var.struct_info))

    def remapped_fields(self, value: relax.Tuple | relax.TupleGetItem) -> relax.Expr:
        if isinstance(value, relax.Tuple):
            return self.remapped(value)
        source = self.remapped(value.tuple_value)
        return value if source is value.tuple_value else get_item(source, value.index)

    def call(self, binding: relax.VarBinding, call: relax.Call, kind: Precision) -> None:
        args = tuple(map(self.remapped, call.args))
        if is_call(call, "relax.wrap_param"):
            self.rebind(binding, args[0])
            return
        if kind is Precision.FULL:
            old = call.args
            pairs = zip(args, old, strict=True)
            cast_args = tuple(self.cast(a, precision(o.struct_info)) if a is not o else a for a, o in pairs)
            self.rebind(binding, self.rebuilt_call(call, cast_args, call.attrs))
            return
        wanted, attrs = HALF, call.attrs
        if kind is Precision.FOLLOW and not all(map(_may_be_half, args)):
            wanted = FULL
        if kind is Precision.HALF and "out_dtype" in attrs:
            attrs = attrs.with_item("out_dtype", self.out_dtype)
        cast_args = tuple(
            self.cast(a, precision(a.struct_info, wanted)) if is_tensor_or_tuple(a.struct_info) else a for a in args
        )
        value: relax.Expr = self.rebuilt_call(call, cast_args, attrs)
        if kind is Precision.HALF and isinstance(binding.var, relax.DataflowVar):
            value = self.result(value, precision(value.struct_info, HALF))
        self.rebind(binding, self.block_output(binding.var, value))

    def rebuilt_call(self, call: relax.Call, args: tuple[relax.Expr, ...], attrs: Any) -> relax.Call:
        same = all(a is b for a, b in zip(args, call.args, strict=True))
        return call if same and attrs is call.attrs else self.infer(replace(call, args=args, attrs=attrs))


def _outlives(expr: relax.Expr) -> bool:
    """Return True if a replacement is visible after its dataflow block."""
    return not isinstance(expr, relax.DataflowVar)


def _astype(expr: relax.Expr, dtype: str) -> relax.Call:
    return ops.bind_call("astype", (expr,), {"dtype": dtype})


def _differs(expr: relax.Expr, to: Dtypes) -> bool:
    return _needs_cast(precision(expr.struct_info), to)


def _needs_cast(have: Dtypes, to: Dtypes) -> bool:
    """Return True if a conversion is needed; only float16 and float32 are converted into each other."""
    if isinstance(to, tuple):
        return any(map(_needs_cast, have, to))
    return have != to and {have, to} == {HALF, FULL}


def _half_where_allowed(have: Dtypes, need: Dtypes) -> Dtypes:
    """Return float16 for the fields whose uses accept it, and the present precision for the others."""
    if isinstance(have, tuple):
        return tuple(map(_half_where_allowed, have, need or ("",) * len(have)))
    return HALF if need == HALF else have


def _may_be_half(expr: relax.Expr) -> bool:
    """Return True if an operand is float16 already, no tensor, or a constant in the range of float16."""
    if isinstance(expr, relax.Tuple) and is_tensor_or_tuple(expr.struct_info):
        return all(map(_may_be_half, expr.fields))
    if not is_tensor_or_tuple(expr.struct_info) or precision(expr.struct_info) == HALF:
        return True
    if not isinstance(expr, relax.Constant) or expr.data.array is None:
        return False
    import numpy as np

    return str(expr.data.dtype) in _CONSTANT_DTYPES and not bool(np.any(np.abs(expr.data.array) > _FLOAT16_MAX))


_CONSTANT_DTYPES = {"float32", "float64", "int8", "int16", "int32", "int64"}
