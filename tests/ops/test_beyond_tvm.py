"""Operators that TVM lacks, and what is wider than there, against known results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function


def module(parameters: str, *bindings: str) -> mlcc.IRModule:
    """A function of the parameters that returns what the last line binds."""
    lines = "\n            ".join(bindings)
    result = bindings[-1].partition(" =")[0]
    return mlcc.parse(f"""
@I.ir_module
class Module:
    @R.function
    def main({parameters}):
        with R.dataflow():
            {lines}
            R.output({result})
        return {result}
""")


def run(mod: mlcc.IRModule, *inputs: Any) -> np.ndarray:
    """The result of compiled code, which is that of the interpreter; the text reads back."""
    for dialect in ("mlcc", "tvm"):
        mlcc.assert_structural_equal(mlcc.parse(mlcc.script(mod, dialect=dialect)), mod)
    made = np.asarray(mlcc.load(mlcc.build(mod))["main"](*inputs))
    np.testing.assert_allclose(made, run_function(mod, "main", list(inputs)), rtol=1e-5)
    return made


@pytest.mark.parametrize("dtype, tiny", [("float32", 1e-20), ("float64", 1e-200)])
def test_expm1_and_log1p_are_exact_near_zero(dtype: str, tiny: float) -> None:
    x = np.array([tiny, -tiny, 1e-5, -1e-5, 0.3, -0.3, 0.7, -0.7, 0.0, 5.0], dtype)
    for name, reference in (("expm1", np.expm1), ("log1p", np.log1p)):
        made = run(module(f'x: R.Tensor(("n",), "{dtype}")', f"gv = R.{name}(x)"), x)
        np.testing.assert_allclose(made, reference(x.astype(np.longdouble)), rtol=4 * float(np.finfo(dtype).eps))


def test_ends_of_expm1() -> None:
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 100.0, -100.0], "float32")
    made = run(module('x: R.Tensor((6,), "float32")', "gv = R.expm1(x)"), x)
    np.testing.assert_array_equal(made, np.array([np.inf, -1, np.nan, -0.0, np.inf, -1], "float32"))
    assert np.signbit(made[3])


# torch.tensor([1., 2., 3., 4.]).scatter_reduce(0, torch.tensor([0, 2, 2, 0]), torch.tensor([5., 7., -8., 6.]), ...)
SCATTERED = {
    ("sum", True): [12, 2, 2, 4],
    ("sum", False): [11, 2, -1, 4],
    ("mean", True): [4, 2, 2 / 3, 4],
    ("mean", False): [5.5, 2, -0.5, 4],
    ("prod", True): [30, 2, -168, 4],
    ("prod", False): [30, 2, -56, 4],
    ("amax", True): [6, 2, 7, 4],
    ("amax", False): [6, 2, 7, 4],
    ("amin", True): [1, 2, -8, 4],
    ("amin", False): [5, 2, -8, 4],
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_scatter_reduce_gives_known_results(dtype: str) -> None:
    inputs = [np.array([1, 2, 3, 4], dtype), np.array([0, 2, -2, 0]), np.array([5, 7, -8, 6], dtype)]
    given = f'x: R.Tensor((4,), "{dtype}"), i: R.Tensor((4,), "int64"), u: R.Tensor((4,), "{dtype}")'
    for (reduce, include), expected in SCATTERED.items():
        call = f'gv = R.scatter_reduce(x, i, u, axis=0, reduce="{reduce}", include_self={include})'
        made = run(module(given, call), *inputs)
        want = np.floor(expected) if dtype == "int64" else np.array(expected)
        np.testing.assert_allclose(made, want.astype(dtype), rtol=1e-3, err_msg=call)


@pytest.mark.parametrize("bad", ['reduce="average"', "axis=1"])
def test_scatter_reduce_refuses(bad: str) -> None:
    with pytest.raises(CompileError, match=r"`R.scatter_reduce`"):
        module(
            'x: R.Tensor((4,)), i: R.Tensor((2,), "int64"), u: R.Tensor((2,))', f"gv = R.scatter_reduce(x, i, u, {bad})"
        )


def test_index_put_of_leading_dimensions() -> None:
    given = 'x: R.Tensor((4, "n", 3), "float32"), i: R.Tensor((2, 1), "int64"), v: R.Tensor(("n", 3), "float32")'
    x, i, v = np.zeros((4, 5, 3), "float32"), np.array([[1], [-1]]), np.arange(15, dtype="float32").reshape(5, 3)
    want = x.copy()
    want[(i,)] = v
    np.testing.assert_array_equal(run(module(given, "gv = R.index_put(x, (i,), v)"), x, i, v), want)


def test_index_put_of_later_dimensions() -> None:
    """`x[:, :, i] = v`, as documented."""
    x, i = np.zeros((2, 3, 4, 2), "float32"), np.array([3, 0])
    v = np.arange(24, dtype="float32").reshape(2, 3, 2, 2)
    mod = module(
        'x: R.Tensor(("n", "m", 4, 2), "float32"), i: R.Tensor((2,), "int64"), '
        'v: R.Tensor(("n", "m", 2, 2), "float32")',
        "n = T.int64(); m = T.int64()",
        "rows = R.reshape(R.arange(0, n, 1, 'int64'), (n, 1, 1))",
        "columns = R.reshape(R.arange(0, m, 1, 'int64'), (m, 1))",
        "gv = R.index_put(x, (rows, columns, i), v)",
    )
    want = x.copy()
    want[:, :, i] = v
    np.testing.assert_array_equal(run(mod, x, i, v), want)


def test_full_takes_a_symbolic_size() -> None:
    mod = module('x: R.Tensor(("n", 2), "int8")', "n = T.int64()", "gv = R.full((n, 2), R.prim_value(n * 3))")
    np.testing.assert_array_equal(run(mod, np.zeros((4, 2), "int8")), np.full((4, 2), 12))
    mod = module('x: R.Tensor(("n",), "float32")', "n = T.int64()", "gv = R.full_like(x, R.prim_value(n))")
    np.testing.assert_array_equal(run(mod, np.zeros(3, "float32")), np.full(3, 3, "float32"))


@pytest.mark.parametrize("text, value", [("inf", np.inf), ("-inf", -np.inf), ("nan", np.nan)])
def test_infinity_as_tvm_prints_it(text: str, value: float) -> None:
    for dtype in ("float32", "float16"):
        mod = module(f'x: R.Tensor((2,), "{dtype}")', f'gv = R.add(x, R.const("{text}", "{dtype}"))')
        np.testing.assert_array_equal(run(mod, np.ones(2, dtype)), np.full(2, value, dtype))
        assert f'R.const(float("{text}"), "{dtype}")' in mlcc.script(mod)


@pytest.mark.parametrize(
    "constant, match", [('"infinite", "float32"', "is not a number"), ('"inf", "int32"', "does not fit")]
)
def test_no_other_text_is_a_number(constant: str, match: str) -> None:
    with pytest.raises(CompileError, match=match):
        module('x: R.Tensor((2,), "float32")', f"gv = R.const({constant})")


@pytest.mark.parametrize("index", ['R.const(-1, "int64")', "R.prim_value(-1)"])
def test_take_of_the_last(index: str) -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    mod = module('x: R.Tensor((2, 3), "float32")', f'gv = R.take(x, {index}, axis=1, mode="fast")')
    np.testing.assert_array_equal(run(mod, x), x[:, -1])


@pytest.mark.parametrize("index", ['R.const([0, 3], "int64")', 'R.const(-4, "int32")', "R.prim_value(3)"])
def test_take_refuses_a_constant_outside(index: str) -> None:
    with pytest.raises(CompileError, match=r"E0445.*outside dimension 1, which has 3"):
        module('x: R.Tensor((2, 3), "float32")', f"gv = R.take(x, {index}, axis=1)")
    module('x: R.Tensor((2, 3), "float32")', f'gv = R.take(x, {index}, axis=1, mode="clip")')


BOXES = [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]
SCORES = [0.9, 0.75, 0.6, 0.95, 0.5, 0.3]


def suppressed(boxes: Any, scores: Any, most: int, iou: float, least: float | None, **attrs: Any) -> list[list[int]]:
    """What `R.vision.multiclass_nms` selects, of known and of symbolic sizes."""
    x, y = np.array(boxes, "float32"), np.array(scores, "float32")
    limits = [f'R.const({most}, "int64")', f'R.const({iou}, "float32")']
    limits += [] if least is None else [f'R.const({least}, "float32")']
    more = "".join(f", {k}={v}" for k, v in attrs.items())
    made = []
    for b, c, n in (x.shape[0], y.shape[1], x.shape[1]), ('"b"', '"c"', '"n"'):
        given = f'x: R.Tensor(({b}, {n}, 4), "float32"), y: R.Tensor(({b}, {c}, {n}), "float32")'
        made.append(run(module(given, f"gv = R.vision.multiclass_nms(x, y, {', '.join(limits)}{more})"), x, y).tolist())
    assert made[0] == made[1]
    return list(made[0])


_TURNED = [[y2, x2, y1, x1] for y1, x1, y2, x2 in BOXES]
_CENTERS = [[(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1] for y1, x1, y2, x2 in BOXES]
_TWO = [[0, 0, 3], [0, 0, 0], [0, 1, 3], [0, 1, 0], [1, 0, 3], [1, 0, 0], [1, 1, 3], [1, 1, 0]]
_OF_ONNX: list[tuple[Any, Any, int, float | None, bool, list[list[int]]]] = [
    ([BOXES], [[SCORES]], 3, 0.0, False, [[0, 0, 3], [0, 0, 0], [0, 0, 5]]),
    ([_TURNED], [[SCORES]], 3, 0.0, False, [[0, 0, 3], [0, 0, 0], [0, 0, 5]]),
    ([_CENTERS], [[SCORES]], 3, 0.0, True, [[0, 0, 3], [0, 0, 0], [0, 0, 5]]),
    ([[[0, 0, 1, 1]] * 10], [[[0.9] * 10]], 3, 0.0, False, [[0, 0, 0]]),
    ([BOXES], [[SCORES]], 2, 0.0, False, [[0, 0, 3], [0, 0, 0]]),
    ([BOXES], [[SCORES]], 3, 0.4, False, [[0, 0, 3], [0, 0, 0]]),
    ([BOXES[:1]], [[SCORES[:1]]], 3, 0.0, False, [[0, 0, 0]]),
    ([BOXES] * 2, [[SCORES] * 2] * 2, 2, 0.0, False, _TWO),
    ([BOXES], [[SCORES]], 0, None, False, []),
]


@pytest.mark.parametrize(("boxes", "scores", "most", "least", "centers", "kept"), _OF_ONNX)
def test_nms_gives_the_results_of_onnx(
    boxes: Any, scores: Any, most: int, least: float | None, centers: bool, kept: list[list[int]]
) -> None:
    """The cases of the operator's definition."""
    assert suppressed(boxes, scores, most, 0.5, least, **({"center_point_box": True} if centers else {})) == kept


