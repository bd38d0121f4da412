"""Calls of operators, in a form from which tests make them (and their counterparts elsewhere)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs
from mlcc.ops.values import tensor_info


def _spelled(value: Any) -> str:
    """`repr`, but the same in every process: functions by their line, not by their address."""
    code = getattr(value, "__code__", None)
    return repr(value) if code is None else f"<map of line {code.co_firstlineno}>"


@dataclass(frozen=True)
class T:
    """A tensor argument: extents are numbers or names of symbolic variables; `shape=None` is unknown."""

    shape: tuple[Any, ...] | None
    dtype: str | None = "float32"
    ndim: int = -1

    def __repr__(self) -> str:
        shape = f"?{self.ndim}" if self.shape is None else "x".join(str(d) for d in self.shape) or "scalar"
        return shape if self.dtype == "float32" else f"{shape}:{self.dtype}"


@dataclass(frozen=True)
class Case:
    """`R.name(*args, **kwargs)`."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        given = [_spelled(a) for a in self.args] + [f"{k}={_spelled(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(given)})"


@dataclass(frozen=True)
class S:
    """A symbolic dimension by itself."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Const:
    """A constant tensor."""

    value: Any
    dtype: str

    def __repr__(self) -> str:
        return f"const {self.value} {self.dtype}"


class Mine:
    """Arguments as mlcc expressions, with one variable per name."""

    def __init__(self) -> None:
        self.vars: dict[str, tir.Var] = {}
        self.params: list[relax.Var] = []

    def dim(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.vars.setdefault(value, tir.Var(value, INT64))
        return value

    def arg(self, value: Any) -> Any:
        match value:
            case T(shape=None, dtype=dtype, ndim=ndim):
                info = relax.TensorStructInfo(None, None if dtype is None else DType.of(dtype), ndim)
                return self.param(info)
            case T(shape=shape, dtype=dtype):
                return self.param(tensor_info([self.dim(d) for d in shape or ()], dtype))
            case S(name=name):
                return self.dim(name)
            case Const(value=number, dtype=dtype):
                import numpy as np

                from mlcc.ir.tensor_data import TensorData

                data = TensorData.of(np.array(number, dtype))
                return relax.Constant(data, tensor_info(data.shape, dtype))
            case tuple() | list():
                return tuple(self.arg(v) for v in value)
        return value

    def param(self, info: relax.StructInfo) -> relax.Var:
        """A parameter of the function that the call stands in."""
        self.params.append(relax.Var(f"x{len(self.params)}", info))
        return self.params[-1]

    def call(self, case: Case) -> relax.Call:
        args = tuple(self.arg(a) for a in case.args)
        return ops.bind_call(case.name, args, {k: self.arg(v) for k, v in case.kwargs.items()})

    def module(self, case: Case) -> IRModule:
        """A function of the tensors that the call takes, returning its result."""
        call = self.call(case)
        out = relax.Var("gv", call.struct_info)
        body = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(out, call),)),), out, call.struct_info)
        infos = tuple(p.struct_info for p in self.params if p.struct_info is not None)
        ret = call.struct_info
        assert ret is not None
        attrs = Attrs({"global_symbol": "main"})
        return IRModule(
            {"main": relax.Function(tuple(self.params), body, ret, True, attrs, relax.FuncStructInfo(infos, ret))}
        )

    def show(self, info: Any) -> str:
        """Struct info in a form that both sides share."""
        match info:
            case None:
                return "?"
            case relax.TensorStructInfo(dtype=dtype, ndim=ndim):
                dims = info.dims
                shape = f"ndim={ndim}" if dims is None else ", ".join(_text(d) for d in dims)
                return f"Tensor([{shape}] {dtype or 'void'})"
            case relax.TupleStructInfo(fields=fields):
                return f"({', '.join(self.show(f) for f in fields)})"
            case relax.ShapeStructInfo(values=values, ndim=ndim):
                return f"Shape({f'ndim={ndim}' if values is None else ', '.join(_text(d) for d in values)})"
            case relax.PrimStructInfo(dtype=dtype):
                return f"Prim({dtype})"
        return "Object"


SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "LT": "<", "LE": "<="}


def _text(expr: Any) -> str:
    """An integer expression, fully bracketed."""
    match expr:
        case tir.IntImm(value=value):
            return str(value)
        case tir.Var(name=name):
            return name
        case tir.BinaryOp():
            kind = type(expr).__name__
            if kind in ("Min", "Max"):
                return f"{kind.lower()}({_text(expr.lhs)}, {_text(expr.rhs)})"
            sign = getattr(expr, "symbol", "") or kind
            return f"({_text(expr.lhs)} {sign} {_text(expr.rhs)})"
        case tir.Cast(value=value):
            return _text(value)
        case tir.Call(op=op, args=args):
            return f"{op.name.removeprefix('tir.')}({', '.join(_text(a) for a in args)})"
        case tir.Select(condition=c, true_value=a, false_value=b):
            return f"select({_text(c)}, {_text(a)}, {_text(b)})"
    return f"<{type(expr).__name__}>"
