"""Index maps: applying `lambda i, j: (j, i // 4, i % 4)` to indices and shapes, and inverting them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import eval_set, from_range
from mlcc.arith.iter_fuse import Level
from mlcc.arith.iter_inverse import inverse_affine_iter_map
from mlcc.arith.iter_map import detect_iter_map
from mlcc.arith.iter_rewrite import NotAffine
from mlcc.arith.proofs import is_one, is_zero
from mlcc.arith.rewrite import MAKE
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import map_children
from mlcc.ir.tir import TRUE, Expr, IndexMap, IntImm, Range
from mlcc.ir.visit import substitute

AXIS_SEPARATOR = "axis_separator"  # in the result of a mapping function: where a physical axis ends


class IndexMapError(ValueError):
    """An index map cannot be applied or inverted; the message tells the user why."""


def from_func(
    function: Callable[..., Any], ndim: int | None = None, *, inverse: Callable[..., Any] | IndexMap | None = None,
    dtype: DType | str = "int64", wrap: Callable[[tir.Var], Any] | None = None,
) -> IndexMap:  # fmt: skip
    """Return the map that a Python function describes. `wrap` gives variables Python's operators.

    Raises IndexMapError. See `from_func_separated`.
    """
    index_map, separators = from_func_separated(function, ndim, inverse=inverse, dtype=dtype, wrap=wrap)
    if separators:
        raise IndexMapError("this index map may not have axis separators")
    return index_map


def from_func_separated(
    function: Callable[..., Any], ndim: int | None = None, *, inverse: Callable[..., Any] | IndexMap | None = None,
    dtype: DType | str = "int64", wrap: Callable[[tir.Var], Any] | None = None,
) -> tuple[IndexMap, tuple[int, ...]]:  # fmt: skip
    """Return the map and the positions of axis separators in its result.

    The function is called with `wrap(var)` for each of its parameters. It returns expressions, integers, or objects
    with an expression as `expr`. A parameter `*args` takes the indices missing to `ndim`.
    """
    dtype = DType.of(dtype)
    variables = _parameters(function, ndim, dtype)
    wrapped = {name: wrap(var) if wrap else var for name, var in variables.items()}
    kinds = {name: p.kind for name, p in inspect.signature(function).parameters.items()}
    keywords = {n: v for n, v in wrapped.items() if kinds.get(n) is inspect.Parameter.KEYWORD_ONLY}
    result = function(*(v for n, v in wrapped.items() if n not in keywords), **keywords)
    parts = list(result) if isinstance(result, Iterable) and not isinstance(result, (Expr, str)) else [result]
    indices: list[Expr] = []
    separators: list[int] = []
    for part in parts:
        if isinstance(part, str) and part == AXIS_SEPARATOR:
            separators.append(len(indices))
            continue
        indices.append(_expression(part, dtype))
    back = from_func(inverse, len(indices), dtype=dtype, wrap=wrap) if callable(inverse) else inverse
    return IndexMap(tuple(variables.values()), tuple(indices), back), tuple(separators)


def _parameters(function: Callable[..., Any], ndim: int | None, dtype: DType) -> dict[str, tir.Var]:
    """Return a variable for each parameter, in order."""
    named: dict[str, tir.Var] = {}
    keywords: dict[str, tir.Var] = {}
    rest: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise IndexMapError("an index map cannot take **keywords")
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            rest = name
        else:
            target = keywords if parameter.kind is inspect.Parameter.KEYWORD_ONLY else named
            target[name] = tir.Var(name, dtype)
    if rest is not None:
        if ndim is None:
            raise IndexMapError(f"the number of indices that *{rest} stands for is not known")
        for i in range(ndim - len(named) - len(keywords)):
            named[f"{rest}_{i}"] = tir.Var(f"{rest}_{i}", dtype)
    variables = named | keywords
    if ndim is not None and len(variables) != ndim:
        raise IndexMapError(f"the index map takes {len(variables)} indices, but there are {ndim}")
    return variables


def _expression(part: Any, dtype: DType) -> Expr:
    part = getattr(part, "expr", part)
    if isinstance(part, int) and not isinstance(part, bool):
        return c.const(part, dtype)
    if not isinstance(part, Expr) or not part.dtype.is_int:
        raise IndexMapError(f"an index map must return integers, not {part!r}")
    return part


# ---------------------------------------------------------------- applying a map


def map_indices(index_map: IndexMap, indices: Sequence[Expr], analyzer: Analyzer | None = None) -> tuple[Expr, ...]:
    """Return the results of the map for `indices`, simplified."""
    analyzer = analyzer or Analyzer()
    values = dict(zip(index_map.indices, indices, strict=True))
    return tuple(analyzer.simplify(_substitute(expr, values)) for expr in index_map.result)


def _substitute(expr: Expr, values: dict[tir.Var, Expr]) -> Expr:
    """Return `expr` with variables replaced and operands brought to one dtype again."""
    match expr:
        case tir.Var():
            return values.get(expr, expr)
        case tir.BinaryOp():
            a, b = _substitute(expr.lhs, values), _substitute(expr.rhs, values)
            return expr if a is expr.lhs and b is expr.rhs else MAKE[type(expr)](a, b)
        case IntImm():
            return expr
    return map_children(expr, lambda child: _substitute(child, values) if isinstance(child, Expr) else child)


def map_ranges(index_map: IndexMap, ranges: Sequence[Range], analyzer: Analyzer | None = None) -> tuple[Range, ...]:
    """Return the ranges of the results over the ranges of the indices, padding included."""
    analyzer = analyzer or Analyzer()
    iters = dict(zip(index_map.indices, ranges, strict=True))
    iter_map = detect_iter_map(index_map.result, iters, TRUE, "none", analyzer, simplify_trivial=False)
    results = []
    decreasing = iter_map and any(
        (tir.const_int(digit.scale) or 1) < 0 for index in iter_map.indices for digit in index.args
    )
    if iter_map and not decreasing:
        for index in iter_map.indices:
            extent: Expr | None = None
            for digit in index.args:  # the digits are independent: the greatest reaches furthest
                size = c.mul(digit.extent, digit.scale)
                extent = size if extent is None else c.maximum(extent, size)
            results.append(Range(index.base, c.const(1) if extent is None else analyzer.simplify(extent)))
    else:
        domains = {var: from_range(span) for var, span in iters.items()}
        for expr in index_map.result:
            reach = eval_set(expr, domains)
            if reach.low is None or reach.high is None:
                raise IndexMapError(f"the values of `{expr}` are not bounded")
            size = analyzer.simplify(c.maximum(c.add(c.sub(reach.high, reach.low), 1), 0))
            results.append(Range(analyzer.simplify(reach.low), size))
    bits = max((span.extent.dtype.bits for span in ranges), default=32)
    dtype = DType.of(f"int{bits}")
    return tuple(Range(c.cast(dtype, span.min), c.cast(dtype, span.extent)) for span in results)


def map_shape(index_map: IndexMap, shape: Sequence[Expr], analyzer: Analyzer | None = None) -> tuple[Expr, ...]:
    """Return the shape of a buffer of `shape` after the map. Raises IndexMapError if a result does not start at 0."""
    ranges = map_ranges(index_map, [Range(IntImm(dim.dtype, 0), dim) for dim in shape], analyzer)
    for span, expr in zip(ranges, index_map.result, strict=True):
        if not is_zero(span.min):
            raise IndexMapError(f"the values of `{expr}` start at {span.min}, not at 0")
    return tuple(span.extent for span in ranges)


# ---------------------------------------------------------------- inversion


def inverse(index_map: IndexMap, ranges: Sequence[Range], analyzer: Analyzer | None = None) -> IndexMap:
    """Return the inverse; raises IndexMapError unless the map is bijective over `ranges`."""
    analyzer = analyzer or Analyzer()
    inverted, padding = _inverse(index_map, ranges, "bijective", analyzer)
    if not analyzer.prove(c.logical_not(padding)):
        raise IndexMapError(f"the index map pads: there is no index for values where {padding}")
    return inverted


def non_surjective_inverse(
    index_map: IndexMap, ranges: Sequence[Range], analyzer: Analyzer | None = None
) -> tuple[IndexMap, Expr]:
    """Return the inverse and the condition, over its indices, for values that are padding."""
    return _inverse(index_map, ranges, "none", analyzer or Analyzer())


def _inverse(
    index_map: IndexMap, ranges: Sequence[Range], level: Level, analyzer: Analyzer
) -> tuple[IndexMap, Expr]:  # fmt: skip
    if index_map.inverse is not None:
        return index_map.inverse, c.const(False)
    # an index that is passed on keeps its name
    outputs = tuple(
        tir.Var(expr.name if isinstance(expr, tir.Var) and expr in index_map.indices else f"axis{i}", expr.dtype)
        for i, expr in enumerate(index_map.result)
    )
    iters = dict(zip(index_map.indices, ranges, strict=True))
    iter_map = detect_iter_map(index_map.result, iters, TRUE, level, analyzer, simplify_trivial=False)
    if not iter_map:
        raise IndexMapError(f"the index map cannot be inverted: {iter_map.reason}")
    try:
        loops = inverse_affine_iter_map(iter_map.indices, outputs)
    except NotAffine as failure:
        raise IndexMapError(f"the index map cannot be inverted: {failure}") from None
    back = []
    for var, span in iters.items():
        if var not in loops and not is_one(span.extent):
            raise IndexMapError(f"the index map cannot be inverted: `{var}` is not used")
        back.append(analyzer.simplify(loops.get(var, span.min)))
    padding = iter_map.padding_predicate
    if not is_zero(padding):
        known = Analyzer()
        for output, span in zip(outputs, map_ranges(index_map, ranges, analyzer), strict=True):
            known.bind(output, span)
        padding = known.simplify(analyzer.simplify(substitute(padding, loops)))
    return IndexMap(outputs, tuple(back)), padding


def equivalent(a: IndexMap, b: IndexMap, analyzer: Analyzer | None = None) -> bool:
    """Return True if both maps are proved to send every index to the same result."""
    if len(a.indices) != len(b.indices) or len(a.result) != len(b.result):
        return False
    analyzer = analyzer or Analyzer()
    mapped = map_indices(b, a.indices, analyzer)
    return all(analyzer.prove_equal(x, y) for x, y in zip(a.result, mapped, strict=True))
