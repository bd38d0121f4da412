"""The node constructors of the Python interface: `relax.Call(op, [x, y])`.

Each stands for a class of the IR: it makes nodes of it from lists, numbers and names, checked, and `isinstance` and
`match` know them. `type(node)` is the IR's class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcc.errors import CompileError, Span, did_you_mean, error
from mlcc.ir import relax, tir
from mlcc.ir.node import EMPTY, Attrs
from mlcc.ops import signature, values
from mlcc.relax import construct as make
from mlcc.relax import convert
from mlcc.relax.convert import as_expr, struct_info


class _NodeNameMeta(type):
    """The metaclass of the constructors: calling a class calls its `make`."""

    node: type
    make: Callable[..., Any]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], node: type = object) -> _NodeNameMeta:
        kind = super().__new__(cls, name, bases, {**body, "__match_args__": getattr(node, "__match_args__", ())})
        kind.node = node
        return kind

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], node: type = object) -> None:
        super().__init__(name, bases, body)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **{convert.NEWER_NAMES.get(k, k): v for k, v in kwargs.items()})

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.node)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other.node if isinstance(other, _NodeNameMeta) else other, cls.node)


# ---------------------------------------------------------------- struct info


class PrimStructInfo(metaclass=_NodeNameMeta, node=relax.PrimStructInfo):
    """A scalar of a dtype, or of a known value."""

    @staticmethod
    def make(dtype: Any = None, value: Any = None, span: Span | None = None) -> relax.PrimStructInfo:
        if value is None and isinstance(convert.unwrap(dtype), tir.Expr):
            dtype, value = None, dtype
        if value is None:
            if dtype is None:
                raise TypeError("a scalar's struct info needs a dtype or a value")
            return relax.PrimStructInfo(convert.dtype_of(dtype), span=span)
        known = values.scalar(convert.unwrap(value)).value
        if dtype is not None and convert.dtype_of(dtype) is not known.dtype:
            raise TypeError(f"the value is {known.dtype}, not {dtype}")
        return relax.PrimStructInfo(known.dtype, known, span=span)


class ShapeStructInfo(metaclass=_NodeNameMeta, node=relax.ShapeStructInfo):
    """A shape of known dimensions, or of a known number of them."""

    @staticmethod
    def make(values: Any = None, ndim: int = -1, span: Span | None = None) -> relax.ShapeStructInfo:
        if values is None:
            return relax.ShapeStructInfo(None, ndim, span=span)
        dims = convert.dimensions(values).values
        if ndim not in (-1, len(dims)):
            raise TypeError(f"{len(dims)} dimensions are given, but ndim={ndim}")
        return relax.ShapeStructInfo(dims, len(dims), span=span)


class TensorStructInfo(metaclass=_NodeNameMeta, node=relax.TensorStructInfo):
    """A tensor. `shape` is a list of dimensions, a shape expression or a variable holding a shape."""

    @staticmethod
    def make(
        shape: Any = None, dtype: Any = "float32", vdevice: str | None = None, ndim: int = -1, span: Span | None = None
    ) -> relax.TensorStructInfo:
        known = None if dtype is None or dtype in ("", "void") else convert.dtype_of(dtype)
        if shape is None:
            return relax.TensorStructInfo(None, known, ndim, vdevice, span=span)
        if isinstance(shape, relax.Expr) and not isinstance(shape, relax.ShapeExpr):
            info = shape.struct_info
            if not isinstance(shape, relax.Var) or not isinstance(info, relax.ShapeStructInfo):
                raise TypeError("a shape must be a list of dimensions or a variable holding a shape")
            size = info.ndim
        else:
            shape = convert.dimensions(shape)
            size = len(shape.values)
        if ndim not in (-1, size):
            raise TypeError(f"the shape has {size} dimensions, but ndim={ndim}")
        return relax.TensorStructInfo(shape, known, size, vdevice, span=span)


class TupleStructInfo(metaclass=_NodeNameMeta, node=relax.TupleStructInfo):
    """A tuple of values with such struct info."""

    @staticmethod
    def make(fields: Sequence[relax.StructInfo], span: Span | None = None) -> relax.TupleStructInfo:
        return relax.TupleStructInfo(tuple(struct_info(f, "a field") for f in fields), span=span)


class FuncStructInfo(metaclass=_NodeNameMeta, node=relax.FuncStructInfo):
    """A function."""

    @staticmethod
    def make(
        params: Sequence[relax.StructInfo] | None, ret: relax.StructInfo, purity: bool = True, span: Span | None = None
    ) -> relax.FuncStructInfo:
        infos = None if params is None else tuple(struct_info(p, "a parameter") for p in params)
        return relax.FuncStructInfo(infos, struct_info(ret, "a result"), purity, span=span)

    @staticmethod
    def opaque_func(*, ret: relax.StructInfo | None = None, purity: bool = False) -> relax.FuncStructInfo:
        """A function of any parameters."""
        return relax.FuncStructInfo(None, ret or relax.ObjectStructInfo(), purity)


# ---------------------------------------------------------------- variables and leaves


def _variable(kind: type, name: Any, info: Any, span: Span | None) -> Any:
    if not isinstance(name, str):
        raise TypeError(f"a variable's name must be a string, not {values.describe(name)}")
    if info is not None:
        struct_info(info, f"the struct info of `{name}`")
    return kind(name, info, span=span)


class Var(metaclass=_NodeNameMeta, node=relax.Var):
    """A variable with its struct info."""

    @staticmethod
    def make(name_hint: str, struct_info: relax.StructInfo | None = None, span: Span | None = None) -> relax.Var:
        var: relax.Var = _variable(relax.Var, name_hint, struct_info, span)
        return var


class DataflowVar(metaclass=_NodeNameMeta, node=relax.DataflowVar):
    """A variable that is visible only in its dataflow block."""

    @staticmethod
    def make(
        name_hint: str, struct_info: relax.StructInfo | None = None, span: Span | None = None
    ) -> relax.DataflowVar:
        var: relax.DataflowVar = _variable(relax.DataflowVar, name_hint, struct_info, span)
        return var


class Constant(metaclass=_NodeNameMeta, node=relax.Constant):
    """A tensor known at compile time, from an array."""

    @staticmethod
    def make(data: Any, struct_info: relax.StructInfo | None = None, span: Span | None = None) -> relax.Constant:
        if not convert.is_array(data):
            raise TypeError("a constant is made from an array; relax.const also takes numbers and lists")
        constant = convert.constant(data)
        return relax.Constant(constant.data, struct_info or constant.struct_info, span=span)


class ShapeExpr(metaclass=_NodeNameMeta, node=relax.ShapeExpr):
    """A shape as a value."""

    @staticmethod
    def make(values: Any, span: Span | None = None) -> relax.ShapeExpr:
        dims = convert.dimensions(values).values
        return relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, len(dims)), span=span)


class PrimValue(metaclass=_NodeNameMeta, node=relax.PrimValue):
    """A scalar as a value: Python's integers are int64, its floats float64."""

    @staticmethod
    def make(value: Any, span: Span | None = None) -> relax.PrimValue:
        value = convert.unwrap(value)
        if not isinstance(value, (bool, int, float, tir.Expr)):
            raise TypeError(f"a scalar must be a number or a TensorIR expression, not {values.describe(value)}")
        return values.scalar(value, span)


