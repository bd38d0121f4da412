"""relax from Python: building modules with BlockBuilder, visitors and mutators, all operators as functions.

Written by scripts/stubs.py from what is there at run time.
"""

from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from mlcc.errors import Span as _Span
from mlcc.ir import relax as _ir
from mlcc.relax import analysis as analysis
from mlcc.relax import block_builder as block_builder
from mlcc.relax import expr_functor as expr_functor
from mlcc.relax import op as op
from mlcc.ir.relax import BindingBlock as BindingBlock
from mlcc.ir.relax import Call as Call
from mlcc.ir.relax import Constant as Constant
from mlcc.ir.relax import DataflowBlock as DataflowBlock
from mlcc.ir.relax import DataflowVar as DataflowVar
from mlcc.ir.relax import ExternFunc as ExternFunc
from mlcc.ir.relax import Function as Function
from mlcc.ir.relax import GlobalVar as GlobalVar
from mlcc.ir.relax import If as If
from mlcc.ir.relax import MatchCast as MatchCast
from mlcc.ir.relax import SeqExpr as SeqExpr
from mlcc.ir.relax import Tuple as Tuple
from mlcc.ir.relax import TupleGetItem as TupleGetItem
from mlcc.ir.relax import Var as Var
from mlcc.ir.relax import VarBinding as VarBinding
from mlcc.ir.relax import Binding as Binding
from mlcc.ir.relax import Expr as Expr
from mlcc.ir.relax import ObjectStructInfo as ObjectStructInfo
from mlcc.ir.relax import StructInfo as StructInfo
from mlcc.relax.calls import call_dps_packed as call_dps_packed
from mlcc.relax.calls import call_pure_packed as call_pure_packed
from mlcc.relax.calls import call_tir as call_tir
from mlcc.relax.calls import call_tir_inplace as call_tir_inplace
from mlcc.relax.calls import const as const
from mlcc.relax.calls import extern as extern
from mlcc.relax.calls import get_shape_of as get_shape_of
from mlcc.relax.calls import prim_value as prim_value
from mlcc.relax.block_builder import BlockBuilder as BlockBuilder
from mlcc.relax.expr_functor import ExprFunctor as ExprFunctor
from mlcc.relax.mutator import PyExprMutator as PyExprMutator
from mlcc.relax.visitor import PyExprVisitor as PyExprVisitor
from mlcc.ir.tir import Op as Op

class PrimStructInfo(_ir.PrimStructInfo):
    def __init__(self, dtype: _Any = None, value: _Any = None, span: _Span | None = None) -> None:
        """A scalar of a dtype, or of a known value."""

class ShapeStructInfo(_ir.ShapeStructInfo):
    def __init__(self, values: _Any = None, ndim: int = -1, span: _Span | None = None) -> None:
        """A shape of known dimensions, or of a known number of them."""

class TensorStructInfo(_ir.TensorStructInfo):
    def __init__(
        self,
        shape: _Any = None,
        dtype: _Any = "float32",
        vdevice: str | None = None,
        ndim: int = -1,
        span: _Span | None = None,
    ) -> None:
        """A tensor. `shape` is a list of dimensions, a shape expression or a variable holding a shape."""

class TupleStructInfo(_ir.TupleStructInfo):
    def __init__(self, fields: _Sequence[_ir.StructInfo], span: _Span | None = None) -> None:
        """A tuple of values with such struct info."""

class FuncStructInfo(_ir.FuncStructInfo):
    def __init__(
        self,
        params: _Sequence[_ir.StructInfo] | None,
        ret: _ir.StructInfo,
        purity: bool = True,
        span: _Span | None = None,
    ) -> None:
        """A function."""
    @staticmethod
    def opaque_func(*, ret: _ir.StructInfo | None = None, purity: bool = False) -> _ir.FuncStructInfo:
        """A function of any parameters."""

class ShapeExpr(_ir.ShapeExpr):
    def __init__(self, values: _Any, span: _Span | None = None) -> None:
        """A shape as a value."""

class PrimValue(_ir.PrimValue):
    def __init__(self, value: _Any, span: _Span | None = None) -> None:
        """A scalar as a value: Python's integers are int64, its floats float64."""

class StringImm(_ir.StringImm):
    def __init__(self, value: str, span: _Span | None = None) -> None:
        """A string as a value."""

class DataTypeImm(_ir.DataTypeImm):
    def __init__(self, value: _Any, span: _Span | None = None) -> None:
        """A dtype as a value."""

AnyType = ObjectStructInfo
FuncType = FuncStructInfo
GenericConst = Constant
ObjectType = ObjectStructInfo
PrimType = PrimStructInfo
ShapeType = ShapeStructInfo
TensorType = TensorStructInfo
TupleType = TupleStructInfo
Type = StructInfo
