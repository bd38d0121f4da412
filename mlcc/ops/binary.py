"""Operators of two or three tensors, element by element after broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import BOOL, INT64, DType
from mlcc.ir.visit import rewrite_bottom_up, substitute
from mlcc.ops import guard, layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Cost, FusionKind, Impl, Inline, Precision
from mlcc.ops.shapes import (
    Tensor,
    broadcast,
    describe,
    device_of,
    fail,
    known_dims,
    prove_equal,
    result,
    same_dtype,
    shape_text,
    tensor,
    tensor_like,
)
from mlcc.te.scalar import Scalar, bitwise, to_expr

Element = Callable[[Any, Any], Any]  # the operator on two elements
Infer = Callable[[relax.Call], relax.StructInfo]


# ---------------------------------------------------------------- inference


def _operands(call: relax.Call) -> tuple[relax.StructInfo, relax.StructInfo]:
    """Return the struct info of both operands, each a tensor or a scalar."""
    infos = [a.struct_info for a in call.args]
    for at, info in enumerate(infos):
        if not isinstance(info, (relax.TensorStructInfo, relax.PrimStructInfo)):
            fail(call, "E0443", f"argument {at + 1} must be a tensor or a scalar, it is {describe(info)}")
    left, right = infos
    assert left is not None and right is not None
    return left, right


def _dtype(call: relax.Call, left: Any, right: Any) -> DType | None:
    """The dtype of both operands; None if one is unknown."""
    if left.dtype is None or right.dtype is None:
        return None
    if left.dtype is not right.dtype:
        scalar = isinstance(left, relax.PrimStructInfo) or isinstance(right, relax.PrimStructInfo)
        other = left.dtype if isinstance(right, relax.PrimStructInfo) else right.dtype
        hint = f'write the number as `R.const(value, "{other}")`' if scalar else "convert one with `R.astype`"
        fail(call, "E0444", f"the operands have different dtypes, {left.dtype} and {right.dtype}", hint)
    return left.dtype  # type: ignore[no-any-return]


def _infer(call: relax.Call, dtype: DType | None, element: Element) -> relax.StructInfo:
    left, right = _operands(call)
    if isinstance(left, relax.PrimStructInfo) and isinstance(right, relax.PrimStructInfo):
        return _infer_scalar(call, left, right, dtype, element)
    if isinstance(left, relax.PrimStructInfo) or isinstance(right, relax.PrimStructInfo):
        only = right if isinstance(left, relax.PrimStructInfo) else left
        assert isinstance(only, relax.TensorStructInfo)
        return tensor_like(only, dtype)
    assert isinstance(left, relax.TensorStructInfo) and isinstance(right, relax.TensorStructInfo)
    return combine(call, left, right, dtype)


def combine(call: relax.Call, left: Tensor, right: Tensor, dtype: DType | None) -> Tensor:
    """Infer the tensor that two tensors broadcast to."""
    device = device_of((left, right))
    if left.shape is not None and left.shape is right.shape:
        return relax.TensorStructInfo(left.shape, dtype, left.ndim, device)
    ndim = -1 if left.ndim < 0 or right.ndim < 0 else max(left.ndim, right.ndim)
    first, second = known_dims(left), known_dims(right)
    if first is None or second is None:
        return result(None, dtype, ndim, device)
    return result(broadcast(call, first, second), dtype, ndim, device)


def _infer_scalar(
    call: relax.Call, left: relax.PrimStructInfo, right: relax.PrimStructInfo, dtype: DType | None, element: Element
) -> relax.PrimStructInfo:
    """Infer the scalar result of two scalars, with its value if both values are known."""
    assert dtype is not None
    if left.value is None or right.value is None:
        return relax.PrimStructInfo(dtype, None)
    try:
        value = to_expr(element(Scalar(left.value), Scalar(right.value)))
    except (TypeError, ValueError, ArithmeticError) as bad:
        fail(call, "E0444", str(bad))
    return relax.PrimStructInfo(dtype, rewrite_bottom_up(value, _without_let))


def _without_let(expr: Any) -> Any:
    """Substitute the value of a `let`: a scalar's value may only use variables of the enclosing function."""
    return substitute(expr.body, {expr.var: expr.value}) if isinstance(expr, tir.Let) else expr


def infer_same(element: Element) -> Infer:
    """Infer the operands' dtype and the broadcast shape."""
    return lambda call: _infer(call, _dtype(call, *_operands(call)), element)


def infer_compare(element: Element) -> Infer:
    """Infer bool and the broadcast shape."""

    def infer(call: relax.Call) -> relax.StructInfo:
        _dtype(call, *_operands(call))
        return _infer(call, BOOL, element)

    return infer


