"""Random arguments for a function of the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.arith.analyzer import Analyzer
from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.effects import WRITE, effects
from mlcc.ir.module import Func
from mlcc.ir.tensor_data import storage_dtype
from mlcc.ir.visit import substitute, used_vars

if TYPE_CHECKING:
    import numpy as np

_DEFAULT_SIZE = 5  # of a symbol that has no stated value: a prime that is no power of two


def random_arguments(
    func: Func, sizes: Mapping[str, int], given: Mapping[str, Any] | None = None
) -> tuple[list[Any], list[int]]:
    """Return an argument for each parameter, and the positions of those that the call writes (of a TIR function).

    Floats are from -1 to 1, integers from 0 to 2, from a fixed seed; `sizes` are values of symbols in shapes. Arrays of
    `given`, by the name of the parameter, take the place of random ones of the same shape and dtype.
    Raises CompileError E0017 for a parameter that takes no array or number.
    """
    arguments, written = _random(func, sizes)
    chosen = fitting(func, arguments, given or {})
    return [chosen.get(name, a) for name, a in zip(parameter_names(func), arguments, strict=True)], written


def fitting(func: Func, arguments: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays, by the name of the parameter, that have the shape and dtype of the arguments of a function."""
    return {
        name: given[name]
        for name, argument in zip(parameter_names(func), arguments, strict=True)
        if name in given and _kind(given[name]) == _kind(argument)
    }


def _kind(argument: Any) -> Any:
    return getattr(argument, "shape", None), getattr(argument, "dtype", None)


def sizes_of(func: Func, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the values that arrays, by the name of the parameter, give to the symbols that are extents of them."""
    sizes: dict[str, int] = {}
    for name, dims in zip(parameter_names(func), _extents(func), strict=True):
        shape = getattr(arrays.get(name), "shape", ())
        for dim, size in zip(dims, shape, strict=False):
            if isinstance(dim, tir.Var):
                sizes.setdefault(dim.name, int(size))
    return sizes


def _extents(func: Func) -> list[Sequence[tir.Expr]]:
    if isinstance(func, relax.Function):
        return [getattr(p.struct_info, "dims", None) or () for p in func.params]
    return [() if b is None else b.shape for b in func.buffers]


def _random(func: Func, sizes: Mapping[str, int]) -> tuple[list[Any], list[int]]:
    import numpy as np

    rng = np.random.default_rng(0)
    values: dict[tir.Var, int] = {}
    if isinstance(func, relax.Function):
        return [_argument(p, p.struct_info, sizes, values, rng) for p in func.params], []
    written = {data for data, use in effects(func, certain=True).items() if use & WRITE}
    arguments: list[Any] = []
    positions = []
    for i, (param, buffer) in enumerate(zip(func.params, func.buffers, strict=True)):
        if buffer is None:
            arguments.append(values.setdefault(param, sizes.get(param.name, _DEFAULT_SIZE)))
            continue
        arguments.append(_array([_size(d, sizes, values) for d in buffer.shape], buffer.dtype, rng))
        if buffer.data in written:
            positions.append(i)
    return arguments, positions


def named_arguments(func: Func, sizes: Mapping[str, int], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of `random_arguments` by the names of parameters, or of the buffers of a TIR function."""
    arguments, _ = random_arguments(func, sizes, given)
    return dict(zip(parameter_names(func), arguments, strict=True))


def parameter_names(func: Func) -> list[str]:
    """Return the names under which parameters take arrays."""
    if isinstance(func, relax.Function):
        return [p.name for p in func.params]
    return [p.name if b is None else b.name for p, b in zip(func.params, func.buffers, strict=True)]


def symbol_names(func: Func) -> list[str]:
    """Return the names of the symbols that the shapes of parameters, and numbers among them, have."""
    if isinstance(func, relax.Function):
        found = [var for p in func.params for var in used_vars(p.struct_info) if isinstance(var, tir.Var)]
    else:
        found = [p for p, b in zip(func.params, func.buffers, strict=True) if b is None]
        found += [var for b in func.buffers if b is not None for var in used_vars(b.shape)]
    return sorted({var.name for var in found})


def _argument(
    param: relax.Var, info: relax.StructInfo | None, sizes: Mapping[str, int], values: dict[tir.Var, int], rng: Any
) -> Any:
    match info:
        case relax.TensorStructInfo(dtype=DType() as dtype) if info.dims is not None:
            return _array([_size(d, sizes, values) for d in info.dims], dtype, rng)
        case relax.TupleStructInfo(fields=fields):
            return tuple(_argument(param, field, sizes, values, rng) for field in fields)
        case relax.ShapeStructInfo(values=tuple() as dims):
            return tuple(_size(d, sizes, values) for d in dims)
        case relax.PrimStructInfo():
            return _DEFAULT_SIZE if info.value is None else _size(info.value, sizes, values)
    message = f"no random argument for parameter `{param.name}`, which is `{info}`"
    raise CompileError(error("E0017", message, param.span, help="compare tensors of known rank and dtype"))


def _size(dim: tir.Expr, sizes: Mapping[str, int], values: dict[tir.Var, int]) -> int:
    for var in used_vars(dim):
        values.setdefault(var, sizes.get(var.name, _DEFAULT_SIZE))
    known = {var: tir.IntImm(var.dtype, value) for var, value in values.items()}
    size = tir.const_int(Analyzer().simplify(substitute(dim, known)))
    return 0 if size is None else size


def _array(shape: list[int], dtype: DType, rng: Any) -> np.ndarray:
    import numpy as np

    if dtype.kind == "bfloat":
        bits = rng.uniform(-1, 1, shape).astype(np.float32).view(np.uint32) >> 16
        return np.asarray(bits, np.uint16)
    if dtype.is_float:
        return np.asarray(rng.uniform(-1, 1, shape), storage_dtype(dtype))
    return np.asarray(rng.integers(0, 2 if dtype.is_bool else 3, shape), storage_dtype(dtype))
