"""The pass `adjust-matmul-order`: the cheaper association of two matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ops import bind_call
from mlcc.passes.graph.clean_up import clean_up_rewritten
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.graph.symbolic import info_symbols, mentioned_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.queries import all_bindings, is_call, used_vars

_DEFAULT_UPPER_BOUND = 1 << 31  # the default upper bound of a symbolic size


@dataclass(frozen=True)
class AdjustMatmulOrder(Pass):
    """Compute a product of three matrices in the order that takes fewer multiplications.

    Parameters after the first `num_input` ones (an attribute of the function) are weights; products of two weights come
    first, since they can be computed ahead of time. A product may be transposed in between. `tir_var_upper_bound` and
    `tir_var_lower_bound` bound symbolic sizes. Equal products are computed once.

    Before:  lv = R.matmul(a, b)
             gv = R.matmul(lv, x)
    After:   lv = R.matmul(b, x)
             gv = R.matmul(a, lv)
    """

    name: ClassVar[str] = "adjust-matmul-order"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def change(_: str, func: relax.Function) -> relax.Function:
            return clean_up_rewritten(_Adjuster(module, func).visit_function(func), func, module)

        return map_relax_functions(module, change)


@dataclass
class _ProductChain:
    """A product of three factors, which of them are transposed, and whether the left two are multiplied first."""

    factors: list[relax.Expr]
    left_first: bool
    transposed: list[bool] = field(default_factory=lambda: [False] * 3)

    def shapes(self) -> list[list[tir.Expr]] | None:
        shapes = []
        for factor, transposed in zip(self.factors, self.transposed, strict=True):
            info = factor.struct_info
            if not isinstance(info, relax.TensorStructInfo) or info.dims is None or (transposed and info.ndim < 2):
                return None
            dims = list(info.dims)
            shapes.append([*dims[:-2], dims[-1], dims[-2]] if transposed else dims)
        return shapes


class _Adjuster(RelaxMutator):
    def __init__(self, module: IRModule, func: relax.Function) -> None:
        super().__init__(module)
        self.value: dict[relax.Var, relax.Expr] = {}
        self.weights = _known_ahead(func)
        self.bounds = _bounds(func)

    def put(self, binding: relax.Binding) -> None:
        if isinstance(binding, relax.VarBinding):
            self.value[binding.var] = binding.value
        super().put(binding)

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        return self.adjusted(expr) if is_call(expr, "relax.matmul") else expr

    def adjusted(self, call: relax.Expr) -> relax.Expr:
        chain = self.chain(call)
        if chain is None:
            return call
        left_first = self.prefers_left_first(chain)
        if left_first is None or (left_first == chain.left_first and not any(chain.transposed)):
            return call
        a, b, d = (self.factor_maker(f, t) for f, t in zip(chain.factors, chain.transposed, strict=True))
        if left_first:
            return self.product(self.bound(a, b), d())
        first = a()
        return self.product(first, self.bound(b, d))

    def factor_maker(self, factor: relax.Expr, transposed: bool) -> Any:
        """Return a function that emits a factor, transposed if the inner product was."""
        return lambda: self.emit(_transposed(factor)) if transposed else factor

    def bound(self, left: Any, right: Any) -> relax.Expr:
        return self.emit(self.product(left(), right()))

    def product(self, left: relax.Expr, right: relax.Expr) -> relax.Expr:
        return self.adjusted(bind_call("matmul", (left, right), {"out_dtype": None}))

    # ------------------------------------------------------------ analysis

    def factors(self, expr: relax.Expr) -> list[relax.Expr] | None:
        value = self.value.get(expr) if isinstance(expr, relax.Var) else None
        return list(value.args) if isinstance(value, relax.Call) and _is_plain_product(value) else None

    def chain(self, call: Any) -> _ProductChain | None:
        if not _is_plain_product(call):
            return None
        left, right = call.args
        factors = self.factors(left)
        if factors is not None:
            return _ProductChain([*factors, right], True)
        factors = self.factors(right)
        if factors is not None:
            return _ProductChain([left, *factors], False)
        for side, left_first in ((left, True), (right, False)):
            transpose = self.value.get(side) if isinstance(side, relax.Var) else None
            factors = self.factors(transpose.args[0]) if transpose is not None and _is_transpose(transpose) else None  # type: ignore[attr-defined]
            if factors is not None and left_first:
                return _ProductChain([factors[1], factors[0], right], True, [True, True, False])
            if factors is not None:
                return _ProductChain([left, factors[1], factors[0]], False, [False, True, True])
        return None

    def prefers_left_first(self, chain: _ProductChain) -> bool | None:
        """Return True if multiplying the first two factors first is better, None if that is unknown."""
        is_known = [isinstance(f, relax.Var) and f in self.weights for f in chain.factors]
        shapes = chain.shapes()
        if all(is_known) or shapes is None:
            return None
        if is_known[0] and is_known[1]:
            return True
        if is_known[1] and is_known[2]:
            return False
        return self.left_first_is_cheaper(shapes, chain.left_first)

    def left_first_is_cheaper(self, shapes: list[list[tir.Expr]], left_first: bool) -> bool | None:
        one = c.const(1, "int64")
        a, b, d = shapes
        a = [one, *a] if len(a) == 1 else a
        if len(b) == 1:
            b = [*b, one] if left_first else [one, *b]
        d = [*d, one] if len(d) == 1 else d
        batches = [_broadcast(a[:-2], b[:-2]), _broadcast(b[:-2], d[:-2])]
        if batches[0] is None or batches[1] is None:
            return None
        outer = [_broadcast(batches[0], d[:-2]), _broadcast(a[:-2], batches[1])]
        if outer[0] is None or outer[1] is None:
            return None
        n, r, m, k = a[-2], a[-1], d[-2], d[-1]
        left = c.add(_product(*batches[0], n, r, m), _product(*outer[0], n, m, k))
        right = c.add(_product(*batches[1], r, m, k), _product(*outer[1], n, r, k))
        analyzer = Analyzer()
        for shape in shapes:
            for symbol in (s for dim in shape for s in mentioned_symbols(dim)):
                analyzer.bind_bound(symbol, *self.bounds.get(symbol, (1, _DEFAULT_UPPER_BOUND)))
        if analyzer.prove_at_least(c.sub(right, left), 1):
            return True
        return False if analyzer.prove_at_least(c.sub(left, right), 1) else None


def _product(*values: tir.Expr) -> tir.Expr:
    total: tir.Expr = c.const(1, "int64")
    for value in values:
        total = c.mul(total, value)
    return total


def _broadcast(a: Sequence[tir.Expr], b: Sequence[tir.Expr]) -> list[tir.Expr] | None:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    dims = list(longer[: len(longer) - len(shorter)])
    for x, y in zip(longer[len(longer) - len(shorter) :], shorter, strict=True):
        if tir.const_int(x) != 1 and tir.const_int(y) != 1 and not Analyzer().prove_equal(x, y):
            return None
        dims.append(y if tir.const_int(x) == 1 else x)
    return dims


def _is_plain_product(call: Any) -> bool:
    """Return True for a product whose result has its operands' dtype."""
    if not is_call(call, "relax.matmul"):
        return False
    infos = [e.struct_info for e in (*call.args, call)]
    return len({str(i.dtype) if isinstance(i, relax.TensorStructInfo) else i for i in infos}) == 1


