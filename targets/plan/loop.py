"""Plan loops of the graph: a relax function that calls itself in tail position.

The parameters of such a function are loop-carried values in memory of the loop. A tail call copies the new arguments
there and starts the next iteration; without one, the loop ends. Loop-invariant arguments are not copied. Shapes do not
change between iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, Span
from mlcc.ir import relax
from mlcc.relax.tail_calls import tail_calls
from mlcc.targets.plan.steps import (
    Closure,
    Copy,
    Loop,
    Memory,
    NextIteration,
    Scalar,
    Scope,
    Shape,
    Tensor,
    Tuple,
    Unknown,
    Unreachable,
    Value,
    refusal,
)

if TYPE_CHECKING:
    from mlcc.targets.plan.planner import Planner

_HELP = "only a tail call of a function to itself, inside a branch, is supported: it becomes a loop"


@dataclass(frozen=True, slots=True, eq=False)
class ActiveLoop:
    """A loop that is being planned: its function, call depth, scope, and loop-carried values."""

    func: relax.Function
    depth: int
    scope: Scope
    carried: dict[relax.Var, Value]


def is_loop(callee: Closure) -> bool:
    return bool(tail_calls(callee.name, callee.func))


def plan_loop(p: Planner, callee: Closure, scope: Scope) -> Value:
    """Plan a loop whose initial values are in `scope`, and return its final value."""
    func = callee.func
    invariant = _loop_invariant_params(callee)
    for param in func.params:
        if param not in invariant:
            scope.values[param] = _allocate_carried(p, scope.values[param], param.name)
    step = Loop()
    outer, p.steps = p.steps, step.steps
    p.conditional += 1
    p.loops.append(ActiveLoop(func, p.depth, scope, {param: scope.values[param] for param in func.params}))
    try:
        value = p.sequence(func.body, scope)
    finally:
        p.loops.pop()
        p.conditional -= 1
        p.steps = outer
    p.steps.append(step)
    if isinstance(value, Unreachable):
        raise refusal("E0756", f"`{callee.name}` calls itself on every path: the loop never ends", func.span)
    return value


def plan_next_iteration(p: Planner, callee: Closure, args: list[Value], span: Span | None) -> Value:
    """Plan the next iteration of the innermost loop. Raises CompileError for any other recursion."""
    active = p.loops[-1] if p.loops else None
    if active is None or active.func is not callee.func or active.depth != p.depth:
        raise refusal("E0756", f"recursive relax functions: {p.chain(callee)}", span, help=_HELP)
    copies: list[tuple[Tensor, Tensor]] = []
    for param, arg in zip(callee.func.params, args, strict=True):
        what = f"argument `{param.name}` of `{callee.name}`"
        _add_carry_copies(p, active.carried[param], arg, what, span, copies)
        p.match(param.struct_info, arg, active.scope, what, span)
    carried_memory = {_root(v) for target, _ in copies for v in (target,)}
    for at, (target, source) in enumerate(copies):
        if _root(source) in carried_memory and _root(source) is not _root(target):  # an earlier copy may overwrite it
            saved = p.temporary(source.dims, source.dtype, source.memory.name)
            p.steps.append(Copy(saved, source))
            copies[at] = target, saved
    p.steps += [Copy(target, source) for target, source in copies]
    p.steps.append(NextIteration())
    return Unreachable()


def _changing_value_error(what: str, span: Span | None) -> CompileError:
    help = "pass a changing value as a tensor without dimensions"
    return refusal("E0756", f"{what} is not a tensor, but changes between iterations", span, help=help)


def _root(value: Tensor) -> Memory:
    return value.memory.root()


def _loop_invariant_params(callee: Closure) -> set[relax.Var]:
    """Return the parameters that every tail call passes on unchanged."""
    calls = tail_calls(callee.name, callee.func)
    pairs = [list(zip(callee.func.params, call.args, strict=False)) for call in calls]
    return {param for param in callee.func.params if all(arg is q for each in pairs for q, arg in each if q is param)}


def _allocate_carried(p: Planner, value: Value, name: str) -> Value:
    """Copy a loop-carried value to memory of the loop; values other than tensors do not change."""
    if isinstance(value, Tuple):
        return Tuple(tuple(_allocate_carried(p, f, name) for f in value.fields))
    if not isinstance(value, Tensor):
        return value
    copy = p.temporary(value.dims, value.dtype, name)
    p.steps.append(Copy(copy, value))
    return copy


def _add_carry_copies(
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
                _add_carry_copies(p, a, b, f"{what}[{index}]", span, copies)
        case Shape(dims=before), Shape(dims=after) if len(before) == len(after):
            if not all(map(p.dims.equal, before, after)):
                raise _changing_value_error(what, span)
        case Scalar(value=a), Scalar(value=b) if not a.dtype.is_float and not b.dtype.is_float:
            if not p.dims.equal(a, b):
                raise _changing_value_error(what, span)
        case (Unknown(reason=None), _) | (_, Unknown(reason=None)):
            raise CompileError(())
        case _ if old is not new:
            raise refusal("E0756", f"{what} cannot change between iterations", span, help=_HELP)
