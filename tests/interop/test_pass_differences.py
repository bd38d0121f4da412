"""Where our passes differ from TVM's on purpose (docs/passes.md): that TVM's still do what the page says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function

tvm = pytest.importorskip("tvm")
T = tvm.relax.transform

CONV = """\
@R.function
def main(x: R.Tensor((2, 8, 9, 9), "float32"), w: R.Tensor((8, 8, 3, 3), "float32"), g: R.Tensor((8,), "float32"),
         s: R.Tensor((2, 1, 7, 7), "float32")):
    with R.dataflow():
        c = R.nn.conv2d(x, w, out_dtype="float32")
        {body}
        R.output(y)
    return y
"""

NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}


def run_in_tvm(text: str, made: Any) -> Any:
    return made(tvm.script.from_source(mlcc.script(mlcc.parse(text), dialect="tvm")))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("y = R.multiply(c, s)", "Cannot broadcast"),
        ("y = R.nn.group_norm(c, g, g, num_groups=2, channel_axis=1, axes=[2, 3])", "group_norm"),
        ("y = R.nn.layer_norm(c, g, g, axes=[1])", "layer_norm"),
        ('f = R.match_cast(c, R.Tensor((2, 8, 7, 7), "float32"))\n        y = R.nn.relu(f)', "ndim"),
    ],
)
def test_split_layouts_that_end_in_errors(body: str, says: str) -> None:
    text = CONV.format(body=body)
    with pytest.raises(Exception, match=says):
        run_in_tvm(text, T.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]}))
    mlcc.run_passes(mlcc.parse(text), 'convert-layout{layouts={"nn.conv2d": ["NCHW4c", "OIHW4o"]}}')


def test_split_layouts_of_kept_axes() -> None:
    text = CONV.format(body="y = R.sum(c, axis=[1], keepdims=True)")
    made = run_in_tvm(text, T.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]}))
    with pytest.raises(Exception, match="Could not parse mapping"):
        T.LegalizeOps()(made)


def test_tvm_permutes_scalars_of_split_layouts() -> None:
    made = run_in_tvm(CONV.format(body="y = R.std(c)"), T.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]}))
    assert "permute_dims(lv2, axes=[])" in made.script()


def test_split_layouts_of_extents_that_may_be_1() -> None:
    """TVM's pads a bias of one channel to four, so that it reaches the first alone."""
    text = """\
@R.function
def main(x: R.Tensor(dtype="float32", ndim=4), w: R.Tensor(dtype="float32", ndim=4),
         b: R.Tensor(dtype="float32", ndim=4)) -> R.Tensor(dtype="float32", ndim=4):
    n, h, v, hw, vw, nb = T.int64(), T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
    k, hb, vb = T.int64(), T.int64(), T.int64()
    with R.dataflow():
        x1 = R.match_cast(x, R.Tensor((n, 8, h, v), "float32"))
        w1 = R.match_cast(w, R.Tensor((4, 8, hw, vw), "float32"))
        c: R.Tensor(dtype="float32", ndim=4) = R.nn.conv2d(x1, w1, out_dtype="float32")
        b1 = R.match_cast(b, R.Tensor((nb, k, hb, vb), "float32"))
        y: R.Tensor(dtype="float32", ndim=4) = R.add(c, b1)
        R.output(y)
    return y
"""
    module = mlcc.parse(text)
    other = mlcc.parse(run_in_tvm(text, T.ConvertLayout({"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]})).script())
    ours = mlcc.run_passes(module, 'convert-layout{layouts={"nn.conv2d": ["NCHW4c", "OIHW4o"]}}')
    rng = np.random.default_rng(1)
    shapes = [(2, 8, 5, 5), (4, 8, 3, 3), (1, 1, 1, 1)]
    given: list[Any] = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    want = run_function(module, "main", given)
    np.testing.assert_allclose(run_function(ours, "main", given), want, 1e-4, 1e-4)
    assert not np.allclose(run_function(other, "main", given), want, 1e-4, 1e-4)


def test_layouts_that_change_numbers() -> None:
    """An operator that reads its operand in the order of memory is not turned."""
    text = CONV.format(body="y = R.repeat(c, repeats=2)")
    module = mlcc.parse(text)
    other = mlcc.parse(run_in_tvm(text, T.ConvertLayout(NHWC)).script())
    ours = mlcc.run_passes(module, 'convert-layout{layouts={"nn.conv2d": ["NHWC", "OHWI"]}}')
    rng = np.random.default_rng(1)
    shapes = [[d.value for d in p.struct_info.dims] for p in module["main"].params]
    given: list[Any] = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    want = run_function(module, "main", given)
    np.testing.assert_allclose(run_function(ours, "main", given), want, 1e-4, 1e-4)
    assert not np.allclose(run_function(other, "main", given), want, 1e-4, 1e-4)


def test_layouts_of_what_is_indexed() -> None:
    text = CONV.replace("s: R.Tensor((2, 1, 7, 7)", 'i: R.Tensor((2, 3, 2), "int64"), s: R.Tensor((2, 3, 7, 7)')
    text = text.format(body="y = R.scatter_nd(c, i, s)")
    with pytest.raises(Exception, match="updates.shape"):
        run_in_tvm(text, T.ConvertLayout(NHWC))
    mlcc.run_passes(mlcc.parse(text), 'convert-layout{layouts={"nn.conv2d": ["NHWC", "OHWI"]}}')


def test_kind_of_a_function_without_blocks() -> None:
    text = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("int32", "g", A.data, B.data))
"""
    assert int(run_in_tvm(text, T.AnnotateTIROpPattern())["f"].attrs["op_pattern"]) == 0
    ours = mlcc.run_passes(mlcc.parse(text), "annotate-op-pattern")
    assert 'op_pattern": 8' in str(ours)


def test_known_sizes_are_used_in_operands() -> None:
    text = """\
@R.function
def main(x: R.Tensor((4, 3), "float32")):
    n = T.int64()
    lv = R.match_cast(x, R.Tensor((n, 3), "float32"))
    lv1 = R.concat((lv, lv))
    return R.strided_slice(lv1, [0], [n], [n + n])
"""
    assert "match_cast" in run_in_tvm(text, T.CanonicalizeBindings()).script()
    ours = str(mlcc.run_passes(mlcc.parse(text), "canonicalize"))
    assert "match_cast" not in ours and "T.int64(8)" in ours


def test_regions_of_a_buffer_read_twice() -> None:
    text = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def join(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (T.int64(2), T.int64(3)), "float32")
        B = T.match_buffer(b, (T.int64(2), T.int64(3)), "float32")
        C = T.match_buffer(c, (T.int64(4), T.int64(3)), "float32")
        for i, j in T.grid(T.int64(4), T.int64(3)):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.if_then_else(T.int64(2) <= vi, A[vi - T.int64(2), vj], B[vi, vj])

    @R.function(private=True)
    def fused(x: R.Tensor((2, 3), "float32")):
        R.func_attr({"Primitive": True})
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.join, (x, x), out_ty=R.Tensor((4, 3), "float32"))
            gv = R.call_tir(cls.join2, (lv,), out_ty=R.Tensor((4, 3), "float32"))
            R.output(gv)
        return gv

    @T.prim_func(private=True, s_tir=True)
    def join2(A: T.Buffer((T.int64(4), T.int64(3)), "float32"), B: T.Buffer((T.int64(4), T.int64(3)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(3)):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = Module
        with R.dataflow():
            gv = cls.fused(x)
            R.output(gv)
        return gv
"""
    made = run_in_tvm(text, T.FuseTIR()).script()
    assert "T.reads(x[vi - T.int64(2), vj])" in made
    ours = str(mlcc.run_passes(mlcc.parse(text), "fuse-tir"))
    assert "T.reads(x[vi - T.int64(2):" in ours


def test_products_of_unknown_dtypes_stay() -> None:
    text = """\
@R.function
def main(a: R.Tensor((4, 3)), b: R.Tensor((3, 2))):
    return R.matmul(a, b)
"""
    with pytest.raises(Exception, match="dtype of both operands must be known"):
        run_in_tvm(text, T.LegalizeOps())
    assert "R.matmul" in str(mlcc.run_passes(mlcc.parse(text), "lower-to-tir"))


def test_median_of_an_unknown_rank() -> None:
    x = tvm.relax.Var("x", tvm.relax.TensorType(dtype="float32", ndim=-1))
    made = tvm.relax.BlockBuilder().normalize(tvm.relax.op.median(x, keepdims=True))
    assert isinstance(made.ty, tvm.relax.TupleType)
    text = '@R.function\ndef main(x: R.Tensor(dtype="float32")):\n    return R.median(x, keepdims=True)\n'
    assert str(mlcc.parse(text)["main"].ret_struct_info) == 'R.Tensor(dtype="float32")'
