"""Tensors defined by expressions over their axes, and reductions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.ir import construct, tir
from mlcc.ir.dtypes import BOOL, DType
from mlcc.ir.node import node, walk
from mlcc.te.scalar import Operand, Scalar, Value, operand, to_expr


class Axis(Value):
    """A variable that runs over a range; stands for its variable in expressions."""

    __slots__ = ("iter_var",)

    def __init__(self, iter_var: tir.IterVar) -> None:
        super().__init__(iter_var.var)
        self.iter_var = iter_var

    @property
    def var(self) -> Scalar:
        return Scalar(self.iter_var.var)

    @property
    def dom(self) -> tir.Range:
        return self.iter_var.dom


@dataclass(frozen=True, eq=False)
class Extern:
    """Statements over the buffers of the tensors that they read and of those that they make."""

    inputs: tuple[Tensor, ...]
    body: tuple[tir.Stmt, ...]
    scratch: tuple[tir.Buffer, ...] = ()


@dataclass(frozen=True, eq=False)
class Operation:
    """The producer of tensors: a placeholder (no body), one expression per result over `axis`, or statements."""

    name: str
    axis: tuple[Axis, ...] = ()
    reduce_axis: tuple[Axis, ...] = ()
    body: tuple[tir.Expr, ...] = ()
    tag: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    extern: Extern | None = None

    @property
    def is_placeholder(self) -> bool:
        return not self.body and self.extern is None

    def output(self, index: int) -> Tensor:
        return self.outputs[index]


@node
class TensorLoad(tir.BufferLoad):
    """An element of a tensor that has no buffer of a function yet; `buffer` is the tensor's own."""

    tensor: Any


class Tensor:
    """An n-dimensional array under construction. `A[i, j]` and `A(i, j)` are its elements.

    `buffer` stands for it in expressions until a function gives it a buffer of its own.
    """

    __slots__ = ("buffer", "op", "value_index")

    def __init__(self, op: Operation, buffer: tir.Buffer, value_index: int) -> None:
        self.op = op
        self.buffer = buffer
        self.value_index = value_index

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def shape(self) -> tuple[Scalar, ...]:
        return tuple(Scalar(d) for d in self.buffer.shape)

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    def __call__(self, *indices: Operand) -> Scalar:
        if len(indices) != self.ndim:
            raise ValueError(f"`{self.name}` has {self.ndim} dimensions, but {len(indices)} indices were given")
        return Scalar(TensorLoad(self.dtype, self.buffer, tuple(to_expr(i) for i in indices), self))

    def __getitem__(self, indices: Any) -> Any:
        index_tuple = indices if isinstance(indices, tuple) else (indices,)
        return self(*index_tuple) if len(index_tuple) >= self.ndim else Slice(self, index_tuple)

    def __repr__(self) -> str:
        return f"Tensor(name={self.name}, shape={self.shape}, dtype={self.dtype})"


