"""Building: every legal module is accepted, and what cannot be built is said at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.driver import build, parse_file, run_compiled, write_module
from mlcc.errors import CompileError
from mlcc.passes.manage.manager import PassFailed

HIGH_LEVEL = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float32"), b: R.Tensor((3,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            gv = R.nn.relu(lv1)
            R.output(gv)
        return gv
"""

PRIM_FUNC = """
@T.prim_func
def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.float32(2)
"""

MIXTURE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function(private=True)
    def fused(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        R.func_attr({"Primitive": True})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((n,), "float32"))
            gv = R.add(lv, x)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        cls = Module
        with R.dataflow():
            lv = cls.fused(x)
            gv = R.multiply(lv, x)
            R.output(gv)
        return gv
"""


@pytest.mark.parametrize("level", range(4))
def test_every_level_builds_every_kind_of_module(level: int) -> None:
    random = np.random.RandomState(0)
    x, w, b = (random.uniform(-1, 1, s).astype("float32") for s in ((2, 4), (4, 3), (3,)))
    exe = mlcc.load(mlcc.build(mlcc.parse(HIGH_LEVEL), opt_level=level))
    np.testing.assert_allclose(exe["main"](x, w, b), np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)

    row = random.uniform(-1, 1, 4).astype("float32")
    out = np.zeros(4, "float32")
    mlcc.load(mlcc.build(mlcc.parse(PRIM_FUNC), opt_level=level))["double"](row, out)
    np.testing.assert_array_equal(out, row * 2)

    exe = mlcc.load(mlcc.build(mlcc.parse(MIXTURE), opt_level=level))
    np.testing.assert_allclose(exe["main"](row), row * 3 * row, rtol=1e-6)


def test_a_function_alone_is_a_module() -> None:
    func = mlcc.parse(PRIM_FUNC)["double"]
    out = np.zeros(4, "float32")
    mlcc.load(build(func))["double"](np.ones(4, "float32"), out)
    assert out.tolist() == [2.0] * 4


def test_run_compiled_takes_a_module_as_it_is() -> None:
    (x,) = (np.arange(3, dtype="float32"),)
    np.testing.assert_allclose(run_compiled(mlcc.parse(MIXTURE), "main", [x]), 3 * x * x)


def test_what_cannot_be_lowered_is_listed_with_place_and_count() -> None:
    text = """
@R.function
def main(x: R.Tensor((1, 4, 6), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
    a = R.vision.get_valid_counts(x, 0.5)
    b = R.vision.get_valid_counts(x, 0.25)
    c = R.add(y, y)
    return (a, b, c)
"""
    with pytest.raises(CompileError) as caught:
        mlcc.build(mlcc.parse(text, name="m.mlc"))
    found = caught.value.diagnostics
    assert [d.code for d in found] == ["E0509", "E0509"]
    assert found[0].message == "`R.vision.get_valid_counts` cannot be lowered (2 uses: lines 4, 5)"
    assert "packed function" in (found[0].help or "")
    assert str(caught.value).startswith("m.mlc:4:")
    assert found[1].message == "`R.add` cannot be lowered"
    assert "R.match_cast" in (found[1].help or "")


def test_dtypes_without_a_lowering_are_listed_with_lines_and_count() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "bool"), z: R.Tensor((1, 4, 6), "float32")):
        a = R.negative(y)
        b = R.bitwise_not(x)
        c = (R.vision.get_valid_counts(z, 0.5), R.vision.get_valid_counts(z, 0.5))
        d = R.ccl.allreduce(x, "sum")  # the runtime's functions do it
        return (a, R.negative(a), b, c, d)

    @R.function
    def other(y: R.Tensor((4,), "bool")):
        return R.negative(y)
"""
    with pytest.raises(CompileError) as caught:
        mlcc.build(mlcc.parse(text, name="m.mlc"))
    found = caught.value.diagnostics
    assert [d.code for d in found] == ["E0444", "E0444", "E0509"]
    assert "R.negative" in found[0].message and found[0].message.endswith("(3 uses: lines 6, 10, 14)")
    assert "R.bitwise_not" in found[1].message and "uses" not in found[1].message
    assert found[2].message == "`R.vision.get_valid_counts` cannot be lowered (2 uses)"


def test_without_lowering_the_help_names_the_pass() -> None:
    with pytest.raises(CompileError, match="lower-to-tir"):
        mlcc.build(mlcc.parse(HIGH_LEVEL), pipeline="fuse")


def test_missing_constants_are_reported() -> None:
    text = """
@R.function
def main(x: R.Tensor((4, 32), "float32")):
    a = R.add(x, metadata["relax.expr.Constant"][0])
    return a
"""
    with pytest.raises(CompileError, match="constant"):
        mlcc.build(mlcc.parse(text))


def test_an_ill_formed_module_is_refused() -> None:
    module = mlcc.parse(MIXTURE)
    del module["double"]
    with pytest.raises(CompileError, match="double"):
        mlcc.build(module)


def test_levels_end_at_3() -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        mlcc.build(mlcc.parse(PRIM_FUNC), opt_level=4)


def test_a_bug_in_code_generation_leaves_a_reproducer(monkeypatch: pytest.MonkeyPatch) -> None:
    import mlcc.targets.llvm.module

    def broken(*args: object, **kwargs: object) -> None:
        raise IndexError("oops")

    monkeypatch.setattr(mlcc.targets.llvm.module, "compile_module", broken)
    with pytest.raises(PassFailed, match="oops") as caught:
        mlcc.build(mlcc.parse(HIGH_LEVEL))
    path = Path(caught.value.reproducer or "")
    text = path.read_text()
    path.unlink()
    assert f"# mlcc compile {path} -t 'llvm' -p ''" in text
    mlcc.parse(text)


def test_large_constants_lie_beside_the_file(tmp_path: Path) -> None:
    weights = np.arange(40, dtype="float32")
    np.savez(tmp_path / "w.npz", w=weights)
    text = """
@R.function
def main(x: R.Tensor((40,), "float32"), w: R.Tensor((40,), "float32")):
    a = R.add(x, w)
    return a
"""
    module = mlcc.run_passes(mlcc.parse(text), "bind-params{params=w.npz}", folder=str(tmp_path))
    path = tmp_path / "out.mlc"
    write_module(module, str(path))
    assert len(path.read_text()) < 1000
    again = parse_file(str(path))
    mlcc.assert_structural_equal(module, again)
    exe = mlcc.load(mlcc.build(again))
    np.testing.assert_array_equal(exe["main"](np.ones(40, "float32")), weights + 1)
