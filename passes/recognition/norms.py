"""Recognition of layer norm, RMS norm and group norm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.shapes import product, prove_equal
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.recognition.graph import Graph, dims_of, dtype_of
from mlcc.passes.recognition.polynomial import Expansion, Monomial, is_close, is_wider, square_root
from mlcc.relax.construct import shape_expr


@dataclass(frozen=True)
class _ReciprocalDeviation:
    """1 / sqrt(mean((x - centre) ** 2, axes) + epsilon); without a centre the reciprocal root mean square."""

    number: int
    x: relax.Expr
    centre: relax.Expr | None
    axes: tuple[int, ...]
    epsilon: float


def norm(graph: Graph, root: relax.Expr, emitter: RelaxMutator) -> relax.Expr | None:
    """Match a layer or RMS norm by its result; return the call of its operator, or None.

    `emitter` binds the other values of the call.
    """
    for variance in _root_operands(graph, root):
        deviation = _match_deviation(graph, variance)
        if deviation is None:
            continue
        normalized = _normalized(graph, deviation, dtype_of(root))
        scaled = _match_scale_and_shift(
            graph, root, normalized, (deviation.x, *(() if deviation.centre is None else (deviation.centre,)))
        )
        if scaled is not None:
            attrs = {"axes": list(deviation.axes), "epsilon": deviation.epsilon}
            name, parameters = ("nn.rms_norm", scaled[:1]) if deviation.centre is None else ("nn.layer_norm", scaled)
            return ops.bind_call(name, (normalized.data, *_emit_parameters(normalized, parameters, emitter)), attrs)
    return None


def _root_operands(graph: Graph, root: relax.Expr) -> Iterator[relax.Expr]:
    """Yield the operands of the square roots by which a value is divided."""
    for expr in graph.tree(root):
        call = graph.call(expr, "rsqrt", "power")
        if call is not None and (len(call.args) == 1 or graph.scalar(call.args[1]) == -0.5):
            yield call.args[0]
        under = square_root(graph, expr)
        if under is not None:
            yield under


def _match_deviation(graph: Graph, radicand: relax.Expr) -> _ReciprocalDeviation | None:
    epsilon, variance = 0.0, radicand
    total = graph.call(radicand, "add")
    if total is not None:
        for term, offset in (total.args, total.args[::-1]):
            scalar = graph.scalar(offset)
            if scalar is not None:
                epsilon, variance = scalar, term
    number = graph.number_of_key(("relax.rsqrt", graph.number(radicand)))
    direct = graph.call(variance, "variance")
    if direct is not None and direct.attrs["keepdims"]:
        data = direct.args[0]
        axes = _axes(direct, data)
        mean = _mean_of(graph, data, axes)
        return None if mean is None or axes is None else _ReciprocalDeviation(number, data, mean, axes, epsilon)
    averaged = _mean(graph, variance)
    base = None if averaged is None else _square(graph, averaged[0])
    if averaged is None or base is None:
        return None
    centred = graph.call(_unwidened(graph, base), "subtract")
    if centred is not None:
        x, centre = centred.args
        centre_mean = _mean(graph, centre)
        if (
            centre_mean is not None
            and graph.number(centre_mean[0]) == graph.number(x)
            and centre_mean[1] == averaged[1]
        ):
            return _ReciprocalDeviation(number, x, centre, averaged[1], epsilon)
    return _ReciprocalDeviation(number, base, None, averaged[1], epsilon)


def _unwidened(graph: Graph, expr: relax.Expr) -> relax.Expr:
    """Return the operand of a cast to a wider float type, or the value itself."""
    cast = graph.call(expr, "astype")
    return cast.args[0] if cast is not None and is_wider(dtype_of(expr), dtype_of(cast.args[0])) else expr


def _mean_of(graph: Graph, data: relax.Expr, axes: tuple[int, ...] | None) -> relax.Expr | None:
    """Return the variable that holds the mean of a tensor over axes, if the graph computes it."""
    wanted = graph.number(data)
    for var in graph.uses.value:
        mean = _mean(graph, var)
        if mean is not None and graph.number(mean[0]) == wanted and mean[1] == axes:
            return var
    return None


def _mean(graph: Graph, expr: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]] | None:
    """Match a mean that keeps its axes with extent 1; return its operand and axes, or None."""
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
    if call.op.name == "relax.sum":
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
    return graph.call(call.args[0], "sum"), scalar if call.op.name == "relax.multiply" else 1 / scalar


def _axes(call: relax.Call, data: relax.Expr) -> tuple[int, ...] | None:
    dims, axes = dims_of(data), call.attrs["axis"]
    if not dims:
        return None
    return tuple(sorted(a % len(dims) for a in axes)) if axes else tuple(range(len(dims)))


def _square(graph: Graph, expr: relax.Expr) -> relax.Expr | None:
    """Match a square; return its base, or None."""
    call = graph.call(expr, "multiply", "square", "power")
    if call is None:
        return None
    base, *others = call.args
    if call.op.name == "relax.power":
        return base if graph.scalar(others[0]) == 2 else None
    return base if all(graph.number(base) == graph.number(other) for other in others) else None


# ---------------------------------------------------------------- scale and shift


@dataclass(frozen=True)
class _Normalized:
    """A normalized tensor: a sum of products whose values vary along the dimensions `axes` of the data."""

    data: relax.Expr
    terms: Mapping[Monomial, float]
    axes: tuple[int, ...]
    shifted: bool = True  # True if the operator has a shift


def _normalized(graph: Graph, deviation: _ReciprocalDeviation, dtype: DType | None) -> _Normalized:
    """Return (x - centre) / root, or x / root without a centre."""
    narrow = Expansion(graph, (), dtype).narrow
    terms = {tuple(sorted((graph.number(narrow(deviation.x)), deviation.number))): 1.0}
    if deviation.centre is not None:
        terms[tuple(sorted((graph.number(narrow(deviation.centre)), deviation.number)))] = -1.0
    return _Normalized(narrow(deviation.x), terms, deviation.axes, deviation.centre is not None)


def _match_scale_and_shift(
    graph: Graph, root: relax.Expr, normalized: _Normalized, atoms: Iterable[relax.Expr]
) -> tuple[relax.Expr | None, relax.Expr | None] | None:
    """Match the scale and shift of a normalized value; return them (None where absent) if they give the root."""
    dtype, dims = dtype_of(root), dims_of(normalized.data)
    narrow = Expansion(graph, (), dtype).narrow
    expanded = Expansion(graph, {graph.number(e) for atom in atoms for e in (atom, narrow(atom))}, dtype).of(root)
    if expanded is None or dtype_of(normalized.data) is not dtype or dtype is None:
        return None
    first = next(iter(normalized.terms))
    factor = next((rest for key in expanded if (rest := _divide_monomial(key, first)) is not None), None)
    if factor is None or len(factor) > 1:
        return None
    expected = {tuple(sorted((*key, *factor))): sign for key, sign in normalized.terms.items()}
    shifts = [key for key in expanded if key not in expected]
    if len(shifts) > normalized.shifted or any(len(key) != 1 for key in shifts):
        return None
    if not is_close(expanded, expected | dict.fromkeys(shifts, 1.0), dtype):
        return None
    parameters: list[relax.Expr | None] = []
    for key in (factor, *shifts):
        value = next((e for e in graph.tree(root) if graph.number(e) == key[0]), None) if key else None
        if key and (value is None or not _spans_axes(value, dims, normalized.axes) or dtype_of(value) is not dtype):
            return None
        parameters.append(value)
    return parameters[0], parameters[1] if len(parameters) > 1 else None


def _divide_monomial(key: Monomial, factors: Monomial) -> Monomial | None:
    """Divide a monomial by another; None if it is not a multiple."""
    left = list(key)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _spans_axes(value: relax.Expr, dims: Any, axes: tuple[int, ...]) -> bool:
    """Return True if a tensor has the extents `dims` along `axes`, and extent 1 elsewhere."""
    own_dims = dims_of(value)
    if own_dims is None or dims is None or len(own_dims) > len(dims):
        return False
    first = len(dims) - len(own_dims)
    if any(axis < first for axis in axes):
        return False
    return all(
        prove_equal(extent, dims[at]) if at in axes else tir.const_int(extent) == 1
        for at, extent in enumerate(own_dims, first)
    )


def _emit_parameters(
    normalized: _Normalized, values: Sequence[relax.Expr | None], emitter: RelaxMutator
) -> tuple[relax.Expr, ...]:
    """Emit scale and shift as vectors along the axes, with ones and zeros for absent ones."""
    dims, dtype = dims_of(normalized.data), str(dtype_of(normalized.data))
    assert dims is not None
    shape = shape_expr(dims[axis] for axis in normalized.axes)

    def as_vector(value: relax.Expr | None, default: str) -> relax.Expr:
        if value is None:
            return emitter.emit_op(default, shape, dtype=dtype)
        if len(dims_of(value) or ()) == len(normalized.axes):
            return value
        return emitter.emit_op("reshape", value, shape)

    return tuple(as_vector(value, default) for value, default in zip(values, ("ones", "zeros"), strict=False))


# ---------------------------------------------------------------- groups of channels


def group_norm(graph: Graph, root: relax.Expr, emitter: RelaxMutator) -> relax.Expr | None:
    """Match a group norm by its result; return the call of its operator, or None.

    The graph writes it as an instance norm of flattened data whose channels are the groups, reshaped back afterwards.
    """
    for candidate in graph.tree(root):
        data, instance_norm = _match_instance_norm(graph, candidate)
        if data is None or instance_norm is None:
            continue
        normalized = _Normalized(data, {(graph.number(candidate),): 1.0}, (1,))
        scaled = _match_scale_and_shift(graph, root, normalized, (candidate,))
        if scaled is not None:
            rank, groups = len(dims_of(data) or ()), tir.const_int((dims_of(instance_norm) or ())[1])
            attrs = {"num_groups": groups, "channel_axis": 1, "axes": list(range(2, rank))}
            epsilon = instance_norm.attrs["epsilon"]
            parameters = _emit_parameters(normalized, scaled, emitter)
            return ops.bind_call("nn.group_norm", (data, *parameters), {**attrs, "epsilon": epsilon})
    return None


def _match_instance_norm(graph: Graph, expr: relax.Expr) -> tuple[relax.Expr | None, relax.Call | None]:
    """Match a group norm without parameters; return its operand, and the instance norm that computes it."""
    reshaped = graph.call(expr, "reshape")
    instance_norm = None if reshaped is None else graph.call(reshaped.args[0], "nn.instance_norm")
    flattened = None if instance_norm is None else graph.call(instance_norm.args[0], "reshape")
    if flattened is None or instance_norm is None:
        return None, None
    data, groups = flattened.args[0], dims_of(flattened)
    dims, result = dims_of(data), dims_of(expr)
    if (
        dims is None
        or result is None
        or groups is None
        or len(dims) != len(result)
        or len(dims) < 3
        or len(groups) != 3
    ):
        return None, None
    channels, count = tir.const_int(dims[1]), tir.const_int(groups[1])
    fits = channels and count and channels % count == 0 and prove_equal(dims[0], groups[0])
    has_usual_axes = instance_norm.attrs["channel_axis"] % 3 == 1 and [a % 3 for a in instance_norm.attrs["axes"]] == [
        2
    ]
    has_no_parameters = _is_full(graph, instance_norm.args[1], 1) and _is_full(graph, instance_norm.args[2], 0)
    return (
        (data, instance_norm)
        if fits and has_usual_axes and has_no_parameters and all(map(prove_equal, dims, result))
        else (None, None)
    )


def _is_full(graph: Graph, value: relax.Expr, number: float) -> bool:
    """Return True if all elements of a constant equal a number."""
    constant = graph.uses.resolve(value)
    if not isinstance(constant, relax.Constant) or constant.data.array is None:
        return False
    from mlcc.ir.narrow_floats import decode

    return bool((decode(constant.data.array, constant.data.dtype) == number).all())
