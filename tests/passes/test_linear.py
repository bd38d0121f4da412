"""The cost of every graph pass grows with the number of layers, not with its square: Python calls are counted."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.ir.module import IRModule
from tests.counting import calls

GRAPH = [
    "adjust-matmul-order", "annotate-op-pattern", "auto-layout{always=true}", "canonicalize", "combine-parallel-matmul",
    'convert-layout{layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]}}', "dead-code", "decompose",
    "eliminate-common-subexpr", "ewise-fma", "expand-tuple-arguments", "fold-batch-norm", "fold-constants", "fuse",
    "fuse-matmul-add", "inline-functions", "lambda-lift", "normalize", "remove-unused-outputs",
    "remove-unused-parameters", "rewrite-dataflow-reshape", "to-dataflow", "to-mixed-precision", "topological-sort",
    "topological-sort{order=breadth-first direction=from-outputs}", "lower-to-tir", "lower-to-tir,fuse",
    "fuse,lower-to-tir,fuse-tir",
]  # fmt: skip


def network(layers: int) -> IRModule:
    """Three products of one matrix, a residual addition and a norm in each layer."""
    params, lines, x = [], [], "x"
    for i in range(layers):
        params += [f'{w}{i}: R.Tensor((4, 4), "float32")' for w in "abc"] + [f'g{i}: R.Tensor((4,), "float32")']
        lines += [f"{y}{i} = R.matmul({x}, {w}{i})" for y, w in zip("pqr", "abc", strict=True)]
        lines += [f"s{i} = R.nn.relu(R.add(p{i}, q{i}))", f"t{i} = R.nn.layer_norm(s{i}, g{i}, g{i}, axes=[-1])"]
        lines += [f"y{i} = R.add(R.multiply(t{i}, r{i}), {x})"]
        x = f"y{i}"
    body = "\n".join(f"        {line}" for line in lines)
    signature = ", ".join(['x: R.Tensor((2, 4), "float32")', *params])
    return mlcc.parse(
        f"@R.function\ndef main({signature}):\n    with R.dataflow():\n{body}\n        R.output({x})\n    return {x}\n"
    )


@pytest.fixture(scope="module")
def networks() -> list[IRModule]:
    return [network(4), network(8), network(32)]


@pytest.mark.parametrize("passes", GRAPH)
def test_four_times_the_layers_take_four_times_the_calls(passes: str, networks: list[IRModule]) -> None:
    first, small, large = networks
    mlcc.run_passes(first, passes)  # imports and caches
    once, more = (calls(lambda m=m: mlcc.run_passes(m, passes, verify_each=False)) for m in (small, large))  # type: ignore[misc]
    assert more < 4.6 * once + 1000


def scaled(layers: int) -> IRModule:
    """A product with a constant matrix in each layer, and the first layer times as many constant numbers."""
    constants, lines, x, total = [], [], "x", "y0"
    for i in range(layers):
        constants.append(f'w{i} = R.data("w{i}", R.Tensor((4, 4), "float32"))')
        lines += [f"y{i} = R.matmul({x}, w{i})", f"m{i} = R.multiply(y0, R.const({i}.5, 'float32'))"]
        lines.append(f"t{i} = R.add({total}, m{i})")
        x, total = f"y{i}", f"t{i}"
    body = "\n".join(f"        {line}" for line in lines)
    above = "\n".join(f"    {line}" for line in constants)
    return mlcc.parse(
        f'@R.function\ndef main(x: R.Tensor((2, 4), "float32")):\n{above}\n    with R.dataflow():\n{body}\n'
        f"        R.output({x}, {total})\n    return ({x}, {total})\n",
        data={f"w{i}": np.full((4, 4), i + 1, np.float32) for i in range(layers)},
    )


@pytest.mark.parametrize("passes", ["eliminate-common-subexpr", "fold-batch-norm", "pack-weights", "fold-constants"])
def test_constants_of_a_type_are_not_compared_with_each_other(passes: str) -> None:
    mlcc.run_passes(scaled(4), passes)
    once, more = (calls(lambda n=n: mlcc.run_passes(scaled(n), passes, verify_each=False)) for n in (16, 64))  # type: ignore[misc]
    assert more < 4.6 * once + 1000


def test_many_tensors_are_joined_by_halves() -> None:
    names = [f"x{i}" for i in range(300)]
    params = ", ".join(f'{name}: R.Tensor((2, {1 + i % 3}), "float32")' for i, name in enumerate(names))
    module = mlcc.parse(f"@R.function\ndef main({params}):\n    return R.concat(({', '.join(names)}), axis=1)\n")
    arrays = [np.full((2, 1 + i % 3), i, np.float32) for i in range(300)]
    found = mlcc.load(mlcc.build(module))["main"](*arrays)
    np.testing.assert_array_equal(found, np.concatenate(arrays, axis=1))


@pytest.mark.parametrize("shape", ["(64,)", '("n",)'])
def test_elementwise_operators_of_one_kernel_are_inlined_at_once(shape: str) -> None:
    def kernel(count: int) -> IRModule:
        names = ("exp", "sqrt", "negative", "tanh")
        lines = "\n".join(f"        v{i + 1} = R.{names[i % 4]}(v{i})" for i in range(count))
        text = f"@R.function\ndef main(v0: R.Tensor({shape}, 'float32')):\n    with R.dataflow():\n{lines}\n"
        module = mlcc.parse(f"{text}        R.output(v{count})\n    return v{count}\n".replace("'", '"'))
        fused = mlcc.run_passes(module, "lower-to-tir,annotate-op-pattern,fuse,fuse-tir", verify_each=False)
        assert len(fused.functions) == 2
        return fused

    modules = [kernel(n) for n in (8, 25, 100)]
    first, once, more = (calls(lambda m=m: mlcc.run_passes(m, "auto-schedule", verify_each=False)) for m in modules)  # type: ignore[misc]
    assert more < 4.6 * once + 1000
