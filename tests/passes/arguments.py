"""Random arguments for a function, by the struct info of its parameters."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import encode
from mlcc.ops.relations import evaluate


def arguments(func: relax.Function, rng: random.Random) -> list[Any]:
    """One argument per parameter; symbolic sizes are small and the same everywhere."""
    sizes: dict[tir.Var, int] = {}
    return [_value(p.struct_info, sizes, rng) for p in func.params]


def leaves(value: Any) -> list[np.ndarray]:
    """The arrays of a result, tuples flattened."""
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    return [np.asarray(value)]


def _value(info: Any, sizes: dict[tir.Var, int], rng: random.Random) -> Any:
    match info:
        case relax.TensorStructInfo():
            dims = info.dims if info.dims is not None else (None,) * max(info.ndim, 0)
            return _array(tuple(_size(d, sizes, rng) for d in dims), str(info.dtype or "float32"), rng)
        case relax.TupleStructInfo(fields=fields):
            return tuple(_value(f, sizes, rng) for f in fields)
        case relax.ShapeStructInfo(values=values):
            return tuple(_size(d, sizes, rng) for d in values or ())
        case relax.PrimStructInfo(value=value):
            return _size(value, sizes, rng)
    raise NotImplementedError(info)


def _size(dim: tir.Expr | None, sizes: dict[tir.Var, int], rng: random.Random) -> int:
    if isinstance(dim, tir.Var):
        return sizes.setdefault(dim, rng.randint(1, 4))
    known = evaluate(dim, sizes) if dim is not None else rng.randint(1, 4)
    assert known is not None
    return known


def _array(shape: tuple[int, ...], dtype: str, rng: random.Random) -> np.ndarray:
    state = np.random.RandomState(rng.randint(0, 10**6))
    if dtype == "bool":
        return np.asarray(state.rand(*shape) > 0.5)
    if dtype.startswith(("int", "uint")):
        return np.asarray(state.randint(0, 5, shape)).astype(dtype)
    values = np.asarray(state.uniform(-1, 1, shape))
    return np.asarray(encode(values, DType.of(dtype)))
