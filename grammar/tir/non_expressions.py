"""`T.*` calls that build other values than expressions: reducers, axes, ranges, targets.

`PARTS` maps their names to the handlers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.call_arguments import make_call, operand_pair
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import HANDLE, INT64, DType

Handler = Callable[[Any, tree.Call], Any]
Expr = tir.Expr


# ---------------------------------------------------------------- values that are not expressions


def _comm_reducer(ev: OperatorEvaluator, cst: tree.Call) -> tir.CommReducer:
    arguments = signature("T.comm_reducer", "combiner identity").bind(ev.walk, cst)
    combiner, identity = arguments["combiner"], ev.exprs(arguments["identity"], "`identity`")
    if not isinstance(combiner, tree.Lambda):
        ev.walk.fail("E0302", "the combiner must be a lambda: `lambda x, y: x + y`", combiner)
    names, count = combiner.parameters, len(identity)
    if combiner.rest is not None or len(names) != 2 * count:
        ev.walk.fail("E0302", f"the lambda must take {2 * count} names, two for each identity element", combiner)
    span = ev.walk.span(combiner)
    params = [tir.Var(n, identity[i % count].dtype, span=span) for i, n in enumerate(names)]
    with ev.scope.frame(" in a lambda"):
        for var in params:
            ev.scope.define(var.name, var, span)
        result = ev.exprs(combiner.body, "the result")
    if len(result) != count:
        ev.walk.fail(
            "E0302", f"the lambda returns {len(result)} values, but there are {count} identity elements", combiner
        )
    return tir.CommReducer(tuple(params[:count]), tuple(params[count:]), result, identity, span=ev.walk.span(cst))


_KINDS = {
    "ThreadIndex": tir.IterKind.THREAD, "DataPar": tir.IterKind.SPATIAL, "CommReduce": tir.IterKind.REDUCE,
    "Ordered": tir.IterKind.SCAN, "Opaque": tir.IterKind.OPAQUE, **{k.value: k for k in tir.IterKind},
}  # fmt: skip


def _iter_var(ev: OperatorEvaluator, cst: tree.Call) -> tir.IterVar:
    arguments = signature("T.iter_var", "var dom iter_type thread_tag").bind(ev.walk, cst)
    kind = _KINDS.get(ev.string(arguments["iter_type"], "the kind of axis"))
    if kind is None:
        ev.walk.fail("E0302", "unknown kind of axis", arguments["iter_type"], help=f"one of {', '.join(_KINDS)}")
    value = ev.value(arguments["var"])
    dom = as_range(ev, arguments["dom"])
    var = tir.Var(value, dom.extent.dtype, span=ev.walk.span(cst)) if isinstance(value, str) else value
    if not isinstance(var, tir.Var):
        ev.walk.fail("E0302", "`var` must be a variable or its name", arguments["var"])
    return tir.IterVar(var, dom, kind, ev.string(arguments["thread_tag"], "the thread tag"), span=ev.walk.span(cst))


def as_range(ev: OperatorEvaluator, cst: tree.Expr) -> tir.Range:
    """Evaluate a domain: an extent, `(begin, end)`, or `T.Range(begin, end)`."""
    span = ev.walk.span(cst)
    if isinstance(cst, tree.Display):
        if len(cst.items) != 2:
            ev.walk.fail("E0302", "a domain must be an extent or a pair (begin, end)", cst)
        return _range_of(ev, cst.items[0], cst.items[1], cst)
    value = ev.value(cst)
    if isinstance(value, tir.Range):
        return value
    extent = ev.as_expr(value, cst)
    if not extent.dtype.is_int:
        ev.walk.fail("E0301", f"an extent must be an integer, not {extent.dtype}", cst)
    return tir.Range(tir.IntImm(extent.dtype, 0, span=span), extent, span=span)


def _range_of(ev: OperatorEvaluator, begin: tree.Expr, end: tree.Expr, cst: tree.Expr) -> tir.Range:
    low, high = operand_pair(ev, begin, end)
    low, high = ev.build(cst, construct.match_types, low, high)
    if not low.dtype.is_int:
        ev.walk.fail("E0301", f"the bounds of a range must be integers, not {low.dtype}", cst)
    return tir.Range(low, ev.extent(low, high, cst), span=ev.walk.span(cst))


def _range(ev: OperatorEvaluator, cst: tree.Call) -> tir.Range:
    arguments = signature("T.Range", "begin end").bind(ev.walk, cst)
    return _range_of(ev, arguments["begin"], arguments["end"], cst)


def _target(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    """Evaluate a target, which is kept as text."""
    arguments = signature("T.target", "target_config host=").bind(ev.walk, cst)
    value = ev.value(arguments["target_config"])
    if isinstance(value, dict):
        if "host" in arguments:
            value = {**value, "host": ev.value(arguments["host"])}
        try:
            value = json.dumps(value)
        except TypeError:
            ev.walk.fail("E0302", "a target may contain only strings, numbers and lists", cst)
    if not isinstance(value, str):
        ev.walk.fail("E0302", "a target must be a string or a dict", cst)
    return make_call(ev, cst, "target", HANDLE, (tir.StringImm(value, span=ev.walk.span(cst)),))


def _index_map(ev: OperatorEvaluator, cst: tree.Call) -> tir.IndexMap:
    arguments = signature("T.index_map", "mapping", "inverse_index_map index_dtype").bind(ev.walk, cst)
    dtype = ev.dtype(arguments["index_dtype"]) if "index_dtype" in arguments else INT64
    index_map = index_map_of(ev, arguments["mapping"], dtype)
    back = arguments.get("inverse_index_map")
    if back is None or isinstance(back, tree.Const):
        return index_map
    return tir.IndexMap(index_map.indices, index_map.result, index_map_of(ev, back, dtype), span=ev.walk.span(cst))


def index_map_of(ev: OperatorEvaluator, cst: tree.Expr, dtype: DType = INT64) -> tir.IndexMap:
    """Evaluate a lambda over indices, such as `lambda i, j: (j, i)`, as an index map."""
    if not isinstance(cst, tree.Lambda):
        ev.walk.fail("E0302", "the map must be a lambda: `lambda i, j: (j, i)`", cst)
    if cst.rest is not None:
        ev.walk.fail("E0302", f"how many indices `*{cst.rest}` stands for is not known: name each", cst)
    span = ev.walk.span(cst)
    indices = tuple(tir.Var(n, dtype, span=span) for n in cst.parameters)
    with ev.scope.frame(" in a lambda"):
        for var in indices:
            ev.scope.define(var.name, var, span)
        result = ev.exprs(cst.body, "the result") if isinstance(cst.body, tree.Display) else (ev.expr(cst.body),)
    return tir.IndexMap(indices, result, span=span)


NON_EXPRESSIONS: dict[str, Handler] = {
    "comm_reducer": _comm_reducer, "index_map": _index_map, "iter_var": _iter_var, "Range": _range, "target": _target,
}  # fmt: skip
