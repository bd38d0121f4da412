"""Conversion of loops, axes, shapes and indices of a function to one integer dtype."""

from __future__ import annotations

from typing import Any

from mlcc.ir import construct, tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ir.node import map_children, replace

IF_THEN_ELSE = tir.Op("tir.if_then_else")


def with_index_dtype(func: tir.PrimFunc, dtype: DType) -> tir.PrimFunc:
    """`func` with its loop variables, extents, shapes and indices in `dtype`; other integers keep theirs."""
    return _IndexDtypeConverter(dtype).function(func)


class _IndexDtypeConverter:
    """Conversion of the index dtype: `index` converts indices and extents, `value` computed values.

    Both share the table of variables.
    """

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.vars: dict[tir.Var, tir.Var] = {}
        self.buffers: dict[tir.Buffer, tir.Buffer] = {}
        self.arguments: frozenset[tir.Buffer] = frozenset()

    def function(self, func: tir.PrimFunc) -> tir.PrimFunc:
        self.arguments = frozenset(b for b in func.buffers if b is not None)
        buffers = tuple(None if b is None else self.buffer(b) for b in func.buffers)
        body = tuple(self.statement(s) for s in func.body)
        params = tuple(self.vars.get(p, p) for p in func.params)
        return replace(func, params=params, buffers=buffers, body=body)

    def buffer(self, old: tir.Buffer) -> tir.Buffer:
        buffer = self.buffers.get(old)
        if buffer is None:
            offset = None if old.elem_offset is None else self.index(old.elem_offset)
            shape = tuple(self.index(d) for d in old.shape)
            strides = tuple(self.index(s) for s in old.strides)
            buffer = self.buffers[old] = replace(old, shape=shape, strides=strides, elem_offset=offset)
        return buffer

    def axis(self, old: tir.IterVar) -> tir.IterVar:
        dom = tir.Range(self.index(old.dom.min), self.index(old.dom.extent))
        var = self.index(old.var)
        assert isinstance(var, tir.Var)
        return replace(old, var=var, dom=dom)

    def statement(self, old: Any) -> Any:
        match old:
            case tir.For():
                changes = {"var": self.index(old.var), "min": self.index(old.min), "extent": self.index(old.extent)}
                return replace(old, body=tuple(self.statement(s) for s in old.body), **changes)
            case tir.BlockRealize():
                block = old.block
                iter_vars = tuple(self.axis(v) for v in block.iter_vars)
                views = tuple(replace(m, source=self.region(m.source)) for m in block.match_buffers)
                new_block = replace(
                    block,
                    iter_vars=iter_vars,
                    reads=self.regions(block.reads),
                    writes=self.regions(block.writes),
                    alloc_buffers=tuple(self.buffer(b) for b in block.alloc_buffers),
                    match_buffers=tuple(replace(m, buffer=self.buffer(m.buffer)) for m in views),
                    init=None if block.init is None else tuple(self.statement(s) for s in block.init),
                    body=tuple(self.statement(s) for s in block.body),
                )
                values = tuple(self.index(v) for v in old.values)
                return replace(old, values=values, predicate=self.value(old.predicate), block=new_block)
            case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                return construct.store(self.buffer(buffer), self.value(value), *(self.index(i) for i in indices))
            case tir.Bind(var=var, value=value):
                return tir.Bind(var, construct.cast(var.dtype, self.value(value)))
            case tir.Evaluate(value=value):
                return tir.Evaluate(self.value(value))
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                condition = self.condition(condition)
                then = tuple(self.statement(s) for s in then)
                other = None if other is None else tuple(self.statement(s) for s in other)
                return replace(old, condition=condition, then_body=then, else_body=other)
        return map_children(old, self._any)

    def _any(self, node: Any) -> Any:
        if isinstance(node, tir.Stmt):
            return self.statement(node)
        if isinstance(node, tir.Buffer):
            return self.buffer(node)
        return self.value(node) if isinstance(node, tir.Expr) else map_children(node, self._any)

    def region(self, old: tir.BufferRegion) -> tir.BufferRegion:
        spans = tuple(tir.Range(self.index(s.min), self.index(s.extent)) for s in old.region)
        return tir.BufferRegion(self.buffer(old.buffer), spans, span=old.span)

    def regions(self, old: tuple[tir.BufferRegion, ...] | None) -> Any:
        return None if old is None else tuple(self.region(r) for r in old)

    def value(self, old: tir.Expr) -> Any:
        """Convert a computed value; index variables may be wider now, so the dtypes of operands are matched again."""
        if isinstance(old, tir.Var):
            return self.vars.get(old, old)
        if isinstance(old, tir.BufferLoad):
            return construct.load(self.buffer(old.buffer), *(self.index(i) for i in old.indices))
        if isinstance(old, tir.Select):
            parts = (self.condition(old.condition), self.value(old.true_value), self.value(old.false_value))
            return self._match_operands(old, tir.Select(old.dtype, *parts, span=old.span))
        if isinstance(old, tir.Call) and old.op == IF_THEN_ELSE:
            args = (self.condition(old.args[0]), *(self.value(a) for a in old.args[1:]))
            return self._match_operands(old, replace(old, args=args))
        return self._match_operands(old, map_children(old, self._child))

    def _child(self, node: Any) -> Any:
        return self.value(node) if isinstance(node, tir.Expr) else node

    def condition(self, old: tir.Expr) -> Any:
        """Convert a condition: comparisons of int32 or int64 operands are converted as indices.

        Those of places that were narrowed to int32, as argmax and argmin do, stay as they are.
        """
        if isinstance(old, (tir.And, tir.Or, tir.Not)):
            return map_children(old, lambda n: self.condition(n) if isinstance(n, tir.Expr) else n)
        narrow = isinstance(old, tir.CompareOp) and (self.is_narrow(old.lhs) or self.is_narrow(old.rhs))
        if isinstance(old, tir.CompareOp) and old.lhs.dtype in (INT32, INT64) and not narrow:
            return self._match_operands(old, map_children(old, self._index_child))
        return self.value(old)

    def is_narrow(self, operand: tir.Expr) -> bool:
        """Return True for an integer cast to int32, and for an element of an intermediate result."""
        if isinstance(operand, tir.Cast):
            return operand.dtype is INT32 and operand.value.dtype.is_int
        return isinstance(operand, tir.BufferLoad) and operand.buffer not in self.arguments

    def index(self, old: tir.Expr) -> Any:
        """Convert an index or extent to the function's index dtype."""
        if not old.dtype.is_int:
            return self.value(old)
        if isinstance(old, tir.IntImm):
            return construct.cast(self.dtype, old)
        if isinstance(old, tir.Var):
            if old.dtype is not self.dtype and old not in self.vars:
                self.vars[old] = tir.Var(old.name, self.dtype, span=old.span)
            return self.vars.get(old, old)
        if isinstance(old, tir.Ramp):
            return tir.Ramp(self.dtype.with_lanes(old.lanes), self.index(old.base), self.index(old.stride), old.lanes)
        if isinstance(old, tir.Cast) and old.value.dtype.is_float:
            return construct.cast(self.dtype, self.value(old.value))
        if isinstance(old, tir.Cast) and old.value.dtype is INT32 and old.dtype is INT64:
            return construct.cast(self.dtype, self.index(old.value))
        if isinstance(old, (tir.BinaryOp, tir.Select)) or (isinstance(old, tir.Call) and old.op == IF_THEN_ELSE):
            converted = self._match_operands(old, map_children(old, self._index_child))
        else:
            converted = self.value(old)
        return converted

    def _index_child(self, node: Any) -> Any:
        return self.index(node) if isinstance(node, tir.Expr) else node

    def _match_operands(self, old: Any, expr: Any) -> Any:
        """`made` with operands of one dtype again, and the dtype that follows from them."""
        if isinstance(expr, tir.BinaryOp):
            lhs, rhs = construct.match_types(expr.lhs, expr.rhs)
            dtype = expr.dtype if isinstance(expr, (tir.CompareOp, tir.And, tir.Or)) else lhs.dtype
            return replace(expr, dtype=dtype, lhs=lhs, rhs=rhs)
        if isinstance(expr, tir.Select):
            a, b = construct.match_types(expr.true_value, expr.false_value)
            return replace(expr, dtype=a.dtype, true_value=a, false_value=b)
        if isinstance(expr, tir.Call) and expr.op == IF_THEN_ELSE:
            a, b = construct.match_types(expr.args[1], expr.args[2])
            return replace(expr, dtype=a.dtype, args=(expr.args[0], a, b))
        return expr
