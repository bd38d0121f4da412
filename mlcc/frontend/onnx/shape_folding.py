"""Constant folding of integers over symbolic extents: numbers and expressions known while a model is imported.

The operators with which exporters compute shapes (`Shape`, `Gather`, `Concat`, `Mul`, ...) are evaluated element by
element, so that `Reshape` and the like get symbolic shapes instead of tensors known at run time only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT64, DType

if TYPE_CHECKING:
    import numpy as np

    from mlcc.frontend.onnx.node import OnnxNode

Element: TypeAlias = int | tir.Expr

MAX_ELEMENTS = 4096  # the most elements of a folded tensor; larger ones are computed at run time
_MAX_NODES = 200  # the most nodes of a folded expression


@dataclass(slots=True, eq=False)
class KnownTensor:
    """A tensor of integers or bools whose elements are known as numbers and expressions (an array of objects)."""

    elements: np.ndarray
    dtype: str

    @property
    def symbolic(self) -> bool:
        """True if any element is an expression rather than a number."""
        return any(isinstance(e, tir.Expr) for e in self.elements.reshape(-1))


def known_tensor(elements: Any, shape: Sequence[int], dtype: str) -> KnownTensor:
    """Create a tensor from a flat list of elements."""
    import numpy as np

    array = np.empty(len(elements), object)
    array[:] = [as_number(e) for e in elements]
    return KnownTensor(array.reshape(tuple(shape)), dtype)


def as_number(element: Any) -> Element:
    """Return the number if an expression is constant, else the expression."""
    number = tir.const_int(element) if isinstance(element, tir.Expr) else int(element)
    return element if number is None else number


class ShapeFolder:
    """Evaluates nodes on known integers, assuming only that symbols are non-negative."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._bound: set[tir.Var] = set()

    def evaluate(self, node: OnnxNode, inputs: Sequence[KnownTensor | None]) -> KnownTensor | None:
        """Return the result of a node; None if it cannot be folded."""
        rule = _RULES.get(node.operator) if not node.domain else None
        if rule is None:
            return None
        try:
            result = rule(self, node, *inputs)
        except (_NotFolded, IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError):
            return None
        return result if result is not None and result.elements.size <= MAX_ELEMENTS else None

    def simplify(self, element: Any) -> Element:
        """Return an equal element in canonical form. Raises _NotFolded for expressions that are too large."""
        if not isinstance(element, tir.Expr):
            return int(element)
        self._declare(element)
        simplified = as_number(self._analyzer.simplify(element))
        if isinstance(simplified, tir.Expr) and simplified.dtype.is_bool and self._analyzer.prove(simplified):
            return 1
        if (
            isinstance(simplified, tir.Expr)
            and simplified.dtype.is_bool
            and self._analyzer.prove(c.logical_not(simplified))
        ):
            return 0
        return simplified

    def _declare(self, element: tir.Expr) -> None:
        from mlcc.ir.node import walk

        for count, node in enumerate(walk(element)):
            if count > _MAX_NODES:
                raise _NotFolded
            if isinstance(node, tir.Var) and node not in self._bound:
                self._bound.add(node)
                self._analyzer.bind_bound(node, 0, 2**62)

    def map(self, fn: Callable[..., Any], *operands: KnownTensor, dtype: str = "") -> KnownTensor:
        """Apply an elementwise function to broadcast operands."""
        import numpy as np

        arrays = np.broadcast_arrays(*(o.elements for o in operands))
        if arrays[0].size > MAX_ELEMENTS:
            raise _NotFolded
        flat = [self.simplify(fn(*values)) for values in zip(*(a.reshape(-1).tolist() for a in arrays), strict=True)]
        return self.fit(known_tensor(flat, arrays[0].shape, dtype or operands[0].dtype))

    def fit(self, value: KnownTensor) -> KnownTensor:
        """Return the value. Raises _NotFolded if a number overflows its dtype, where run-time arithmetic wraps."""
        kind = DType.of(value.dtype)
        if kind.is_bool:
            return value
        low, high = (0, 2**kind.bits - 1) if kind.is_uint else (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)
        if any(isinstance(e, int) and not low <= e <= high for e in value.elements.reshape(-1)):
            raise _NotFolded
        return value


