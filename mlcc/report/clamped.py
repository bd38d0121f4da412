"""Elements that a quantization or a clip moved to a limit, counted from what it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import walk
from mlcc.ops.quantize import limits, unclipped
from mlcc.passes.manage.manager import Observer, Pipeline
from mlcc.runtime.observer import Site

Operands = list[Any]
Beyond = Callable[[relax.Call, Operands], tuple[np.ndarray, np.ndarray]]


class ClampingCalls(Observer):
    """The calls of `R.quantize` and `R.clip` in a module, by their places in its text."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], relax.Call] = {}

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        for func in module.functions.values():
            for node in walk(func) if isinstance(func, relax.Function) else ():
                if isinstance(node, relax.Call) and node.span and getattr(node.op, "name", "") in _BEYOND:
                    self._calls[node.span.start, node.span.end] = node

    def count(self, site: Site, inputs: Sequence[np.ndarray], result: np.ndarray) -> int | None:
        """Count the elements of a call's result that lay beyond its limits before they were clamped.

        `inputs` are the tensors that the call reads, in order. None for a kernel that computes anything else than the
        operator at its place: one of several fused operators, or on operands that are not among its tensors.
        """
        call = self._calls.get((site.start, site.end))
        operands = None if call is None else _operands(call, list(inputs))
        if call is None or operands is None or operands[0].shape != result.shape:
            return None
        try:
            with np.errstate(all="ignore"):
                beyond, expected = _BEYOND[call.op.name](call, operands)
        except ValueError:  # operands of shapes that do not fit
            return None
        return int(beyond.sum()) if np.array_equal(expected, result, equal_nan=True) else None


def _operands(call: relax.Call, inputs: list[np.ndarray]) -> Operands | None:
    """Return the values of a call's operands: constants, and tensors for the others in order; None if some lack."""
    values: Operands = []
    for number, arg in enumerate(call.args):
        constant = arg.data.array if isinstance(arg, relax.Constant) else _number(arg)
        if constant is None or (number == 0 and inputs):
            if not inputs:
                return None
            values.append(inputs.pop(0))
        else:
            values.append(constant)
            # a constant may be an operand of the kernel or part of its code
            if inputs and inputs[0].shape == np.shape(constant) and np.array_equal(inputs[0], constant):
                inputs.pop(0)
    return values or None


def _number(arg: Any) -> Any:
    value = arg.value if isinstance(arg, relax.PrimValue) else arg
    return value.value if isinstance(value, (tir.IntImm, tir.FloatImm)) else None


def _beyond_quantized(call: relax.Call, operands: Operands) -> tuple[np.ndarray, np.ndarray]:
    moved = unclipped(call, *operands)
    low, high = limits(call)
    expected = np.clip(moved, low, high)
    return (moved < low) | (moved > high), expected


def _beyond_clipped(call: relax.Call, operands: Operands) -> tuple[np.ndarray, np.ndarray]:
    x, low, high = operands
    low, high = (np.asarray(limit).astype(x.dtype) for limit in (low, high))
    return (x < low) | (x > high), np.maximum(np.minimum(x, high), low)


_BEYOND: dict[str, Beyond] = {"relax.quantize": _beyond_quantized, "relax.clip": _beyond_clipped}
