"""The view of a function that pattern recognition works on: definitions and value numbers."""

from __future__ import annotations

from collections.abc import Iterator

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import INLINE_LIMIT
from mlcc.ops.registry import FusionKind
from mlcc.relax.queries import DefUse

_MAX_VALUES = 32  # most values per search


class Graph:
    """The definitions of a block's variables, and a value numbering: equal values have equal numbers.

    Two values are equal if the same operators compute them from equal values. Values of blocks other than `block` are
    opaque, since their operands may not be in scope there.
    """

    def __init__(self, func: relax.Function) -> None:
        self.uses = DefUse.of(func)
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: dict[relax.Var, int] = {}
        self.block: set[relax.Var] = set()  # the variables of the current block
        for var in self.uses.value:
            self.number(var)

    def call(self, expr: relax.Expr | None, *names: str) -> relax.Call | None:
        """Return the call that computes a value, or None; `names` restricts the operators."""
        value = expr
        while isinstance(value, relax.Var) and value in self.block:
            value = self.uses.value.get(value)
        if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op):
            return None
        return value if not names or value.op.name.removeprefix("relax.") in names else None

    def used_once(self, expr: relax.Expr) -> bool:
        """Return True if a value has exactly one use."""
        return isinstance(expr, relax.Var) and self.uses.count.get(expr) == 1

    def scalar(self, expr: relax.Expr) -> float | None:
        """Return the value of a constant with one element, or None."""
        value = self.uses.resolve(expr)
        if isinstance(value, relax.PrimValue):
            number = value.value
            return float(number.value) if isinstance(number, (tir.IntImm, tir.FloatImm)) else None
        if not isinstance(value, relax.Constant) or value.data.array is None or value.data.size != 1:
            return None
        from mlcc.ir.narrow_floats import decode

        number = decode(value.data.array, value.data.dtype).reshape(-1)[0]
        return float(str(number) if number.dtype == "float32" else number)  # 1e-05, not the nearest float32

    def number(self, expr: relax.Expr) -> int:
        """Return the value number of an expression."""
        expr = expr if isinstance(expr, relax.Var) else self.uses.resolve(expr)
        number = self._known.get(expr) if isinstance(expr, relax.Var) else None
        if number is None:
            number = self.number_of_key(self._key(expr))
            if isinstance(expr, relax.Var):
                self._known[expr] = number
        return number

    def number_of_key(self, key: tuple[object, ...]) -> int:
        """Return the number of a key: an operator, the numbers of its operands, its attributes."""
        return self._numbers.setdefault(key, len(self._numbers))

    def _key(self, expr: relax.Expr) -> tuple[object, ...]:
        value = self.uses.value.get(expr) if isinstance(expr, relax.Var) else expr
        if isinstance(value, relax.Var):
            return ("same", self.number(value))
        if isinstance(value, relax.Constant):
            data = value.data
            if data.array is None or data.size > INLINE_LIMIT:
                return ("constant", id(data))
            return ("constant", str(data.dtype), data.shape, data.array.tobytes())
        known = ops.get(value.op.name) if isinstance(value, relax.Call) and isinstance(value.op, tir.Op) else None
        if known is None or not known.pure:
            return ("itself", expr)
        assert isinstance(value, relax.Call) and isinstance(value.op, tir.Op)
        attrs = tuple(f"{key}={item}" for key, item in sorted(value.attrs.items()) if item is not None)
        return (value.op.name, *attrs, *(self.number(arg) for arg in value.args))

    def tree(self, root: relax.Expr, *extra_operators: str) -> Iterator[relax.Expr]:
        """Yield `root` and, depth first, the values it is computed from by elementwise or `extra_operators`."""
        stack, budget = [root], _MAX_VALUES
        while stack and budget:
            top = stack.pop()
            budget -= 1
            yield top
            call = self.call(top)
            if call is not None and (is_elementwise(call) or call.op.name in extra_operators):
                stack += reversed(call.args)


def is_elementwise(call: relax.Call) -> bool:
    """Return True if each element of the result depends on one element of each operand."""
    known = ops.get(call.op.name)
    return known is not None and known.kind <= FusionKind.BROADCAST


def dtype_of(expr: relax.Expr) -> DType | None:
    """Return the element type of a tensor."""
    info = expr.struct_info
    return info.dtype if isinstance(info, relax.TensorStructInfo) else None


def dims_of(expr: relax.Expr) -> tuple[tir.Expr, ...] | None:
    """Return the extents of a tensor, if they are known."""
    info = expr.struct_info
    return info.dims if isinstance(info, relax.TensorStructInfo) else None


def is_float(dtype: DType | None) -> bool:
    """Return True if elements are floating-point numbers."""
    return dtype is not None and dtype.kind in ("float", "bfloat")


def axes_of(call: relax.Call) -> list[int]:
    """Return the axes of a `permute_dims`, counted from the front."""
    rank = len(dims_of(call) or ())
    return [axis % rank for axis in call.attrs["axes"] or reversed(range(rank))]