class Slice:
    """A tensor with some of its indices given."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Operand, ...]) -> None:
        self.tensor = tensor
        self.indices = indices

    def __getitem__(self, indices: Any) -> Any:
        return self.tensor[self.indices + (indices if isinstance(indices, tuple) else (indices,))]


def dimensions(shape: Any) -> tuple[tir.Expr, ...]:
    """A shape (one extent or several) as expressions; plain integers are int32."""
    if isinstance(shape, (int, Value, tir.Expr)):
        shape = (shape,)
    dims = tuple(to_expr(d) for d in shape)
    for d in dims:
        if not d.dtype.is_int:
            raise TypeError(f"a shape needs integers, not {d.dtype}")
    return dims


def placeholder(shape: Any, dtype: DType | str | None = None, name: str = "placeholder") -> Tensor:
    """A tensor that is given: a parameter."""
    op = Operation(name)
    tensor = Tensor(op, construct.make_buffer(name, dimensions(shape), dtype or "float32"), 0)
    op.outputs.append(tensor)
    return tensor


def compute(
    shape: Any, fcompute: Callable[..., Any], name: str = "compute", tag: str = "",
    attrs: Mapping[str, Any] | None = None, varargs_names: Sequence[str] | None = None,
) -> Any:  # fmt: skip
    """The tensor with element `fcompute(i, j, ...)` at [i, j, ...]; several tensors if it returns several values."""
    dims = dimensions(shape)
    names = _axis_names(fcompute, len(dims), varargs_names)
    axes = tuple(
        Axis(tir.IterVar(tir.Var(n, d.dtype), tir.Range(construct.const(0, d.dtype), d), tir.IterKind.SPATIAL))
        for n, d in zip(names, dims, strict=False)
    )
    values = fcompute(*axes)
    bodies = tuple(_element(b, name) for b in (values if isinstance(values, (list, tuple)) else (values,)))
    reduces = [b for b in bodies if isinstance(b, tir.Reduce)]
    if reduces and len(reduces) != len(bodies):
        raise ValueError(f"`{name}`: either all results are reductions, or none")
    reduce_axes = tuple(Axis(v) for v in reduces[0].axis) if reduces else ()
    for body in bodies:
        _refuse_inner_reductions(body, name)
    op = Operation(name, axes, reduce_axes, bodies, tag, dict(attrs or {}))
    for index, body in enumerate(bodies):
        label = name if len(bodies) == 1 else f"{name}_v{index}"
        op.outputs.append(Tensor(op, construct.make_buffer(label, dims, body.dtype), index))
    return op.outputs[0] if len(bodies) == 1 else tuple(op.outputs)


def _element(value: Any, name: str) -> tir.Expr:
    """The value of an element as an expression."""
    if isinstance(value, Tensor):
        raise ValueError(f"`{name}`: an element must be a scalar, not the tensor `{value.name}`")
    if isinstance(value, Slice):
        tensor, count = value.tensor, len(value.indices)
        raise ValueError(f"`{name}`: `{tensor.name}` has {tensor.ndim} dimensions, but {count} indices were given")
    if value is None:
        raise ValueError(f"`{name}`: the function of a compute returns nothing")
    return to_expr(value)


def _axis_names(fn: Callable[..., Any], ndim: int, varargs_names: Sequence[str] | None) -> list[str]:
    spec = inspect.getfullargspec(fn)
    if spec.varkw is not None or spec.defaults is not None or spec.kwonlyargs:
        raise TypeError("the function of a compute must take positional indices without defaults")
    named = list(spec.args)
    if spec.varargs is not None:
        rest = ndim - len(named)
        if varargs_names is not None and len(varargs_names) != rest:
            raise ValueError(f"{rest} more axes need names, but {len(varargs_names)} were given")
        named += list(varargs_names) if varargs_names is not None else [f"i{i}" for i in range(rest)]
    if len(named) != ndim:
        raise ValueError(f"the function of a compute takes {len(named)} indices, but the shape has {ndim} dimensions")
    return named


def _refuse_inner_reductions(body: tir.Expr, name: str) -> None:
    inside = body.source if isinstance(body, tir.Reduce) else (body,)
    for source in inside:
        if any(isinstance(n, tir.Reduce) for n in walk(source)):
            raise ValueError(f"`{name}`: a reduction must be a whole compute; give the inner one a tensor of its own")


# ---------------------------------------------------------------- reductions


def reduce_axis(dom: Any, name: str = "rv") -> Axis:
    """An axis to reduce over: `(begin, end)` or a `tir.Range`."""
    if isinstance(dom, tir.Range):
        bounds = dom
    else:
        begin, end = dom
        low, high = construct.match_types(operand(begin), operand(end))
        bounds = tir.Range(low, _difference(high, low))
    return Axis(tir.IterVar(tir.Var(name, bounds.extent.dtype), bounds, tir.IterKind.REDUCE))


def _difference(high: tir.Expr, low: tir.Expr) -> tir.Expr:
    plain = construct.sub(high, low)
    if isinstance(plain, tir.IntImm) or tir.const_int(low) == 0:
        return plain
    from mlcc.arith.analyzer import Analyzer

    return Analyzer().simplify(plain)


def comm_reducer(fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce") -> Any:
    """A reduction by a commutative function; over tuples if `fcombine` takes and gives tuples.

    The result is called with the expression(s) and `axis=`; called with values alone it combines them.
    """

    def reducer(expr: Any, axis: Any, where: Any = None, init: Any = None, *args: Any) -> Any:
        if isinstance(axis, Axis) or (isinstance(axis, (list, tuple)) and all(isinstance(a, Axis) for a in axis)):
            return _reduce(fcombine, fidentity, expr, axis, where, init)
        values = [expr, axis] + ([] if where is None else [where, *([] if init is None else [init]), *args])
        result: Any = values[0] if isinstance(values[0], (Value, tuple)) else Scalar(to_expr(values[0], _like(values)))
        for value in values[1:]:
            result = fcombine(result, value if isinstance(value, (Value, tuple)) else _scalar(value, result))
        return result

    from builtins import all

    reducer.__name__ = name
    reducer.__doc__ = f"The reduction `{name}` of an expression over `axis`, or of its arguments."
    return reducer


def _like(values: list[Any]) -> DType | None:
    for value in values:
        if isinstance(value, Value):
            return value.dtype
    return None


def _scalar(value: Any, other: Scalar) -> Scalar:
    return Scalar(value if isinstance(value, tir.Expr) else to_expr(value, other.dtype))


def _reduce(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], expr: Any, axis: Any, where: Any, init: Any
) -> Any:
    several = isinstance(expr, (list, tuple))
    sources = tuple(to_expr(e) for e in expr) if several else (to_expr(expr),)
    names = list(inspect.signature(fcombine).parameters)
    dtypes = [s.dtype for s in sources]
    tails = [f"_{i}" for i in range(len(sources))] if several else [""]
    lhs = tuple(tir.Var(names[0] + t, d) for t, d in zip(tails, dtypes, strict=True))
    rhs = tuple(tir.Var(names[1] + t, d) for t, d in zip(tails, dtypes, strict=True))
    if several:
        combined = fcombine(tuple(Scalar(v) for v in lhs), tuple(Scalar(v) for v in rhs))
        identity = fidentity(*(str(d) for d in dtypes))
    else:
        combined, identity = (fcombine(Scalar(lhs[0]), Scalar(rhs[0])),), (fidentity(str(dtypes[0])),)
    combiner = tir.CommReducer(
        lhs,
        rhs,
        tuple(to_expr(c) for c in combined),
        tuple(to_expr(v, d) for v, d in zip(identity, dtypes, strict=True)),
    )
    axes = tuple(a.iter_var for a in (axis if isinstance(axis, (list, tuple)) else (axis,)))
    for over in axes:
        if over.kind is not tir.IterKind.REDUCE:
            raise ValueError(f"`{over.var.name}` is an axis of the result: reduce over a te.reduce_axis")
    start = () if init is None else tuple(to_expr(v, d) for v, d in zip(_listed(init), dtypes, strict=True))
    condition = tir.IntImm(BOOL, 1) if where is None else to_expr(where)
    results = [Scalar(tir.Reduce(d, combiner, sources, start, axes, condition, i)) for i, d in enumerate(dtypes)]
    return tuple(results) if several else results[0]


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


def _binary(fn: Callable[[Any, Any], tir.Expr]) -> Callable[[Any, Any], Scalar]:
    return lambda x, y: Scalar(fn(operand(x), operand(y)))


sum = comm_reducer(lambda x, y: x + y, lambda t: construct.const(0, t), name="sum")
min = comm_reducer(_binary(construct.minimum), construct.max_value, name="min")
max = comm_reducer(_binary(construct.maximum), construct.min_value, name="max")
prod = comm_reducer(lambda x, y: x * y, lambda t: construct.const(1, t), name="prod")


def parameter_name(index: int) -> str:
    """Return TVM's default name for the placeholder at this index: A to Z, then `tensor_input_26`."""
    return chr(ord("A") + index) if index < 26 else f"tensor_input_{index}"
