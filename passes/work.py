"""Estimates of how many operations a function takes, to decide whether something is run here or by compiled code."""

from __future__ import annotations

from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import children
from mlcc.passes.graph import all_bindings, tir_callee


def prim_func_work(func: tir.PrimFunc, sizes: dict[tir.Var, int] | None = None) -> int | None:
    """Stores, each as often as the loops around it run; None if that depends on what is not known (`while`, sizes)."""
    total = 0
    known = sizes or {}
    stack: list[tuple[Any, int]] = [(stmt, 1) for stmt in func.body]
    while stack:
        node, times = stack.pop()
        if isinstance(node, tir.For):
            extent = known.get(node.extent) if isinstance(node.extent, tir.Var) else tir.const_int(node.extent)
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


def module_work(module: IRModule, name: str) -> int | None:
    """An estimate for one call of a function of the module; None where a size is not known."""
    func = module.functions.get(name)
    if isinstance(func, tir.PrimFunc):
        return prim_func_work(func)
    if func is None:
        return None
    total = 0
    for binding, _ in all_bindings(func.body):
        part = _value_work(binding.value, module)  # type: ignore[attr-defined]
        if part is None:
            return None
        total += part
    return total


def _value_work(value: relax.Expr, module: IRModule) -> int | None:
    if not isinstance(value, relax.Call):
        return 0
    callee = tir_callee(value) or (value.op.name if isinstance(value.op, relax.GlobalVar) else None)
    if callee is not None:
        return module_work(module, callee)
    sizes = [_elements(e.struct_info) for e in (value, *value.args)]
    if any(s is None for s in sizes):
        return None
    # a product of matrices has the geometric mean of the three sizes as its number of multiplications
    known = [s for s in sizes if s]
    if isinstance(value.op, tir.Op) and value.op.name in ("relax.matmul", "relax.nn.dense") and len(known) == 3:
        return int((known[0] * known[1] * known[2]) ** 0.5)
    return max(known, default=0)


def _elements(info: relax.StructInfo | None) -> int | None:
    match info:
        case relax.TensorStructInfo():
            count = 1
            for dim in info.dims if info.dims is not None else (None,):
                extent = tir.const_int(dim) if dim is not None else None
                if extent is None:
                    return None
                count *= extent
            return count
        case relax.TupleStructInfo(fields=fields):
            parts = [_elements(f) for f in fields]
            return None if any(p is None for p in parts) else sum(p for p in parts if p)
    return 0
