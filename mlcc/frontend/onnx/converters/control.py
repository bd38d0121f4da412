"""Branches and loops: those that are decided while the model is imported, and branches at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator, Value
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ops.relations import common, same

if TYPE_CHECKING:
    import onnx

UNROLL_LIMIT = 1024  # rounds of a loop


# ---------------------------------------------------------------- branches


@converts("If")
def _if(t: OnnxTranslator, node: OnnxNode, condition: relax.Expr) -> list[Any]:
    known = t.constant_array(condition)
    if known is not None:
        return t.inline(node.attribute("then_branch" if known.item() else "else_branch"), [])
    branches = [_branch(t, node.attribute(f"{name}_branch"), len(node.outputs)) for name in ("then", "else")]
    info = common(*(b.struct_info for b in branches))  # type: ignore[arg-type]
    made = t.bb.emit(relax.If(t.reshape(condition, []), branches[0], branches[1], info))
    if len(node.outputs) == 1:
        return [_shaped(t, made, branches, None)]
    return [_shaped(t, t.emit(made[i]), branches, i) for i in range(len(node.outputs))]


def _branch(t: OnnxTranslator, graph: onnx.GraphProto, count: int) -> relax.SeqExpr:
    """The body of a branch that run time chooses."""

    def body() -> Any:
        results = [t.tensor(value) for value in t.inline(graph, [])]
        if len(results) != count or not all(isinstance(r, relax.Expr) for r in results):
            raise Unsupported("a branch that run time chooses must give as many tensors as the node has outputs")
        return results[0] if count == 1 else tuple(results)

    return t.bb.sequence(body)


def _shaped(t: OnnxTranslator, value: relax.Expr, branches: Sequence[relax.SeqExpr], at: int | None) -> relax.Expr:
    """A result of either branch, with a shape: extents that differ are what run time finds."""
    found = value.struct_info
    if not isinstance(found, relax.TensorStructInfo) or found.shape is not None:
        return value
    infos = [b.struct_info if at is None else b.struct_info.fields[at] for b in branches]  # type: ignore[union-attr]
    one, other = (i.dims if isinstance(i, relax.TensorStructInfo) else None for i in infos)
    if one is None or other is None or len(one) != len(other):
        raise Unsupported("the branches give tensors of different numbers of dimensions")
    return t.with_shape(value, [a if same(a, b) else t.fresh("extent") for a, b in zip(one, other, strict=True)])


# ---------------------------------------------------------------- loops


@converts("Loop")
def _loop(
    t: OnnxTranslator,
    node: OnnxNode,
    most: relax.Expr | None = None,
    condition: relax.Expr | None = None,
    *carried: Any,
) -> list[Any]:
    graph = node.attribute("body")
    rounds = _rounds(t, most)
    state: list[Value] = list(carried)
    scanned: list[list[Any]] = [[] for _ in range(len(graph.output) - 1 - len(state))]
    going, at = _decided(t, condition), 0
    while going and (rounds is None or at < rounds):
        if at >= UNROLL_LIMIT:
            raise Unsupported(f"a loop of more than {UNROLL_LIMIT} rounds")
        results = t.inline(graph, [t.scalar(at, "int64"), t.scalar(True, "bool"), *state])
        going, state = _decided(t, t.tensor(results[0])), results[1 : 1 + len(state)]
        for seen, value in zip(scanned, results[1 + len(state) :], strict=True):
            seen.append(t.tensor(value))
        at += 1
    outputs = graph.output[1 + len(state) :]
    return [*state, *(_stacked(t, seen, out, 0) for seen, out in zip(scanned, outputs, strict=True))]


def _rounds(t: OnnxTranslator, most: relax.Expr | None) -> int | None:
    """How often a loop runs at most; None for one that only its condition ends."""
    if most is None:
        return None
    found = t.known(most)
    if found is None or not isinstance(found[0], int):
        raise Unsupported("how often a loop runs is known at run time only")
    return found[0]


def _decided(t: OnnxTranslator, condition: relax.Expr | None) -> bool:
    if condition is None:
        return True
    known = t.constant_array(condition)
    if known is None:
        raise Unsupported("what a loop's condition is is known at run time only")
    return bool(known.item())


def _stacked(t: OnnxTranslator, seen: list[Any], out: onnx.ValueInfoProto, axis: int) -> relax.Expr:
    """The values of all rounds in one tensor."""
    from mlcc.frontend.onnx.elements import dtype_of

    if seen:
        return t.emit(t.op.stack(seen, axis))
    kind = out.type.tensor_type
    extents = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if not kind.HasField("shape") or None in extents:
        raise Unsupported("a loop of no rounds gives a tensor whose shape is not stated")
    return t.full([*extents[:axis], 0, *extents[axis:]], 0, dtype_of(kind.elem_type))  # type: ignore[list-item]


@converts("Scan", since=9)
def _scan(t: OnnxTranslator, node: OnnxNode, *given: relax.Expr) -> list[Any]:
    graph, count = node.attribute("body"), node.attribute("num_scan_inputs")
    if not 0 < count <= len(given):
        raise Unsupported(f"{count} inputs to scan of {len(given)}")
    state: list[Value] = list(given[: len(given) - count])
    sources = given[len(given) - count :]
    axes = [t.axis(s, a) for s, a in zip(sources, _each(node, "scan_input_axes", count), strict=True)]
    rounds = _length(t, sources, axes)
    backward = _each(node, "scan_input_directions", count)
    results_of = graph.output[len(state) :]
    scanned: list[list[Any]] = [[] for _ in results_of]
    for at in range(rounds):
        parts = [
            _element(t, s, axis, rounds - 1 - at if back else at)
            for s, axis, back in zip(sources, axes, backward, strict=True)
        ]
        results = t.inline(graph, [*state, *parts])
        state = results[: len(state)]
        for seen, value in zip(scanned, results[len(state) :], strict=True):
            seen.append(t.tensor(value))
    made = []
    outward = _each(node, "scan_output_axes", len(scanned)), _each(node, "scan_output_directions", len(scanned))
    for seen, out, axis, back in zip(scanned, results_of, *outward, strict=True):
        made.append(_stacked(t, seen[::-1] if back else seen, out, axis))
    return [*state, *made]


@converts("Scan", since=8)
def _batched_scan(
    t: OnnxTranslator, node: OnnxNode, lengths: relax.Expr | None = None, *given: relax.Expr
) -> list[Any]:
    """Of opset 8: a batch of scans, one after the other."""
    if lengths is not None or any(_each(node, "directions", node.attribute("num_scan_inputs"))):
        raise Unsupported("`sequence_lens` and `directions` of opset 8", "convert the model to opset 9 or newer")
    batch = tir.const_int(t.shape(given[0])[0])
    if batch is None or not 0 < batch <= UNROLL_LIMIT:
        raise Unsupported(f"a batch of {t.shape(given[0])[0]} scans")
    rows = [_scan(t, node, *(_element(t, value, 0, i) for value in given)) for i in range(batch)]
    return [t.emit(t.op.stack([t.tensor(row[i]) for row in rows], 0)) for i in range(len(rows[0]))]


def _each(node: OnnxNode, name: str, count: int) -> list[int]:
    """An attribute with a number for each of `count` values."""
    found = node.attribute(name) or [0] * count
    if len(found) != count:
        raise Unsupported(f"`{name}` has {len(found)} numbers, not {count}")
    return list(found)


def _length(t: OnnxTranslator, sources: Sequence[relax.Expr], axes: Sequence[int]) -> int:
    """How many elements are scanned."""
    found = {tir.const_int(t.shape(s)[axis]) for s, axis in zip(sources, axes, strict=True)}
    length = found.pop()
    if found or length is None:
        raise Unsupported("how often a scan runs is known at run time only")
    if length > UNROLL_LIMIT:
        raise Unsupported(f"a scan of more than {UNROLL_LIMIT} rounds")
    return length


def _element(t: OnnxTranslator, value: relax.Expr, axis: int, at: int) -> relax.Expr:
    """One element along an axis."""
    return t.emit(t.op.squeeze(t.op.strided_slice(value, [axis], [at], [at + 1]), [axis]))
