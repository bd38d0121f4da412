"""Normalisation by layer and by root mean square."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ops.shapes import product, prove_equal
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.recognition.graph import Graph, dims_of, dtype_of
from mlcc.passes.recognition.polynomial import Expansion, Monomial, is_close, is_wider, square_root
from mlcc.relax.construct import shape_expr


@dataclass(frozen=True)
class _Spread:
    """1 / sqrt(mean((x - centre) ** 2, axes) + epsilon); without centre for a root mean square."""

    number: int
    x: relax.Expr
    centre: relax.Expr | None
    axes: tuple[int, ...]
    epsilon: float


def norm(graph: Graph, root: relax.Expr, emitter: RelaxMutator) -> relax.Expr | None:
    """The call of the norm that a value is; None if it is none. `emitter` binds what the call needs besides."""
    for under in _roots(graph, root):
        spread = _spread(graph, under)
        found = None if spread is None else _scaled(graph, root, spread)
        if spread is not None and found is not None:
            return _call(root, spread, *found, emitter)
    return None


def _roots(graph: Graph, root: relax.Expr) -> Iterator[relax.Expr]:
    """What a value is divided by the square root of."""
    for expr in graph.tree(root):
        call = graph.call(expr, "rsqrt", "power")
        if call is not None and (len(call.args) == 1 or graph.scalar(call.args[1]) == -0.5):
            yield call.args[0]
        under = square_root(graph, expr)
        if under is not None:
            yield under


def _spread(graph: Graph, under: relax.Expr) -> _Spread | None:
    epsilon, variance = 0.0, under
    total = graph.call(under, "add")
    if total is not None:
        for one, other in (total.args, total.args[::-1]):
            scalar = graph.scalar(other)
            if scalar is not None:
                epsilon, variance = scalar, one
    number = graph.numbered(("relax.rsqrt", graph.number(under)))
    direct = graph.call(variance, "variance")
    if direct is not None and direct.attrs["keepdims"]:
        data = direct.args[0]
        axes = _axes(direct, data)
        mean = _mean_of(graph, data, axes)
        return None if mean is None or axes is None else _Spread(number, data, mean, axes, epsilon)
    found = _mean(graph, variance)
    base = None if found is None else _square(graph, found[0])
    if found is None or base is None:
        return None
    centred = graph.call(_unwidened(graph, base), "subtract")
    if centred is not None:
        x, centre = centred.args
        mean = _mean(graph, centre)
        if mean is not None and graph.number(mean[0]) == graph.number(x) and mean[1] == found[1]:
            return _Spread(number, x, centre, found[1], epsilon)
    return _Spread(number, base, None, found[1], epsilon)


def _unwidened(graph: Graph, expr: relax.Expr) -> relax.Expr:
    """What a value is before its elements are made wider."""
    cast = graph.call(expr, "astype")
    return cast.args[0] if cast is not None and is_wider(dtype_of(expr), dtype_of(cast.args[0])) else expr


def _mean_of(graph: Graph, data: relax.Expr, axes: tuple[int, ...] | None) -> relax.Expr | None:
    """The mean of a tensor over axes, where the graph has it."""
    wanted = graph.number(data)
    for var in graph.uses.value:
        found = _mean(graph, var)
        if found is not None and graph.number(found[0]) == wanted and found[1] == axes:
            return var
    return None


def _mean(graph: Graph, expr: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]] | None:
    """What a value is the mean of, and over which axes, which stay as extents of 1."""
    call = graph.call(expr, "mean")
    count = 1.0
    if call is None:
        call, count = _scaled_sum(graph, expr)
    if call is None or not call.attrs["keepdims"]:
        return None
    data = call.args[0]
    axes, dims = _axes(call, data), dims_of(data)
    if axes is None or dims is None:
        return None
    if call.op.name == "relax.sum":  # type: ignore[attr-defined]
        extent = tir.const_int(product([dims[a] for a in axes]))
        if extent is None or abs(count * extent - 1) > 1e-6:
            return None
    return data, axes


def _scaled_sum(graph: Graph, expr: relax.Expr) -> tuple[relax.Call | None, float]:
    call = graph.call(expr, "multiply", "divide")
    if call is None:
        return None, 1.0
    scalar = graph.scalar(call.args[1])
    if not scalar:
        return None, 1.0
    return graph.call(call.args[0], "sum"), scalar if call.op.name == "relax.multiply" else 1 / scalar  # type: ignore[attr-defined]


def _axes(call: relax.Call, data: relax.Expr) -> tuple[int, ...] | None:
    dims, axes = dims_of(data), call.attrs["axis"]
    if not dims:
        return None
    return tuple(sorted(a % len(dims) for a in axes)) if axes else tuple(range(len(dims)))


def _square(graph: Graph, expr: relax.Expr) -> relax.Expr | None:
    """What a value is the square of."""
    call = graph.call(expr, "multiply", "square", "power")
    if call is None:
        return None
    one, *others = call.args
    if call.op.name == "relax.power":  # type: ignore[attr-defined]
        return one if graph.scalar(others[0]) == 2 else None
    return one if all(graph.number(one) == graph.number(other) for other in others) else None


# ---------------------------------------------------------------- what it is scaled and shifted by


def _scaled(graph: Graph, root: relax.Expr, spread: _Spread) -> tuple[relax.Expr, Any, Any] | None:
    """The data of a norm, and what it is scaled and shifted by, if the value is one."""
    centre = () if spread.centre is None else (spread.centre,)
    dtype = dtype_of(root)
    narrow = Expansion(graph, (), dtype).narrow
    atoms = {graph.number(e) for part in (spread.x, *centre) for e in (part, narrow(part))}
    expansion = Expansion(graph, atoms, dtype)
    made = expansion.of(root)
    data = narrow(spread.x)
    if made is None or dtype_of(data) is not dtype or dtype is None:
        return None
    terms = [_without(key, spread.number) for key in made]
    scaled = {key for key in terms if key is not None}
    shifts = [key for key, rest in zip(made, terms, strict=True) if rest is None]
    signed = [(graph.number(narrow(spread.x)), 1.0)]
    signed += [(graph.number(narrow(e)), -1.0) for e in centre]
    factor = next((rest for key in scaled if (rest := _without(key, signed[0][0])) is not None), None)
    if factor is None or len(factor) > 1 or len(shifts) > len(centre) or any(len(key) != 1 for key in shifts):
        return None
    wanted = {tuple(sorted((*factor, spread.number, at))): sign for at, sign in signed}
    wanted |= dict.fromkeys(shifts, 1.0)
    if not is_close(made, wanted, dtype):
        return None
    dims, places = dims_of(data), []
    for key in (factor, *shifts):
        value = next((e for e in graph.tree(root) if graph.number(e) == key[0]), None) if key else None
        if key and (value is None or not _spans(value, dims, spread.axes) or dtype_of(value) is not dtype):
            return None
        places.append(value)
    return data, places[0], places[1] if len(places) > 1 else None


def _without(key: Monomial, factor: int) -> Monomial | None:
    """A monomial without one factor; None if it does not have it."""
    if factor not in key:
        return None
    at = key.index(factor)
    return key[:at] + key[at + 1 :]


def _spans(value: relax.Expr, dims: Any, axes: tuple[int, ...]) -> bool:
    """Whether a tensor has an element for each place along the axes of a tensor of these extents, and no others."""
    own = dims_of(value)
    if own is None or dims is None or len(own) > len(dims):
        return False
    first = len(dims) - len(own)
    if any(axis < first for axis in axes):
        return False
    return all(
        prove_equal(extent, dims[at]) if at in axes else tir.const_int(extent) == 1
        for at, extent in enumerate(own, first)
    )


def _call(
    root: relax.Expr, spread: _Spread, data: relax.Expr, scale: relax.Expr | None, shift: relax.Expr | None,
    emitter: RelaxMutator,
) -> relax.Expr | None:  # fmt: skip
    dims, dtype = dims_of(data), str(dtype_of(data))
    assert dims is not None
    shape = shape_expr(dims[axis] for axis in spread.axes)

    def along(value: relax.Expr | None, other: str) -> relax.Expr:
        if value is None:
            return emitter.emit_op(other, shape, dtype=dtype)
        if len(dims_of(value) or ()) == len(spread.axes):
            return value
        return emitter.emit_op("reshape", value, shape)

    attrs = {"axes": list(spread.axes), "epsilon": spread.epsilon}
    if spread.centre is None:
        return ops.bind_call("nn.rms_norm", (data, along(scale, "ones")), attrs)
    return ops.bind_call("nn.layer_norm", (data, along(scale, "ones"), along(shift, "zeros")), attrs)
