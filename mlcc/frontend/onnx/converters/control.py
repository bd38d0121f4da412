"""Converters of branches and loops, resolved at import if possible, else at run time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.frontend.emitter import Dim
from mlcc.frontend.loops import Iteration, Loop, run_loop
from mlcc.frontend.onnx.captures import Captures
from mlcc.frontend.onnx.shape_folding import as_number
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import FailedInput, OnnxNode, OnnxTranslator, Value
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ops.relations import common_supertype, provably_equal

if TYPE_CHECKING:
    import onnx

DEFAULT_UNROLL_LIMIT = 64  # loops of at most this many iterations are unrolled
UNROLL_LIMIT = 1024  # iterations of a loop that is unrolled because it has no run-time form


# ---------------------------------------------------------------- branches


@converts("If")
def _if(t: OnnxTranslator, node: OnnxNode, condition: relax.Expr) -> list[Any]:
    known = t.constant_array(condition)
    if known is not None:
        return t.inline(node.attribute("then_branch" if known.item() else "else_branch"), [])
    branches = [_branch(t, node.attribute(f"{name}_branch"), len(node.outputs)) for name in ("then", "else")]
    info = common_supertype(*(b.struct_info for b in branches))  # type: ignore[arg-type]
    results = t.bb.emit(relax.If(t.reshape(condition, []), branches[0], branches[1], info))
    if len(node.outputs) == 1:
        return [_with_merged_shape(t, results, branches, None)]
    return [_with_merged_shape(t, t.emit(results[i]), branches, i) for i in range(len(node.outputs))]


def _branch(t: OnnxTranslator, graph: onnx.GraphProto, count: int) -> relax.SeqExpr:
    """Emit the body of a branch that is chosen at run time."""

    def body() -> Any:
        results = [t.tensor(value) for value in t.inline(graph, [])]
        if len(results) != count or not all(isinstance(r, relax.Expr) for r in results):
            raise Unsupported("each branch must return one tensor per output of the node")
        return results[0] if count == 1 else tuple(results)

    with t.new_scope():
        return t.bb.sequence(body)


def _with_merged_shape(
    t: OnnxTranslator, value: relax.Expr, branches: Sequence[relax.SeqExpr], at: int | None
) -> relax.Expr:
    """Return a result of either branch with a shape; extents that differ between them are run-time symbols."""
    info = value.struct_info
    if not isinstance(info, relax.TensorStructInfo) or info.shape is not None:
        return value
    infos = [b.struct_info if at is None else b.struct_info.fields[at] for b in branches]  # type: ignore[union-attr]
    one, other = (i.dims if isinstance(i, relax.TensorStructInfo) else None for i in infos)
    if one is None or other is None or len(one) != len(other):
        raise Unsupported("the branches return tensors of different ranks")
    return t.with_shape(
        value, [a if provably_equal(a, b) else t.fresh("extent") for a, b in zip(one, other, strict=True)]
    )


# ---------------------------------------------------------------- loops


class _UnknownTripCount(Unsupported):
    """Raised if the trip count of a loop is not known at import."""


class _TooManyIterations(_UnknownTripCount):
    """Raised if a loop has more iterations than are unrolled."""


@converts("Loop")
def _loop(
    t: OnnxTranslator,
    node: OnnxNode,
    most: relax.Expr | None = None,
    condition: relax.Expr | None = None,
    *carried: Any,
) -> list[Any]:
    written_out = functools.partial(_unrolled, t, node, most, condition, carried)
    try:
        return written_out(DEFAULT_UNROLL_LIMIT)
    except _TooManyIterations:
        return _first_supported(
            t, lambda: _run_time_loop(t, node, most, condition, carried), lambda: written_out(UNROLL_LIMIT)
        )
    except _UnknownTripCount:
        return _run_time_loop(t, node, most, condition, carried)


def _first_supported(t: OnnxTranslator, first: Callable[[], list[Any]], second: Callable[[], list[Any]]) -> list[Any]:
    """Return the first alternative's results, or the second's if the first is unsupported.

    Re-raises the first one's error if the second needs a trip count that is known at run time only.
    """
    before = t.problems.copy()
    try:
        return first()
    except (Unsupported, FailedInput):
        after, t.problems = t.problems, before
        try:
            return second()
        except _UnknownTripCount:
            t.problems = after
        raise


def _unrolled(
    t: OnnxTranslator, node: OnnxNode, most: relax.Expr | None, condition: relax.Expr | None, carried: Sequence[Any],
    limit: int,
) -> list[Any]:  # fmt: skip
    """Unroll a loop of at most `limit` iterations."""
    graph = node.attribute("body")
    rounds = _max_trip_count(t, most)
    state: list[Value] = list(carried)
    scanned: list[list[Any]] = [[] for _ in range(len(graph.output) - 1 - len(state))]
    going, at = _constant_condition(t, condition), 0
    while going and (rounds is None or at < rounds):
        if at >= limit:
            raise _TooManyIterations(f"a loop of more than {limit} iterations")
        results = t.inline(graph, [t.scalar(at, "int64"), t.scalar(True, "bool"), *state])
        going, state = _constant_condition(t, t.tensor(results[0])), results[1 : 1 + len(state)]
        for seen, value in zip(scanned, results[1 + len(state) :], strict=True):
            seen.append(t.tensor(value))
        at += 1
    outputs = graph.output[1 + len(state) :]
    return [*state, *(_stacked(t, seen, out, 0) for seen, out in zip(scanned, outputs, strict=True))]


def _run_time_loop(
    t: OnnxTranslator, node: OnnxNode, most: relax.Expr | None, condition: relax.Expr | None, carried: Sequence[Any]
) -> list[Any]:
    graph = node.attribute("body")
    outside = Captures(t, graph)

    def body(number: relax.Expr, state: list[relax.Expr], outer: list[relax.Expr]) -> Iteration:
        with outside.substituted(outer):
            results = [t.tensor(r) for r in t.inline(graph, [number, t.scalar(True, "bool"), *state])]
        if not all(isinstance(r, relax.Expr) for r in results):
            raise Unsupported("an iteration of a run-time loop must return tensors, not sequences or optional values")
        return Iteration(results[1 : 1 + len(state)], results[1 + len(state) :], results[0])

    if not all(isinstance(value, relax.Expr) for value in carried):
        raise Unsupported("a run-time loop must carry tensors, not sequences or optional values")
    known = t.known_integers(most)
    limit = most if known is None else known[0]
    state, rows = run_loop(t, Loop(body, carried, outside.variables, limit, condition))
    return [*state, *rows]


def _max_trip_count(t: OnnxTranslator, most: relax.Expr | None) -> int | None:
    """Return the maximum trip count of a loop; None if only its condition ends it."""
    if most is None:
        return None
    elements = t.known_integers(most)
    if elements is None or not isinstance(elements[0], int):
        raise _UnknownTripCount("the trip count of a loop is known at run time only")
    return elements[0]


def _constant_condition(t: OnnxTranslator, condition: relax.Expr | None) -> bool:
    if condition is None:
        return True
    known = t.constant_array(condition)
    if known is None:
        raise _UnknownTripCount("the condition of a loop is known at run time only")
    return bool(known.item())


def _stacked(t: OnnxTranslator, seen: list[Any], out: onnx.ValueInfoProto, axis: int) -> relax.Expr:
    """Stack the values of all iterations in one tensor."""
    from mlcc.frontend.onnx.elements import dtype_of

    if seen:
        return t.emit(t.op.stack(seen, axis))
    kind = out.type.tensor_type
    extents = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if not kind.HasField("shape") or None in extents:
        raise Unsupported("the shape of a scan output is not stated, and the loop has no iterations")
    return t.full([*extents[:axis], 0, *extents[axis:]], 0, dtype_of(kind.elem_type))  # type: ignore[list-item]


@converts("Scan", since=9)
def _scan(t: OnnxTranslator, node: OnnxNode, *given: relax.Expr) -> list[Any]:
    graph, count = node.attribute("body"), node.attribute("num_scan_inputs")
    if not 0 < count <= len(given):
        raise Unsupported(f"it scans {count} of {len(given)} inputs")
    state, sources = list(given[: len(given) - count]), given[len(given) - count :]
    axes = [t.axis(s, a) for s, a in zip(sources, _numbers_attribute(node, "scan_input_axes", count), strict=True)]
    backward = _numbers_attribute(node, "scan_input_directions", count)
    outputs = graph.output[len(state) :]
    outward = (
        _numbers_attribute(node, "scan_output_axes", len(outputs)),
        _numbers_attribute(node, "scan_output_directions", len(outputs)),
    )
    length = _scan_length(t, sources, axes)
    parts = list(zip(sources, axes, backward, strict=True))

    def written_out() -> list[Any]:
        last, scanned = _unrolled_scan(t, graph, state, parts, length)  # type: ignore[arg-type]
        stacked = [
            _stacked(t, seen[::-1] if back else seen, out, axis)
            for seen, out, axis, back in zip(scanned, outputs, *outward, strict=True)
        ]
        return [*last, *stacked]

    def at_run_time() -> list[Any]:
        last, rows = _run_time_scan(t, graph, state, parts, length)
        turned = [t.emit(t.op.flip(row, 0)) if back else row for row, back in zip(rows, outward[1], strict=True)]
        return [*last, *(_move_first_axis(t, row, axis) for row, axis in zip(turned, outward[0], strict=True))]

    if not isinstance(length, int) or length > UNROLL_LIMIT:
        return at_run_time()
    return written_out() if length <= DEFAULT_UNROLL_LIMIT else _first_supported(t, at_run_time, written_out)


Scanned: TypeAlias = (
    "Sequence[tuple[relax.Expr, int, int]]"  # tensors, the axes they are scanned along, backward or not
)


def _unrolled_scan(
    t: OnnxTranslator, graph: onnx.GraphProto, state: list[Any], sources: Scanned, rounds: int
) -> tuple[list[Any], list[list[Any]]]:
    scanned: list[list[Any]] = [[] for _ in graph.output[len(state) :]]
    for at in range(rounds):
        parts = [_element(t, s, axis, rounds - 1 - at if back else at) for s, axis, back in sources]
        results = t.inline(graph, [*state, *parts])
        state = results[: len(state)]
        for seen, value in zip(scanned, results[len(state) :], strict=True):
            seen.append(t.tensor(value))
    return state, scanned


def _run_time_scan(
    t: OnnxTranslator, graph: onnx.GraphProto, state: list[Any], sources: Scanned, rounds: Dim
) -> tuple[list[relax.Expr], list[relax.Expr]]:
    outside = Captures(t, graph)
    turned = [t.emit(t.op.flip(s, axis)) if back else s for s, axis, back in sources]

    def body(number: relax.Expr, state: list[relax.Expr], outer: list[relax.Expr]) -> Iteration:
        tensors, rest = outer[: len(turned)], outer[len(turned) :]
        parts = [t.emit(t.op.take(x, number, axis)) for x, (_, axis, _) in zip(tensors, sources, strict=True)]
        with outside.substituted(rest):
            results = [t.tensor(r) for r in t.inline(graph, [*state, *parts])]
        return Iteration(results[: len(state)], results[len(state) :])

    return run_loop(t, Loop(body, state, [*turned, *outside.variables], rounds))


def _move_first_axis(t: OnnxTranslator, rows: relax.Expr, axis: int) -> relax.Expr:
    """Move the first axis to another position."""
    rank = t.ndim(rows)
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return rows if order == list(range(rank)) else t.emit(t.op.permute_dims(rows, order))


@converts("Scan", since=8)
def _batched_scan(
    t: OnnxTranslator, node: OnnxNode, lengths: relax.Expr | None = None, *given: relax.Expr
) -> list[Any]:
    """Convert `Scan` of opset 8: a batch of scans, unrolled."""
    if lengths is not None or any(_numbers_attribute(node, "directions", node.attribute("num_scan_inputs"))):
        raise Unsupported(
            "`sequence_lens` and `directions` of opset 8 are not supported", "convert the model to opset 9 or newer"
        )
    batch = tir.const_int(t.shape(given[0])[0])
    if batch is None or not 0 < batch <= UNROLL_LIMIT:
        raise Unsupported(f"a batch of {t.shape(given[0])[0]} scans is not supported")
    rows = [_scan(t, node, *(_element(t, value, 0, i) for value in given)) for i in range(batch)]
    return [t.emit(t.op.stack([t.tensor(row[i]) for row in rows], 0)) for i in range(len(rows[0]))]


def _numbers_attribute(node: OnnxNode, name: str, count: int) -> list[int]:
    """Return an attribute with a number for each of `count` values."""
    numbers = node.attribute(name) or [0] * count
    if len(numbers) != count:
        raise Unsupported(f"`{name}` has {len(numbers)} numbers, not {count}")
    return list(numbers)


def _scan_length(t: OnnxTranslator, sources: Sequence[relax.Expr], axes: Sequence[int]) -> Dim:
    """Return the common extent of the scanned axes. Raises Unsupported if they differ."""
    extents = [t.shape(s)[axis] for s, axis in zip(sources, axes, strict=True)]
    if not all(provably_equal(extents[0], other) for other in extents):
        raise Unsupported(f"the scanned axes have different lengths, {extents}")
    return as_number(t.simplify(extents[0]))


def _element(t: OnnxTranslator, value: relax.Expr, axis: int, at: int) -> relax.Expr:
    """Select one index of an axis."""
    return t.emit(t.op.squeeze(t.op.strided_slice(value, [axis], [at], [at + 1]), [axis]))
