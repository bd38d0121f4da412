"""Recognition of activations: GELU by the error function or the hyperbolic tangent, SiLU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlcc import ops
from mlcc.ir import relax
from mlcc.passes.recognition.graph import Graph, dtype_of
from mlcc.passes.recognition.polynomial import Expansion, is_close

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC_COEFFICIENT = 0.044715
_HALVES = {(1, 0): 0.5, (1, 1): 0.5}  # 0.5 * x * (1 + f)


@dataclass(frozen=True)
class _ActivationForm:
    """An activation: a polynomial of x and f(polynomial of x), with coefficients by the powers of both."""

    operator: str
    function: str
    argument: Mapping[int, float]
    result: Mapping[tuple[int, int], float]


_FORMS = (
    _ActivationForm("nn.gelu", "erf", {1: math.sqrt(0.5)}, _HALVES),
    _ActivationForm("nn.gelu_tanh", "tanh", {1: _SQRT_2_OVER_PI, 3: _SQRT_2_OVER_PI * _CUBIC_COEFFICIENT}, _HALVES),
    _ActivationForm(
        "nn.gelu_tanh", "sigmoid", {1: 2 * _SQRT_2_OVER_PI, 3: 2 * _SQRT_2_OVER_PI * _CUBIC_COEFFICIENT}, {(1, 1): 1.0}
    ),
    _ActivationForm("nn.silu", "sigmoid", {1: 1.0}, {(1, 1): 1.0}),
)
_FUNCTIONS = tuple({form.function for form in _FORMS})


def activation(graph: Graph, root: relax.Expr) -> relax.Expr | None:
    """Match an activation by its result; return the call of its operator, or None."""
    for inner in graph.tree(root):
        call = graph.call(inner, *_FUNCTIONS)
        for form in _FORMS if call is not None else ():
            if call is not None and call.op.name == f"relax.{form.function}":
                for x in graph.tree(call.args[0]):
                    if _has_form(graph, root, inner, x, form):
                        data = Expansion(graph, (), dtype_of(root)).narrow(x)
                        return ops.bind_call(form.operator, (data,))
    return None


def _has_form(graph: Graph, root: relax.Expr, inner: relax.Expr, x: relax.Expr, form: _ActivationForm) -> bool:
    call = graph.call(inner)
    assert call is not None
    at = graph.number(Expansion(graph, (), dtype_of(root)).narrow(x))
    expansion = Expansion(graph, {graph.number(x), at, graph.number(inner)}, dtype_of(root))
    argument = {(at,) * power: value for power, value in form.argument.items()}
    if not is_close(expansion.of(call.args[0]), argument, dtype_of(inner)):
        return False
    f = graph.number(inner)
    result = {tuple(sorted((at,) * i + (f,) * j)): value for (i, j), value in form.result.items()}
    return is_close(expansion.of(root), result, dtype_of(inner))