def infer_ewise_fma(call: relax.Call) -> relax.StructInfo:
    """Infer the common dtype and shape of three tensors; the operator does not broadcast."""
    infos = [tensor(call, i) for i in range(3)]
    dtype = same_dtype(call, infos)
    known = [i for i in infos if i.ndim >= 0]
    reference = next((i for i in infos if i.dims is not None), None)
    for other in known[1:]:
        if other.ndim != known[0].ndim:
            fail(
                call,
                "E0445",
                f"the tensors have {known[0].ndim} and {other.ndim} dimensions; the operator does not broadcast",
            )
    for other in infos:
        if reference is None or other is reference or other.dims is None or reference.dims is None:
            continue
        if not all(prove_equal(a, b) for a, b in zip(reference.dims, other.dims, strict=True)):
            text = f"the shapes {shape_text(reference.dims)} and {shape_text(other.dims)} are not the same"
            fail(call, "E0445", text, "use `R.add(R.multiply(x1, x2), x3)`, which broadcasts")
    ndim = known[0].ndim if known else -1
    all_known = reference is not None and all(i.dims is not None for i in infos)
    return (
        tensor_like(reference, dtype)
        if all_known and reference is not None
        else result(None, dtype, ndim, device_of(infos))
    )


def infer_where(call: relax.Call) -> relax.StructInfo:
    """Infer the dtype of the two values and the shape that all three operands broadcast to; the condition is bool."""
    condition, left, right = (tensor(call, i) for i in range(3))
    if condition.dtype is not None and not condition.dtype.is_bool:
        fail(call, "E0444", f"the condition must be bool, it is {condition.dtype}", "compare it, as by R.greater")
    dtype = same_dtype(call, (left, right))
    return combine(call, condition, combine(call, left, right, dtype), dtype)


# ---------------------------------------------------------------- NumPy


def _np_divide(a: Any, b: Any) -> Any:
    """Divide; quotients of integers truncate toward zero."""
    if np.issubdtype(np.result_type(a, b), np.floating):
        return a / b
    return _np_truncated_divmod(a, b)[0]


def _np_truncated_divmod(a: Any, b: Any) -> tuple[Any, Any]:
    quotient, rest = np.divmod(a, b)
    fix = (rest != 0) & ((np.asarray(a) < 0) != (np.asarray(b) < 0))
    return quotient + fix, rest - np.where(fix, b, 0)


def _np_mod(a: Any, b: Any) -> Any:
    return np.fmod(a, b)


def _np_shift(name: str) -> Callable[[Any, Any], Any]:
    """Return the NumPy reference of a shift; a count outside the width shifts all bits out."""

    def shift(a: Any, b: Any) -> Any:
        a, b = np.asarray(a), np.asarray(b)
        none = a.dtype.type(0)  # a Python number would make float64 of uint64
        inside = (b >= 0) & (b < a.dtype.itemsize * 8)
        shifted_out = np.where(a < 0, ~none, none) if name == "right_shift" else none
        return np.where(inside, getattr(np, name)(a, np.where(inside, b, b.dtype.type(0))), shifted_out)

    return shift


# ---------------------------------------------------------------- lowering


def _on_expressions(fn: Callable[[Any, Any], tir.Expr]) -> Callable[[Any, Any], Scalar]:
    return lambda x, y: Scalar(fn(getattr(x, "expr", x), getattr(y, "expr", y)))


def _is_float(x: Any) -> bool:
    return to_expr(x).dtype.is_float


def _lower_floor_divide(x: Any, y: Any) -> Any:
    _refuse_bool(x)
    return te.floor(te.div(x, y)) if _is_float(x) else te.floordiv(x, y)


def _refuse_bool(x: Any) -> None:
    if to_expr(x).dtype.is_bool:
        raise TypeError("bools have no quotient")


def _lower_floor_mod(x: Any, y: Any) -> Any:
    _refuse_bool(x)
    if _is_float(x):
        return x - te.floor(te.div(x, y)) * y
    return te.floormod(x, y)


def _exact_floor_mod(x: Any, y: Any) -> Any:
    """NumPy's `mod`: the remainder is exact, whatever the quotient."""
    if not _is_float(x):
        return _lower_floor_mod(x, y)

    def element(a: Scalar, b: Scalar, r: Scalar) -> Scalar:
        adjusted = te.select(_signs_differ(r, b), r + b, r)
        return te.select(r != _zero(a), adjusted, _signed_zero(b))

    return _with_remainder(x, y, element)


