"""Find the values of a TensorIR function that follow from its arguments' contents: a forward taint analysis.

What the arguments hold flows through arithmetic, choices, buffers and bindings; a comparison ends it, since its result
counts places rather than being one (the order that a sort finds, the number of elements that a filter lets through).
"""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.ir import tir
from mlcc.ir.node import children, find, walk


class DataFlow:
    """The taint analysis of one function: `depends(expr)` is True if a value follows from an input's contents.

    With `scalars`, scalar parameters that are no extent of a parameter count as contents. `inputs` are the data
    variables of the buffers that have contents at the call; buffers that are only written have none.
    """

    def __init__(self, func: tir.PrimFunc, inputs: Iterable[tir.Var], scalars: bool = True) -> None:
        params = [b for b in func.buffers if b is not None]
        dims = {n for b in params for d in b.shape for n in walk(d) if isinstance(n, tir.Var)}
        self._buffers = set(inputs)
        self._vars = {p for p in func.params if scalars and not p.dtype.is_handle and p not in dims}
        before = -1
        while before != (before := len(self._buffers) + len(self._vars)):  # until nothing is added
            for stmt in func.body:
                for node in find(stmt, tir.BufferStore, tir.Bind, tir.For, tir.BlockRealize):
                    self._propagate(node)

    def depends(self, expr: tir.Expr) -> bool:
        stack: list[object] = [expr]
        while stack:
            node = stack.pop()
            match node:
                case tir.BufferLoad(buffer=buffer):
                    if buffer.data in self._buffers:
                        return True
                case tir.Var():
                    if node in self._vars:
                        return True
                case tir.CompareOp() | tir.And() | tir.Or() | tir.Not():
                    pass
                case tir.Select(true_value=a, false_value=b):
                    stack += (a, b)
                case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(_, a, b)):
                    stack += (a, b)
                case tir.Let(var=var, value=value, body=body):
                    if self.depends(value):
                        self._vars.add(var)
                    stack.append(body)
                case tir.Expr():
                    stack += children(node)
        return False

    def _propagate(self, node: object) -> None:
        match node:
            case tir.BufferStore(buffer=buffer, value=value):
                if buffer.data not in self._buffers and self.depends(value):
                    self._buffers.add(buffer.data)
            case tir.Bind(var=var, value=value):
                self._bind(((var, (value,)),))
            case tir.For(var=var, min=low, extent=extent):
                self._bind(((var, (low, extent)),))
            case tir.BlockRealize(values=values, block=block):
                self._bind((axis.var, (value,)) for axis, value in zip(block.iter_vars, values, strict=True))

    def _bind(self, pairs: Iterable[tuple[tir.Var, tuple[tir.Expr, ...]]]) -> None:
        for var, values in pairs:
            if var not in self._vars and any(map(self.depends, values)):
                self._vars.add(var)
