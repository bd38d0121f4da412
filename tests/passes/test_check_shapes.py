"""Sizes that operators take to be equal: stated by a pass, checked when a compiled function is entered."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir import relax

# name: parameters, expression; symbols are the letters of the shapes
FUNCTIONS = {
    "product": ('x: R.Tensor(("n", "k"), "float32"), y: R.Tensor(("j", "m"), "float32")', "R.matmul(x, y)"),
    "conv": ('x: R.Tensor(("n", "c", 4, 4), "float32"), w: R.Tensor((2, "d", 3, 3), "float32")', "R.nn.conv2d(x, w)"),
    "norm": ('x: R.Tensor(("n", "m"), "float32"), g: R.Tensor(("k",), "float32")', "R.nn.rms_norm(x, g, axes=[-1])"),
    "shaped": ('x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("k",), "float32")', "R.reshape(x, (k, 2))"),
    "left": ('x: R.Tensor(("n", 4), "float32")', "R.reshape(x, (-1, 8))"),
    "spread": ('x: R.Tensor(("n",), "float32"), y: R.Tensor(("k",), "float32")', "R.broadcast_to(x, (2, k))"),
    "slice": ('x: R.Tensor(("n",), "float32"), y: R.Tensor(("k",), "float32")',
              "R.strided_slice(x, axes=[0], begin=[0], end=[k], assume_inbound=True)"),
    "back": ('x: R.Tensor(("n",), "float32"), y: R.Tensor(("k",), "float32")',
             "R.strided_slice(x, axes=[0], begin=[k], end=[-1], strides=[-1], assume_inbound=True)"),
    "parts": ('x: R.Tensor(("n",), "float32")', "R.split(x, 3, axis=0)"),
    "picked": ('x: R.Tensor(("n", "m"), "float32"), i: R.Tensor(("k", "j"), "int64")',
               "R.gather_elements(x, i, axis=0)"),
    "put": ('x: R.Tensor(("n", "m"), "float32"), i: R.Tensor(("k", "j"), "int64"), u: R.Tensor(("k", "l"), "float32")',
            "R.scatter_elements(x, i, u, axis=0)"),
}  # fmt: skip


def function(name: str) -> str:
    params, value = FUNCTIONS[name]
    symbols = sorted(set(re.findall(r'"(\w)"', params)))
    lines = [f"    {s} = T.int64()" for s in symbols]
    return "\n".join(["@R.function", f"def {name}({params}):", *lines, f"    r = {value}", "    return r"])


@pytest.fixture(scope="module")
def module() -> mlcc.IRModule:
    return mlcc.parse("\n".join(map(function, FUNCTIONS)))


@pytest.fixture(scope="module")
def compiled(module: mlcc.IRModule) -> Any:
    return mlcc.load(mlcc.build(module, opt_level=0))


def array(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype) % 2


WHOLE = "int64"
CALLS = [
    ("product", [array(2, 3), array(3, 5)], None),
    ("product", [array(2, 3), array(4, 5)], "k is 3, expected j = 4, in line"),
    ("conv", [array(1, 3, 4, 4), array(2, 3, 3, 3)], None),
    ("conv", [array(1, 3, 4, 4), array(2, 2, 3, 3)], "c is 3, expected d = 2"),
    ("norm", [array(2, 3), array(2)], "m is 3, expected k = 2"),
    ("shaped", [array(3, 4), array(6)], None),
    ("shaped", [array(3, 4), array(7)], r"n \* 4 is 12, expected k \* 2 = 14"),
    ("left", [array(4, 4)], None),
    ("left", [array(3, 4)], r"n \* 4 is 12, expected .* = 8"),
    ("spread", [array(1), array(4)], None),
    ("spread", [array(3), array(4)], "n is 3, expected 1 or k = 4"),
    ("slice", [array(4), array(4)], None),
    ("slice", [array(4), array(5)], r"min\(k, n\) is 4, expected k = 5"),
    ("back", [array(4), array(3)], None),
    ("back", [array(4), array(4)], r"min\(k \+ 1, n\) is 4, expected k \+ 1 = 5"),
    ("parts", [array(4)], None),
    ("parts", [array(1)], "is 1, expected .* = 2"),
    ("picked", [array(3, 2), array(1, 2, dtype=WHOLE)], None),
    ("picked", [array(3, 2), array(1, 3, dtype=WHOLE)], r"min\(j, m\) is 2, expected j = 3"),
    ("put", [array(3, 2), array(1, 2, dtype=WHOLE), array(1, 2)], None),
    ("put", [array(3, 2), array(1, 2, dtype=WHOLE), array(1, 3)], "j is 2, expected l = 3"),
    ("put", [array(3, 2), array(1, 3, dtype=WHOLE), array(1, 3)], "expected j = 3"),
]


@pytest.mark.parametrize(("name", "given", "message"), CALLS)
def test_compiled_functions_check_at_entry(
    module: mlcc.IRModule, compiled: Any, name: str, given: list[np.ndarray], message: str | None
) -> None:
    if message is None:
        want = run_function(module, name, given)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (compiled[name](*given), want)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
        return
    with pytest.raises(mlcc.CallError, match=message) as caught:
        compiled[name](*given)
    assert [d.code for d in caught.value.diagnostics] == ["E0814"]
    with pytest.raises(mlcc.CallError, match=message):
        compiled[name].bind(*given)


def casts(func: relax.Function) -> list[str]:
    found = [b for block in func.body.blocks for b in block.bindings if isinstance(b, relax.MatchCast)]
    return [f"{b.value} {b.struct_info}" for b in found]


def test_each_size_is_stated_once() -> None:
    module = mlcc.parse("""
