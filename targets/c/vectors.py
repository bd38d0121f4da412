"""Print statements with vector expressions lane by lane: C has no vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import holds, walk
from mlcc.machine.dot_products import sum_of
from mlcc.targets.c import expressions as ex
from mlcc.targets.c import fallible
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.lanes import Lanes, Loads, vector_loads
from mlcc.targets.source.names import scalar_view

if TYPE_CHECKING:
    from mlcc.targets.c.kernel import KernelWriter


class VectorLanes(Lanes):
    """Lanes of vector expressions, with dot products as sums."""

    def _call(self, node: tir.Call, name: str, lane: int, loads: Loads) -> tir.Expr:
        if name not in ("dp4a", "dp2a"):
            return super()._call(node, name, lane, loads)
        a, b, *addend = node.args
        group, sums = 4 if name == "dp4a" else 2, sum_of(a.dtype)
        total: tir.Expr = self.of(addend[0], lane, loads) if addend else c.const(0, sums)
        for at in reversed(range(lane * group, (lane + 1) * group)):
            sides = [tir.Cast(sums, self.of(x, at % x.dtype.lanes, loads)) for x in (a, b)]
            total = tir.Add(sums, total, tir.Mul(sums, *sides))
        return total


def has_vectors(node: tir.Expr) -> bool:
    """Return True if an expression is or contains a vector."""
    return any(isinstance(n, tir.Expr) and n.dtype.lanes > 1 for n in walk(node))


def _loads(w: KernelWriter, node: tir.Expr) -> dict[int, list[tir.Expr]]:
    """Return the lanes of all vector loads in an expression. It is never empty, so that scalars are looked into."""
    lanes: dict[int, list[tir.Expr]] = {0: []}

    def visit(load: tir.BufferLoad, _: tuple[tir.Expr, ...]) -> None:
        places = _places(w, load.buffer, load.indices[0], lanes)
        flat, dtype = scalar_view(load.buffer), load.dtype.element
        lanes[id(load)] = [tir.BufferLoad(dtype, flat, (place,), span=load.span) for place in places]

    vector_loads(node, visit)
    return lanes


def _places(w: KernelWriter, buffer: tir.Buffer, index: tir.Expr, loads: Loads) -> list[tir.Expr]:
    """Return the element indices of an access by a scalar or vector index to a buffer of scalars or vectors."""
    starts = [w.vectors.of(index, lane, loads) for lane in range(index.dtype.lanes)]
    inner = buffer.dtype.lanes
    if inner == 1:
        return starts
    return [c.add(c.mul(s, c.const(inner, s.dtype)), c.const(k, s.dtype)) for s in starts for k in range(inner)]


def _element_places(w: KernelWriter, stmt: tir.BufferStore) -> list[tir.Expr]:
    """Return the element indices of a store."""
    index = fallible.lift(w, stmt.indices[0])
    return _places(w, stmt.buffer, index, _loads(w, index))


def lane(w: KernelWriter, node: tir.Expr, number: int) -> tir.Expr:
    """Return a lane of an expression as a scalar expression."""
    node = fallible.lift(w, node)
    return w.vectors.of(node, number, _loads(w, node))


def lanes(w: KernelWriter, node: tir.Expr) -> list[tir.Expr]:
    """Return the lanes of an expression as scalar expressions. Calls that all lanes share are printed, once."""
    return _split(w, fallible.lift(w, node))


def _split(w: KernelWriter, node: tir.Expr) -> list[tir.Expr]:
    loads = _loads(w, node)
    return [w.vectors.of(node, number, loads) for number in range(node.dtype.lanes)]


def bind(w: KernelWriter, stmt: tir.Bind) -> None:
    values = [w.to_variable(fallible.lift(w, part), stmt.var.name) for part in lanes(w, stmt.value)]
    if stmt.var.dtype.lanes == 1:
        w.alias(stmt.var, values[0])
    else:
        w.vectors.vectors[stmt.var] = values


def _known(w: KernelWriter, node: tir.Expr, hint: str) -> tir.Expr:
    """Return a variable with the value of a scalar expression."""
    node = fallible.lift(w, node)
    return node if isinstance(node, tir.Var) else w.to_variable(node, hint)


def _is_stored(node: tir.Expr) -> bool:
    """Return True if the value of an expression depends on memory, or a call."""
    return holds(node, tir.BufferLoad, tir.Call)


def store(w: KernelWriter, stmt: tir.BufferStore) -> None:
    """Print a store of a vector: all lanes and their places are computed before any is stored."""
    index = stmt.indices[0]
    values = lanes(w, stmt.value)
    if index.dtype.lanes * stmt.buffer.dtype.lanes > 1:
        values = [_known(w, value, "v") for value in values]
    places = _element_places(w, stmt)
    if len(places) > 1:
        places = [_known(w, place, "at") if _is_stored(place) else place for place in places]
    if len(values) == 1:
        values *= len(places)
    if len(places) != len(values):
        raise refuse(f"a store of {len(values)} lanes to {len(places)} elements", stmt.span)
    flat = scalar_view(stmt.buffer)
    for place, value in zip(places, values, strict=True):
        w.store_scalar(flat, place, value)


def if_then_else(w: KernelWriter, stmt: tir.IfThenElse) -> None:
    """Print statements under a vector condition: each lane is computed, then stored, under its own condition."""
    conditions = [w.to_variable(fallible.lift(w, part), "on") for part in lanes(w, stmt.condition)]
    for body, taken in ((stmt.then_body, True), (stmt.else_body or (), False)):
        guards = [condition if taken else c.logical_not(condition) for condition in conditions]
        for inner in body:
            if not isinstance(inner, tir.BufferStore):
                raise refuse("a vector condition can only guard stores of vectors", inner.span or stmt.span)
            _guarded_store(w, inner, guards)


def _guarded_store(w: KernelWriter, stmt: tir.BufferStore, guards: list[tir.Expr]) -> None:
    value, index = (fallible.lift(w, x) if fallible.may_write(x) else x for x in (stmt.value, stmt.indices[0]))
    values, places = _split(w, value), _places(w, stmt.buffer, index, _loads(w, index))
    if not len(places) == len(values) == len(guards):
        raise refuse("a vector condition can only guard stores of as many lanes", stmt.span)
    values, places = (
        [_known_if(w, node, hint, guard) for node, guard in zip(nodes, guards, strict=True)]
        for nodes, hint in ((values, "v"), (places, "at"))
    )
    flat = scalar_view(stmt.buffer)
    for place, part, guard in zip(places, values, guards, strict=True):
        with w.lines.block(f"if ({ex.text(w, guard)})"):
            w.store_scalar(flat, place, part)


def _known_if(w: KernelWriter, node: tir.Expr, hint: str, guard: tir.Expr) -> tir.Expr:
    """Return a variable with the value of an expression that may be computed only if a condition is true."""
    if not _is_stored(node):
        return node
    return fallible.saved(w, fallible.lift(w, node, (guard,)), hint, (guard,))