def _exact_floor_divide(x: Any, y: Any) -> Any:
    """NumPy's `floor_divide`: (x - fmod(x, y)) / y, minus 1 where `mod` moves the remainder, at the nearest integer."""
    if not _is_float(x):
        return _lower_floor_divide(x, y)

    def element(a: Scalar, b: Scalar, r: Scalar) -> Scalar:
        var = tir.Var("quotient", a.dtype)
        q = Scalar(var)
        floor = te.floor(q)
        nearest = te.select(q - floor > 0.5, floor + 1, floor)
        result = te.select(q != _zero(a), nearest, _signed_zero(a / b))
        result = te.select(b != _zero(a), result, a / b)
        quotient = te.select(_signs_differ(r, b), (a - r) / b - 1, (a - r) / b)
        return Scalar(tir.Let(a.dtype, var, quotient.expr, result.expr))

    return _with_remainder(x, y, element)


def _with_remainder(x: Any, y: Any, element: Callable[[Scalar, Scalar, Scalar], Scalar]) -> Scalar:
    """Return `element(x, y, fmod(x, y))`, binding the remainder by a `let`; narrow floats are computed in float32."""
    a, b = (Scalar(v) for v in construct.match_types(getattr(x, "expr", x), getattr(y, "expr", y)))
    dtype = a.dtype
    if dtype.bits < 32:
        a, b = a.astype("float32"), b.astype("float32")
    remainder = tir.Var("rest", a.dtype)
    value = construct.call(a.dtype, "fmod", a.expr, b.expr)
    return Scalar(tir.Let(a.dtype, remainder, value, element(a, b, Scalar(remainder)).expr)).astype(dtype)


def _zero(like: Scalar) -> Scalar:
    return te.const(0, like.dtype)


def _signed_zero(like: Scalar) -> Scalar:
    return Scalar(construct.call(like.dtype, "copysign", _zero(like).expr, like.expr))


def _signs_differ(a: Scalar, b: Scalar) -> Any:
    """Return the condition that one operand is negative and the other positive."""
    zero = _zero(a)
    return te.any(te.all(a < zero, b > zero), te.all(a > zero, b < zero))


def _logical(fn: Callable[[Any, Any], tir.Expr]) -> Callable[[Any, Any], Scalar]:
    """Return a logical operator on numbers (nonzero is true) whose result has the dtype of the operands."""

    def element(x: Any, y: Any) -> Scalar:
        a, b = construct.match_types(getattr(x, "expr", x), getattr(y, "expr", y))
        if a.dtype.is_bool:
            return Scalar(fn(a, b))
        zero = construct.const(0, a.dtype)
        return Scalar(construct.cast(a.dtype, fn(construct.not_equal(a, zero), construct.not_equal(b, zero))))

    return element


def _np_log_add_exp(a: Any, b: Any) -> Any:
    guard.floats_only(np.result_type(a, b))
    return np.logaddexp(a, b)


def _lower_log_add_exp(x: Any, y: Any) -> Any:
    guard.floats_only(to_expr(x).dtype)
    return te.logaddexp(x, y)


def _lower_mod(x: Any, y: Any) -> Any:
    """The remainder of truncating division, for integers and floats."""
    a, b = construct.match_types(getattr(x, "expr", x), getattr(y, "expr", y))
    return Scalar(construct.truncmod(a, b) if not a.dtype.is_float else tir.Mod(a.dtype, a, b))


def _lower_where(call: relax.Call, condition: te.Tensor, left: Any, right: Any) -> te.Tensor:
    """Select elementwise; a bool condition is compared as an int64 with 0, as in TVM."""
    zero = construct.const(0, INT64)

    def element(c: Scalar, a: Any, b: Any) -> Scalar:
        holds = c.expr if not c.dtype.is_bool else tir.Cast(INT64, c.expr)
        return te.select(Scalar(construct.less(zero, holds)), a, b)

    return topi.broadcast(element, condition, left, right, name="T_where")


def _lower_ewise_fma(call: relax.Call, a: te.Tensor, b: te.Tensor, c: te.Tensor) -> te.Tensor:
    return topi.broadcast(lambda x, y, z: x * y + z, a, b, c, name="T_fma")


# ---------------------------------------------------------------- the table


