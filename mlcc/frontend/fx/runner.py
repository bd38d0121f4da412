"""Call a compiled graph with PyTorch's tensors, without copies of inputs or results."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mlcc.frontend.fx.module import GraphFunction, NumberOutput, Output, ResultOutput, SymbolSource, ViewOutput

# functions in the extents that sympy's printer writes for PyTorch
_CALLS = {
    "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "PythonMod": operator.mod, "Mod": operator.mod,
    "Max": max, "Min": min, "__builtins__": {},
}  # fmt: skip
_BITS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


class CompiledGraph:
    """A compiled graph as a function from tensors and numbers to a list of tensors and numbers."""

    def __init__(self, made: GraphFunction, main: Callable[..., Any]) -> None:
        self._main = main
        self._tensors, self._sizes, self._symbols = made.tensors, made.sizes, made.symbols
        self._read = [_as_traced(result) for result in made.results]
        self._outputs = [_output_maker(output) for output in made.outputs]

    def __call__(self, *args: Any) -> list[Any]:
        given: list[Any] = [_array(args[index]) for index in self._tensors]
        if self._sizes:
            given.append(tuple(args[index] for index in self._sizes))
        results = [read(array) for read, array in zip(self._read, self._main(*given), strict=True)]
        values = {symbol: _symbol_value(place, args) for symbol, place in self._symbols.items()}
        return [make(results, values) for make in self._outputs]


_OutputMaker = Callable[[Sequence[torch.Tensor], Mapping[str, int]], Any]


def _output_maker(output: Output) -> _OutputMaker:
    """Return a function that computes an output from the results of `main` and the values of symbols."""
    if isinstance(output, ResultOutput):
        index = output.index
        return lambda results, values: results[index]
    if isinstance(output, NumberOutput):
        return _number(output)
    if isinstance(output, ViewOutput):
        return _view(output)
    return lambda results, values: None


def _number(output: NumberOutput) -> _OutputMaker:
    code = compile(output.text, "<extent>", "eval")
    return lambda results, values: eval(code, _CALLS, dict(values))


def _view(output: ViewOutput) -> _OutputMaker:
    size, stride = [_number(extent) for extent in output.size], [_number(extent) for extent in output.stride]
    offset = _number(output.offset)

    def view(results: Sequence[torch.Tensor], values: Mapping[str, int]) -> torch.Tensor:
        extents = [tuple(make(results, values) for make in makers) for makers in (size, stride)]
        return results[output.index].as_strided(*extents, offset(results, values))

    return view


def _symbol_value(place: SymbolSource, args: Sequence[Any]) -> int:
    given = args[place.input]
    return int(given if place.axis is None else given.shape[place.axis])


def _array(tensor: torch.Tensor) -> Any:
    """Return the memory of a tensor as an array; bfloat16 and 8-bit floats as their bits."""
    bits = _BITS.get(tensor.dtype)
    compact = tensor.contiguous()
    return (compact if bits is None else compact.view(bits)).numpy(force=True)


def _as_traced(output: torch.Tensor) -> Callable[[Any], torch.Tensor]:
    """Return a function from an array to a tensor of the traced dtype and stride order; later code relies on both."""
    bits = output.dtype if output.dtype in _BITS else None
    order = _stride_order(output)

    def read(array: Any) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if bits is not None:
            tensor = tensor.view(bits)
        if order is not None:
            tensor = tensor.permute(order).contiguous().permute([order.index(axis) for axis in range(len(order))])
        return tensor

    return read


def _stride_order(output: torch.Tensor) -> list[int] | None:
    """Return the axes by descending stride; None if they are in that order already."""
    strides = [_hint(stride) for stride in output.stride()]
    extents = [_hint(extent) for extent in output.shape]
    axes = [axis for axis in range(len(strides)) if extents[axis] != 1]
    if 0 in extents or all(strides[a] >= strides[b] for a, b in zip(axes, axes[1:], strict=False)):
        return None
    return sorted(range(len(strides)), key=lambda axis: -strides[axis])


def _hint(extent: Any) -> int:
    """Return the hint for an extent, without adding a guard."""
    return int(extent.node.hint) if isinstance(extent, torch.SymInt) else int(extent)
