"""Loops of the graph: a relax function that calls itself as the last thing it does.

What such a function takes lies in memory of the loop. A call to itself copies the new arguments there and begins the
body again; where it is not called, the loop ends. Arguments that every call passes on as they are stay where they are.
Shapes do not change from one pass to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, Span
from mlcc.ir import relax
from mlcc.relax.tail_calls import tail_calls
from mlcc.targets.plan.steps import (
    Again,
    Closure,
    Copy,
    Ended,
    Loop,
    Memory,
    Scalar,
    Scope,
    Shape,
    Tensor,
    Tuple,
    Unknown,
    Value,
    refusal,
)

if TYPE_CHECKING:
    from mlcc.targets.plan.planner import Planner

_HELP = "a function may call itself as the last thing that it does, in a branch: that is a loop"


@dataclass(frozen=True, slots=True, eq=False)
class Active:
    """A loop that is being planned: its function, how deep in calls it stands, and what it carries."""

    func: relax.Function
    depth: int
    scope: Scope
    carried: dict[relax.Var, Value]


def is_loop(callee: Closure) -> bool:
    return bool(tail_calls(callee.name, callee.func))


def loop(p: Planner, callee: Closure, scope: Scope) -> Value:
    """Plan the body of a loop whose parameters have values in `scope`, and give the value that it ends with."""
    func = callee.func
    kept = _passed_on(callee)
    for param in func.params:
        if param not in kept:
            scope.values[param] = _carried(p, scope.values[param], param.name)
    step = Loop()
    outer, p.steps = p.steps, step.steps
    p.conditional += 1
    p.loops.append(Active(func, p.depth, scope, {param: scope.values[param] for param in func.params}))
    try:
        value = p.sequence(func.body, scope)
    finally:
        p.loops.pop()
        p.conditional -= 1
        p.steps = outer
    p.steps.append(step)
    if isinstance(value, Ended):
        raise refusal("E0756", f"`{callee.name}` calls itself in every case: the loop has no end", func.span)
    return value


def again(p: Planner, callee: Closure, args: list[Value], span: Span | None) -> Value:
    """Plan the next pass of the innermost loop. Raises CompileError for any other recursion."""
    now = p.loops[-1] if p.loops else None
    if now is None or now.func is not callee.func or now.depth != p.depth:
        raise refusal("E0756", f"relax functions call each other in a circle: {p.chain(callee)}", span, help=_HELP)
    copies: list[tuple[Tensor, Tensor]] = []
    for param, arg in zip(callee.func.params, args, strict=True):
        what = f"argument `{param.name}` of `{callee.name}`"
        _pair(p, now.carried[param], arg, what, span, copies)
        p.match(param.struct_info, arg, now.scope, what, span)
    places = {_root(v) for target, _ in copies for v in (target,)}
    for at, (target, source) in enumerate(copies):
        if _root(source) in places and _root(source) is not _root(target):  # another copy may come before
            held = p.temporary(source.dims, source.dtype, source.memory.name)
            p.steps.append(Copy(held, source))
            copies[at] = target, held
    p.steps += [Copy(target, source) for target, source in copies]
    p.steps.append(Again())
    return Ended()


def _changes(what: str, span: Span | None) -> CompileError:
    help = "give what changes as a tensor without dimensions"
    return refusal("E0756", f"{what} is no tensor, and changes from one pass to the next", span, help=help)


def _root(value: Tensor) -> Memory:
    return value.memory.root()


def _passed_on(callee: Closure) -> set[relax.Var]:
    """The parameters that every next pass gets as they are."""
    calls = tail_calls(callee.name, callee.func)
    pairs = [list(zip(callee.func.params, call.args, strict=False)) for call in calls]
    return {param for param in callee.func.params if all(arg is q for each in pairs for q, arg in each if q is param)}


def _carried(p: Planner, value: Value, name: str) -> Value:
    """Copy a loop-carried value into memory of the loop; values other than tensors do not change."""
    if isinstance(value, Tuple):
        return Tuple(tuple(_carried(p, f, name) for f in value.fields))
    if not isinstance(value, Tensor):
        return value
    copy = p.temporary(value.dims, value.dtype, name)
    p.steps.append(Copy(copy, value))
    return copy


def _pair(
    p: Planner, old: Value, new: Value, what: str, span: Span | None, copies: list[tuple[Tensor, Tensor]]
) -> None:
    """Add the copies that carry a value into the next iteration. Raises CompileError for a value that cannot change."""
    match old, new:
        case Tensor(), Tensor():
            for index, (have, want) in enumerate(zip(new.dims, old.dims, strict=True)):
                p.require_equal(want, have, f"dim {index} of {what}", span)
            if old is not new:
                copies.append((old, new))
        case Tuple(fields=before), Tuple(fields=after) if len(before) == len(after):
            for index, (a, b) in enumerate(zip(before, after, strict=True)):
                _pair(p, a, b, f"{what}[{index}]", span, copies)
        case Shape(dims=before), Shape(dims=after) if len(before) == len(after):
            if not all(map(p.dims.equal, before, after)):
                raise _changes(what, span)
        case Scalar(value=a), Scalar(value=b) if not a.dtype.is_float and not b.dtype.is_float:
            if not p.dims.equal(a, b):
                raise _changes(what, span)
        case (Unknown(reason=None), _) | (_, Unknown(reason=None)):
            raise CompileError(())
        case _ if old is not new:
            raise refusal("E0756", f"{what} cannot change from one pass to the next", span, help=_HELP)
