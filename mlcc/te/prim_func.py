"""From tensor expressions to a TensorIR function: one block per operation, in the order of their data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.complete import complete
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import HANDLE, DType
from mlcc.ir.node import Attrs, walk
from mlcc.ir.visit import Substitute, substitute, used_vars
from mlcc.te.index_dtype import with_index_dtype
from mlcc.te.math import if_then_else
from mlcc.te.scalar import Value, to_expr
from mlcc.te.tensor import Extern, Operation, Tensor, TensorLoad

LAYOUT_FREE = "layout_free_placeholders"


def create_prim_func(ops: Any, index_dtype_override: DType | str | None = None) -> tir.PrimFunc:
    """The function whose parameters are `ops`: tensors, results after what they need or before, and variables.

    Tensors that are computed but not listed are allocated in the function. With `index_dtype_override` all indices,
    extents and shapes have that dtype.
    """
    parameters = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    return _Builder(parameters, index_dtype_override).build()


class _Builder:
    """The buffers of one function under construction."""

    def __init__(self, parameters: list[Any], index_dtype: DType | str | None) -> None:
        self.parameters = parameters
        self.index_dtype = None if index_dtype is None else DType.of(index_dtype)
        self.buffers: dict[tir.Buffer, tir.Buffer] = {}  # a tensor's buffer -> the function's
        self.analyzer = Analyzer()

    def build(self) -> tir.PrimFunc:
        listed = [t for t in self.parameters if isinstance(t, Tensor)]
        operations = list(_in_dependence_order(listed))
        params: list[tir.Var] = []
        matched: list[tir.Buffer | None] = []
        for item in self.parameters:
            if isinstance(item, Tensor):
                buffer = self._buffer(item)
                params.append(tir.Var(f"var_{buffer.name}", HANDLE))
                matched.append(buffer)
            else:
                params.append(_variable(item))
                matched.append(None)
        local = tuple(
            self._buffer(t)
            for op in operations
            for t in op.outputs
            if t.buffer not in self.buffers and not op.is_placeholder
        )
        _refuse_missing(operations, self.buffers)
        body = tuple(stmt for op in operations if not op.is_placeholder for stmt in self._statements(op))
        root = tir.Block("root", (), (), (), body or (tir.Evaluate(construct.const(0)),), alloc_buffers=local)
        if body:
            body = (tir.BlockRealize((), tir.TRUE, root),)
        func = tir.PrimFunc(tuple(params), tuple(matched), self._attrs(operations), body or root.body)
        if self.index_dtype is not None:
            func = with_index_dtype(func, self.index_dtype)
        return complete(func)

    def _buffer(self, tensor: Tensor) -> tir.Buffer:
        buffer = self.buffers.get(tensor.buffer)
        if buffer is None:
            buffer = construct.make_buffer(tensor.name, tensor.buffer.shape, tensor.dtype)
            self.buffers[tensor.buffer] = buffer
        return buffer

    def _attrs(self, operations: Sequence[Operation]) -> Attrs:
        """`layout_free_buffers` lists the parameters that some operation marked as free in their layout."""
        free = {id(t) for op in operations for t in op.attrs.get(LAYOUT_FREE, ())}
        positions = tuple(i for i, item in enumerate(self.parameters) if id(item) in free)
        attrs: dict[str, Any] = {"global_symbol": "main", "tir.noalias": True}
        if positions:
            attrs["layout_free_buffers"] = positions
        return Attrs(attrs)

    # ------------------------------------------------------------ one operation

    def _statements(self, op: Operation) -> Iterator[tir.Stmt]:
        """Blocks in their loops: one for a reduction, else one per result, all in the same loops; statements in one
        block without axes."""
        if op.extern is not None:
            yield self._opaque(op, op.extern)
            return
        spatial = [self._simplified_axis(a.iter_var, {}) for a in op.axis]
        names = {a.var for a in spatial}
        if any(names & used_vars(a.dom) for a in op.reduce_axis):
            yield self._nested(op, spatial)
            return
        axes = [*spatial, *(self._simplified_axis(a.iter_var, {}) for a in op.reduce_axis)]
        loops = [tir.Var(a.var.name, a.var.dtype) for a in axes]
        kinds = [None] if isinstance(op.body[0], tir.Reduce) else list(range(len(op.body)))
        yield from _loops(axes, loops, tuple(self._realize(op, axes, loops, index) for index in kinds))

    def _opaque(self, op: Operation, extern: Extern) -> tir.Stmt:
        renamed: dict[Any, Any] = {}
        for tensor in (*extern.inputs, *op.outputs):
            buffer = self._buffer(tensor)
            renamed |= {tensor.buffer: buffer, tensor.buffer.data: buffer.data}
        body = substitute(extern.body, renamed)
        reads = tuple(_full_region(self._buffer(t)) for t in extern.inputs)
        writes = tuple(_full_region(self._buffer(t)) for t in op.outputs)
        block = tir.Block(op.name, (), reads, writes, body, alloc_buffers=substitute(extern.scratch, renamed))
        return tir.BlockRealize((), tir.TRUE, block)

    def _nested(self, op: Operation, spatial: list[tir.IterVar]) -> tir.Stmt:
        """Build a reduction whose ranges depend on the result's axes: its block is nested in a block of these axes."""
        outer_vars = [tir.Var(f"v_{a.var.name}", a.var.dtype) for a in spatial]
        renamed: dict[Any, Any] = {a.var: v for a, v in zip(spatial, outer_vars, strict=True)}
        reduced = [self._simplified_axis(a.iter_var, renamed) for a in op.reduce_axis]
        if any({r.var for r in reduced} & used_vars(a.dom) for a in reduced):
            raise ValueError(f"`{op.name}`: the range of a reduce axis depends on another reduce axis")
        fixed = [
            tir.IterVar(a.var, tir.Range(v, construct.const(1, v.dtype)), a.kind)
            for a, v in zip(spatial, outer_vars, strict=True)
        ]
        steps = [tir.Var(a.var.name, a.var.dtype) for a in reduced]
        inner = self._realize(op, [*fixed, *reduced], [*outer_vars, *steps], None)
        iters = tuple(tir.IterVar(v, a.dom, a.kind) for v, a in zip(outer_vars, spatial, strict=True))
        body = _loops(reduced, steps, (inner,))
        outer = tir.Block(f"{op.name}_l1", iters, None, None, body)  # type: ignore[arg-type]
        loops = [tir.Var(a.var.name, a.var.dtype) for a in spatial]
        return _loops(spatial, loops, (tir.BlockRealize(tuple(loops), tir.TRUE, outer),))[0]

    def _simplified_axis(self, axis: tir.IterVar, renamed: dict[Any, Any]) -> tir.IterVar:
        """The axis with its range simplified, over the variables and buffers of the function."""
        low, extent = self._simplify(axis.dom.min, renamed), self._simplify(axis.dom.extent, renamed)
        return tir.IterVar(axis.var, tir.Range(low, extent), axis.kind)

    def _realize(
        self, op: Operation, axes: list[tir.IterVar], loops: list[tir.Var], index: int | None
    ) -> tir.BlockRealize:
        """The block of a reduction (`index` None) or of one result, its axes bound to `loops`."""
        fresh = [tir.Var(f"v_{a.var.name}", a.var.dtype) for a in axes]
        iters = tuple(tir.IterVar(v, a.dom, a.kind) for v, a in zip(fresh, axes, strict=True))
        renamed: dict[Any, Any] = {a.var: v for a, v in zip(axes, fresh, strict=True)}
        at = tuple(fresh[: len(op.axis)])
        init = None
        if index is None:
            name = op.name
            init, stores = self._reduction(op, op.body, at, renamed)
        else:
            out = op.outputs[index]
            name = out.name
            value = self._simplify(op.body[index], renamed)
            stores = (tir.BufferStore(self._buffer(out), value, at),)
        marks = Attrs({k: v for k, v in op.attrs.items() if k != LAYOUT_FREE})
        values: tuple[tir.Expr, ...] = tuple(loops)
        if not iters:  # a block has at least one axis
            zero = construct.const(0)
            dom = tir.Range(zero, construct.const(1))
            iters, values = (tir.IterVar(tir.Var("vi", zero.dtype), dom, tir.IterKind.SPATIAL),), (zero,)
        block = tir.Block(name, iters, None, None, stores, init, annotations=marks)  # type: ignore[arg-type]
        return tir.BlockRealize(values, tir.TRUE, block)

    def _reduction(
        self, op: Operation, body: tuple[tir.Expr, ...], at: tuple[tir.Expr, ...], renamed: dict[Any, Any]
    ) -> tuple[tuple[tir.Stmt, ...], tuple[tir.Stmt, ...]]:
        """The init statements and the update; several results are combined before any of them is stored.

        Where the condition of the reduction does not hold, the identity is combined (TVM 0.27 leaves `where` and
        `init` out here).
        """
        first = body[0]
        assert isinstance(first, tir.Reduce)
        outs = [self._buffer(t) for t in op.outputs]
        combiner = first.combiner
        start = [self._simplify(v, renamed) for v in first.init] or combiner.identity
        init = tuple(tir.BufferStore(out, value, at) for out, value in zip(outs, start, strict=True))
        sources = first.source
        if tir.const_int(first.condition) != 1:
            pairs = zip(sources, combiner.identity, strict=True)
            sources = tuple(to_expr(if_then_else(first.condition, s, other)) for s, other in pairs)
        values: dict[Any, Any] = {}
        for out, left, right, source in zip(outs, combiner.lhs, combiner.rhs, sources, strict=True):
            values[left] = tir.BufferLoad(out.dtype, out, at)
            values[right] = self._simplify(source, renamed)
        results = [substitute(r, values) for r in combiner.result]
        if len(outs) == 1:
            return init, (tir.BufferStore(outs[0], results[0], at),)
        new_values = [tir.Var(f"v_{out.name}", out.dtype) for out in outs]
        binds = tuple(tir.Bind(v, r) for v, r in zip(new_values, results, strict=True))
        stores = tuple(tir.BufferStore(out, v, at) for out, v in zip(outs, new_values, strict=True))
        return init, binds + stores

    def _simplify(self, value: tir.Expr, renamed: dict[Any, Any]) -> tir.Expr:
        """The expression over the block's axes and the function's buffers, simplified."""
        return self.analyzer.simplify(_FunctionBuffers(renamed, self.buffers).visit(value))


