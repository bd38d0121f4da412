"""Plan conditionals of the graph (`relax.If`): both branches, with their values in common memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import CompileError, Span
from mlcc.ir import relax, tir
from mlcc.targets.plan.dims import choose
from mlcc.targets.plan.steps import (
    Branch,
    Copy,
    Memory,
    Scalar,
    Scope,
    Shape,
    Step,
    Tensor,
    Tuple,
    Unknown,
    Unreachable,
    Value,
    refusal,
)

if TYPE_CHECKING:
    from mlcc.targets.plan.planner import Planner


_Side = tuple[Value, set[Memory]]


def plan_branch(p: Planner, expr: relax.If, scope: Scope) -> Value:
    """Plan a conditional and return its value. Raises CompileError."""
    step = Branch(condition(p, p.value(expr.condition, scope), expr.condition.span))
    then_value, then_memory = _plan_side(p, expr.true_branch, scope, step.then_steps)
    else_value, else_memory = _plan_side(p, expr.false_branch, scope, step.else_steps)
    p.steps.append(step)
    return _join(p, step, (then_value, then_memory), (else_value, else_memory))


def _plan_side(p: Planner, body: relax.Expr, scope: Scope, steps: list[Step]) -> _Side:
    """Plan one branch; return its value, and the temporaries that it allocates."""
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
    """Return a condition that is evaluated when its step runs. Raises CompileError E0754."""
    if isinstance(value, Scalar) and (value.value.dtype.is_bool or value.value.dtype.is_int):
        return value
    if isinstance(value, Tensor) and value.dtype.is_bool and all(tir.const_int(d) == 1 for d in value.dims):
        return value
    if isinstance(value, Unknown) and value.reason is None:
        raise CompileError(())
    raise refusal("E0754", "a condition must be a bool: a scalar, or a tensor without dimensions", span)


def _join(p: Planner, step: Branch, then_side: _Side, else_side: _Side) -> Value:
    """Merge the values of the two branches."""
    (then_value, then_memory), (else_value, else_memory) = then_side, else_side
    match then_value, else_value:
        case Unreachable(), _:
            return else_value
        case _, Unreachable():
            return then_value
        case (Tuple(fields=a), Tuple(fields=b)) if len(a) == len(b):
            pairs = zip(a, b, strict=True)
            return Tuple(tuple(_join(p, step, (x, then_memory), (y, else_memory)) for x, y in pairs))
        case (Shape(dims=a), Shape(dims=b)) if len(a) == len(b) and isinstance(step.condition, Scalar):
            condition = step.condition.value
            return Shape(tuple(_select(p, condition, x, y) for x, y in zip(a, b, strict=True)))
        case Scalar(value=a), Scalar(value=b) if isinstance(step.condition, Scalar) and a.dtype is b.dtype:
            if a.dtype.is_float:
                return Scalar(tir.Select(a.dtype, step.condition.value, a, b))
            return Scalar(_select(p, step.condition.value, a, b))
        case Tensor(), Tensor() if _same_type(p, then_value, else_value):
            joint = p.temporary(then_value.dims, then_value.dtype)
            _store_side_value(p, joint, then_value, then_memory, step.then_steps)
            _store_side_value(p, joint, else_value, else_memory, step.else_steps)
            return joint
    if any(isinstance(v, Unknown) and v.reason is None for v in (then_value, else_value)):
        return Unknown()
    return Unknown("the two branches give values of different shape or kind, or scalars chosen by data")


def _select(p: Planner, condition: tir.Expr, a: tir.Expr, b: tir.Expr) -> tir.Expr:
    return a if p.dims.equal(a, b) else choose(condition, a, b)


def _same_type(p: Planner, a: Tensor, b: Tensor) -> bool:
    if a.dtype is not b.dtype or len(a.dims) != len(b.dims):
        return False
    return all(p.dims.equal(x, y) for x, y in zip(a.dims, b.dims, strict=True))


def _store_side_value(p: Planner, joint: Tensor, value: Tensor, allocated: set[Memory], steps: list[Step]) -> None:
    """Store a branch's value in the joint memory: computed in place if the branch allocated its memory, else copied."""
    source = value.memory.root()
    if source in allocated and p.is_whole(value, source):
        source.into = joint.memory
    else:
        steps.append(Copy(joint, value))