class StringImm(metaclass=_NodeNameMeta, node=relax.StringImm):
    """A string as a value."""

    @staticmethod
    def make(value: str, span: Span | None = None) -> relax.StringImm:
        return relax.StringImm(value, relax.ObjectStructInfo(), span=span)


class DataTypeImm(metaclass=_NodeNameMeta, node=relax.DataTypeImm):
    """A dtype as a value."""

    @staticmethod
    def make(value: Any, span: Span | None = None) -> relax.DataTypeImm:
        return relax.DataTypeImm(convert.dtype_of(value), relax.ObjectStructInfo(), span=span)


class ExternFunc(metaclass=_NodeNameMeta, node=relax.ExternFunc):
    """A packed function of the environment, by its registered name."""

    @staticmethod
    def make(
        global_symbol: str, struct_info: relax.StructInfo | None = None, span: Span | None = None
    ) -> relax.ExternFunc:
        if not isinstance(global_symbol, str):
            raise TypeError(f"a packed function must be given by its name, not by {values.describe(global_symbol)}")
        plain = values.extern(global_symbol, span)
        return plain if struct_info is None else relax.ExternFunc(global_symbol, struct_info, span=span)


class GlobalVar(metaclass=_NodeNameMeta, node=relax.GlobalVar):
    """A function of the module, by its name."""

    @staticmethod
    def make(name_hint: str, struct_info: relax.StructInfo | None = None, span: Span | None = None) -> relax.GlobalVar:
        var: relax.GlobalVar = _variable(relax.GlobalVar, name_hint, struct_info, span)
        return var


