"""Loops: `for i in range(8)`, `T.grid(4, 4)`, `T.parallel(n)`, `T.thread_binding(32, thread="threadIdx.x")`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import attribute_values
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.evaluation_results import is_number
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.grammar.tir.scope import FunctionWalk
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import EMPTY, Attrs
from mlcc.ir.tir import ForKind


@dataclass(frozen=True, slots=True)
class Loop:
    """The header of one loop, without its variable and body."""

    low: tir.Expr
    extent: tir.Expr
    kind: ForKind = ForKind.SERIAL
    thread: str | None = None
    annotations: Attrs = EMPTY
    step: tir.Expr | None = None


def walk_for(fw: FunctionWalk, cst: tree.For) -> None:
    """A `for`: one loop, or as many as `T.grid` has extents."""
    target = cst.target
    loops = _loops_of_header(fw, cst.iterable)
    names = _names(fw, target, len(loops))
    nest: list[tuple[tir.Var, Loop]] = []
    with fw.scope.frame(" in a loop, and is visible in that loop only"):
        for (name, at), loop in zip(names, loops, strict=True):
            var = tir.Var(name, loop.extent.dtype, span=fw.walk.span(at))
            fw.ranges[var] = tir.Range(loop.low, loop.extent, span=loop.extent.span)
            nest.append((var, loop))
        if isinstance(target, tree.Name) and len(loops) > 1:
            fw.scope.define(target.id, tuple(v for v, _ in nest), fw.walk.span(target))
        else:
            for (name, at), (var, _) in zip(names, nest, strict=True):
                fw.scope.define(name, var, fw.walk.span(at))
        fw.loops += 1
        inner = fw.inner(cst.body, " in a loop, and is visible in that loop only", cst)
        fw.loops -= 1
    span = fw.walk.span(cst)
    for var, loop in reversed(nest):
        del fw.ranges[var]
        inner = (
            tir.For(var, loop.low, loop.extent, loop.kind, inner, loop.thread, loop.annotations, loop.step, span=span),
        )
    fw.out.add(inner[0])


def _names(fw: FunctionWalk, target: tree.Expr, count: int) -> list[tuple[str, tree.Name]]:
    if isinstance(target, tree.Name):
        if count == 1:
            return [(target.id, target)]
        return [(f"{target.id}_{i}", target) for i in range(count)]
    if not isinstance(target, tree.Display):
        fw.walk.fail("E0302", "a loop variable must be a name", target)
    names: list[tree.Name] = []
    for item in target.items:
        if not isinstance(item, tree.Name):
            fw.walk.fail("E0302", "a loop variable must be a name", item)
        names.append(item)
    if len(names) != count:
        loops = "loop" if count == 1 else "loops"
        fw.walk.fail("E0302", f"cannot unpack {count} {loops} into {len(names)} names", target)
    seen: set[str] = set()
    for name in names:
        if name.id in seen and name.id != "_":
            fw.walk.fail("E0205", f"`{name.id}` names two loops", name)
        seen.add(name.id)
    return [(name.id, name) for name in names]


def _loops_of_header(fw: FunctionWalk, cst: tree.Expr) -> list[Loop]:
    path = None
    if isinstance(cst, tree.Call):
        head = cst.function
        path = fw.walk.dotted(head, fw.scope)
        if isinstance(head, tree.Name) and head.id == "range" and fw.scope.find("range") is None:
            path = "T.serial"
            cst = _range_call(fw, cst)
    make = LOOPS.get(path.removeprefix("T.")) if path is not None else None
    if make is None or not isinstance(cst, tree.Call):
        known = [f"T.{name}" for name in LOOPS]
        help = did_you_mean(path, known) if path is not None else None
        listed = ", ".join(f"`{n}`" for n in ("range", *known))
        fw.walk.fail("E0302", "this cannot be looped over", cst, help=help or f"loop over one of {listed}")
    return make(fw.ev, cst)


def _range_call(fw: FunctionWalk, cst: tree.Call) -> tree.Call:
    """`range(a, b, c)` as `T.serial(a, b, step=c)`."""
    args = cst.args
    if not 1 <= len(args) <= 3:
        fw.walk.fail("E0304", f"`range` takes 1 to 3 arguments, not {len(args)}", cst)
    step = tuple(tree.Keyword(arg.start, arg.end, "step", arg) for arg in args[2:])
    return replace(cst, args=args[:2], keywords=(*cst.keywords, *step))


def _grid(ev: OperatorEvaluator, cst: tree.Call) -> list[Loop]:
    dtype: DType | None = None
    for keyword in cst.keywords:
        if keyword.name != "dtype":
            ev.walk.fail("E0304", f"`T.grid` has no argument `{keyword.name}`", keyword)
        dtype = ev.dtype(keyword.value)
    if not cst.args:
        ev.walk.fail("E0304", "`T.grid` takes at least one extent", cst)
    loops = []
    for item in cst.args:
        if isinstance(item, tree.Tuple):
            if len(item.items) != 2:
                ev.walk.fail("E0302", "an axis of a grid must be an extent, or a pair (start, extent)", item)
            start, extent = ev.operand(item.items[0]), ev.operand(item.items[1])
            low, high = (loop.extent for loop in (_bounds(ev, 0, v, item, dtype) for v in (start, extent)))
            low, high = ev.build(item, construct.match_types, low, high)
            loops.append(Loop(low, high))
        elif isinstance(item, tree.Star):
            extents = ev.value(item.value)
            if not isinstance(extents, (tuple, list)):
                ev.walk.fail("E0300", "only a tuple or list can be starred", item)
            loops += [_bounds(ev, 0, v if is_number(v) else ev.as_expr(v, item), item, dtype) for v in extents]
        else:
            loops.append(_bounds(ev, 0, ev.operand(item), item, dtype))
    return loops


def _bounds(ev: OperatorEvaluator, start: Any, stop: Any, cst: tree.Expr, dtype: DType | None) -> Loop:
    """The loop over start, ..., stop - 1. Both ends are brought to one integer dtype."""
    if dtype is not None:
        start, stop = (ev.build(cst, construct.cast, dtype, ev.as_expr(v, cst)) for v in (start, stop))
    if not isinstance(start, tir.Expr) and not isinstance(stop, tir.Expr):
        start, stop = ev.as_expr(start, cst), ev.as_expr(stop, cst)
    low, high = ev.build(cst, construct.match_types, start, stop)
    for end in (low, high):
        if not end.dtype.is_int or end.dtype.lanes > 1:
            ev.walk.fail("E0301", f"the bounds of a loop must be integers, not {end.dtype}", cst)
    return Loop(low, ev.extent(low, high, cst))


_RANGE = signature("T.serial", "start stop=", "annotations step unroll dtype")


def _loop_of_kind(kind: ForKind) -> Callable[[OperatorEvaluator, tree.Call], list[Loop]]:
    known = signature(f"T.{'vectorized' if kind is ForKind.VECTORIZED else kind.value}", *_parameters(kind))

    def handler(ev: OperatorEvaluator, cst: tree.Call) -> list[Loop]:
        arguments = known.bind(ev.walk, cst)
        start: Any = 0
        stop = ev.operand(arguments["start"])
        if "stop" in arguments:
            start, stop = stop, ev.operand(arguments["stop"])
        loop = _bounds(ev, start, stop, cst, ev.dtype(arguments["dtype"]) if "dtype" in arguments else None)
        notes = dict(
            attribute_values.attributes(ev, arguments["annotations"], "annotations")
            if "annotations" in arguments
            else {}
        )
        if "unroll" in arguments:
            notes.update(_unroll(ev, arguments["unroll"]))
        step = _step(ev, arguments["step"], loop) if "step" in arguments else None
        return [Loop(loop.low, loop.extent, kind, None, Attrs(notes) if notes else EMPTY, step)]

    return handler


def _parameters(kind: ForKind) -> tuple[str, str]:
    return "start stop=", "annotations step dtype" + (" unroll" if kind is ForKind.SERIAL else "")


def _unroll(ev: OperatorEvaluator, cst: tree.Expr) -> dict[str, Any]:
    """`unroll=True`, `False` or a count, as the annotation that it stands for."""
    value = ev.value(cst)
    if isinstance(value, bool):
        return {"pragma_unroll" if value else "disable_unroll": True}
    if isinstance(value, int) and value > 0:
        return {"pragma_unroll": value}
    return ev.walk.fail("E0302", "`unroll` must be True, False or a positive number", cst)


def _step(ev: OperatorEvaluator, cst: tree.Expr, loop: Loop) -> tir.Expr | None:
    value = ev.value(cst)
    if value is None:
        return None
    step = ev.build(cst, construct.cast, loop.low.dtype, ev.as_expr(value, cst))
    constant = tir.const_int(step)
    if constant == 0:
        ev.walk.fail("E0302", "the step of a loop cannot be 0", cst)
    return None if constant == 1 else step


def _thread_binding(ev: OperatorEvaluator, cst: tree.Call) -> list[Loop]:
    """`T.thread_binding(32, thread="threadIdx.x")`, also with two bounds, and the thread by position."""
    if len(cst.args) == 2 and isinstance(cst.args[1], tree.Str):
        at = cst.args[1]
        named = tree.Keyword(at.start, at.end, "thread", at)
        cst = replace(cst, args=cst.args[:1], keywords=(*cst.keywords, named))
    arguments = signature("T.thread_binding", "start stop= thread=", "annotations").bind(ev.walk, cst)
    if "thread" not in arguments:
        ev.walk.fail("E0304", "`T.thread_binding` needs `thread`", cst, help='`thread="threadIdx.x"`')
    start: Any = 0
    stop = ev.operand(arguments["start"])
    if "stop" in arguments:
        start, stop = stop, ev.operand(arguments["stop"])
    loop = _bounds(ev, start, stop, cst, None)
    notes = attribute_values.annotations_of(ev, arguments)
    thread = ev.string(arguments["thread"], "the thread")
    return [Loop(loop.low, loop.extent, ForKind.THREAD_BINDING, thread, Attrs(notes) if notes else EMPTY)]


LOOPS: dict[str, Callable[[OperatorEvaluator, tree.Call], list[Loop]]] = {
    "grid": _grid, "serial": _loop_of_kind(ForKind.SERIAL), "parallel": _loop_of_kind(ForKind.PARALLEL),
    "vectorized": _loop_of_kind(ForKind.VECTORIZED), "unroll": _loop_of_kind(ForKind.UNROLLED),
    "thread_binding": _thread_binding,
}  # fmt: skip
