"""The operands of an attention kernel, traced back through the graph.

Views of tensors are read in place. Elementwise producers are recomputed where their elements are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import ops, te
from mlcc.arith.analyzer import Analyzer, simplify
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import HANDLE, INT64, DType
from mlcc.ir.tir import Expr
from mlcc.ir.visit import rewrite_bottom_up, substitute
from mlcc.ops.registry import Cost
from mlcc.ops.shapes import shapes_known
from mlcc.passes.graph.lower_to_tir import Arguments, scalar_constant
from mlcc.passes.patterns.pattern_match import Index
from mlcc.te.tensor import Tensor, TensorLoad

MAX_RECOMPUTED = 32  # most operators that one kernel recomputes


class Operands:
    """The operands of one kernel. `arguments` collects the tensors passed to it, and renames symbolic sizes."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.always_recomputed: frozenset[relax.Expr] = frozenset()  # values that are recomputed whatever their cost
        self.arguments = Arguments()
        self.tensors: dict[relax.Expr, Tensor] = {}
        self.recomputed_count = 0

    def tensor(self, expr: relax.Expr, max_cost: Cost) -> Tensor:
        """Return the tensor of a graph value in terms of the kernel's inputs.

        Operators that cost at most `max_cost` are recomputed.
        """
        expr = self.index.resolve(expr)
        if expr not in self.tensors:
            self.tensors[expr] = (
                _scalar_tensor(expr) or self._recomputed(expr, max_cost) or self.arguments.convert(expr)
            )
        return self.tensors[expr]

    def _recomputed(self, expr: relax.Expr, max_cost: Cost) -> Tensor | None:
        value = self.index.definition(expr)
        field = 0
        if isinstance(value, relax.TupleGetItem):
            field, value = value.index, self.index.definition(value.tuple_value)
        if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op):
            return None
        op = ops.get(value.op.name)
        if op is None or op.impl.lower is None or (op.impl.cost > max_cost and expr not in self.always_recomputed):
            return None
        if not shapes_known(value) or self.recomputed_count == MAX_RECOMPUTED:
            return None
        if any(v in self.index.overwritten for v in (expr, *value.args)):
            return None
        self.recomputed_count += 1
        operands = [self.tensor(a, max_cost) if _is_tensor(a) else self.arguments.convert(a) for a in value.args]
        call = self.arguments.renew(value)
        if value.op.name == "relax.reshape":
            return _reshaped(operands[0], [c.cast(INT64, d) for d in call.struct_info.dims])
        lowered = op.impl.lower(call, *operands)
        lowered = lowered[field] if isinstance(lowered, tuple) else lowered
        return lowered if isinstance(lowered, Tensor) and _is_plain(lowered) else None

    def parameters(
        self, shape: Sequence[Expr], dtype: DType
    ) -> tuple[tir.Buffer, tuple[tir.Var, ...], tuple[tir.Buffer | None, ...]]:
        """Return the result's buffer, the function's parameters, and the buffers of the tensor parameters.

        The parameters are the inputs, the sizes that no shape binds, and the result.
        """
        result = te.placeholder(tuple(shape), dtype, "result")
        sizes = self.arguments.unbound([result])
        tensors = [*self.arguments.inputs, result]
        handles = [tir.Var(f"var_{t.name}", HANDLE) for t in tensors]
        buffers = [t.buffer for t in tensors]
        params = (*handles[:-1], *sizes, handles[-1])
        return result.buffer, params, (*buffers[:-1], *(None for _ in sizes), buffers[-1])


def _scalar_tensor(expr: relax.Expr) -> Tensor | None:
    """Return a scalar constant as a tensor without dimensions, None for anything else."""
    value = scalar_constant(expr)
    return None if value is None else te.compute((), lambda: value, "number")


def _is_tensor(expr: relax.Expr) -> bool:
    return isinstance(expr.struct_info, relax.TensorStructInfo)


def _is_plain(tensor: Tensor) -> bool:
    """Return True if a tensor is an input, or is computed without a reduction and without an external call."""
    return tensor.op.is_placeholder or tensor.op.extern is None and not tensor.op.reduce_axis


def _reshaped(x: Tensor, dims: Sequence[Expr]) -> Tensor:
    def element(*at: Any) -> Any:
        return x(*reshape_indices([a.iter_var.var for a in at], dims, x.buffer.shape))

    reshaped: Tensor = te.compute(tuple(dims), element, name="T_reshape")
    return reshaped


def element(tensor: Tensor, at: Sequence[Expr]) -> Expr:
    """Return an element of a tensor as an expression over elements of placeholders."""
    if tensor.op.is_placeholder:
        return tir.BufferLoad(tensor.dtype, tensor.buffer, tuple(map(simplify, at)))
    axis_values = {
        axis.iter_var.var: c.cast(axis.iter_var.var.dtype, a) for axis, a in zip(tensor.op.axis, at, strict=True)
    }
    body = substitute(tensor.op.body[tensor.value_index], axis_values)

    def inline(node: Any) -> Any:
        return element(node.tensor, node.indices) if isinstance(node, TensorLoad) else node

    return rewrite_bottom_up(body, inline)  # type: ignore[no-any-return]


def reshape_indices(at: Sequence[Expr], dims: Sequence[Expr], other: Sequence[Expr]) -> list[Expr]:
    """Convert indices in an array of shape `dims` to those of shape `other`, both row-major (a reshape).

    Equal extents keep their indices, so that there are as few divisions as possible.
    """
    analyzer = Analyzer()
    indices: list[Expr] = []
    start = end = 0
    while start < len(dims) or end < len(other):
        p, q = _matching_extents(dims[start:], other[end:], analyzer)
        flat = _flat_index(at[start : start + p], dims[start : start + p])
        inside: list[Expr] = []
        for n, extent in enumerate(reversed(other[end : end + q])):
            last = n == q - 1
            inside.append(flat if last else c.floormod(flat, extent))
            flat = flat if last else c.floordiv(flat, extent)
        indices += reversed(inside)
        start, end = start + p, end + q
    return indices


def _matching_extents(dims: Sequence[Expr], other: Sequence[Expr], analyzer: Analyzer) -> tuple[int, int]:
    """Return how many leading extents of each shape to group so that the products are equal, as few as possible."""
    for total in range(1, len(dims) + len(other)):
        for p in range(max(0, total - len(other)), min(total, len(dims)) + 1):
            if analyzer.prove_equal(_total_size(dims[:p]), _total_size(other[: total - p])):
                return p, total - p
    return len(dims), len(other)


def _total_size(dims: Sequence[Expr]) -> Expr:
    size: Expr = c.const(1, INT64)
    for extent in dims:
        size = c.mul(size, extent)
    return size


def _flat_index(at: Sequence[Expr], dims: Sequence[Expr]) -> Expr:
    flat: Expr = c.const(0, INT64)
    for index, extent in zip(at, dims, strict=True):
        flat = c.add(c.mul(flat, extent), index)
    return flat
