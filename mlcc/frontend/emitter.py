"""The builder that importers share: emits relax bindings that record their place in the source model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.errors import CompileError, Span
from mlcc.frontend.naming import VariableNames
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.tensor_data import TensorData
from mlcc.ops import values
from mlcc.ops.relations import SubtypeCheck, check_subtype, compatible
from mlcc.relax import convert, op
from mlcc.relax.block_builder import BlockBuilder

if TYPE_CHECKING:
    import numpy as np

Dim: TypeAlias = int | tir.Expr
Shape: TypeAlias = Sequence[Dim]


class Emitter:
    """Builds `main` of an imported model, binding by binding.

    Operators are those of `mlcc.relax.op`. Bindings emitted inside `with emitter.at(span, name):` have that source
    location, and their variables are named after `name`. CompileErrors of struct info inference become `Unsupported`:
    the operator library does not support the operands.
    """

    op = op

    def __init__(self) -> None:
        self.bb = BlockBuilder()
        self._span: Span | None = None
        self._hint = ""
        self._variables = VariableNames()

    # ------------------------------------------------------------ source locations

    @contextmanager
    def at(self, span: Span | None, hint: str = "") -> Iterator[None]:
        """Set the source location and the base name of variables for bindings emitted inside the `with`."""
        before = self._span, self._hint
        self._span, self._hint = span, hint
        try:
            yield
        except CompileError as problem:
            raise Unsupported(problem.diagnostics[0].message, problem.diagnostics[0].help) from problem
        finally:
            self._span, self._hint = before

    # ------------------------------------------------------------ bindings

    def emit(self, value: Any, hint: str = "") -> relax.Var:
        """Bind a variable to an expression. A variable is returned unchanged."""
        if isinstance(value, relax.Var):
            return value
        expr = convert.as_expr(value)
        name = hint or self._hint
        var = self.bb.emit(expr if self._span is None else _with_span(expr, self._span), name)
        self._variables.record(var, name)
        return var

    def match_cast(self, value: relax.Expr, info: relax.StructInfo) -> relax.Var:
        """Bind a variable to a value that is checked against `info` at run time; new symbols are defined there."""
        var = self.bb.match_cast(value, info, self._hint)
        self._variables.record(var, self._hint)
        return var

    def named(self, value: relax.Expr, name: str) -> relax.Expr:
        """Return the value and name its variable after the value of the source model."""
        if isinstance(value, relax.Var):
            self._variables.name_value(value, name)
        return value

    def with_stated_shape(self, value: relax.Expr, shape: Shape, dtype: str | DType | None = None) -> relax.Expr:
        """Return the value with the shape that the source model states for it.

        If inference is less precise, or the two differ only for sizes that the source rules out, emit `R.match_cast`,
        which is checked at run time. Raises Unsupported if the inferred shape contradicts the source for all sizes: the
        converter or the file is wrong.
        """
        wanted = values.tensor_info(shape, dtype or self.dtype(value))
        inferred = value.struct_info
        relation = SubtypeCheck.NARROWS if inferred is None else check_subtype(wanted, inferred)
        if relation is SubtypeCheck.COVERS:
            return value
        if relation is SubtypeCheck.CONTRADICTS and (inferred is None or not compatible(wanted, inferred)):
            raise Unsupported(f"the model states the type `{wanted}`, but its operands imply `{inferred}`")
        return self.match_cast(self.emit(value), wanted)

    def with_shape(self, value: relax.Expr, shape: Shape) -> relax.Expr:
        """Return the value with a shape that is checked at run time; new symbols get their values there."""
        return self.match_cast(self.emit(value), values.tensor_info(shape, self.dtype(value)))

    def fresh(self, name: str) -> tir.Var:
        """Return a new symbol with a unique name."""
        return self.symbol(self.bb.get_unique_name(name))

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """Open a scope: bindings emitted inside are not visible after it, so importers drop their cached values."""
        yield

    @contextmanager
    def dry_run(self) -> Iterator[BlockBuilder]:
        """Emit into a temporary builder, which leaves neither bindings nor names behind."""
        before = self.bb, self._variables
        self.bb, self._variables = BlockBuilder(), VariableNames()
        try:
            with self.new_scope():
                yield self.bb
        finally:
            self.bb, self._variables = before

    # ------------------------------------------------------------ constants

    def constant(self, array: np.ndarray, dtype: str | None = None, key: str = "") -> relax.Constant:
        """A constant tensor. `dtype` is the element type if NumPy lacks it (`bfloat16` as uint16);
        `key` is its name in files of weights."""
        data = TensorData.of(array, None if dtype is None else DType.of(dtype), key)
        return relax.Constant(data, values.tensor_info(data.shape, data.dtype), span=self._span)

    def scalar(self, value: bool | int | float, dtype: str | DType) -> relax.Constant:
        """A constant of rank 0."""
        import numpy as np

        from mlcc.ir.narrow_floats import encode

        element = DType.of(dtype)
        return self.constant(encode(np.asarray(value), element), str(element))

    def full(self, shape: Shape, value: bool | int | float, dtype: str | DType) -> relax.Var:
        """A tensor with all elements equal to `value`."""
        return self.emit(op.full(self.shape_expr(shape), self.scalar(value, dtype), str(dtype)))

    # ------------------------------------------------------------ properties

    def dtype(self, value: relax.Expr) -> str:
        """The element type of a tensor."""
        info = value.struct_info
        if not isinstance(info, relax.TensorStructInfo) or info.dtype is None:
            raise Unsupported("the dtype of an operand is not known")
        return str(info.dtype)

    def shape(self, value: relax.Expr) -> tuple[tir.Expr, ...]:
        """The extents of a tensor, as expressions over symbolic variables."""
        info = value.struct_info
        if not isinstance(info, relax.TensorStructInfo) or not isinstance(info.shape, relax.ShapeExpr):
            raise Unsupported("the shape of an operand is not known")
        return info.shape.values

    def ndim(self, value: relax.Expr) -> int:
        """The number of dimensions of a tensor."""
        info = value.struct_info
        if not isinstance(info, relax.TensorStructInfo) or info.ndim < 0:
            raise Unsupported("the rank of an operand is not known")
        return info.ndim

    def static_shape(self, value: relax.Expr) -> tuple[int, ...] | None:
        """The extents of a tensor if all are constant, else None."""
        extents = [tir.const_int(e) for e in self.shape(value)]
        return None if any(e is None for e in extents) else tuple(e for e in extents if e is not None)

    def axis(self, value: relax.Expr, axis: int) -> int:
        """Return a non-negative axis. Raises Unsupported for one that is out of range."""
        rank = self.ndim(value)
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise Unsupported(f"axis {axis} is out of range for a tensor of {rank} dimensions")
        return axis % max(rank, 1)

    def shape_expr(self, shape: Shape) -> relax.ShapeExpr:
        """Extents as an argument of an operator."""
        return values.shape_expr(shape)

    # ------------------------------------------------------------ small operators

    def cast(self, value: relax.Expr, dtype: str | DType) -> relax.Expr:
        """Cast a value to a dtype; a value of that dtype is returned unchanged."""
        return value if self.dtype(value) == str(dtype) else self.emit(op.astype(value, str(dtype)))

    def reshape(self, value: relax.Expr, shape: Shape) -> relax.Expr:
        """Reshape a value; a value of that shape is returned unchanged."""
        target = self.shape_expr(shape)
        same = isinstance(value.struct_info, relax.TensorStructInfo) and check_subtype(
            values.tensor_info(shape, self.dtype(value)), value.struct_info
        )
        return value if same is SubtypeCheck.COVERS else self.emit(op.reshape(value, target))

    # ------------------------------------------------------------ the function

    @staticmethod
    def parameter(name: str, shape: Shape, dtype: str) -> relax.Var:
        """A parameter of `main`."""
        return relax.Var(name, values.tensor_info(shape, dtype))

    @staticmethod
    def symbol(name: str) -> tir.Var:
        """A symbolic extent."""
        return tir.Var(name, INT64)

    @contextmanager
    def function(
        self, params: Iterable[relax.Var], attrs: Mapping[str, Any] | None = None, name: str = "main"
    ) -> Iterator[None]:
        """Emit the body of a function inside the `with`; it ends with `result`."""
        with self.bb.function(name, list(params), dict(attrs or {})):
            yield

    def result(self, value: Any) -> None:
        """End the function with its result."""
        self.bb.emit_func_output(convert.as_expr(value))

    def module(self) -> IRModule:
        """The module, its bindings in dataflow blocks, its variables named after the nodes of the source model."""
        from mlcc.driver import run_passes

        return self._variables.apply(run_passes(self.bb.get(), "to-dataflow{min_size=1},recognize-operators,dead-code"))


def _with_span(value: Any, span: Span) -> Any:
    """Set the source location of an expression and of the operations in it."""
    if isinstance(value, relax.Call):
        return replace(value, args=tuple(_with_span(arg, span) for arg in value.args), span=span)
    if isinstance(value, relax.Tuple):
        return replace(value, fields=tuple(_with_span(field, span) for field in value.fields), span=span)
    if isinstance(value, relax.TupleGetItem):
        return replace(value, tuple_value=_with_span(value.tuple_value, span), span=span)
    return value