class _NotFolded(Exception):
    """Raised to give up folding a node."""


# ---------------------------------------------------------------- rules

Rule: TypeAlias = Callable[..., "KnownTensor | None"]
_RULES: dict[str, Rule] = {}


def _rule(*operators: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(operators, rule))
        return rule

    return register


def _rearranged(operand: KnownTensor, elements: np.ndarray) -> KnownTensor:
    """Return a tensor of these elements with the operand's dtype."""
    return KnownTensor(elements, operand.dtype)


def _int_list(node: OnnxNode, name: str, value: KnownTensor | None) -> list[int] | None:
    """Return a list of numbers: an attribute in old opsets, an input in new ones."""
    numbers = node.attribute(name) if value is None else value.elements.reshape(-1).tolist()
    if numbers is None:
        return None
    if any(not isinstance(n, int) for n in numbers):
        raise _NotFolded
    return [int(n) for n in numbers]


@_rule("Identity")
def _identity(e: ShapeFolder, node: OnnxNode, x: KnownTensor) -> KnownTensor:
    return x


@_rule("Gather")
def _gather(e: ShapeFolder, node: OnnxNode, x: KnownTensor, indices: KnownTensor) -> KnownTensor:
    import numpy as np

    if indices.symbolic:
        raise _NotFolded
    return _rearranged(
        x, np.asarray(np.take(x.elements, indices.elements.astype("int64"), node.attribute("axis", 0)), object)
    )


@_rule("Slice")
def _slice(
    e: ShapeFolder, node: OnnxNode, x: KnownTensor, starts: KnownTensor | None = None, ends: KnownTensor | None = None,
    axes: KnownTensor | None = None, steps: KnownTensor | None = None,
) -> KnownTensor:  # fmt: skip
    begin, end = _int_list(node, "starts", starts), _int_list(node, "ends", ends)
    if begin is None or end is None:
        raise _NotFolded
    where = _int_list(node, "axes", axes) or list(range(len(begin)))
    stride = _int_list(node, "steps", steps) or [1] * len(begin)
    index = [slice(None)] * x.elements.ndim
    for axis, first, last, step in zip(where, begin, end, stride, strict=True):
        extent = x.elements.shape[axis]
        stop = None if step < 0 and last < -extent else last
        index[axis] = slice(first, stop, step)
    return _rearranged(x, x.elements[tuple(index)])


@_rule("Concat")
def _concat(e: ShapeFolder, node: OnnxNode, *parts: KnownTensor) -> KnownTensor:
    import numpy as np

    return _rearranged(parts[0], np.concatenate([p.elements for p in parts], node.attribute("axis", 0)))


@_rule("Unsqueeze")
def _unsqueeze(e: ShapeFolder, node: OnnxNode, x: KnownTensor, axes: KnownTensor | None = None) -> KnownTensor:
    import numpy as np

    return _rearranged(x, np.expand_dims(x.elements, tuple(_int_list(node, "axes", axes) or ())))


@_rule("Squeeze")
def _squeeze(e: ShapeFolder, node: OnnxNode, x: KnownTensor, axes: KnownTensor | None = None) -> KnownTensor:
    import numpy as np

    where = _int_list(node, "axes", axes)
    return _rearranged(x, np.squeeze(x.elements, None if where is None else tuple(where)))


