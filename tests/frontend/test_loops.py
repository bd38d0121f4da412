"""Loops that run time counts: conditions and numbers of rounds that are data, symbolic lengths, rows, what grows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.frontend.onnx.translate import translate
from tests.frontend.aten_check import check as against_torch
from tests.frontend.aten_check import compare
from tests.frontend.onnx_models import FLOAT, model, node, value
from tests.frontend.onnx_runtime import runtime_results
from tests.frontend.test_pt2_program import agree, function_model

pytestmark = pytest.mark.usefixtures("onnxruntime")

RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def check(given: Any, *inputs: Sequence[np.ndarray], opt_level: int = 1) -> mlcc.IRModule:
    """The module, built once and compared with ONNX Runtime on each of the inputs."""
    module = translate(given)
    run = mlcc.load(mlcc.build(mlcc.parse(mlcc.script(module)), opt_level=opt_level))["main"]
    for some in inputs:
        found = run(*some)
        names = [i.name for i in given.graph.input]
        expected = runtime_results(given, dict(zip(names, some, strict=True)))
        for mine, theirs in zip(found if isinstance(found, tuple) else [found], expected, strict=True):
            compare(np.asarray(mine), np.asarray(theirs))
    return module


def body(nodes: Sequence[Any], carried: Sequence[str], rows: Sequence[str] = ()) -> Any:
    """The body of a Loop that carries `x` -> `x_out` and so on, and goes on while `on`."""
    from onnx import helper

    inputs = [value("i", "int64", []), value("go", "bool", []), *(value(c, FLOAT, None) for c in carried)]
    outputs = [value("on", "bool", []), *(value(f"{c}_out", FLOAT, None) for c in carried)]
    return helper.make_graph(list(nodes), "body", inputs, [*outputs, *(value(r, FLOAT, None) for r in rows)])


GO_ON = ("Identity", ["go"], ["on"])


def test_data_decide_the_number_of_rounds() -> None:
    """Weights and inputs of the outside are used inside."""
    steps = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "bias"], ["a"]), node("Tanh", ["a"], ["x_out"])]
    loop = node("Loop", ["n", "", "x0"], ["y"], body=body([*steps, node(*GO_ON)], ["x"]))
    inputs = {"x0": (FLOAT, ["b", 4]), "bias": (FLOAT, [4]), "n": ("int64", [])}
    given = model([loop], inputs, {"y": (FLOAT, ["b", 4])}, {"w": random(4, 4)})
    runs = [(random(b, 4), random(4), np.array(n)) for b in (1, 3) for n in (0, 1, 5)]
    module = check(given, *runs)
    assert [str(name) for name in module.functions if name.startswith("loop")] == [
        "loop_condition",
        "loop_body",
        "loop",
    ]


@pytest.mark.parametrize("opt_level", [0, 2])
def test_until_the_data_say_so(opt_level: int) -> None:
    steps = [
        node("Mul", ["x", "two"], ["x_out"]),
        node("ReduceSum", ["x_out"], ["s"], keepdims=0),
        node("Less", ["s", "limit"], ["on"]),
        node("Cast", ["i"], ["fi"], to=1),
        node("Add", ["x_out", "fi"], ["row"]),
    ]
    loop = node("Loop", ["most", "first", "x0"], ["y", "rows"], body=body(steps, ["x"], ["row"]))
    inputs = {"x0": (FLOAT, ["b"]), "limit": (FLOAT, []), "first": ("bool", [])}
    outputs = {"y": (FLOAT, ["b"]), "rows": (FLOAT, ["r", "b"])}
    given = model([loop], inputs, outputs, {"two": np.float32(2), "most": np.int64(10)})
    runs = [(np.ones(3, FLOAT), np.array(limit, FLOAT), np.array(True)) for limit in (5, 100, 1e9)]
    check(given, *runs, opt_level=opt_level)
    run = mlcc.load(mlcc.build(translate(given), opt_level=opt_level))["main"]
    y, rows = run(np.ones(3, FLOAT), np.array(9, FLOAT), np.array(False))
    assert y.tolist() == [1, 1, 1] and rows.shape == (0, 3)


def test_loops_over_a_symbolic_length_agree() -> None:
    steps = [node("Gather", ["seq", "i"], ["e"]), node("Add", ["e", "x"], ["x_out"]), node("Neg", ["x_out"], ["row"])]
    around = [node("Shape", ["seq"], ["shape"]), node("Gather", ["shape", "zero"], ["n"])]
    loop = node("Loop", ["n", "", "x0"], ["y", "rows"], body=body([*steps, node(*GO_ON)], ["x"], ["row"]))
    inputs = {"seq": (FLOAT, ["t", "d"]), "x0": (FLOAT, ["d"])}
    outputs = {"y": (FLOAT, ["d"]), "rows": (FLOAT, ["t", "d"])}
    given = model([*around, loop], inputs, outputs, {"zero": np.int64(0)})
    module = check(given, *((random(t, 3), random(3)) for t in (1, 2, 7)))
    assert re.search(r"-> R.Tuple\(.*R.Tensor\(\(\"t\", \"d\"\)", mlcc.script(module))  # a known length, no data


@pytest.mark.parametrize("axes", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("directions", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("length", ["t", 70])
def test_scans_agree(axes: tuple[int, int], directions: tuple[int, int], length: Any) -> None:
    from onnx import helper

    inner = helper.make_graph(
        [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "k"], ["row"])], "body",
        [value("s", FLOAT, [3]), value("e", FLOAT, [3])], [value("s2", FLOAT, [3]), value("row", FLOAT, [3])],
    )  # fmt: skip
    scan = node(
        "Scan", ["x0", "x"], ["last", "rows"], body=inner, num_scan_inputs=1, scan_input_axes=[axes[0]],
        scan_output_axes=[axes[1]], scan_input_directions=[directions[0]], scan_output_directions=[directions[1]],
    )  # fmt: skip
    shape = [length, 3] if axes[0] == 0 else [3, length]
    inputs = {"x0": (FLOAT, [3]), "x": (FLOAT, shape), "k": (FLOAT, [])}
    given = model([scan], inputs, {"last": (FLOAT, [3]), "rows": (FLOAT, ["p", "q"])})
    for t in (1, 5) if length == "t" else (length,):
        x, x0, k = random(*((t, 3) if axes[0] == 0 else (3, t))), random(3), np.array(2, FLOAT)
        run = mlcc.load(mlcc.build(translate(given), opt_level=1))["main"]
        along = x if axes[0] == 0 else x.T
        sums = x0 + np.cumsum(along[::-1] if directions[0] else along, axis=0)
        rows = (sums * 2)[::-1] if directions[1] else sums * 2
        last, found = run(x0, x, k)
        np.testing.assert_allclose(last, sums[-1], rtol=1e-4)
        np.testing.assert_allclose(found, rows if axes[1] == 0 else rows.T, rtol=1e-4)


@pytest.mark.parametrize("most", ["constant", "shape"])
@pytest.mark.parametrize("conditional", [False, True])
def test_loops_that_grow_a_tensor_agree(most: str, conditional: bool) -> None:
    """Two rows more in each round; the condition ends it early."""
    steps = [
        node("ReduceSum", ["x"], ["s"], keepdims=1),
        node("Concat", ["x", "s", "s"], ["x_out"], axis=0),
        node("Less", ["s", "limit"], ["less"]),
        node("Reshape", ["less", "scalar"], ["on"]),
    ]
    around = [node("Shape", ["x0"], ["shape"]), node("Gather", ["shape", "zero"], ["n"])]
    counts = ["n" if most == "shape" else "seventy", "first" if conditional else "", "x0"]
    inputs = {"x0": (FLOAT, ["b", 1]), "limit": (FLOAT, [])} | ({"first": ("bool", [])} if conditional else {})
    constants = {"seventy": np.int64(70), "zero": np.int64(0), "scalar": np.array([], "int64")}
    given = model(
        [*around, node("Loop", counts, ["y"], body=body(steps, ["x"]))], inputs, {"y": (FLOAT, ["q", 1])}, constants
    )
    more = (np.array(True),) if conditional else ()
    limits = (0.01, 1.0)
    check(given, *((np.full((b, 1), 1e-3, FLOAT), np.array(limit, FLOAT), *more) for b in (1, 4) for limit in limits))


def test_without_a_bound_it_is_refused() -> None:
    steps = [node("Neg", ["x"], ["x_out"]), node("Neg", ["x"], ["row"]), node(*GO_ON)]
    inputs = {"x0": (FLOAT, [3]), "n": ("int64", [])}
    loop = node("Loop", ["n", "", "x0"], ["y", "rows"], body=body(steps, ["x"], ["row"]))
    given = model([loop], inputs, {"y": (FLOAT, [3]), "rows": (FLOAT, ["r", 3])})
    with pytest.raises(CompileError, match=r"E1002.*`Loop`: the trip count of a loop depends on data"):
        translate(given)
    steps = [node("Concat", ["x", "x"], ["x_out"], axis=0), node(*GO_ON)]
    given = model([node("Loop", ["n", "", "x0"], ["y"], body=body(steps, ["x"]))], inputs, {"y": (FLOAT, ["q"])})
    with pytest.raises(
        CompileError, match=r"E1002.*`Loop`: a loop-carried value must keep its shape, or grow by a constant extent"
    ):
        translate(given)


@pytest.mark.parametrize("part", ["NonZero", "Range"])
def test_what_a_round_finds_bounds_no_memory(part: str) -> None:
    """Extents that data or the number of the round decide are of no use outside of the round."""
    if part == "NonZero":
        parts, shape = [node("NonZero", ["v"], ["row"]), node("Squeeze", ["row", "zero"], ["part"])], [None, None]
    else:
        parts, shape = [node("Range", ["first", "i", "step"], ["row"]), node("Identity", ["row"], ["part"])], [None]
    length = [node("Shape", ["v"], ["shape"]), node("Squeeze", ["shape", "zero"], ["n"])]
    constants = {"zero": np.array([0]), "first": np.int64(0), "step": np.int64(1)}
    inputs = {"v": (FLOAT, ["k"]), "x0": ("int64", [2])}
    grows = body([*parts, node("Concat", ["x", "part"], ["x_out"], axis=0), node(*GO_ON)], ["x"])
    given = model(
        [*length, node("Loop", ["n", "", "x0"], ["y"], body=grows)], inputs, {"y": ("int64", [None])}, constants
    )
    with pytest.raises(CompileError, match=r"E1002.*must keep its shape, or grow by a constant extent"):
        translate(given)
    rows = body([*parts, node("Identity", ["x"], ["x_out"]), node(*GO_ON)], ["x"], ["row"])
    outputs = {"y": ("int64", [2]), "rows": ("int64", [None, *shape])}
    given = model([*length, node("Loop", ["n", "", "x0"], ["y", "rows"], body=rows)], inputs, outputs, constants)
    with pytest.raises(CompileError, match=r"E1002.*a shape that is known before"):
        translate(given)


# ---------------------------------------------------------------- PyTorch


def test_loops_of_torch_agree(torch: Any, tmp_path: Path) -> None:
    from torch._higher_order_ops import map, scan, while_loop

    def until(m: Any, x: Any, k: Any) -> Any:
        return while_loop(
            lambda i, y: (i < 100) & (y.sum() < k),
            lambda i, y: (i + 1, y * 2 + x[:, :3].sum(0)),
            (torch.zeros((), dtype=torch.int64), torch.ones(3)),
        )

    def scanned(m: Any, x: Any, k: Any) -> Any:
        return scan(lambda c, e: (c * 0.5 + e * k, c + e), x[0] * 0, x, dim=0, reverse=True)

    def mapped(m: Any, x: Any, k: Any) -> Any:
        return map(lambda e, k: e * k + e.shape[0], x, k)

    length = torch.export.Dim("t", min=2, max=100)
    x, k = torch.rand(70, 4), torch.tensor(60.0)
    for function in (until, scanned, mapped):
        given = function_model(torch, function)
        agree(torch, tmp_path, given, x, k)
        agree(torch, tmp_path, given, x, k, dynamic=((({0: length}, None)),), again=((x[:2], k), (x[:9], k * 10)))


def test_a_loop_that_counts_by_multiples(torch: Any) -> None:
    from torch._higher_order_ops import while_loop

    class Counted(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            start = torch.tensor(20), x
            return while_loop(lambda i, y: i > 0, lambda i, y: (torch.sub(i, 3, alpha=2), y * 0.5 + x), start)[1]

    against_torch(Counted(), torch.rand(4, 3))


def test_a_loop_that_counts_in_numbers(torch: Any) -> None:
    from torch._higher_order_ops import while_loop

    class Counted(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, k: Any) -> Any:
            n = x.shape[0]
            return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2 + k), (0, x))[1]

    length = torch.export.Dim("t", min=2, max=100)
    x, k = torch.rand(4, 3), torch.tensor(0.1)
    against_torch(Counted(), x, k, dynamic=({0: length}, None), again=((torch.rand(7, 3), k),))
