"""C source computes what the interpreter does; compilers have nothing to say about it."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.interp import run_function, run_prim_func
from mlcc.ir import relax, tir
from tests.generate import graphs
from tests.generate.functions import prim_func
from tests.ops import numbers
from tests.ops.cases import Mine
from tests.passes.arguments import arguments as graph_arguments
from tests.passes.arguments import leaves
from tests.targets.arguments import arguments, assert_alike, duplicate
from tests.targets.c_source import FLAGS, compiled, compilers, load, source
from tests.targets.test_header import DLPACK

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

SHARE = 5  # functions in one test; with --all-cases, 100
UNDEFINED = ("-fsanitize=undefined", "-Wno-error")  # prints what it finds to standard error


def check(func: tir.PrimFunc, seed: int, flags: tuple[str, ...], cc: str) -> None:
    exe = load(source(func), flags, cc)
    args, _ = arguments(func, seed)
    expected, given = duplicate(args), duplicate(args)
    call = exe[next(iter(exe.functions))]
    if _fails(lambda: run_prim_func(func, expected)):
        assert _fails(lambda: call(*given)), seed
    elif not _fails(lambda: call(*given), "must be"):  # entries check strides, which kernels of tests do not need
        assert_alike(func, given, expected, f"C source of {seed}")


def _fails(call: object, unless: str = "") -> bool:
    """Whether a call fails; for the reason `unless` if that is given."""
    try:
        call()  # type: ignore[operator]
    except CallError as exc:
        assert unless in str(exc)
        return True
    return False


@pytest.mark.parametrize("batch", range(8))
def test_generated_functions_match_the_interpreter(batch: int, all_cases: bool) -> None:
    for seed in range(20000 + batch * 100, 20000 + batch * 100 + (100 if all_cases else SHARE)):
        check(prim_func(seed), seed, FLAGS, compilers()[seed % len(compilers())])


@pytest.mark.parametrize("batch", range(3))
def test_nothing_generated_is_undefined(batch: int, all_cases: bool, capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(30000 + batch * 100, 30000 + batch * 100 + (100 if all_cases else SHARE)):
        check(prim_func(seed), seed, (*FLAGS, *UNDEFINED), "cc")
        assert "runtime error" not in capfd.readouterr().err, seed


@pytest.mark.parametrize("seed", range(12))
def test_random_modules_match_the_interpreter(seed: int) -> None:
    module = graphs.module(seed, graphs.Options(packed=False))
    func = module["main"]
    assert isinstance(func, relax.Function)
    exe = load(source(module, seed % 4))
    given = graph_arguments(func, random.Random(seed))
    for a, b in zip(leaves(exe["main"](*given)), leaves(run_function(module, "main", given)), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        tolerance = 1e-2 if a.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=tolerance, atol=tolerance)


MLP = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 5), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            z = R.nn.softmax(R.add(y, R.const([1.0, 2.0, 3.0, 4.0, 5.5], "float32")))
            R.output(z)
        return z
"""


@pytest.mark.parametrize("rows", [0, 1, 7, 64])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_network_has_the_numbers_of_the_object(rows: int, level: int) -> None:
    module = mlcc.parse(MLP)
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, 8)).astype("float32"), rng.standard_normal((8, 5)).astype("float32")
    expected = mlcc.load(mlcc.build(module, opt_level=level))["main"](x, w)
    np.testing.assert_allclose(load(source(module, level))["main"](x, w), expected, rtol=1e-5, atol=1e-6)


def test_entries_check_their_arguments_as_those_of_an_object_do() -> None:
    module = mlcc.parse(MLP)
    pair = mlcc.load(mlcc.build(module)), load(source(module))
    good = np.ones((2, 8), "float32"), np.ones((8, 5), "float32")
    for args in (
        (np.ones((2, 9), "float32"), good[1]), (np.ones((2, 8), "float64"), good[1]), (good[0], np.ones(8, "float32")),
    ):  # fmt: skip
        messages = []
        for exe in pair:
            with pytest.raises(CallError) as caught:
                exe["main"](*args)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_the_source_is_valid_cpp_and_the_header_fits_it() -> None:
    text = source(mlcc.parse(MLP)).emit("c", "model")
    command = ["c++", "-x", "c++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-"]
    subprocess.run(command, input=text, check=True)


PACKED = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def kernel(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32")):
        for i, j in T.grid(2, 3):
            B[i, j] = A[i, j] + T.Cast("float32", T.call_extern("int32", "next_id"))
        T.call_packed("test.look", B)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_sinfo=R.Tensor((2, 3), "float32"))
        return R.call_dps_packed("test.double", (y,), R.Tensor((2, 3), "float32"))
"""


@pytest.mark.parametrize("dlpack", ["", DLPACK])
def test_calls_of_other_code_are_valid_cpp(tmp_path: Path, dlpack: str) -> None:
    """With DLPack's own header, too, where the kind of a device is an enumeration."""
    (tmp_path / "model.cc").write_bytes(
        mlcc.build(mlcc.parse(PACKED), "c", allow_extern=["next_id"]).emit("c", "model")
    )
    if dlpack:
        (tmp_path / "dlpack.h").write_text(dlpack)
    command = ["c++", "-Wall", "-Wextra", "-Werror", "-I", str(tmp_path), "-c", "model.cc", "-o", "model.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    needed = subprocess.run(["nm", "-u", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "next_id" in needed.split()  # C's name, not one of C++


def test_a_source_compiles_with_its_header_before_it(tmp_path: object) -> None:
    artifact = source(mlcc.parse(MLP))
    parts = (artifact.header("model.c").encode(), artifact.emit("c", "model"))
    artifact.emit = lambda *_: b"\n".join(parts)  # type: ignore[method-assign]
    compiled(artifact)


def test_two_builds_give_the_same_bytes() -> None:
    assert source(mlcc.parse(MLP)).emit() == source(mlcc.parse(MLP)).emit()


@pytest.mark.parametrize("batch", range(6))
def test_operators_match_their_references(batch: int, all_cases: bool) -> None:
    """Calls of operators: one in twelve of them, all with --all-cases."""
    for case in numbers.CASES[batch :: 6 if all_cases else 72]:
        side = Mine()
        module = side.module(case)
        inputs = numbers.arrays(case, side.params)
        wanted = leaves(run_function(module, "main", inputs))
        for a, b in zip(leaves(load(source(module))["main"](*inputs)), wanted, strict=True):
            half = any(x.dtype == np.float16 for x in (*inputs, b))
            tolerance = 0 if not np.issubdtype(b.dtype, np.floating) else 4e-3 if half else 2e-5
            assert a.shape == b.shape and a.dtype == b.dtype, case
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=str(case))
