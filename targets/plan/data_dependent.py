"""Data-dependent symbols: extents of the results of `R.nonzero`, elements read by `R.tensor_to_shape`.

Their values are known once the step that reads them has run. Memory is planned earlier, by upper bounds.
"""

from __future__ import annotations

from mlcc.arith.intset import Interval, eval_set
from mlcc.errors import CompileError, Span, error
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import walk
from mlcc.targets.plan.dims import Dims, format_dim

NOT_KNOWN = tir.IntImm(INT64, -1)  # stands for a data-dependent value in the manifest


class DataDependentSymbols:
    """The data-dependent symbols of one function; none is ever negative."""

    def __init__(self, dims: Dims) -> None:
        self.dims = dims
        self.symbols: set[tir.Var] = set()

    def symbol(self, name: str) -> tir.Var:
        symbol = tir.Var(name, INT64)
        self.dims.extent(symbol)
        self.symbols.add(symbol)
        return symbol

    def has(self, expr: tir.Expr) -> bool:
        """Return True if an expression contains a data-dependent symbol."""
        return bool(self.symbols) and any(n in self.symbols for n in walk(expr) if isinstance(n, tir.Var))

    def bound(self, expr: tir.Expr, span: Span | None, what: str) -> tir.Expr:
        """Return an upper bound over the symbols known at entry. Raises CompileError E0757 if there is none."""
        if not self.has(expr):
            return expr
        zero = tir.IntImm(INT64, 0)
        upper = eval_set(expr, {s: Interval(zero, None) for s in self.symbols}, self.dims.analyzer).high
        if upper is None or self.has(upper):
            message = f"the memory for {what} cannot be planned: `{format_dim(expr)}` has no upper bound"
            raise CompileError(error("E0757", message, span, help="bound the extent, as in `T.min(n, 100)`"))
        return self.dims.simplify(upper)