def _is_transpose(expr: Any) -> bool:
    if not is_call(expr, "relax.permute_dims"):
        return False
    ndim, axes = expr.struct_info.ndim, expr.attrs["axes"]
    if ndim < 2 or (axes is None and ndim != 2):
        return False
    return axes is None or [a % ndim for a in axes] == [*range(ndim - 2), ndim - 1, ndim - 2]


def _transposed(expr: relax.Expr) -> relax.Expr:
    assert isinstance(expr.struct_info, relax.TensorStructInfo)
    ndim = expr.struct_info.ndim
    axes = None if ndim == 2 else [*range(ndim - 2), ndim - 1, ndim - 2]
    return bind_call("permute_dims", (expr,), {"axes": axes})


def _known_ahead(func: relax.Function) -> set[relax.Var]:
    """Return the variables that do not depend on the inputs: weights, and values computed from weights."""
    count = func.attrs.get("num_input")
    weights = set(func.params[int(getattr(count, "value", count)) :]) if count is not None else set()
    symbols = {s for v in weights for s in info_symbols(v.struct_info)}
    for binding, _ in all_bindings(func.body):
        value = binding.value  # type: ignore[attr-defined]
        if all(v in weights for v in used_vars(value)) and all(s in symbols for s in mentioned_symbols(value)):
            weights.add(binding.var)
            symbols |= set(info_symbols(binding.var.struct_info))
    return weights


def _bounds(func: relax.Function) -> dict[tir.Var, tuple[int, int]]:
    """Return the bounds of each symbolic size, from the attributes `tir_var_lower_bound` and `tir_var_upper_bound`."""
    lower_bounds, upper_bounds = (func.attrs.get(f"tir_var_{side}_bound") or {} for side in ("lower", "upper"))
    bounds = {}
    for symbol in dict.fromkeys(s for p in func.params for s in info_symbols(p.struct_info)):
        low, high = lower_bounds.get(symbol.name, 1), upper_bounds.get(symbol.name, _DEFAULT_UPPER_BOUND)
        bounds[symbol] = max(int(getattr(low, "value", low)), 1), int(getattr(high, "value", high)) - 1
    return bounds
