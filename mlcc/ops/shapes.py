"""Helpers of inference rules: the shapes and dtypes of a call's arguments, and errors that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.proofs import is_one
from mlcc.errors import CompileError, Label, error
from mlcc.ir import calls, construct, relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.node import walk
from mlcc.ops.values import tensor_info

Dims = tuple[tir.Expr, ...]
Tensor = relax.TensorStructInfo


# ---------------------------------------------------------------- diagnostics


def fail(call: relax.Call, code: str, message: str, help: str | None = None) -> NoReturn:
    """Raise a diagnostic that points at the arguments."""
    related = tuple(
        Label(a.span, f"this argument is {describe(a.struct_info)}")
        for a in call.args
        if a.span is not None and a.struct_info is not None and a.span is not call.span
    )
    text = f"`R.{call.op.name.removeprefix('relax.')}`: {message}"
    raise CompileError(error(code, text, call.span, related=related, help=help))


def shape_text(dims: Iterable[tir.Expr] | None, ndim: int = -1) -> str:
    """Format a shape for messages."""
    if dims is None:
        return "of unknown shape" if ndim < 0 else f"of {ndim} dimensions"
    parts = [extent_text(d) for d in dims]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def extent_text(extent: tir.Expr) -> str:
    if isinstance(extent, tir.IntImm):
        return str(extent.value)
    return extent.name if isinstance(extent, tir.Var) else str(extent)


def describe(info: relax.StructInfo | None) -> str:
    """Return a short description of an argument for messages: its kind, shape and dtype."""
    match info:
        case relax.TensorStructInfo(dtype=dtype, ndim=ndim):
            return f"a tensor {shape_text(info.dims, ndim)} of {dtype or 'unknown dtype'}"
        case relax.ShapeStructInfo(values=values, ndim=ndim):
            return f"a shape {shape_text(values, ndim)}"
        case relax.PrimStructInfo(dtype=dtype):
            return f"a scalar of {dtype}"
        case relax.TupleStructInfo(fields=fields):
            return f"a tuple of {len(fields)}"
        case relax.FuncStructInfo():
            return "a function"
    return "an object"


# ---------------------------------------------------------------- arguments


def tensor(call: relax.Call, index: int) -> Tensor:
    """The struct info of a tensor argument."""
    info = call.args[index].struct_info
    if not isinstance(info, relax.TensorStructInfo):
        fail(call, "E0443", f"argument {index + 1} must be a tensor, it is {describe(info)}")
    return info


def tensors(call: relax.Call, index: int = 0) -> tuple[Tensor, ...] | None:
    """The struct infos of the tensors in a tuple argument; None if the tuple is not known."""
    info = call.args[index].struct_info
    if isinstance(info, relax.TupleStructInfo):
        for at, field in enumerate(info.fields):
            if not isinstance(field, relax.TensorStructInfo):
                fail(call, "E0443", f"field {at} of the tuple must be a tensor, it is {describe(field)}")
        return info.fields  # type: ignore[return-value]
    if isinstance(info, relax.ObjectStructInfo):
        return None
    fail(call, "E0443", f"argument {index + 1} must be a tuple of tensors, it is {describe(info)}")


def shape_argument(call: relax.Call, index: int) -> relax.ShapeStructInfo:
    """The struct info of a shape argument."""
    info = call.args[index].struct_info
    if isinstance(info, relax.ShapeStructInfo):
        return info
    fail(call, "E0443", f"argument {index + 1} must be a shape, it is {describe(info)}")


def scalar_argument(call: relax.Call, index: int) -> tir.Expr | None:
    """The value of a scalar argument; None if it is not known here."""
    argument = call.args[index]
    if isinstance(argument, relax.PrimValue):
        return argument.value
    info = argument.struct_info
    if isinstance(info, relax.PrimStructInfo):
        return info.value
    fail(call, "E0443", f"argument {index + 1} must be a scalar, it is {describe(info)}")


def require_float(call: relax.Call, info: Tensor) -> None:
    """Refuse a tensor whose dtype is not a float."""
    if info.dtype is not None and not info.dtype.is_float:
        fail(call, "E0444", f"needs a tensor of floats, not of {info.dtype}", "convert it with `R.astype`")


def same_dtype(call: relax.Call, infos: Sequence[Tensor]) -> DType | None:
    """Return the common dtype of tensors, None if one is unknown; refuse different dtypes."""
    known = [i.dtype for i in infos]
    for dtype in known[1:]:
        if dtype is not None and known[0] is not None and dtype is not known[0]:
            fail(call, "E0444", f"the tensors have different dtypes, {known[0]} and {dtype}")
    return known[0] if all(d is known[0] for d in known) else None


def axis(call: relax.Call, value: int, ndim: int, extra: int = 0) -> int:
    """Normalise an axis, which may be negative, and refuse one out of range; `extra` more are allowed."""
    count = ndim + extra
    if not -count <= value < count:
        allowed = f"{-count} to {count - 1}" if count else "none: the tensor is a scalar"
        fail(call, "E0446", f"axis {value} is out of range for {ndim} dimensions", f"possible axes are {allowed}")
    return value % count


def axes(call: relax.Call, values: Sequence[int], ndim: int, extra: int = 0) -> tuple[int, ...]:
    """Normalise several axes and refuse duplicates."""
    places = tuple(axis(call, v, ndim, extra) for v in values)
    for at, value in enumerate(places):
        if value in places[:at]:
            fail(call, "E0446", f"axis {value} is given twice: {list(values)}", "name each axis once")
    return places


# ---------------------------------------------------------------- results


def tensor_like(info: Tensor, dtype: DType | None) -> Tensor:
    """A tensor of the shape of `info`, as far as it is known, of another dtype."""
    if dtype is info.dtype:
        return info
    return relax.TensorStructInfo(info.shape, dtype, info.ndim, info.vdevice)


def result(dims: Iterable[tir.Expr] | None, dtype: DType | None, ndim: int = -1, vdevice: str | None = None) -> Tensor:
    """A tensor of the shape, or of `ndim` dimensions."""
    if dims is None:
        return relax.TensorStructInfo(None, dtype, ndim, vdevice)
    info = tensor_info(tuple(dims), dtype)
    return info if vdevice is None else relax.TensorStructInfo(info.shape, dtype, info.ndim, vdevice)


def shapes_known(call: relax.Call) -> bool:
    """Return True if a call can be lowered: the shapes and dtypes of its arguments and result are known expressions."""
    return all(_is_known(e.struct_info) for e in (*call.args, call))


def depends_on_data(call: relax.Call) -> bool:
    """Return True if the result's shape is unknown although the shapes of all arguments are known."""
    return all(_is_known(a.struct_info) for a in call.args) and not _is_known(call.struct_info)


