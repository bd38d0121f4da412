"""relax: graph-level functions over tensors, tuples, shapes and objects; meanings are TVM's.

Every expression has `struct_info`: what is known of its value at compile time. Shapes hold TensorIR expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcc.ir.dtypes import DType
from mlcc.ir.node import EMPTY, Attrs, Node, node
from mlcc.ir.tensor_data import TensorData
from mlcc.ir.tir import Expr as PrimExpr
from mlcc.ir.tir import FuncAttrs


@node
class StructInfo(Node):
    """The static type of a graph value."""


@node
class ObjectStructInfo(StructInfo):
    """Anything (`R.Object`)."""


@node
class PrimStructInfo(StructInfo):
    """A scalar; `value` is its symbolic value where known."""

    dtype: DType
    value: PrimExpr | None = None


@node
class ShapeStructInfo(StructInfo):
    """A shape of `ndim` dimensions (-1: unknown); `values` where known."""

    values: tuple[PrimExpr, ...] | None
    ndim: int


@node
class TensorStructInfo(StructInfo):
    """A tensor. `shape` is a `ShapeExpr`, a variable holding a shape, or None; `dtype` None and `ndim` -1: unknown."""

    shape: Expr | None
    dtype: DType | None
    ndim: int
    vdevice: str | None = None

    @property
    def dims(self) -> tuple[PrimExpr, ...] | None:
        """The dimensions where they are known expressions, else None."""
        return self.shape.values if isinstance(self.shape, ShapeExpr) else None


@node
class TupleStructInfo(StructInfo):
    fields: tuple[StructInfo, ...]


@node
class FuncStructInfo(StructInfo):
    """A function; `params` None: any parameters."""

    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool = True


@node
class Expr(Node):
    """A graph-level expression. Every subclass has `struct_info` as its last field."""

    if TYPE_CHECKING:  # a slot of the base would clash with the fields

        @property
        def struct_info(self) -> StructInfo | None: ...

        # Python's operators, which `mlcc.relax.operators` adds
        def __add__(self, other: Any) -> Call: ...
        def __radd__(self, other: Any) -> Call: ...
        def __sub__(self, other: Any) -> Call: ...
        def __rsub__(self, other: Any) -> Call: ...
        def __mul__(self, other: Any) -> Call: ...
        def __rmul__(self, other: Any) -> Call: ...
        def __truediv__(self, other: Any) -> Call: ...
        def __rtruediv__(self, other: Any) -> Call: ...
        def __floordiv__(self, other: Any) -> Call: ...
        def __rfloordiv__(self, other: Any) -> Call: ...
        def __mod__(self, other: Any) -> Call: ...
        def __rmod__(self, other: Any) -> Call: ...
        def __pow__(self, other: Any) -> Call: ...
        def __rpow__(self, other: Any) -> Call: ...
        def __neg__(self) -> Call: ...
        def __lt__(self, other: Any) -> Call: ...
        def __le__(self, other: Any) -> Call: ...
        def __gt__(self, other: Any) -> Call: ...
        def __ge__(self, other: Any) -> Call: ...
        def __getitem__(self, index: int) -> Any: ...
        def __iter__(self) -> Any: ...
        def __call__(self, *args: Any) -> Call: ...


@node
class Var(Expr):
    """A variable; the object is the binding and `name` only a hint."""

    name: str
    struct_info: StructInfo | None = None

    @property
    def name_hint(self) -> str:
        """The name, as TVM calls it."""
        return self.name


@node
class DataflowVar(Var):
    """A variable that is not visible outside its dataflow block."""


@node
class GlobalVar(Expr):
    """A function of the module, known by its name. Also the `op` of a TensorIR call."""

    name: str
    struct_info: StructInfo | None = None

    @property
    def name_hint(self) -> str:
        """The name, as TVM calls it."""
        return self.name


@node
class ExternFunc(Expr):
    """A packed function of the environment, known by its registered name."""

    name: str
    struct_info: StructInfo | None = None


@node
class Constant(Expr):
    """A tensor known at compile time; its data may be absent (a reference)."""

    data: TensorData
    struct_info: StructInfo | None = None


@node
class ShapeExpr(Expr):
    values: tuple[PrimExpr, ...]
    struct_info: StructInfo | None = None


@node
class PrimValue(Expr):
    """A scalar expression as a graph-level value."""

    value: PrimExpr
    struct_info: StructInfo | None = None


@node
class StringImm(Expr):
    value: str
    struct_info: StructInfo | None = None


@node
class DataTypeImm(Expr):
    value: DType
    struct_info: StructInfo | None = None


@node
class Tuple(Expr):
    fields: tuple[Expr, ...]
    struct_info: StructInfo | None = None


@node
class TupleGetItem(Expr):
    tuple_value: Expr
    index: int
    struct_info: StructInfo | None = None


@node
class Call(Expr):
    """`op(args)`: `op` is an `Op`, an `ExternFunc` (call_packed), a `GlobalVar` or a variable holding a function.

    `call_tir` and `call_dps_packed` are Ops whose args are (function, Tuple of arguments[, extra]) and whose
    `sinfo_args` hold the output's struct info. `attrs` are an operator's attributes, defaults filled in.
    """

    op: Any
    args: tuple[Expr, ...]
    attrs: Attrs = EMPTY
    sinfo_args: tuple[StructInfo, ...] = ()
    struct_info: StructInfo | None = None


@node
class If(Expr):
    condition: Expr
    true_branch: SeqExpr
    false_branch: SeqExpr
    struct_info: StructInfo | None = None


@node
class Binding(Node):
    """One line of a block."""

    var: Var


@node
class VarBinding(Binding):
    """`var = value`."""

    value: Expr


@node
class MatchCast(Binding):
    """`var = R.match_cast(value, struct_info)`: checks at run time and binds new symbolic variables.

    `stated` marks the check of an annotation that says more than is known; it is written as that annotation: that of a
    "variable", or of the function's "result".
    """

    value: Expr
    struct_info: StructInfo
    stated: str = ""


@node
class BindingBlock(Node):
    bindings: tuple[Binding, ...]


@node
class DataflowBlock(BindingBlock):
    """A block free of side effects; only its `Var`s (not `DataflowVar`s) are visible outside."""


@node
class SeqExpr(Expr):
    blocks: tuple[BindingBlock, ...]
    body: Expr
    struct_info: StructInfo | None = None


@node
class Function(Expr, FuncAttrs):
    """A graph-level function. `body` is a `SeqExpr`."""

    params: tuple[Var, ...]
    body: SeqExpr
    ret_struct_info: StructInfo | None = None
    is_pure: bool = True
    attrs: Attrs = EMPTY
    struct_info: StructInfo | None = None