def _entry(
    name: str, numpy: Callable[[Any, Any], Any], fn: Callable[[Any, Any], Any],
    infer: Callable[[Element], Infer] = infer_same, accurate: Callable[[Any, Any], Any] | None = None,
    cost: Cost = Cost.COSTLY, commutative: bool = False,
) -> Impl:  # fmt: skip
    """The entry of a binary operator from its NumPy reference and `fn`, which computes one element as TVM does."""

    def lowering(element: Callable[[Any, Any], Any]) -> Callable[..., te.Tensor]:
        return lambda call, a, b: topi.broadcast(element, a, b, name=f"T_{name}")

    return Impl(
        "x1, x2", infer(accurate or fn), lambda call, a, b: numpy(a, b), lowering(fn), FusionKind.BROADCAST,
        accurate=None if accurate is None else lowering(accurate), inline=Inline.ONE_OF_TWO, commutative=commutative,
        cost=cost, precision=Precision.FOLLOW, layout=layout_rules.broadcast,
    )  # fmt: skip


def _cheap(
    name: str, numpy: Callable[[Any, Any], Any], fn: Callable[[Any, Any], Any], commutative: bool = True
) -> Impl:  # fmt: skip
    """The entry of a binary operator that is a single instruction."""
    return _entry(name, numpy, fn, cost=Cost.CHEAP, commutative=commutative)


def _compare(name: str, fn: Callable[[Any, Any], tir.Expr], commutative: bool = False) -> Impl:
    numpy = lambda a, b: getattr(np, name)(a, b)  # noqa: E731
    return _entry(name, numpy, _on_expressions(fn), infer_compare, cost=Cost.CHEAP, commutative=commutative)


def _bitwise(name: str) -> Impl:
    return _cheap(name, lambda a, b: getattr(np, name)(a, b), _on_expressions(bitwise(name)))


OPS: dict[str, Impl] = {
    "add": _cheap("add", lambda a, b: a + b, _on_expressions(construct.add)),
    "subtract": _cheap("subtract", lambda a, b: a - b, _on_expressions(construct.sub), commutative=False),
    "multiply": _cheap("multiply", lambda a, b: a * b, _on_expressions(construct.mul)),
    "divide": _entry("divide", _np_divide, te.div),
    "floor_divide": _entry(
        "floor_divide", lambda a, b: np.floor_divide(a, b), _lower_floor_divide, accurate=_exact_floor_divide,
    ),
    "mod": _entry("mod", _np_mod, _lower_mod),
    "floor_mod": _entry("floor_mod", lambda a, b: np.mod(a, b), _lower_floor_mod, accurate=_exact_floor_mod),
    "power": _entry("power", lambda a, b: np.power(a, b), te.power),
    "maximum": _cheap("maximum", lambda a, b: np.maximum(a, b), _on_expressions(construct.maximum)),
    "minimum": _cheap("minimum", lambda a, b: np.minimum(a, b), _on_expressions(construct.minimum)),
    "atan2": _entry("atan2", lambda a, b: np.arctan2(a, b), te.atan2),
    "log_add_exp": _entry("log_add_exp", _np_log_add_exp, _lower_log_add_exp),
    "logical_and": _cheap("logical_and", lambda a, b: np.logical_and(a, b), _logical(construct.logical_and)),
    "logical_or": _cheap("logical_or", lambda a, b: np.logical_or(a, b), _logical(construct.logical_or)),
    "logical_xor": _cheap("logical_xor", lambda a, b: np.logical_xor(a, b), _logical(bitwise("bitwise_xor"))),
    "bitwise_and": _bitwise("bitwise_and"),
    "bitwise_or": _bitwise("bitwise_or"),
    "bitwise_xor": _bitwise("bitwise_xor"),
    "left_shift": _entry("left_shift", _np_shift("left_shift"), _on_expressions(bitwise("shift_left"))),
    "right_shift": _entry("right_shift", _np_shift("right_shift"), _on_expressions(bitwise("shift_right"))),
    "equal": _compare("equal", construct.equal, commutative=True),
    "not_equal": _compare("not_equal", construct.not_equal, commutative=True),
    "less": _compare("less", construct.less),
    "less_equal": _compare("less_equal", construct.less_equal),
    "greater": _compare("greater", construct.greater),
    "greater_equal": _compare("greater_equal", construct.greater_equal),
    "where": Impl(
        "condition, x1, x2", infer_where, lambda call, c, a, b: np.where(c, a, b), _lower_where, FusionKind.BROADCAST,
        cost=Cost.CHEAP, free_layout=layout_rules.broadcast,
    ),
    "ewise_fma": Impl(
        "x1, x2, x3", infer_ewise_fma, lambda call, a, b, c: a * b + c, _lower_ewise_fma, FusionKind.BROADCAST,
        precision=Precision.FOLLOW, layout=layout_rules.fma,
    ),
}  # fmt: skip
