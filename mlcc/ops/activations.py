"""The activations of recurrent layers by name, as ONNX defines them: `tanh`, `hard_sigmoid(0.2, 0.5)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc import te
from mlcc.ops.lazy import np
from mlcc.ops.topi import float_constant
from mlcc.te.scalar import Scalar


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation function with its parameters, applicable to a scalar expression or a NumPy array."""

    name: str
    numbers: tuple[float, ...]

    def __call__(self, x: Scalar) -> Scalar:
        return _TABLE[self.name].lower(x, *(float_constant(v, x.dtype) for v in self.numbers))

    def numpy(self, x: Any) -> Any:
        return _TABLE[self.name].numpy(x, *(x.dtype.type(v) for v in self.numbers))


@dataclass(frozen=True, slots=True)
class _Definition:
    defaults: tuple[float, ...]
    lower: Callable[..., Scalar]
    numpy: Callable[..., Any]


def _zero(x: Scalar) -> Scalar:
    return te.const(0, x.dtype)


def _one(x: Scalar) -> Scalar:
    return te.const(1, x.dtype)


_TABLE: dict[str, _Definition] = {
    "sigmoid": _Definition((), te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "tanh": _Definition((), te.tanh, lambda x: np.tanh(x)),
    "relu": _Definition((), lambda x: te.max(x, _zero(x)), lambda x: np.maximum(x, 0)),
    "affine": _Definition((1.0, 0.0), lambda x, a, b: a * x + b, lambda x, a, b: a * x + b),
    "leaky_relu": _Definition(
        (0.01,), lambda x, a: te.select(x >= _zero(x), x, a * x), lambda x, a: np.where(x >= 0, x, a * x)
    ),
    "thresholded_relu": _Definition(
        (1.0,), lambda x, a: te.select(x >= a, x, _zero(x)), lambda x, a: np.where(x >= a, x, 0)
    ),
    "scaled_tanh": _Definition((1.0, 1.0), lambda x, a, b: a * te.tanh(b * x), lambda x, a, b: a * np.tanh(b * x)),
    "hard_sigmoid": _Definition(
        (0.2, 0.5),
        lambda x, a, b: te.max(te.min(a * x + b, _one(x)), _zero(x)),
        lambda x, a, b: np.clip(a * x + b, 0, 1),
    ),
    "elu": _Definition(
        (1.0,),
        lambda x, a: te.select(x >= _zero(x), x, a * (te.exp(x) - _one(x))),
        lambda x, a: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    ),
    "softsign": _Definition((), lambda x: x / (_one(x) + te.abs(x)), lambda x: x / (1 + np.abs(x))),
    "softplus": _Definition((), lambda x: te.log(te.exp(x) + _one(x)), lambda x: np.log(np.exp(x) + 1)),
}
NAMES = tuple(_TABLE)
_ITEM = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*(?:,|$)")


def parse(text: str) -> tuple[Activation, ...]:
    """Parse a comma-separated list of activations. Raises ValueError."""
    activations, position = [], 0
    while position < len(text):
        match = _ITEM.match(text, position)
        definition = None if match is None else _TABLE.get(match[1])
        if match is None or definition is None:
            raise ValueError(f"`{text[position:].strip()}` is not one of {', '.join(NAMES)}")
        numbers = tuple(float(n) for n in match[2].split(",")) if match[2] else ()
        if len(numbers) > len(definition.defaults):
            raise ValueError(f"`{match[1]}` takes {len(definition.defaults)} numbers, {len(numbers)} are given")
        activations.append(Activation(match[1], numbers + definition.defaults[len(numbers) :]))
        position = match.end()
    return tuple(activations)