def _is_known(info: relax.StructInfo | None) -> bool:
    match info:
        case relax.TensorStructInfo():
            return info.dims is not None and info.dtype is not None
        case relax.ShapeStructInfo(values=values):
            return values is not None
        case relax.PrimStructInfo(value=value):
            return value is not None
        case relax.TupleStructInfo(fields=fields):
            return all(map(_is_known, fields))
    return info is not None


def result_dims(call: relax.Call) -> Dims:
    """The extents of the result, where they are known."""
    assert isinstance(call.struct_info, relax.TensorStructInfo)
    dims = call.struct_info.dims
    assert dims is not None
    return dims


def known_dims(info: Tensor) -> Dims | None:
    """The extents of a tensor, also if its shape is a variable with known values."""
    named = info.shape.struct_info if isinstance(info.shape, relax.Var) else None
    return named.values if isinstance(named, relax.ShapeStructInfo) else info.dims


def device_of(infos: Iterable[relax.StructInfo | None]) -> str | None:
    """The virtual device of the first tensor that names one."""
    for info in infos:
        if isinstance(info, relax.TensorStructInfo) and info.vdevice is not None:
            return info.vdevice
    return None


# ---------------------------------------------------------------- arithmetic on extents


def int64(value: int) -> tir.Expr:
    return construct.const(value, INT64)


def simplify(value: tir.Expr, known: Analyzer | None = None) -> tir.Expr:
    """Simplify an expression, under the bounds of its variables in `known`."""
    return value if isinstance(value, (tir.IntImm, tir.Var)) else (known or Analyzer()).simplify(value)


def extent_analyzer(call: relax.Call) -> Analyzer:
    """Return an analyzer that knows the symbolic extents of the call's tensors to be nonnegative."""
    analyzer = Analyzer()
    for argument in call.args:
        for part in walk(argument.struct_info) if isinstance(argument.struct_info, relax.TensorStructInfo) else ():
            if isinstance(part, tir.Var):
                analyzer.bind_bound(part, 0, 2**62)
    return analyzer


