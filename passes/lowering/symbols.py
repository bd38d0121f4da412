"""The symbolic variables of a PrimFunc: what its buffers' shapes, strides and offsets introduce."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.node import walk


def symbols_of(func: tir.PrimFunc) -> tuple[tir.Var, ...]:
    """Return the variables of the parameters' buffers that are not parameters, in order of first occurrence.

    The order is parameter by parameter; shape, then strides, then offset.
    """
    known = set(func.params)
    symbols: dict[tir.Var, None] = {}
    for buffer in func.buffers:
        if buffer is None:
            continue
        offset = () if buffer.elem_offset is None else (buffer.elem_offset,)
        for dim in (*buffer.shape, *buffer.strides, *offset):
            for node in walk(dim):
                if isinstance(node, tir.Var) and node not in known:
                    symbols.setdefault(node)
    return tuple(symbols)
