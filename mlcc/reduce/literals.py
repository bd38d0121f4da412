"""Edits of sizes and dtypes, wherever a module has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.construct import const
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Attrs, field_names, replace, walk
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.reduce.functions import with_functions
from mlcc.reduce.graph import infer_again
from mlcc.reduce.program import Program
from mlcc.relax.construct import tensor_info

_LEAST = 2  # sizes from this one on are made smaller


class ShrinkSizes:
    """Replace integers in shapes, extents and indices by smaller ones, everywhere at once.

    With `graphs_only`, modules with TIR functions, which have many such integers, are left alone.
    """

    def __init__(self, graphs_only: bool = False) -> None:
        self._graphs_only = graphs_only

    def sites(self, program: Program) -> Sequence[tuple[int, int]]:
        if self._graphs_only and any(isinstance(f, tir.PrimFunc) for f in program.module.functions.values()):
            return []
        sizes = {
            node.value
            for func in program.module.functions.values()
            for node in walk(func)
            if isinstance(node, tir.IntImm) and node.value >= _LEAST and not node.dtype.is_bool
        }
        return [
            (old, new) for old in sorted(sizes, reverse=True) for new in dict.fromkeys((1, 2, 3, old // 2)) if new < old
        ]

    def apply(self, program: Program, chosen: Sequence[tuple[int, int]]) -> Program | None:
        if len(chosen) > 1:
            return None  # alternatives for one size
        ((old, new),) = chosen

        def smaller(node: Any) -> Any:
            return replace(node, value=new) if isinstance(node, tir.IntImm) and node.value == old else node

        return _rewritten(program, smaller)


class PlainDtypes:
    """Replace a dtype by float32 or int32, everywhere at once."""

    def sites(self, program: Program) -> Sequence[tuple[DType, DType]]:
        dtypes = {
            dtype
            for func in program.module.functions.values()
            for node in walk(func)
            if isinstance(dtype := getattr(node, "dtype", None), DType)
        }
        return [(dtype, plain) for dtype in sorted(dtypes, key=str) if (plain := _plain(dtype)) is not None]

    def apply(self, program: Program, chosen: Sequence[tuple[DType, DType]]) -> Program | None:
        dtypes = dict(chosen)
        return _rewritten(program, lambda node: _with_dtypes(node, dtypes))


def _plain(dtype: DType) -> DType | None:
    """The usual dtype of a kind; None for that itself, and for what is neither a float nor an integer."""
    if dtype.lanes != 1 or dtype.is_bool:
        return None
    name = "float32" if dtype.is_float else "int32" if dtype.is_int or dtype.is_uint else None
    return None if name is None or str(dtype) in (name, "int64") else DType.of(name)


def _with_dtypes(node: Any, dtypes: Mapping[DType, DType]) -> Any:
    """Return a node with the dtypes in its fields and attributes replaced."""
    changes: dict[str, Any] = {}
    for name in field_names(type(node)):
        value = getattr(node, name)
        if isinstance(value, DType):
            changes[name] = dtypes.get(value, value)
        elif isinstance(value, tir.PointerType):
            changes[name] = tir.PointerType(dtypes.get(value.dtype, value.dtype), value.scope)
        elif isinstance(value, Attrs):
            items = {k: dtypes.get(v, v) if isinstance(v, DType) else v for k, v in value.items()}
            changes[name] = Attrs(items) if any(items[k] is not v for k, v in value.items()) else value
    if isinstance(node, relax.Constant):  # its data keep their dtype
        dims = [const(n, "int64") for n in node.data.shape]
        return replace(node, struct_info=tensor_info(dims, node.data.dtype))
    return replace(node, **changes)


def _rewritten(program: Program, fn: Callable[[Any], Any]) -> Program:
    functions = {name: rewrite_bottom_up(func, fn) for name, func in program.module.functions.items()}
    return infer_again(with_functions(program, functions))