def _full_region(buffer: tir.Buffer) -> tir.BufferRegion:
    return tir.BufferRegion(buffer, tuple(tir.Range(construct.const(0, d.dtype), d) for d in buffer.shape))


def _loops(axes: Sequence[tir.IterVar], loops: Sequence[tir.Var], body: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
    """`body` in serial loops over the ranges of the axes."""
    for axis, loop in zip(reversed(axes), reversed(loops), strict=True):
        body = (tir.For(loop, axis.dom.min, axis.dom.extent, tir.ForKind.SERIAL, body),)
    return body


class _FunctionBuffers(Substitute):
    """Renames axes, and makes loads from tensors loads from the function's buffers."""

    def __init__(self, renamed: dict[Any, Any], buffers: dict[tir.Buffer, tir.Buffer]) -> None:
        super().__init__(renamed)
        self.buffers = buffers

    def rewrite(self, node: Any) -> Any:
        if isinstance(node, TensorLoad):
            return tir.BufferLoad(node.dtype, self.buffers[node.tensor.buffer], node.indices)
        return node


def _in_dependence_order(tensors: Sequence[Tensor]) -> Iterator[Operation]:
    """The operations behind `tensors`, inputs before users, in the order in which they are first needed."""
    seen: set[int] = set()
    for tensor in tensors:
        if id(tensor.op) in seen:
            continue
        seen.add(id(tensor.op))
        stack = [(tensor.op, iter(input_tensors(tensor.op)))]
        while stack:
            op, pending = stack[-1]
            following = next((t.op for t in pending if id(t.op) not in seen), None)
            if following is None:
                stack.pop()
                yield op
            else:
                seen.add(id(following))
                stack.append((following, iter(input_tensors(following))))


def input_tensors(op: Operation) -> list[Tensor]:
    """The tensors that an operation reads, each once, in the order of its text."""
    if op.extern is not None:
        return list(op.extern.inputs)
    tensors: dict[int, Tensor] = {}
    bodies = op.body[:1] if op.body and isinstance(op.body[0], tir.Reduce) else op.body
    for body in bodies:
        for part in walk(body):
            if isinstance(part, TensorLoad):
                tensors.setdefault(id(part.tensor), part.tensor)
    return list(tensors.values())


def _variable(item: Any) -> tir.Var:
    value = item.expr if isinstance(item, Value) else item
    if not isinstance(value, tir.Var):
        raise TypeError("a function's parameters must be tensors or variables")
    return value


def _refuse_missing(operations: Sequence[Operation], buffers: dict[tir.Buffer, tir.Buffer]) -> None:
    for op in operations:
        if op.is_placeholder and op.outputs[0].buffer not in buffers:
            raise ValueError(f"the placeholder `{op.name}` is read but is not among the parameters")
