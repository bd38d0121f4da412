"""Symbols whose values are data: extents of what `R.nonzero` found, numbers of `R.tensor_to_shape`.

They are known when the step that reads them has run. Memory is planned before, by what they can be at most.
"""

from __future__ import annotations

from mlcc.arith.intset import Interval, eval_set
from mlcc.errors import CompileError, Span, error
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import walk
from mlcc.targets.plan.dims import Dims, plain

NOT_KNOWN = tir.IntImm(INT64, -1)  # in the manifest, where the data decide a value


class Measured:
    """The measured symbols of one function; none is ever negative."""

    def __init__(self, dims: Dims) -> None:
        self.dims = dims
        self.symbols: set[tir.Var] = set()

    def symbol(self, name: str) -> tir.Var:
        symbol = tir.Var(name, INT64)
        self.dims.extent(symbol)
        self.symbols.add(symbol)
        return symbol

    def has(self, expr: tir.Expr) -> bool:
        """Return True if an expression depends on a measured symbol."""
        return bool(self.symbols) and any(n in self.symbols for n in walk(expr) if isinstance(n, tir.Var))

    def bound(self, expr: tir.Expr, span: Span | None, what: str) -> tir.Expr:
        """The greatest that an expression can be, over the symbols of the entry. Raises CompileError E0757."""
        if not self.has(expr):
            return expr
        zero = tir.IntImm(INT64, 0)
        upper = eval_set(expr, {s: Interval(zero, None) for s in self.symbols}, self.dims.analyzer).high
        if upper is None or self.has(upper):
            message = f"how large {what} gets is not known before it runs: `{plain(expr)}` has no bound"
            raise CompileError(error("E0757", message, span, help="bound the extent, as in `T.min(n, 100)`"))
        return self.dims.simplify(upper)
