"""The state of a host function that is being printed: sizes, and the cells of its argument vector."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.node import map_children
from mlcc.targets.c import expressions as ex
from mlcc.targets.c import host_helpers
from mlcc.targets.c.context import Shared
from mlcc.targets.c.writer import Writer
from mlcc.targets.plan.dims import Dims
from mlcc.targets.source.expressions import CHOICE


class HostWriter(Writer):
    """The printer of one host function."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared.ctx)
        self.shared = shared

    def text(self, node: tir.Expr, precedence: int = CHOICE) -> str:
        """Print a scalar expression."""
        return ex.text(self, node, precedence)

    def size(self, node: tir.Expr, precedence: int = CHOICE) -> str:
        """Print a size or an offset that is known not to overflow."""
        with self.ranges.without_overflow():
            return ex.index(self, node, precedence)

    def use(self, name: str, text: str) -> str:
        """Record the use of a function of `host_helpers`."""
        return self.helpers.add(name, text.strip())

    def cell(self, index: int) -> str:
        """Return an element of the argument vector."""
        return f"{'cells'}[{index}]"

    def tensor(self, index: int) -> str:
        self.use("tensor_of", host_helpers.TENSOR)
        return f"tensor_of({self.cell(index)})"


class CheckedSizes:
    """Print integer expressions with arithmetic that notes overflow in a variable `overflow`, each once."""

    def __init__(self, w: HostWriter, dims: Dims) -> None:
        self.w = w
        self.dims = dims
        self._known: dict[int, tir.Expr] = {}

    def value(self, expr: tir.Expr) -> tir.Expr:
        """Return an expression without sums, differences and products, which are variables."""
        if isinstance(expr, (tir.IntImm, tir.Var)):
            return expr
        key = self.dims.key(expr)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compute(expr)
        return known

    @property
    def computed(self) -> bool:
        """True if anything was computed."""
        return bool(self._known)

    def _compute(self, expr: tir.Expr) -> tir.Expr:
        node = map_children(expr, lambda child: self.value(child) if isinstance(child, tir.Expr) else child)
        if not isinstance(node, (tir.Add, tir.Sub, tir.Mul)):
            return node
        w = self.w
        var = tir.Var("size", node.dtype)
        sides = f"{w.text(node.lhs)}, {w.text(node.rhs)}"
        name = w.define(var)
        function = f"checked_{type(node).__name__.lower()}"
        w.use(function, host_helpers.CHECKED[function])
        w.lines.add(f"const int64_t {name} = {function}({sides}, &overflow);")
        return var
