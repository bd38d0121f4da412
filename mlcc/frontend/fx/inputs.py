"""Fake tensors of PyTorch for inputs given as `((shape), dtype)` with numbers, symbols and expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from mlcc.errors import CompileError, error
from mlcc.frontend.aten.symbols import parse_extent, symbols_of
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax as ir
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.relations import variables
from mlcc.relax import TensorStructInfo

_INPUT_HELP = 'an input is ((shape), dtype), such as (("n", 3, 32, 32), "float32"), or a tensor'
_OPERATORS: dict[type[tir.Expr], Callable[[Any, Any], Any]] = {
    tir.Add: operator.add, tir.Sub: operator.sub, tir.Mul: operator.mul, tir.FloorDiv: operator.floordiv,
    tir.FloorMod: operator.mod, tir.Min: torch.sym_min, tir.Max: torch.sym_max,
}  # fmt: skip


# ---------------------------------------------------------------- parsing the caller's types


def input_types(given: Sequence[Any]) -> list[ir.TensorStructInfo]:
    """Parse the types of the inputs; symbols of the same name are identical. Raises CompileError E1031."""
    symbols: dict[str, tir.Expr] = {}
    for variable in (v for entry in given for v in _variables(entry)):
        symbols.setdefault(variable.name, variable)
    return [_input_type(index, entry, symbols) for index, entry in enumerate(given)]


def _input_type(index: int, entry: Any, symbols: dict[str, tir.Expr]) -> ir.TensorStructInfo:
    try:
        shape, dtype = _shape_and_dtype(entry)
        info = TensorStructInfo([_parse_symbolic(e, symbols) if isinstance(e, str) else e for e in shape], dtype)
        torch_dtype(dtype)
        if any((tir.const_int(e) or 0) < 0 for e in info.dims or ()):
            raise ValueError("a negative extent")
        return info
    except (ValueError, TypeError, SyntaxError, Unsupported, CompileError) as problem:
        raise CompileError(error("E1031", f"input {index} is {entry!r}: {problem}", help=_INPUT_HELP)) from None


def _shape_and_dtype(entry: Any) -> tuple[Sequence[Any], str]:
    """Shape and dtype of `((shape), dtype)`, of a bare shape, which is float32, or of a tensor."""
    if hasattr(entry, "shape") and hasattr(entry, "dtype"):
        return tuple(entry.shape), str(entry.dtype).removeprefix("torch.")
    if len(entry) == 2 and isinstance(entry[0], (tuple, list)):
        return entry[0], str(entry[1]).removeprefix("torch.")
    return entry, "float32"


def _variables(entry: Any) -> list[tir.Var]:
    """Return the variables that the caller created."""
    try:
        return variables(TensorStructInfo([e for e in _shape_and_dtype(entry)[0] if not isinstance(e, str)]))
    except (TypeError, ValueError, CompileError):  # `_input_type` says what is wrong
        return []


def _parse_symbolic(text: str, symbols: dict[str, tir.Expr]) -> tir.Expr:
    for name in symbols_of(text):
        symbols.setdefault(name, tir.Var(name, INT64))
    return parse_extent(text, symbols)


def torch_dtype(dtype: str) -> torch.dtype:
    """PyTorch's dtype of this name. Raises ValueError."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"PyTorch has no dtype `{dtype}`")
    return kind


# ---------------------------------------------------------------- as fake tensors


@dataclass(frozen=True, slots=True)
class FakeInputs:
    """Fake tensors of the inputs' types. `names` maps PyTorch's symbols to the caller's names."""

    mode: FakeTensorMode
    tensors: tuple[torch.Tensor, ...]
    names: Mapping[str, str]


def fake_inputs(types: Sequence[ir.TensorStructInfo], sizes: Mapping[str, int]) -> FakeInputs:
    """Return fake tensors in a new mode; PyTorch decides branches on a symbol by its size in `sizes` (the hint)."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    numbers: dict[tir.Var, Any] = {}
    names: dict[str, str] = {}
    for variable in dict.fromkeys(v for t in types for v in variables(t)):
        source = ConstantSource(variable.name)
        symbol = env.create_symbol(sizes[variable.name], source, DimDynamic.DYNAMIC, constraint_dim=None)
        numbers[variable] = env.create_symintnode(symbol, hint=sizes[variable.name], source=source)
        names[str(symbol)] = variable.name
    with mode:
        tensors = tuple(
            torch.empty([_sym_int(e, numbers) for e in t.dims or ()], dtype=torch_dtype(str(t.dtype))) for t in types
        )
    return FakeInputs(mode, tensors, names)


def _sym_int(extent: tir.Expr, numbers: Mapping[tir.Var, Any]) -> Any:
    if isinstance(extent, tir.Var):
        return numbers[extent]
    if isinstance(extent, tir.BinaryOp):
        return _OPERATORS[type(extent)](_sym_int(extent.lhs, numbers), _sym_int(extent.rhs, numbers))
    return tir.const_int(extent)
