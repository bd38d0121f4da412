"""The inverse of an iteration map: from the values of the indices to the iterators."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_nodes import IterSplit, IterSum
from mlcc.arith.iter_rewrite import NotAffine
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Node
from mlcc.ir.tir import Expr


def inverse_affine_iter_map(indices: Sequence[IterSum], outputs: Sequence[Expr]) -> dict[tir.Var, Expr]:
    """Return the variables of the map as expressions of the values `outputs` of its indices.

    A variable that the indices do not determine (no digit of it occurs) is missing; missing digits of others are 0.
    The expressions are TVM's. Raises NotAffine for a sum that is not a fusion or steps over values, or an iterator that
    is not a variable.
    """
    return _Inverse(Analyzer()).solve(indices, outputs)


class _Inverse:
    """Propagates values from the sums down to the variables; each node adds up the values from its users."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._values: dict[Node, Expr] = {}
        self._solution: dict[tir.Var, Expr] = {}

    def solve(self, indices: Sequence[IterSum], outputs: Sequence[Expr]) -> dict[tir.Var, Expr]:
        order: list[IterSum | IterSplit] = []
        seen: set[Node] = set()
        for index in indices:
            self._post_order(index, seen, order)
        self._values = {node: c.const(0) for node in order}
        self._values.update(zip(indices, outputs, strict=True))
        for node in reversed(order):
            if isinstance(node, IterSum):
                self._sum(node)
            else:
                self._split(node)
        return self._solution

    def _post_order(self, node: IterSum | IterSplit, seen: set[Node], order: list[IterSum | IterSplit]) -> None:
        if node in seen:
            return
        seen.add(node)
        if isinstance(node, IterSum):
            for arg in node.args:
                self._post_order(arg, seen, order)
        elif isinstance(node.source.source, (IterSum, IterSplit)):
            self._post_order(node.source.source, seen, order)
        order.append(node)

    def _sum(self, node: IterSum) -> None:
        value = c.sub(self._values[node], node.base)
        if len(node.args) == 1:
            (digit,) = node.args
            if not any(self._analyzer.prove_equal(digit.scale, c.const(k, digit.scale.dtype)) for k in (1, -1)):
                raise NotAffine("an index steps by `{}`: values between have no iteration", digit.scale)
            self._values[digit] = c.mul(c.add(self._values[digit], value), digit.scale)
            return
        step = node.args[-1].scale if node.args else None
        for digit in reversed(node.args):
            assert step is not None
            if not self._analyzer.prove_equal(digit.scale, step):
                raise NotAffine("`{}` is not a fusion of iterators", digit.scale)
            step = c.mul(step, digit.extent)
        for at in reversed(range(len(node.args))):
            digit = node.args[at]
            part = c.floordiv(value, digit.scale)
            self._add(digit, c.floormod(part, digit.extent) if at else part)

    def _split(self, node: IterSplit) -> None:
        value = c.mul(self._values[node], node.lower_factor)
        source = node.source.source
        if isinstance(source, (IterSum, IterSplit)):
            self._add(source, value)
        elif isinstance(source, tir.Var):
            self._solution[source] = c.add(self._solution[source], value) if source in self._solution else value
        else:
            raise NotAffine("`{}` is not a variable", source)

    def _add(self, node: IterSum | IterSplit, value: Expr) -> None:
        self._values[node] = c.add(self._values[node], value)