# ---------------------------------------------------------------- compound expressions


class Tuple(metaclass=_NodeNameMeta, node=relax.Tuple):
    """A tuple of values."""

    @staticmethod
    def make(fields: Sequence[Any], span: Span | None = None) -> relax.Tuple:
        elements = tuple(map(as_expr, fields))
        infos = tuple(f.struct_info for f in elements)
        known = None if None in infos else relax.TupleStructInfo(infos)  # type: ignore[arg-type]
        return relax.Tuple(elements, known, span=span)


class TupleGetItem(metaclass=_NodeNameMeta, node=relax.TupleGetItem):
    """One item of a tuple."""

    @staticmethod
    def make(tuple_value: Any, index: int, span: Span | None = None) -> relax.TupleGetItem:
        value = as_expr(tuple_value)
        info = value.struct_info
        if isinstance(info, (relax.TensorStructInfo, relax.ShapeStructInfo, relax.PrimStructInfo)):
            raise TypeError("only tuples have items; relax.op.take and strided_slice give parts of tensors")
        count = len(info.fields) if isinstance(info, relax.TupleStructInfo) else None
        if index < 0 or (count is not None and index >= count):
            raise IndexError(f"item {index} of a tuple of {'unknown size' if count is None else count}")
        item = make.get_item(value, index)
        return relax.TupleGetItem(item.tuple_value, index, item.struct_info, span=span)


class Call(metaclass=_NodeNameMeta, node=relax.Call):
    """A call of an operator (by `Op` or name), a function or a value that is one.

    The struct info of the result is inferred when the call is bound. Attributes that are not given have their default.
    """

    @staticmethod
    def make(
        op: Any, args: Sequence[Any], attrs: Mapping[str, Any] | None = None,
        sinfo_args: Sequence[relax.StructInfo] | None = None, span: Span | None = None,
    ) -> relax.Call:  # fmt: skip
        if isinstance(op, str):
            op = tir.Op(f"relax.{signature.short_name(op)}")
        if not isinstance(op, (tir.Op, relax.Expr)):
            raise TypeError(f"only operators and functions can be called, not {values.describe(op)}")
        if isinstance(args, relax.Expr) or not isinstance(args, (list, tuple)):
            raise TypeError("the arguments of a call must be a list")
        types = tuple(struct_info(s, "an entry of sinfo_args") for s in sinfo_args or ())
        filled = _attributes(op, attrs, span) if isinstance(op, tir.Op) else Attrs(attrs)
        return relax.Call(op, tuple(map(as_expr, args)), filled, types, span=span)


