"""Recurrent layers, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.onnx_runtime import against_runtime

pytestmark = pytest.mark.usefixtures("onnx", "onnxruntime")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
DIRECTIONS = ("forward", "reverse", "bidirectional")


def _layer(operator: str, directions: int = 1, steps: int = STEPS, *, states: bool = True) -> list[Any]:
    """Data, weights, biases, no lengths, first states."""
    rng, gates = np.random.default_rng(len(operator) + directions), GATES[operator] * HIDDEN
    shapes = [(steps, BATCH, WIDTH), (directions, gates, WIDTH), (directions, gates, HIDDEN), (directions, 2 * gates)]
    made: list[Any] = [rng.standard_normal(shape, "float32") for shape in shapes]
    first = [rng.standard_normal((directions, BATCH, HIDDEN), "float32") for _ in range(1 + (operator == "LSTM"))]
    return [*made, None, *(first if states else [])]


def _check(operator: str, inputs: list[Any], **options: Any) -> None:
    outputs = 3 if operator == "LSTM" else 2
    options = {"constant": (1, 2, 3), **options}
    against_runtime(operator, inputs, outputs, domain="", version=14, hidden_size=HIDDEN, **options)


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", [None, (5, 1, 3), (2, 4, 1)])
def test_directions_and_lengths_agree(operator: str, direction: str, lengths: tuple[int, ...] | None) -> None:
    inputs = _layer(operator, 1 + (direction == "bidirectional"))
    inputs[4] = None if lengths is None else np.array(lengths, "int32")
    _check(operator, inputs, direction=direction)


@pytest.mark.parametrize("operator", GATES)
def test_layers_without_biases_and_states_agree(operator: str) -> None:
    inputs = _layer(operator, states=False)
    _check(operator, inputs[:3], constant=(1, 2))


@pytest.mark.parametrize("before", [0, 1])
def test_reset_before_and_after_the_product(before: int) -> None:
    _check("GRU", _layer("GRU", 2), linear_before_reset=before, direction="bidirectional")


@pytest.mark.parametrize("coupled", [0, 1])
def test_peepholes_agree(coupled: int) -> None:
    holes = np.random.default_rng(1).standard_normal((1, 3 * HIDDEN), "float32")
    _check("LSTM", [*_layer("LSTM"), holes], input_forget=coupled)


@pytest.mark.parametrize("operator", GATES)
def test_clipped_gates_agree(operator: str) -> None:
    _check(operator, _layer(operator), clip=0.4)


@pytest.mark.parametrize(
    ("names", "alphas", "betas"),
    [
        (["HardSigmoid", "Softsign", "Tanh"], [0.3], [0.6]),
        (["Sigmoid", "ScaledTanh", "LeakyRelu"], [1.5, 0.1], [0.7]),
        (["Sigmoid", "Affine", "Elu"], [0.5, 0.8], [0.2]),
        (["Sigmoid", "Softplus", "ThresholdedRelu"], [0.3], []),
    ],
)
def test_other_activations_agree(names: list[str], alphas: list[float], betas: list[float]) -> None:
    given = {"activation_alpha": alphas, **({"activation_beta": betas} if betas else {})}
    _check("LSTM", _layer("LSTM"), activations=names, **given)


@pytest.mark.parametrize("operator", GATES)
def test_compiled_layers_agree(operator: str) -> None:
    _check(operator, _layer(operator, 2), direction="bidirectional", opt_level=1)


@pytest.mark.parametrize("operator", GATES)
def test_layers_of_symbolic_length_agree(operator: str) -> None:
    inputs = _layer(operator, states=False)[:4]
    for steps in (1, 7):
        inputs[0] = np.random.default_rng(steps).standard_normal((steps, 2, WIDTH), "float32")
        _check(operator, inputs, symbolic=((0, 0), (0, 1)), opt_level=1)
