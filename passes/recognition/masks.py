"""Attention masks: tensors added to the scores, and conditions that mask scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.shapes import prove_equal
from mlcc.passes.recognition.graph import Graph, dims_of, dtype_of

# adding a number this low has the effect of replacing the score
_LOWEST = {"float32": -1e30, "bfloat16": -1e30, "float64": -1e200, "float16": -65504.0}
_RESHAPED = ("expand_dims", "reshape", "squeeze")
_VIEWS = (*_RESHAPED, "broadcast_to", "astype")
_MAX_DEPTH = 8
_MAX_ELEMENTS = 1 << 24  # most elements of a constant to examine
_ROWS, _COLUMNS = -2, -1
# comparisons of positions: which is on the left, and whether visible keys satisfy them
_SEEN = {"less_equal": (_COLUMNS, True), "greater_equal": (_ROWS, True)}
_COMPARISONS = _SEEN | {"greater": (_COLUMNS, False), "less": (_ROWS, False)}


@dataclass(frozen=True)
class MaskStep:
    """A tensor added to the scores, times a factor; or a boolean tensor that masks scores where it is not `seen`."""

    operand: relax.Expr
    dtype: DType | None  # the dtype of the masked scores
    factor: float = 1.0
    seen: bool | None = None
    hidden: float = 0.0

    @property
    def needed(self) -> DType | None:
        """The dtype without which precision would be lost; None if any dtype will do."""
        if self.seen is None:
            return dtype_of(self.operand)
        return None if self.hidden == -math.inf else self.dtype


@dataclass
class Masks:
    """The masking steps applied to the scores of an attention, from the softmax backwards."""

    steps: list[MaskStep] = field(default_factory=list)

    def add(self, call: relax.Call, bias: relax.Expr, factor: float) -> None:
        """Add a step: `call` adds `bias`, times `factor`, to the scores."""
        self.steps.append(MaskStep(bias, dtype_of(call), factor))

    def hide(self, call: relax.Call, seen: bool, hidden: float) -> None:
        """Add a step: a `where` replaces scores by `hidden` unless its condition equals `seen`."""
        self.steps.append(MaskStep(call.args[0], dtype_of(call), 1.0, seen, hidden))

    def is_exact(self, graph: Graph) -> bool:
        """Return True if adding a mask to the scores gives the same result as replacing the masked scores.

        The lowest float16 is not low enough, unless each query sees a key, as with a causal mask.
        """
        narrow = any(
            step.seen is not None and step.hidden != -math.inf and str(step.dtype) == "float16" for step in self.steps
        )
        return not narrow or self.causal_mask(graph) is not None

    def causal_mask(self, graph: Graph) -> str | None:
        """Return the causal mask that the steps form together, as the attribute of the operator, or None."""
        if len(self.steps) != 1:
            return None
        (step,) = self.steps
        if step.seen is not None:
            return _causal(graph, step.operand, step.seen)
        return _additive_causal(graph, step.operand)


def is_hidden(graph: Graph, value: relax.Expr, dtype: DType | None) -> bool:
    """Return True if scores of this value have no weight beside others."""
    number = graph.scalar(value)
    return number is not None and (number == -math.inf or number <= _LOWEST.get(str(dtype), -math.inf))


def _additive_causal(graph: Graph, bias: relax.Expr) -> str | None:
    """Match an additive causal mask, 0 for visible keys and lowest elsewhere; return its name, or None."""
    dtype = dtype_of(bias)
    for _ in range(_MAX_DEPTH):
        array = constant_array(graph, bias)
        if array is not None:
            hidden = array <= _LOWEST.get(str(dtype), -math.inf)
            return _causal_array(~hidden) if ((array == 0) | hidden).all() else None
        call = graph.call(bias, "where", *_VIEWS)
        if call is None:
            return None
        if call.op.name == "relax.where":
            condition, if_true, if_false = call.args
            for zero, lowest, seen in ((if_true, if_false, True), (if_false, if_true, False)):
                if graph.scalar(zero) == 0 and is_hidden(graph, lowest, dtype):
                    return _causal(graph, condition, seen)
            return None
        if not _keeps_matrices(call):
            return None
        bias = call.args[0]
    return None


def _causal(graph: Graph, condition: relax.Expr, seen: bool) -> str | None:
    """Match a causal mask given as a condition that holds for visible keys, or, if not `seen`, for masked ones."""
    for _ in range(_MAX_DEPTH):
        array = constant_array(graph, condition)
        if array is not None:
            return _causal_array((array != 0) == seen)
        call = graph.call(condition)
        if call is None:
            return None
        name = call.op.name.removeprefix("relax.")
        if name == "tril":
            is_uniform = _is_nonzero(graph, call.args[0])
            return "TopLeft" if seen and is_uniform and graph.scalar(call.args[1]) == 0 else None
        if name == "triu":
            is_uniform = _is_nonzero(graph, call.args[0])
            return "TopLeft" if not seen and is_uniform and graph.scalar(call.args[1]) == 1 else None
        if name in _COMPARISONS:
            return "TopLeft" if _compares_positions(graph, call, name, seen) else None
        if name in ("equal", "not_equal"):
            if graph.scalar(call.args[1]) != 0:
                return None
            seen = seen == (name == "not_equal")
        elif name == "logical_not":
            seen = not seen
        elif name not in _VIEWS or not _keeps_matrices(call):
            return None
        condition = call.args[0]
    return None


def constant_array(graph: Graph, value: relax.Expr) -> Any:
    """Return the elements of a constant of moderate size, or None."""
    constant = graph.uses.resolve(value)
    if not isinstance(constant, relax.Constant) or constant.data.array is None or constant.data.size > _MAX_ELEMENTS:
        return None
    from mlcc.ir.narrow_floats import decode

    return decode(constant.data.array, constant.data.dtype)


def _causal_array(seen: Any) -> str | None:
    """Return the name of the causal mask in a boolean array, or None."""
    import numpy as np

    if seen.ndim < 2 or min(seen.shape[-2:]) < 2:
        return None
    queries, keys = seen.shape[-2:]
    distance = np.arange(keys) - np.arange(queries)[:, None]
    for corner, max_distance in (("TopLeft", 0), ("BottomRight", abs(keys - queries))):
        if (seen == (distance <= max_distance)).all():
            return corner
    return None


def _is_nonzero(graph: Graph, value: relax.Expr) -> bool:
    """Return True if all elements of a tensor equal one nonzero number."""
    for _ in range(_MAX_DEPTH):
        number = graph.scalar(value)
        if number is not None:
            return number not in (0, math.nan)
        call = graph.call(value, "ones", "ones_like", "full", *_VIEWS)
        if call is None:
            return False
        name = call.op.name.removeprefix("relax.")
        if name.startswith("ones"):
            return True
        value = call.args[1 if name == "full" else 0]
    return False


def _compares_positions(graph: Graph, call: relax.Call, name: str, seen: bool) -> bool:
    """Return True if a comparison of positions is a causal mask: keys up to the query's own are `seen`."""
    left, holds = _COMPARISONS[name]
    right = _ROWS if left == _COLUMNS else _COLUMNS
    return (
        holds == seen
        and _is_position_range(graph, call.args[0], left)
        and _is_position_range(graph, call.args[1], right)
    )


def _is_position_range(graph: Graph, value: relax.Expr, axis: int) -> bool:
    """Return True if a tensor holds 0, 1, 2, ... along `axis`, counted from the end, and all other extents are 1."""
    dims = dims_of(value)
    for _ in range(_MAX_DEPTH):
        if dims is None or any(at - len(dims) != axis and tir.const_int(n) != 1 for at, n in enumerate(dims)):
            return False
        call = graph.call(value, "arange", *_VIEWS)
        if call is None:
            return False
        if call.op.name == "relax.arange":
            start, _, step = (graph.scalar(arg) for arg in call.args)
            return len(dims) >= -axis and start == 0 and step == 1
        if call.op.name == "relax.broadcast_to":
            return False
        value = call.args[0]
    return False


def _keeps_matrices(call: relax.Call) -> bool:
    """Return True if a view keeps the last two dimensions of its operand."""
    result, operand = dims_of(call), dims_of(call.args[0])
    if result is None or operand is None or len(result) < 2 or len(operand) < 2:
        return False
    return all(prove_equal(a, b) for a, b in zip(result[-2:], operand[-2:], strict=True))