def prove_equal(a: tir.Expr, b: tir.Expr) -> bool:
    """Return True if two expressions are provably equal."""
    if a is b:
        return True
    if isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm):
        return a.value == b.value
    return Analyzer().prove_equal(*construct.match_types(a, b))


def prove(condition: tir.Expr, known: Analyzer | None = None) -> bool:
    """Return True if a condition provably holds."""
    if isinstance(condition, tir.IntImm):
        return bool(condition.value)
    return (known or Analyzer()).prove(condition)


def known_different(a: tir.Expr, b: tir.Expr) -> bool:
    """Return True for different constants (TVM does not look further).

    Inference rules call this for extents that must be equal; undecided pairs are recorded for `requirements`.
    """
    if isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm):
        return a.value != b.value
    recorded = _unproven.get()
    if recorded is not None and not prove_equal(a, b):
        recorded.append((a, b))
    return False


def known_larger(a: tir.Expr, b: tir.Expr) -> bool:
    """Return True if the constant `a` exceeds `b`; undecided pairs are recorded as the equality min(a, b) == a."""
    if isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm):
        return a.value > b.value
    a, b = construct.match_types(a, b)
    return not prove(construct.less_equal(a, b)) and known_different(construct.minimum(a, b), a)


_unproven: ContextVar[list[tuple[tir.Expr, tir.Expr]] | None] = ContextVar("open", default=None)


def unproven_equalities(infer: Callable[[], object]) -> list[tuple[tir.Expr, tir.Expr]]:
    """Run an inference. Return the pairs of sizes that it assumes equal, which have to be checked at run time."""
    recorded: list[tuple[tir.Expr, tir.Expr]] = []
    token = _unproven.set(recorded)
    try:
        infer()
    finally:
        _unproven.reset(token)
    return recorded


def product(dims: Iterable[tir.Expr]) -> tir.Expr:
    """The number of elements, simplified."""
    total: tir.Expr = int64(1)
    for extent in dims:
        total = construct.mul(total, extent)
    return simplify(total)


_common: ContextVar[bool] = ContextVar("common", default=False)


@contextmanager
def common_extents() -> Iterator[None]:
    """Let `broadcast` accept extents that may differ if one of them is 1 at run time."""
    token = _common.set(True)
    try:
        yield
    finally:
        _common.reset(token)


def _common_extent(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """The extent of the result where `a` and `b` are equal or one of them is 1."""
    if isinstance(a, tir.IntImm) or isinstance(b, tir.IntImm):
        return a if isinstance(a, tir.IntImm) else b
    return calls.if_then_else(construct.equal(a, 1), b, a)


def _vector_help(vector: Dims, dims: Dims) -> str | None:
    """Say how a vector is set beside a dimension that is not the last, such as a bias beside the channels."""
    if len(vector) != 1:
        return None
    at = next((d for d, extent in enumerate(dims[:-1]) if prove_equal(extent, vector[0])), None)
    if at is None:
        return None
    shape = shape_text((vector[0], *[int64(1)] * (len(dims) - 1 - at)))
    return f"shapes are aligned at their ends: R.reshape(..., {shape}) sets the vector beside dimension {at}"


def broadcast(call: relax.Call, left: Dims, right: Dims, what: str = "the shapes") -> Dims | None:
    """The shape that both broadcast to by NumPy's rule; None if it is unknown (see `common_extents`)."""
    dims: list[tir.Expr] = []
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    offset = len(longer) - len(shorter)
    for at, extent in enumerate(longer):
        other = shorter[at - offset] if at >= offset else int64(1)
        if is_one(other):
            dims.append(extent)
        elif is_one(extent):
            dims.append(other)
        elif prove_equal(extent, other):
            dims.append(extent)
        elif known_different(extent, other):
            text = f"{what} {shape_text(left)} and {shape_text(right)} do not broadcast"
            text += f": {shape_text((extent,))[1:-2]} against {shape_text((other,))[1:-2]}"
            fail(call, "E0445", text, help=_vector_help(shorter, longer))
        elif _common.get():
            dims.append(_common_extent(extent, other))
        else:
            return None
    return tuple(dims)
