"""Guards of a trace: PyTorch's assumptions about symbolic sizes, derived from the example sizes."""

from __future__ import annotations

from collections.abc import Mapping

import sympy  # type: ignore[import-not-found, import-untyped, unused-ignore]

from mlcc.errors import CompileError, Diagnostic, error
from mlcc.frontend.fx.inputs import FakeInputs

_HELP = (
    "state the extent as a number, or as an expression that always satisfies the guard, such as `2*n` for an even size"
)


def guarded_ranges(given: FakeInputs) -> dict[str, tuple[int, int | None]]:
    """Return the ranges of symbols, by PyTorch's names, for which the trace is valid.

    Raises CompileError E1032 for guards other than upper bounds of symbols.
    """
    env = given.mode.shape_env
    assumed = [guard.expr for guard in env.guards]
    problems = [_diagnostic(expr, given.names) for expr in assumed if not _is_upper_bound(expr)]
    ranges: dict[str, tuple[int, int | None]] = {}
    for expr in assumed:
        if _is_upper_bound(expr):
            most = int(expr.rhs) - isinstance(expr, sympy.Lt)
            ranges[str(expr.lhs)] = 0, min(most, ranges.get(str(expr.lhs), (0, most))[1] or most)
    if problems:
        raise CompileError(problems)
    return ranges


def _is_upper_bound(expr: sympy.Basic) -> bool:
    """Return True if a condition is `symbol < number` or `symbol <= number`."""
    return isinstance(expr, (sympy.Lt, sympy.Le)) and expr.lhs.is_Symbol and expr.rhs.is_Integer


def _diagnostic(expr: sympy.Basic, names: Mapping[str, str]) -> Diagnostic:
    shown = expr.subs({symbol: sympy.Symbol(names.get(str(symbol), str(symbol))) for symbol in expr.free_symbols})
    return error("E1032", f"the graph is valid only if `{shown}`", help=_HELP)
