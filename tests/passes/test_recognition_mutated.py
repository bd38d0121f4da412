"""Operators that are almost written out: graphs of the right form with something changed keep their numbers."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir.module import IRModule
from tests.passes.test_recognition import (
    CENTRED,
    ENDS,
    EPSILON,
    GELUS,
    HALF,
    LOW,
    ONE,
    PASSES,
    TANHS,
    const,
    counted,
    module,
    rows,
)

FORMS = [
    f"{CENTRED}\nv = R.mean(R.multiply(d, d), axis=[-1], keepdims=True)\nn = {ENDS[0]}\no = R.add(R.multiply(n, g), b)",
    f"v = R.mean(R.multiply(x, x), axis=[-1], keepdims=True)\nr = R.rsqrt(R.add(v, {EPSILON}))\n"
    "n = R.multiply(x, r)\no = R.add(R.multiply(n, g), b)",
    f"""
        s = R.divide(R.matmul(x, R.permute_dims(y, axes=[1, 0])), {const(2.8284271)})
        m = R.where(R.tril(R.ones(R.shape([8, 8]), "bool")), s, {LOW})
        n = R.add(m, R.multiply(x, y))
        p = R.nn.softmax(n, axis=-1)
        o = R.add(R.matmul(p, y), R.add(g, b))
    """,
    *(f"{lines}\no = R.add({result}, R.add(b, g))" for lines, result in GELUS),
    *(f"t = R.tanh({x})\no = R.add(R.multiply(R.multiply({HALF}, x), R.add({ONE}, t)), R.add(b, g))" for x in TANHS),
]
ARITHMETIC, FUNCTIONS = ("add", "multiply", "subtract", "divide"), ("tanh", "erf", "sqrt", "rsqrt", "square", "sigmoid")


def mutated(text: str, rng: random.Random) -> str:
    """The text with one operator, number, axis or operand changed."""
    pattern, others = rng.choice(
        [
            (r"(?<=R\.)(add|multiply|subtract|divide)(?=\()", ARITHMETIC),
            (r"(?<=R\.)(tanh|erf|sqrt|rsqrt|square|sigmoid)(?=\()", FUNCTIONS),
            (r"(?<=R\.const\()[-\d.e]+(?=,)", ("1.0", "0.5", "2.0", "3.0", "-1.0", "0.7", "1.42")),
            (r"(?<=axis=)\[-1\]", ("[0]", "[0, 1]")),
            (r"(?<![\w.])(x|d|v|n|m|e|t|r|s|y)(?=[,)])", ("x", "y", "g", "b")),
        ]
    )
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    place = rng.choice(places)
    return text[: place.start()] + rng.choice(others) + text[place.end() :]


def cases(seed: int, count: int) -> list[IRModule]:
    """Modules of mutated texts; what does not fit together is left out."""
    rng, made = random.Random(seed), []
    while len(made) < count:
        text = rng.choice(FORMS)
        for _ in range(rng.randint(0, 2)):
            text = mutated(text, rng)
        try:
            made.append(module(text, "R.add(o, R.add(g, b))", x=(8, 8), y=(8, 8), g=(8,), b=(8,)))
        except CompileError:
            continue
    return made


@pytest.mark.parametrize("seed", range(3))
def test_mutated_graphs_keep_their_results(seed: int) -> None:
    inputs = [rows(8, 8), rows(8, 8, seed=1), np.abs(rows(8)), rows(8, seed=2)]
    found = 0
    for made in cases(seed, 60):
        after = mlcc.run_passes(made, PASSES)
        with np.errstate(all="ignore"):
            before, now = (np.asarray(run_function(m, "main", inputs)) for m in (made, after))
        finite = np.isfinite(before)
        largest = max(1.0, float(np.abs(before[finite]).max(initial=0)))
        np.testing.assert_array_equal(np.isnan(before), np.isnan(now))
        np.testing.assert_allclose(now[finite], before[finite], rtol=1e-5, atol=1e-5 * min(largest, 1e3))
        found += any(name.startswith("nn.") and name != "nn.softmax" for name in counted(after))
    assert found > 10
