"""Branches of the graph: both sides planned, their values in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import CompileError, Span
from mlcc.ir import relax, tir
from mlcc.targets.plan.dims import choose
from mlcc.targets.plan.steps import (
    Branch,
    Copy,
    Ended,
    Memory,
    Scalar,
    Scope,
    Shape,
    Step,
    Tensor,
    Tuple,
    Unknown,
    Value,
    refusal,
)

if TYPE_CHECKING:
    from mlcc.targets.plan.planner import Planner


def branch(p: Planner, expr: relax.If, scope: Scope) -> Value:
    """Plan a branch and give its value. Raises CompileError."""
    step = Branch(condition(p, p.value(expr.condition, scope), expr.condition.span))
    first, then_made = _side(p, expr.true_branch, scope, step.then_steps)
    second, else_made = _side(p, expr.false_branch, scope, step.else_steps)
    p.steps.append(step)
    return _join(p, step, (first, then_made), (second, else_made))


def _side(p: Planner, body: relax.Expr, scope: Scope, steps: list[Step]) -> tuple[Value, set[Memory]]:
    """Plan one side of a branch: its value, and the memory that it made."""
    outer, p.steps = p.steps, steps
    p.conditional += 1
    before = len(p.memories)
    try:
        value = p.sequence(body, Scope(scope.name, dict(scope.values), dict(scope.symbols)))
    finally:
        p.steps = outer
        p.conditional -= 1
    return value, set(p.memories[before:])


def condition(p: Planner, value: Value, span: Span | None) -> Scalar | Tensor:
    """Something that is true or false when its step is reached."""
    if isinstance(value, Scalar) and (value.value.dtype.is_bool or value.value.dtype.is_int):
        return value
    if isinstance(value, Tensor) and value.dtype.is_bool and all(tir.const_int(d) == 1 for d in value.dims):
        return value
    if isinstance(value, Unknown) and value.reason is None:
        raise CompileError(())
    raise refusal("E0754", "a condition must be a bool: a scalar, or a tensor without dimensions", span)


def _join(p: Planner, step: Branch, first: tuple[Value, set[Memory]], second: tuple[Value, set[Memory]]) -> Value:
    """The value of a branch, from those of its two sides."""
    (one, one_made), (two, two_made) = first, second
    match one, two:
        case Ended(), _:
            return two
        case _, Ended():
            return one
        case (Tuple(fields=a), Tuple(fields=b)) if len(a) == len(b):
            pairs = zip(a, b, strict=True)
            return Tuple(tuple(_join(p, step, (x, one_made), (y, two_made)) for x, y in pairs))
        case (Shape(dims=a), Shape(dims=b)) if len(a) == len(b) and isinstance(step.condition, Scalar):
            condition = step.condition.value
            return Shape(tuple(_either(p, condition, x, y) for x, y in zip(a, b, strict=True)))
        case Scalar(value=a), Scalar(value=b) if isinstance(step.condition, Scalar) and a.dtype is b.dtype:
            if a.dtype.is_float:
                return Scalar(tir.Select(a.dtype, step.condition.value, a, b))
            return Scalar(_either(p, step.condition.value, a, b))
        case Tensor(), Tensor() if _same_type(p, one, two):
            joint = p.temporary(one.dims, one.dtype)
            _into(p, joint, one, one_made, step.then_steps)
            _into(p, joint, two, two_made, step.else_steps)
            return joint
    if any(isinstance(v, Unknown) and v.reason is None for v in (one, two)):
        return Unknown()
    return Unknown("the two branches give values of different shape or kind, or scalars chosen by data")


def _either(p: Planner, condition: tir.Expr, a: tir.Expr, b: tir.Expr) -> tir.Expr:
    return a if p.dims.equal(a, b) else choose(condition, a, b)


def _same_type(p: Planner, a: Tensor, b: Tensor) -> bool:
    if a.dtype is not b.dtype or len(a.dims) != len(b.dims):
        return False
    return all(p.dims.equal(x, y) for x, y in zip(a.dims, b.dims, strict=True))


def _into(p: Planner, joint: Tensor, value: Tensor, made: set[Memory], steps: list[Step]) -> None:
    """Put one side's value into the joint memory: computed in place if that side allocated its memory, else copied."""
    source = value.memory.root()
    if source in made and p.is_whole(value, source):
        source.into = joint.memory
    else:
        steps.append(Copy(joint, value))