def test_nms_follows_its_limits() -> None:
    """Without a least score all count, also minus infinity; equal scores stay in order; limits that are inputs."""
    low = [[[-np.inf, 0.5, 0.5, -1, 0.5, 0.5]]]
    assert suppressed([BOXES], low, 9, 0.999, None) == [[0, 0, p] for p in (1, 2, 4, 5, 3, 0)]
    mod = module(
        'x: R.Tensor((1, 6, 4), "float32"), y: R.Tensor((1, 1, 6), "float32"), k: R.Tensor((1,), "int32"), '
        't: R.Tensor((), "float64")',
        'gv = R.vision.multiclass_nms(x, y, k, t, R.const([0.4], "float32"))',
    )
    inputs = np.array([BOXES], "float32"), np.array([[SCORES]], "float32")
    assert run(mod, *inputs, np.array([1], "int32"), np.array(0.5)).tolist() == [[0, 0, 3]]
    assert len(run(mod, *inputs, np.array([-1], "int32"), np.array(0.5))) == 0


@pytest.mark.parametrize(
    "given", ["(1, 6, 5)|(1, 1, 6)", "(1, 6, 4)|(1, 1, 5)", "(6, 4)|(1, 6)", "(2, 6, 4)|(1, 1, 6)"]
)
def test_nms_refuses_wrong_shapes(given: str) -> None:
    x, y = given.split("|")
    with pytest.raises(CompileError, match="E0445"):
        parameters = f'x: R.Tensor({x}, "float32"), y: R.Tensor({y}, "float32")'
        module(parameters, 'gv = R.vision.multiclass_nms(x, y, R.const(3, "int64"), R.const(0.5, "float32"))')
