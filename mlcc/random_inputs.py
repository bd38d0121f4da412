"""Random arrays for the parameters of a loaded function: what `--random` runs it on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.call_by_name import assign, leaves_by_name, optional_names
from mlcc.errors import CompileError, did_you_mean, error
from mlcc.numpy_command import SIZE, symbols_in

if TYPE_CHECKING:
    import numpy as np

    from mlcc.runtime.manifest import Dim, Value

_MOST_ELEMENTS = 2**48  # of an array: more than an address space holds


def random_inputs(
    callee: Any, arrays: Mapping[str, Any], sizes: Mapping[str, int], stand_ins: bool = False
) -> dict[str, np.ndarray]:
    """An array for each parameter of a loaded function that `arrays` has none for: floats from 0 to 1, integers and
    bools 0 or 1, from a fixed seed. `sizes` are values of symbols that the shapes of `arrays` leave open; a number that
    is no size is 1 if it is not among them.

    With `stand_ins` the arrays are zeros that take no memory, for what only looks at shapes and dtypes.

    What a PrimFunc writes without reading it gets an array only if `sizes` alone say its shape. Raises CompileError
    E0017 for symbols in shapes that nothing gives a value.
    """
    import numpy as np

    leaves = leaves_by_name(callee)
    assigned = assign(arrays, list(leaves), optional_names(callee))
    symbols = {**sizes, **_symbols_of_arrays(arrays, leaves, assigned)}
    lacking = {name: leaf for name, leaf in leaves.items() if not assigned[name]}
    inputs = {name: leaf for name, leaf in lacking.items() if leaf.role != "out" or name not in callee.written_names}
    bound = set(symbols_in(leaf for name, leaf in leaves.items() if assigned[name] or name in inputs))
    wanted = {**inputs, **{n: leaf for n, leaf in lacking.items() if set(symbols_in([leaf])) - bound}}
    unknown = [symbol for symbol in symbols_in(wanted.values()) if symbol not in symbols]
    if unknown:
        text = f"the size of {', '.join(f'`{s}`' for s in unknown)} in shapes of `{callee.name}` is not known"
        help = "pass " + " ".join(f"--size {s}={SIZE}" for s in unknown) + ", or arrays with --in"
        raise CompileError(error("E0017", text, help=help))
    rng = None if stand_ins else np.random.default_rng(0)
    return {name: _random(name, leaf, symbols, rng) for name, leaf in wanted.items()}


def check_sizes(sizes: Mapping[str, int], callees: Sequence[Any]) -> None:
    """Raises CompileError E0017 for a size that no shape or number of the functions has."""
    symbols = [s for callee in callees for s in symbols_in(leaves_by_name(callee).values(), with_scalars=True)]
    known = f"its shapes have {', '.join(dict.fromkeys(symbols))}" if symbols else "its shapes have no symbols"
    wrong = [
        error("E0017", f"no shape of `{callees[0].name}` has `{n}`", help=did_you_mean(n, symbols) or known)
        for n in sizes
        if n not in symbols
    ]
    if wrong:
        raise CompileError(wrong)


def _symbols_of_arrays(
    arrays: Mapping[str, Any], leaves: Mapping[str, Value], assigned: Mapping[str, list[str]]
) -> dict[str, int]:
    """The values of symbols that are dimensions of arrays; their shapes are read, and not their elements."""
    import numpy as np

    symbols: dict[str, int] = {}
    for name, leaf in leaves.items():
        if leaf.kind != "tensor" or not assigned[name]:
            continue
        array = assigned[name][0]
        shape = arrays.kind(array)[0] if hasattr(arrays, "kind") else np.shape(arrays[array])
        for dim, extent in zip(leaf.dims, shape, strict=False):  # what does not fit is reported when it is read
            if isinstance(dim, str):
                symbols.setdefault(dim, extent)
    return symbols


def _random(name: str, leaf: Value, symbols: Mapping[str, int], rng: np.random.Generator | None) -> np.ndarray:
    import numpy as np

    from mlcc.ir.dtypes import DType
    from mlcc.ir.narrow_floats import encode
    from mlcc.runtime.manifest import evaluate, symbols_of

    def value(dim: Dim) -> int:
        return evaluate(dim, symbols)

    if leaf.kind == "shape":
        return np.array([value(d) for d in leaf.dims], np.int64)
    if leaf.kind == "scalar" and leaf.value is not None:
        number = value(leaf.value) if all(s in symbols for s in symbols_of(leaf.value)) else 1
        return np.array(number, str(DType.of(leaf.dtype)))
    if leaf.kind not in ("tensor", "scalar"):
        raise CompileError(error("E0017", f"there are no random values for parameter `{name}`, which is no array"))
    base, _, lanes = leaf.dtype.partition("x")
    shape = (*map(value, leaf.dims), *((int(lanes),) if lanes else ()))
    if any(extent < 0 for extent in shape):
        raise CompileError(error("E0017", f"the sizes give parameter `{name}` the shape {shape}"))
    dtype = DType.of(base)
    if math.prod(shape) > _MOST_ELEMENTS:
        raise _too_large(name, shape)
    if rng is None:
        return np.broadcast_to(encode(np.zeros(()), dtype) if dtype.is_float else np.zeros((), str(dtype)), shape)
    try:
        if dtype.is_float:
            values = rng.random(shape)
            return np.asarray(values) if leaf.kind == "scalar" else encode(values, dtype)
        return np.asarray(rng.integers(0, 2, shape)).astype(str(dtype))
    except MemoryError:
        raise _too_large(name, shape) from None


def _too_large(name: str, shape: tuple[int, ...]) -> CompileError:
    """Return the error of an array that no memory holds."""
    text = f"parameter `{name}` of shape {shape} does not fit into memory"
    return CompileError(error("E0017", text, help="give smaller sizes: --size n=32"))
