"""The networks under samples/ for a GPU, by the default schedules: right when emulated, assembled without spills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mlcc
from mlcc import driver
from mlcc.targets.cuda.ptxas import find_ptxas
from tests.driver.test_networks import SAMPLES, SMALL, bound, decoder, digits, encoder, images, in_parts, resnet, tokens

TARGET = "cuda{arch=sm_90}"


def emulated(module: mlcc.IRModule) -> Callable[..., Any]:
    """Its `main` on the CPU; spills are an error."""
    made: Any = mlcc.build(module, target=TARGET)
    if find_ptxas() is not None:
        found = made.assembled()
        assert found and not [name for name, facts in found.items() if facts.spill_stores or facts.spill_loads]
    run: Callable[..., Any] = mlcc.load(made, emulate=True, check=False)["main"]
    return run


def test_emulated_encoder_matches_numpy() -> None:
    run = emulated(bound(SAMPLES / "transformer" / "encoder.mlc", encoder.weights()))
    for batch, length in [(2, 17), (1, 1)]:
        given = encoder.inputs(batch, length)
        want = encoder.reference(given["x"], given["mask"], encoder.weights())
        np.testing.assert_allclose(run(given["x"], given["mask"]), want, rtol=1e-4, atol=1e-5)


def test_emulated_decoder_matches_numpy() -> None:
    run = emulated(bound(SAMPLES / "decoder" / "decoder.mlc", decoder.weights()))
    for batch, sizes in [(2, [5, 1, 1]), (1, [0, 3])]:
        text = tokens(batch, sum(sizes))
        want = decoder.reference(text, decoder.weights())
        np.testing.assert_allclose(in_parts(run, text, sizes), want, rtol=1e-4, atol=1e-4)


def test_emulated_resnet_matches_numpy() -> None:
    x, weights = images(2)
    run = emulated(resnet.text_module(**SMALL, classes=7, size=16))
    want = resnet.reference(x, weights, **SMALL)
    np.testing.assert_allclose(run(x, *weights.values()), want, rtol=1e-4, atol=1e-4)


def test_emulated_lenet_matches_the_cpu() -> None:
    module = driver.parse_file(str(SAMPLES / "lenet" / "lenet.mlc"))
    x = digits()[0][:5]
    want = mlcc.load(mlcc.build(module, opt_level=0))["main"](x)
    np.testing.assert_allclose(emulated(module)(x), want, rtol=1e-4, atol=1e-4)
