"""Commands that make arrays for a function's parameters with NumPy, for users to copy from a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlcc.runtime.abi import STORAGE
from mlcc.runtime.manifest import Dim, Value, evaluate, show, show_shape, show_tensor, symbols_of

SIZE = 32  # of symbolic sizes, in what is to be copied
_PYTHON = frozenset(("+", "-", "*", "//", "%", "min", "max", "<<", ">>", "&", "|", "^", "<", "<=", "==", "!="))


def show_leaf(leaf: Value) -> str:
    """Return the type of a parameter for messages: `float32(n, 4)`."""
    if leaf.kind == "tensor":
        return show_tensor(leaf)
    if leaf.kind == "shape":
        return f"{len(leaf.dims)} integers, the shape {show_shape(leaf.dims)}"
    if leaf.kind == "scalar":
        return f"a number, {leaf.dtype}" + (
            f" equal to {show(leaf.value)}" if leaf.value not in (None, leaf.name) else ""
        )
    return "which is no array"


def symbols_in(leaves: Iterable[Value], with_scalars: bool = False) -> list[str]:
    """The symbols in the shapes of parameters, in order; with those that scalars are values of, or without."""
    dims = [
        d for leaf in leaves for d in (*leaf.dims, *((leaf.value,) if leaf.value is not None and with_scalars else ()))
    ]
    return list(dict.fromkeys(s for d in dims for s in symbols_of(d)))


def size_options(leaves: Mapping[str, Value]) -> str:
    """Options that give the symbols of parameters values, with a space in front of each."""
    return "".join(f" --size {symbol}={SIZE}" for symbol in symbols_in(leaves.values()))


def savez_command(leaves: Mapping[str, Value]) -> str:
    """A line for a shell that writes random arrays for parameters to inputs.npz: floats of 0 to 1, integers 0 or 1."""
    sizes = "".join(f"{symbol} = {SIZE}; " for symbol in symbols_in(leaves.values()))
    known = set(symbols_in(leaves.values()))
    arrays = {name: _array(leaf, known) for name, leaf in leaves.items() if leaf.kind != "pointer"}
    plain = [f"{name}={text}" for name, text in arrays.items() if name.isidentifier()]
    others = [f"{name!r}: {text}" for name, text in arrays.items() if not name.isidentifier()]
    spread = [f"**{{{', '.join(others)}}}"] if others else []
    call = f"np.savez('inputs.npz', {', '.join([*plain, *spread])})"
    return f'python3 -c "import numpy as np; _r = np.random.default_rng(0); {sizes}{call}"'


def _array(leaf: Value, symbols: set[str]) -> str:
    """A Python expression for an array that a parameter takes; `symbols` have values. Other numbers are 1."""
    if leaf.kind == "shape":
        return f"[{', '.join(map(_dim, leaf.dims))}]"
    if leaf.kind == "scalar":
        number = _dim(leaf.value) if leaf.value is not None and symbols.issuperset(symbols_of(leaf.value)) else "1"
        return f"np.{_type(leaf.dtype)}({number})"
    dtype, _, lanes = leaf.dtype.partition("x")
    extents = [*map(_dim, leaf.dims), *([lanes] if lanes else [])]
    shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
    if dtype == "bool":
        return f"_r.random({shape}) < 0.5"
    if dtype == "bfloat16":  # the upper half of a float32
        return f"(np.asarray(_r.random({shape}, 'float32')).view('uint32') >> 16).astype('uint16')"
    if dtype in STORAGE:  # bits of numbers of 0 to 1
        return f"_r.integers(0, 56, {shape}, '{STORAGE[dtype]}')"
    if dtype.startswith("float"):
        return f"np.asarray(_r.random({shape}), '{dtype}')"
    return f"_r.integers(0, 2, {shape}, '{dtype}')"


def _type(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype if dtype not in STORAGE else "float32"


def _dim(dim: Dim) -> str:
    """A dimension as Python, or its value at the usual size if Python has no such operator."""
    return show(dim) if _is_python(dim) else str(evaluate(dim, dict.fromkeys(symbols_of(dim), SIZE)))


def _is_python(dim: Dim) -> bool:
    return not isinstance(dim, tuple) or (dim[0] in _PYTHON and all(_is_python(d) for d in dim[1:]))