@_rule("Reshape")
def _reshape(e: ShapeFolder, node: OnnxNode, x: KnownTensor, shape: KnownTensor | None = None) -> KnownTensor:
    wanted = _int_list(node, "shape", shape)
    if wanted is None:
        raise _NotFolded
    if not node.attribute("allowzero", 0):
        wanted = [x.elements.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return _rearranged(x, x.elements.reshape(wanted))


@_rule("Flatten")
def _flatten(e: ShapeFolder, node: OnnxNode, x: KnownTensor) -> KnownTensor:
    axis = node.attribute("axis", 1) % max(x.elements.ndim, 1)
    return _rearranged(x, x.elements.reshape(math.prod(x.elements.shape[:axis]), -1))


@_rule("Transpose")
def _transpose(e: ShapeFolder, node: OnnxNode, x: KnownTensor) -> KnownTensor:
    return _rearranged(x, x.elements.transpose(node.attribute("perm")))


@_rule("Expand")
def _expand(e: ShapeFolder, node: OnnxNode, x: KnownTensor, shape: KnownTensor) -> KnownTensor:
    import numpy as np

    wanted = np.broadcast_shapes(x.elements.shape, tuple(_int_list(node, "", shape) or ()))
    if math.prod(wanted) > MAX_ELEMENTS:
        raise _NotFolded
    return _rearranged(x, np.broadcast_to(x.elements, wanted))


@_rule("Tile")
def _tile(e: ShapeFolder, node: OnnxNode, x: KnownTensor, repeats: KnownTensor) -> KnownTensor:
    import numpy as np

    times = _int_list(node, "", repeats) or []
    if math.prod(times) * x.elements.size > MAX_ELEMENTS:
        raise _NotFolded
    return _rearranged(x, np.tile(x.elements, times))


@_rule("Cast")
def _cast(e: ShapeFolder, node: OnnxNode, x: KnownTensor) -> KnownTensor:
    from mlcc.frontend.onnx.elements import dtype_of

    wanted = DType.of(dtype_of(node.attribute("to")))
    if wanted.is_bool:
        return e.map(c.as_bool, x, dtype="bool")
    if not wanted.is_int or wanted.bits < 32:
        raise _NotFolded
    fn = (lambda v: c.cast(INT64, v)) if DType.of(x.dtype).is_bool else _unchanged
    return e.map(fn, x, dtype=str(wanted))


def _unchanged(value: Any) -> Any:
    return value


@_rule("ConstantOfShape")
def _constant_of_shape(e: ShapeFolder, node: OnnxNode, shape: KnownTensor) -> KnownTensor:
    import numpy as np

    extents = _int_list(node, "", shape) or []
    data = node.attribute("value")
    if data is None or not (data.dtype.is_int or data.dtype.is_bool) or not 0 <= math.prod(extents) <= MAX_ELEMENTS:
        raise _NotFolded
    return KnownTensor(np.full(extents, int(data.array.reshape(-1)[0]), object), str(data.dtype))


@_rule("Range")
def _range(e: ShapeFolder, node: OnnxNode, start: KnownTensor, limit: KnownTensor, delta: KnownTensor) -> KnownTensor:
    first, last, step = (v.elements.reshape(-1)[0] for v in (start, limit, delta))
    if isinstance(step, tir.Expr) or step == 0:
        raise _NotFolded
    count = e.simplify(c.sub(_operand(last), _operand(first)))
    if isinstance(count, tir.Expr):
        raise _NotFolded
    length = max(-(-count // step), 0)
    if length > MAX_ELEMENTS:
        raise _NotFolded
    return known_tensor([e.simplify(c.add(_operand(first), i * step)) for i in range(length)], (length,), start.dtype)


def _operand(value: Any) -> tir.Expr:
    """Convert an element to an expression; bools stay bools."""
    return value if isinstance(value, tir.Expr) else c.const(int(value), INT64)


def _bool(value: Any) -> tir.Expr:
    return value if isinstance(value, tir.Expr) else c.const(bool(value), BOOL)


def _truncated_div(a: Any, b: Any) -> tir.Expr:
    """Return the quotient rounded toward zero, as ONNX's `Div` of integers."""
    if tir.const_int(_operand(b)) == 0:
        raise _NotFolded
    return c.div(_operand(a), _operand(b))


def _mod(a: Any, b: Any) -> tir.Expr:
    if tir.const_int(_operand(b)) == 0:
        raise _NotFolded
    return c.floormod(_operand(a), _operand(b))


def _select(condition: Any, yes: Any, no: Any) -> tir.Expr:
    if not isinstance(condition, tir.Expr):
        return _operand(yes if condition else no)
    return tir.Select(INT64, c.as_bool(condition), _operand(yes), _operand(no))


def _absolute(value: Any) -> tir.Expr:
    return c.maximum(_operand(value), c.sub(0, _operand(value)))


def _sign(value: Any) -> tir.Expr:
    return c.minimum(c.maximum(_operand(value), -1), 1)


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Add": c.add, "Sub": c.sub, "Mul": c.mul, "Div": _truncated_div, "Min": c.minimum, "Max": c.maximum,
    "Neg": lambda a: c.sub(0, a), "Abs": _absolute, "Sign": _sign,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "Equal": c.equal, "Less": c.less, "LessOrEqual": c.less_equal, "Greater": c.greater,
    "GreaterOrEqual": c.greater_equal,
}  # fmt: skip
_LOGIC: dict[str, Callable[..., Any]] = {"And": c.logical_and, "Or": c.logical_or, "Not": c.logical_not}


def _elementwise(fn: Callable[..., Any], dtype: str, operand: Callable[[Any], tir.Expr]) -> Rule:
    def rule(e: ShapeFolder, node: OnnxNode, *operands: KnownTensor) -> KnownTensor:
        if len(operands) > 2:
            return functools.reduce(lambda a, b: e.map(converted, a, b, dtype=dtype), operands)
        return e.map(converted, *operands, dtype=dtype)

    def converted(*values: Any) -> Any:
        return fn(*map(operand, values))

    return rule


_RULES.update({name: _elementwise(fn, "", _operand) for name, fn in _ELEMENTWISE.items()})
_RULES.update({name: _elementwise(fn, "bool", _operand) for name, fn in _COMPARISONS.items()})
_RULES.update({name: _elementwise(fn, "bool", _bool) for name, fn in _LOGIC.items()})


@_rule("Mod")
def _remainder(e: ShapeFolder, node: OnnxNode, a: KnownTensor, b: KnownTensor) -> KnownTensor:
    if node.attribute("fmod", 0):
        raise _NotFolded
    return e.map(_mod, a, b)


@_rule("Where")
def _where(e: ShapeFolder, node: OnnxNode, condition: KnownTensor, yes: KnownTensor, no: KnownTensor) -> KnownTensor:
    return e.map(_select, condition, yes, no, dtype=yes.dtype)


@_rule("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduce(e: ShapeFolder, node: OnnxNode, x: KnownTensor, axes: KnownTensor | None = None) -> KnownTensor:
    import numpy as np

    where = _int_list(node, "axes", axes)
    if not where and node.attribute("noop_with_empty_axes", 0):
        return x
    rank = x.elements.ndim
    over = sorted(a % rank for a in where) if where else list(range(rank))
    kept = [a for a in range(rank) if a not in over]
    fn = {"ReduceProd": c.mul, "ReduceSum": c.add, "ReduceMax": c.maximum, "ReduceMin": c.minimum}[node.operator]
    rows = x.elements.transpose(kept + over).reshape(math.prod(x.elements.shape[a] for a in kept), -1)
    if not rows.shape[-1] or rows.size > MAX_ELEMENTS:
        raise _NotFolded
    flat = [e.simplify(functools.reduce(fn, map(_operand, row))) for row in rows.tolist()]
    keep = node.attribute("keepdims", 1)
    shape = [1 if a in over else n for a, n in enumerate(x.elements.shape) if keep or a not in over]
    return e.fit(KnownTensor(np.array([*flat, None], object)[:-1].reshape(shape), x.dtype))