def _attributes(op: tir.Op, stated: Mapping[str, Any] | None, span: Span | None) -> Attrs:
    """The attributes of an operator, checked, those left out with their defaults."""
    known_op = signature.signature(op.name)
    if known_op is None or not op.name.startswith("relax."):
        raise CompileError(error("E0440", f"there is no operator `{op.name}`", span, help=_suggestion(op.name)))
    known = {p.name: p for p in known_op.params if p.is_attr}
    attributes: dict[str, Any] = {}
    for name in stated or ():
        if name not in known:
            help = did_you_mean(name, known) or (f"it has {', '.join(known)}" if known else "it has none")
            raise CompileError(error("E0441", f"`{op.name}` has no attribute `{name}`", span, help=help))
    for name in known_op.attr_order:
        param = known[name]
        value = stated[name] if stated is not None and name in stated else param.default
        if value is signature.REQUIRED:
            if param.default_from is None:
                raise CompileError(error("E0441", f"`{op.name}` needs attribute `{name}`", span))
            value = (stated or {}).get(param.default_from)
        try:
            final = values.attribute(param, value)
        except (values.InvalidValue, ValueError) as problem:
            raise CompileError(error("E0442", f"`{op.name}`: `{name}` {problem}", span)) from None
        if final is not None or not param.hidden:
            attributes[name] = final
    return Attrs(attributes) if attributes else EMPTY


def _suggestion(name: str) -> str | None:
    return did_you_mean(name, signature.names())


class If(metaclass=_NodeNameMeta, node=relax.If):
    """One of two values. Branches that are not sequences are wrapped in one when the `If` is bound."""

    @staticmethod
    def make(cond: Any, true_branch: Any, false_branch: Any, span: Span | None = None) -> relax.If:
        then, other = _sequence(true_branch), _sequence(false_branch)
        return relax.If(as_expr(cond), then, other, span=span)


def _sequence(value: Any) -> relax.SeqExpr:
    expr = as_expr(value)
    return expr if isinstance(expr, relax.SeqExpr) else relax.SeqExpr((), expr, expr.struct_info)


class SeqExpr(metaclass=_NodeNameMeta, node=relax.SeqExpr):
    """Blocks of bindings, and a result."""

    @staticmethod
    def make(blocks: Sequence[relax.BindingBlock], body: Any, span: Span | None = None) -> relax.SeqExpr:
        result = as_expr(body)
        return relax.SeqExpr(tuple(blocks), result, result.struct_info, span=span)


class Function(metaclass=_NodeNameMeta, node=relax.Function):
    """A function. Its result has the struct info of its body, unless `ret_struct_info` is given."""

    @staticmethod
    def make(
        params: Sequence[relax.Var], body: Any, ret_struct_info: relax.StructInfo | None = None, is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None, span: Span | None = None,
    ) -> relax.Function:  # fmt: skip
        for param in params:
            if not isinstance(param, relax.Var):
                raise TypeError(f"a parameter must be a relax.Var, not {values.describe(param)}")
        return make.make_function(tuple(params), _sequence(body), Attrs(attrs), ret_struct_info, is_pure, span)


# ---------------------------------------------------------------- bindings


class VarBinding(metaclass=_NodeNameMeta, node=relax.VarBinding):
    """`var = value`."""

    @staticmethod
    def make(var: relax.Var, value: Any, span: Span | None = None) -> relax.VarBinding:
        return relax.VarBinding(var, as_expr(value), span=span)


class MatchCast(metaclass=_NodeNameMeta, node=relax.MatchCast):
    """`var = R.match_cast(value, struct_info)`."""

    @staticmethod
    def make(var: relax.Var, value: Any, struct_info: relax.StructInfo, span: Span | None = None) -> relax.MatchCast:
        target = convert.struct_info(struct_info, "the target of the cast")
        return relax.MatchCast(var, as_expr(value), target, span=span)


class BindingBlock(metaclass=_NodeNameMeta, node=relax.BindingBlock):
    """Bindings in order."""

    @staticmethod
    def make(bindings: Sequence[relax.Binding], span: Span | None = None) -> relax.BindingBlock:
        return relax.BindingBlock(tuple(bindings), span=span)


class DataflowBlock(metaclass=_NodeNameMeta, node=relax.DataflowBlock):
    """Bindings without side effects."""

    @staticmethod
    def make(bindings: Sequence[relax.Binding], span: Span | None = None) -> relax.DataflowBlock:
        return relax.DataflowBlock(tuple(bindings), span=span)
