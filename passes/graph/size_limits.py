"""Detection of results that may be too large for a tensor, given that the arguments are tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct, relax, tir
from mlcc.ops.shapes import Dims, int64, known_dims, product
from mlcc.ops.size_limits import max_elements

_MEMORY = 2**47  # bytes of address space


class SizeLimits:
    """Upper bounds of a function's symbolic sizes, derived from the shapes of its parameters."""

    def __init__(self, params: tuple[relax.Var, ...]) -> None:
        self.known = Analyzer()
        self.products: dict[frozenset[tuple[int, int]], int] = {}  # bounds of products of symbolic sizes
        for param in params:
            for info in _tensors(param.struct_info):
                self._bound(info)

    def _bound(self, info: relax.TensorStructInfo) -> None:
        """Bound the product of a tensor's symbolic sizes by the size of memory, unless a constant extent is 0."""
        dims = info.dims or ()
        constant_elements = _constants(dims)
        if constant_elements == 0:
            return
        self.products[self._symbols(dims)] = _MEMORY // constant_elements
        symbols = [d for d in dims if not isinstance(d, tir.IntImm)]
        if len(symbols) == 1 and isinstance(symbols[0], tir.Var):
            self.known.bind_bound(symbols[0], 0, _MEMORY // constant_elements)

    def unproven(self, call: relax.Call) -> Iterator[tuple[tir.Expr, int]]:
        """Yield the element counts of results that may be too large, each with the largest count allowed."""
        operands = [info for argument in call.args for info in _tensors(argument.struct_info)]
        for info in _tensors(call.struct_info):
            dims = known_dims(info) or ()
            if all(isinstance(d, tir.IntImm) for d in dims) or any(self._covers(o, dims) for o in operands):
                continue
            count, limit = _count(dims), max_elements(info.dtype)
            product_bound = self.products.get(self._symbols(dims))
            if product_bound is not None and product_bound * _constants(dims) <= limit:
                continue
            if self.known.bound(count).max > limit:
                yield count, limit

    def _covers(self, operand: relax.TensorStructInfo, dims: Dims) -> bool:
        """Return True if a tensor with these extents provably has at most as many elements as the operand."""
        have = known_dims(operand) or ()
        if self._symbols(dims) <= self._symbols(have) and _constants(dims) <= _constants(have):
            return True
        try:
            with construct.exact_integers():
                return self.known.prove_equal(product(have), product(dims))
        except OverflowError:
            return False

    def _symbols(self, dims: Dims) -> frozenset[tuple[int, int]]:
        """Return the symbolic factors as a multiset: equal factors are numbered, so that subsets are sub-multisets."""
        seen: Counter[int] = Counter()
        symbols = set()
        for dim in dims:
            if not isinstance(dim, tir.IntImm):
                key = self.known.keys.key(dim)
                symbols.add((key, seen[key]))
                seen[key] += 1
        return frozenset(symbols)


def _tensors(info: relax.StructInfo | None) -> Iterator[relax.TensorStructInfo]:
    match info:
        case relax.TensorStructInfo():
            yield info
        case relax.TupleStructInfo(fields=fields):
            for field in fields:
                yield from _tensors(field)


def _constants(dims: Dims) -> int:
    total = 1
    for dim in dims:
        total *= dim.value if isinstance(dim, tir.IntImm) else 1
    return total


def _count(dims: Dims) -> tir.Expr:
    """Return the product without simplifying it, which could make constants wrap around."""
    count: tir.Expr = int64(1)
    for dim in dims:
        count = construct.mul(count, construct.cast("int64", dim))
    return count