@R.function
def main(x: R.Tensor((3, "k"), "float32"), y: R.Tensor(("j", 4), "float32"), z: R.Tensor(("k", 2), "float32")):
    with R.dataflow():
        a = R.matmul(x, y)
        b = R.matmul(x, y)
        c = R.matmul(x, z)
        R.output(a, b, c)
    return a, b, c
""")
    assert casts(mlcc.run_passes(module, "check-shapes")["main"]) == ["R.shape([k]) R.Shape([j])"]
    for level in ("O1", "O2", "O3"):
        assert len(casts(mlcc.run_passes(module, level)["main"])) == 1


def test_what_is_known_is_not_stated() -> None:
    module = mlcc.parse("""
@R.function
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4, "n * 2"), "float32"), z: R.Tensor(("n", "n * 2"), "int8")):
    n = T.int64()
    a = R.reshape(R.matmul(x, y), (2, n * n))
    b = R.reshape(a, (-1,))
    return b
""")
    made = mlcc.run_passes(module, "check-shapes")
    assert casts(made["main"]) == []
    assert mlcc.structural_equal(made, module)


def test_branches_that_are_not_taken_are_not_checked() -> None:
    module = mlcc.parse("""
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((1, "k"), "float32"), y: R.Tensor(("j", 1), "float32")):
    if c:
        a = R.matmul(x, y)
        r = a
    else:
        b = R.zeros((1, 1), "float32")
        r = b
    return r
""")
    main = mlcc.load(mlcc.build(module))["main"]
    assert main(np.array(False), array(1, 2), array(3, 1)) == 0
    with pytest.raises(mlcc.CallError, match="k is not j, in line 5"):
        main(np.array(True), array(1, 2), array(3, 1))


def test_casts_say_what_they_found() -> None:
    module = mlcc.parse("""
@R.function
def main(x: R.Tensor(ndim=2, dtype="float32"), y: R.Tensor(("n",), "float32")):
    n = T.int64()
    w = R.match_cast(x, R.Tensor((n, n * 2), "float32"))
    r = R.sum(w, axis=[1])
    return r
""")
    for level in (0, 2):
        main = mlcc.load(mlcc.build(module, opt_level=level))["main"]
        assert main(array(2, 4), array(2)).shape == (2,)
        with pytest.raises(mlcc.CallError, match=r"dim 1 of `w` is 5, expected n \* 2 = 4, in line 5"):
            main(array(2, 5), array(2))


IMPOSSIBLE = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    k = T.int64()
    w = R.match_cast(x, R.Tensor((k, k), "float32"))
    return w
"""


def test_casts_that_sizes_found_later_make_impossible() -> None:
    """They are the program's fault, whatever pass finds it."""
    module = mlcc.parse(IMPOSSIBLE)
    for rest in ("", ",canonicalize"):
        with pytest.raises(mlcc.CompileError, match=r"E0492.*dimension 1 is 4, not 3"):
            mlcc.run_passes(module, 'bind-symbolic-vars{vars={"n": 3, "m": 4}}' + rest)
    with pytest.raises(mlcc.CompileError, match=r"E0492.*dimension 1 is 4, not 3"):
        mlcc.build(mlcc.parse(IMPOSSIBLE.replace('("n", "m")', "(3, 4)")))
