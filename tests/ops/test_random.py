"""Random numbers: Philox's known answers, moments, and the same ones everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ops.random import np_philox

# known-answer tests of Random123's philox4x32-10: counter, key, words
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


def random_module(name: str, shape: str, *more: str) -> mlcc.IRModule:
    given = ", ".join(["key", shape, *more])
    return mlcc.parse(f"""
@R.function
def main(key: R.Tensor((2,), "int64"), x: R.Tensor(("n",), "int8")):
    n = T.int64()
    return R.random.{name}({given})
""")


def run(mod: mlcc.IRModule, seed: int, stream: int = 0, n: int = 3) -> np.ndarray:
    return np.asarray(mlcc.load(mlcc.build(mod, opt_level=1))["main"](np.array([seed, stream]), np.zeros(n, "int8")))


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_reference_gives_the_known_answers(counter: Any, key: Any, words: Any) -> None:
    seed, stream = key[0] | key[1] << 32, counter[2] | counter[3] << 32
    assert tuple(np_philox([seed, stream], [counter[0] | counter[1] << 32])[0]) == words


def test_lowered_bits_are_the_known_answers() -> None:
    """The words of the known answers, and the same ones on a device."""
    mod = random_module("bits", "(n, 4)")
    made = run(mod, 0)
    assert tuple(made[0]) == KNOWN[0][2]
    np.testing.assert_array_equal(made, np_philox([0, 0], range(3)))
    np.testing.assert_array_equal(run(mod, -1, -2), np_philox([-1, -2], range(3)))
    args = np.array([5, 6]), np.zeros(3, "int8")
    device = mlcc.load(mlcc.build(mod, "cuda{arch=sm_90}"), emulate=True)["main"](*args)
    np.testing.assert_array_equal(device, run(mod, 5, 6))
    np.testing.assert_array_equal(device, run_function(mod, "main", list(args)))
    pairs = run(random_module("bits", "(n, 2)", 'dtype="uint64"'), 5, 6).view("uint32").reshape(-1, 2)[:, ::-1]
    np.testing.assert_array_equal(pairs.ravel(), device.ravel()[: pairs.size])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_distributions_have_their_moments(dtype: str) -> None:
    """Moments of 40,000 numbers; uniform ones are those of the reference, bit for bit."""
    mod = random_module("uniform", "(n, 100)", f'dtype="{dtype}"')
    made = run(mod, 42, 7, 400)
    assert made.dtype == dtype and made.min() >= 0 and made.max() < 1
    assert abs(made.astype("float64").mean() - 0.5) < 0.01 and abs(made.astype("float64").var() - 1 / 12) < 0.002
    np.testing.assert_array_equal(made, run_function(mod, "main", [np.array([42, 7]), np.zeros(400, "int8")]))
    normal = run(random_module("normal", "(n, 100)", f'dtype="{dtype}"'), 42, 8, 400).astype("float64")
    assert np.isfinite(normal).all()
    for power, moment, error in ((1, 0, 0.02), (2, 1, 0.03), (3, 0, 0.1), (4, 3, 0.2)):
        assert abs((normal**power).mean() - moment) < error
    assert abs(np.corrcoef(normal.ravel()[:-1], normal.ravel()[1:])[0, 1]) < 0.02


def test_integers_are_uniform() -> None:
    made = run(random_module("integers", "(n, 100)", "-3", "4", 'dtype="int8"'), 1, 0, 400)
    values, counts = np.unique(made, return_counts=True)
    assert values.tolist() == [*range(-3, 4)] and counts.min() > 5200


@pytest.mark.parametrize(
    "name, more, message",
    [
        ("integers", ("0", "300", 'dtype="int8"'), "not every integer from 0 to 299 fits int8"),
        ("integers", ("3", "3"), "`high` must be above `low`"),
        ("normal", ('dtype="int32"',), "`dtype` must be one of float64"),
    ],
)
def test_wrong_calls_are_refused(name: str, more: tuple[str, ...], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        random_module(name, "(n,)", *more)


def test_a_key_is_two_numbers() -> None:
    with pytest.raises(CompileError, match=r"E0445.*a seed and a stream"):
        mlcc.parse('@R.function\ndef main(k: R.Tensor((3,), "int64")):\n    return R.random.bits(k, (4,))\n')
