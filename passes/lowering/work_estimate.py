"""Estimates of the operations in a function, to decide whether to interpret it or to run compiled code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlcc.arith.analyzer import simplify
from mlcc.ir import construct, relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import children
from mlcc.ir.visit import substitute
from mlcc.relax.queries import all_bindings, tir_callee

Sizes = Mapping[tir.Var, int]
Shape = Sequence[int | None]


def prim_func_work(func: tir.PrimFunc, sizes: Sizes | None = None) -> int | None:
    """Return the number of stores and calls executed; None if it depends on a `while` loop or an unknown size."""
    total = 0
    stack: list[tuple[Any, int]] = [(stmt, 1) for stmt in func.body]
    while stack:
        node, times = stack.pop()
        if isinstance(node, tir.For):
            extent = extent_at(node.extent, sizes or {})
            if extent is None:
                return None
            stack += [(s, times * max(extent, 0)) for s in node.body]
        elif isinstance(node, tir.While):
            return None
        elif isinstance(node, (tir.Expr, tir.Buffer)):
            continue
        else:
            total += times * isinstance(node, (tir.BufferStore, tir.Evaluate))
            stack += [(child, times) for child in children(node)]
    return total


def module_work(module: IRModule, name: str, shapes: Sequence[Shape | None] = ()) -> int | None:
    """Return the estimate for one call of a function with arguments of these shapes; None if a size stays unknown."""
    return _Estimate(module).function(name, shapes)


class _Estimate:
    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.active: set[str] = set()  # what is being looked at: how deep a function calls itself is not known
        self.known: dict[object, int | None] = {}  # by name and shapes

    def function(self, name: str, shapes: Sequence[Shape | None]) -> int | None:
        """Return the estimate of one call. A scalar argument counts as a shape: it too binds a symbolic variable."""
        func = self.module.functions.get(name)
        if func is None or name in self.active:
            return None
        call = name, tuple(None if shape is None else tuple(shape) for shape in shapes)
        if call not in self.known:
            self.known[call] = self._estimate(name, func, shapes)
        return self.known[call]

    def _estimate(self, name: str, func: Func, shapes: Sequence[Shape | None]) -> int | None:
        sizes = _sizes(func, shapes)
        if isinstance(func, tir.PrimFunc):
            return prim_func_work(func, sizes)
        self.active.add(name)
        parts = [self.value(b.value, sizes) for b, _ in all_bindings(func.body)]  # type: ignore[attr-defined]
        self.active.remove(name)
        return _sum(parts)

    def value(self, value: relax.Expr, sizes: Sizes) -> int | None:
        if not isinstance(value, relax.Call):
            return 0
        callee = tir_callee(value)
        if callee is not None:
            arguments = value.args[1].fields if isinstance(value.args[1], relax.Tuple) else ()
            infos = [*(e.struct_info for e in arguments), *(t for info in value.sinfo_args for t in _leaves(info))]
            symbolic = value.args[2] if len(value.args) > 2 else None
            scalars = symbolic.values if isinstance(symbolic, relax.ShapeExpr) else ()
            last = [[extent_at(value, sizes)] for value in scalars]
            return self.function(callee, [*(_shape(info, sizes) for info in infos), *last])
        if isinstance(value.op, relax.GlobalVar):
            return self.function(value.op.name, [_shape(e.struct_info, sizes) for e in value.args])
        counts = [_elements(e.struct_info, sizes) for e in (value, *value.args)]
        if any(n is None for n in counts):
            return None
        # a product of matrices has the geometric mean of the three sizes as its number of multiplications
        known = [n for n in counts if n]
        if isinstance(value.op, tir.Op) and value.op.name in ("relax.matmul", "relax.nn.dense") and len(known) == 3:
            return int((known[0] * known[1] * known[2]) ** 0.5)
        return max(known, default=0)


def _sizes(func: Func, shapes: Sequence[Shape | None]) -> dict[tir.Var, int]:
    """Return the values of the symbolic variables of the parameters, bound by the shapes of the arguments."""
    if isinstance(func, tir.PrimFunc):
        pairs = zip(func.params, func.buffers, strict=True)
        dims: list[Sequence[tir.Expr] | None] = [(p,) if b is None else b.shape for p, b in pairs]
    else:
        infos = [p.struct_info for p in func.params]
        dims = [i.dims if isinstance(i, relax.TensorStructInfo) else None for i in infos]
    sizes = {}
    for dims_of_param, shape in zip(dims, shapes, strict=False):
        for dim, extent in zip(dims_of_param or (), shape or (), strict=False):
            if isinstance(dim, tir.Var) and extent is not None:
                sizes[dim] = extent
    return sizes


def extent_at(expr: tir.Expr, sizes: Sizes) -> int | None:
    """Return the value of an expression over symbols at these sizes; None if they do not determine it."""
    known = tir.const_int(expr)
    if known is None and isinstance(expr, tir.Var):
        return sizes.get(expr)
    if known is None and sizes:
        values = {var: construct.const(size, var.dtype) for var, size in sizes.items()}
        return tir.const_int(simplify(substitute(expr, values)))
    return known


def _shape(info: relax.StructInfo | None, sizes: Sizes) -> Shape | None:
    if isinstance(info, relax.PrimStructInfo) and info.value is not None:
        return [extent_at(info.value, sizes)]
    if not isinstance(info, relax.TensorStructInfo) or info.dims is None:
        return None
    return [extent_at(dim, sizes) for dim in info.dims]


def _elements(info: relax.StructInfo | None, sizes: Sizes) -> int | None:
    parts = []
    for leaf in _leaves(info):
        shape = _shape(leaf, sizes)
        if shape is None or any(n is None for n in shape):
            return None
        parts.append(math.prod(n for n in shape if n is not None))
    return sum(parts)


def _leaves(info: relax.StructInfo | None) -> Iterator[relax.TensorStructInfo]:
    """Yield the tensors of a struct info, with tuples flattened."""
    if isinstance(info, relax.TupleStructInfo):
        for inner in info.fields:
            yield from _leaves(inner)
    elif isinstance(info, relax.TensorStructInfo):
        yield info


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [p for p in parts if p is not None]
    return sum(known) if len(known) == len(parts) else None
