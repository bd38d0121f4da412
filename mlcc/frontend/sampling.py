"""Random inputs for a model, for several sizes of its symbolic dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode
from mlcc.passes.graph.symbolic import info_symbols
from mlcc.relax.queries import all_bindings, is_call

if TYPE_CHECKING:
    import numpy as np

_CANDIDATE_SIZES = (2, 3, 5, 4, 7, 8, 16, 1, 32, 64)  # of symbols, as far as they are in range
_MAX_ASSIGNMENTS = 3
_DEFAULT_INDEX_BOUND = 2  # exclusive bound of integer inputs that index no known axis


def inputs_of(func: relax.Function) -> tuple[relax.Var, ...]:
    """The parameters that are the user's inputs."""
    return func.params[: int(func.attrs.get("num_input", len(func.params)))]


def sizes_of(func: relax.Function, given: Mapping[str, int]) -> Iterator[dict[tir.Var, int]]:
    """Return several assignments of the symbols of a function's inputs: the given values, distinct ones for others.
    Raises CompileError E1075 for an unknown symbol."""
    symbols = list(dict.fromkeys(v for p in inputs_of(func) for v in info_symbols(p.struct_info)))
    names = [symbol.name for symbol in symbols]
    wrong = [
        error("E1075", f"no input has the dimension `{name}`", help=did_you_mean(name, names))
        for name in given
        if name not in names
    ]
    if wrong:
        raise CompileError(wrong)
    choices = [[given[s.name]] if s.name in given else _in_range(func, s.name) for s in symbols]
    seen = set()
    for start in range(_MAX_ASSIGNMENTS):
        chosen = tuple(some[(start + at) % len(some)] for at, some in enumerate(choices))
        if chosen not in seen:
            seen.add(chosen)
            yield dict(zip(symbols, chosen, strict=True))


def _in_range(func: relax.Function, name: str) -> list[int]:
    least = (func.attrs.get("tir_var_lower_bound") or {}).get(name)
    greatest = (func.attrs.get("tir_var_upper_bound") or {}).get(name)
    low = 0 if least is None else int(least)
    high = _CANDIDATE_SIZES[-1] + low if greatest is None else int(greatest)
    return [size for size in _CANDIDATE_SIZES if low <= size <= high] or [low, high]


def random_inputs(func: relax.Function, sizes: Mapping[tir.Var, int], rng: np.random.Generator) -> list[np.ndarray]:
    """Draw an array for each input, in the storage type of its dtype: normally distributed floats, and integers that
    are valid indices of the tables they index. Raises CompileError E1077 for an input that is not a tensor of known
    shape."""
    return [_random_array(param, func, sizes, rng) for param in inputs_of(func)]


def _random_array(param: relax.Var, func: relax.Function, sizes: Mapping[tir.Var, int], rng: Any) -> np.ndarray:
    import numpy as np

    info = param.struct_info
    dims = getattr(info, "dims", None)
    if not isinstance(info, relax.TensorStructInfo) or dims is None or info.dtype is None:
        raise CompileError(error("E1077", f"no input can be generated for `{param.name}`, which is {info}"))
    shape = tuple(evaluate_extent(dim, sizes) for dim in dims)
    dtype = info.dtype
    if dtype.is_bool:
        return np.asarray(rng.integers(0, 2, shape), bool)
    if dtype.is_int:
        return np.asarray(rng.integers(0, _index_bound(param, func, dtype), shape), str(dtype))
    return encode(rng.standard_normal(shape).astype(np.float32), dtype)


def evaluate_extent(dim: tir.Expr, sizes: Mapping[tir.Var, int]) -> int:
    """Evaluate a dimension for sizes of symbols. Raises CompileError E1077 if they do not determine it."""
    from mlcc.arith.analyzer import Analyzer
    from mlcc.ir import construct as c
    from mlcc.ir.visit import substitute

    known = tir.const_int(Analyzer().simplify(substitute(dim, {v: c.const(n, v.dtype) for v, n in sizes.items()})))
    if known is None:
        raise CompileError(error("E1077", f"the sizes do not determine the dimension {dim}"))
    return known


def _index_bound(param: relax.Var, func: relax.Function, dtype: DType) -> int:
    """Return the least extent of an axis that an integer input indexes, directly or after casts."""
    same = {param}
    bounds = []
    for binding, _ in all_bindings(func.body):
        value: Any = getattr(binding, "value", None)
        if is_call(value, "relax.astype") and value.args[0] in same:
            same.add(binding.var)
        elif is_call(value, "relax.take") and value.args[1] in same:
            bounds.append(_gathered_extent(value))
    known = [bound for bound in bounds if bound is not None]
    most = 1 << (dtype.bits - (0 if dtype.is_uint else 1))
    return min(min(known, default=_DEFAULT_INDEX_BOUND), most)


def _gathered_extent(take: Any) -> int | None:
    """Return the extent of the axis from which `R.take` gathers, if it is constant."""
    dims = getattr(take.args[0].struct_info, "dims", None)
    axis = take.attrs.get("axis")
    if dims is None:
        return None
    return tir.const_int(dims[int(axis)]) if axis is not None else None


def decoded_values(stored: np.ndarray, dtype: DType) -> np.ndarray:
    """Return the elements in a dtype that NumPy supports: float32 for dtypes that it lacks."""
    return decode(stored, dtype)


def format_sizes(sizes: Mapping[tir.Var, int]) -> str:
    """Format sizes: `b=2, s=3`."""
    return ", ".join(itertools.starmap("{}={}".format, ((v.name, n) for v, n in sizes.items())))
