"""Recursive tail calls: a relax function whose calls to itself are all tail calls is a loop."""

from __future__ import annotations

from collections.abc import Iterator

from mlcc.ir import relax


def tail_calls(name: str, func: relax.Function) -> frozenset[relax.Call]:
    """The recursive calls of the function `name` whose value is its result, in any branch."""
    return frozenset(
        c for c in _calls_in_tail_position(func.body) if isinstance(c.op, relax.GlobalVar) and c.op.name == name
    )


def _calls_in_tail_position(expr: relax.Expr) -> Iterator[relax.Call]:
    """The calls that compute the value of an expression as their last step."""
    if isinstance(expr, relax.Call):
        yield expr
    elif isinstance(expr, relax.If):
        yield from _calls_in_tail_position(expr.true_branch)
        yield from _calls_in_tail_position(expr.false_branch)
    elif isinstance(expr, relax.SeqExpr):
        bindings = [b for block in expr.blocks for b in block.bindings]
        result: relax.Expr = expr.body
        while bindings and bindings[-1].var is result:
            result = bindings.pop().value  # type: ignore[attr-defined]
        yield from _calls_in_tail_position(result)
