"""Passes over graphs: what they refuse, and compiled code around them."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from tests.passes.arguments import leaves
from tests.passes.networks import Network

SHAPES = """
@R.function
def main(x: R.Tensor((2,), "int64"), y: R.Tensor((4, 3), "float32")) -> R.Tensor("float32", ndim=2):
    with R.dataflow():
        lv: R.Shape(ndim=2) = R.tensor_to_shape(x)
        lv1 = R.reshape(y, lv)
        gv = R.exp(lv1)
        R.output(gv)
    return gv
"""


def test_computed_shapes_get_names_and_run() -> None:
    """The dimensions are known from there on, and the interpreter has what gives them."""
    made = mlcc.run_passes(mlcc.parse(SHAPES), "decompose")
    text = mlcc.script(made)
    assert "vm.builtin.tensor_to_shape" in text and "R.match_cast(" in text and "R.tensor_to_shape" not in text
    (result,) = leaves(run_function(made, "main", [np.array([6, 2]), np.ones((4, 3), "float32")]))
    np.testing.assert_allclose(result, np.full((6, 2), np.e), rtol=1e-6)


CONV = """
@R.function
def main(x: R.Tensor((1, 2, 5, 5), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")):
    with R.dataflow():
        gv = R.nn.conv2d(x, w)
        R.output(gv)
    return gv
"""


@pytest.mark.parametrize(
    ("pipeline", "codes", "message"),
    [
        ('convert-layout{layouts={"nn.conv2": ["NHWC", "OHWI"]}}', ["E0514"], "nn.conv2d"),
        ('convert-layout{layouts={"relax.add": ["NHWC"]}}', ["E0514"], "takes its layout from its operands"),
        ('convert-layout{layouts={"relax.nn.conv2d": ["NHWC"]}}', ["E0514"], "not 1"),
        ('convert-layout{layouts={"relax.nn.conv2d": ["NHCW4", "OHXX"]}}', ["E0514", "E0514"], "as in NCHW4c"),
        ("convert-layout", ["E0504"], "layouts"),
        ("to-mixed-precision{out-dtype=int8}", ["E0503"], ""),
        ("topological-sort{order=random}", ["E0503"], "depth-first"),
        ("decompose{func=mian}", ["E0506"], "did you mean `main`"),
        ('to-mixed-precision{fp16-input-names=["x", "ww"]}', ["E0515"], "did you mean `w`"),
    ],
)
def test_wrong_options_are_refused(pipeline: str, codes: list[str], message: str) -> None:
    with pytest.raises(mlcc.CompileError) as caught:
        mlcc.run_passes(mlcc.parse(CONV), pipeline)
    assert [d.code for d in caught.value.diagnostics] == codes
    texts = [f"{d.message} {d.help} {d.primary.text if d.primary else ''}" for d in caught.value.diagnostics]
    assert any(message in text for text in texts)


PIPELINES = ['convert-layout{layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]}}', "to-mixed-precision", "decompose"]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("seed", [3, 8])
def test_compiled_code_keeps_the_numbers(pipeline: str, seed: int) -> None:
    network = Network(seed, length=7)
    module = mlcc.parse(network.text())
    given = network.inputs()
    want = leaves(run_function(module, "main", given))
    made = mlcc.load(mlcc.build(mlcc.run_passes(module, pipeline)))
    for a, b in zip(leaves(made["main"](*given)), want, strict=True):
        np.testing.assert_allclose(a, b, network.tolerance(pipeline), network.tolerance(pipeline))


def test_a_lifted_function_keeps_its_public_name_or_is_refused() -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"global_symbol": "NAME"})
            b = R.exp(a)
            return b
        z = inner(x)
        return z
"""
    assert "lifted" in mlcc.run_passes(mlcc.parse(text.replace("NAME", "lifted")), "lambda-lift")
    with pytest.raises(mlcc.CompileError, match="E0516"):
        mlcc.run_passes(mlcc.parse(text.replace("NAME", "main")), "lambda-lift")


def test_a_size_that_a_parameter_binds_stays_when_a_cast_checks_it() -> None:
    """`h` is not renamed to what the cast compares it with, which may be another number."""
    module = mlcc.parse("""
@R.function
def main(x: R.Tensor(("n", "h"), "float32")):
    n = T.int64()
    h = T.int64()
    with R.dataflow():
        u = R.concat((R.strided_slice(x, axes=[1], begin=[1], end=[h]), R.ones((n, 1), "float32")), axis=1)
        u2 = R.match_cast(u, R.Tensor((n, h), "float32"))
        c = R.concat((x, u2), axis=1)
        R.output(c)
    return c
""")
    made = mlcc.run_passes(module, "canonicalize")
    assert mlcc.structural_equal(made["main"].ret_struct_info, module["main"].ret_struct_info)
    main = mlcc.load(mlcc.build(module))["main"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(main(x), run_function(module, "main", [x]))
    with pytest.raises(mlcc.CallError, match="dim 1 of `u2` is 1, expected h = 0"):
        main(np.ones((2, 0), np.float32))


def test_lowered_results_stay_on_their_devices() -> None:
    text = """\
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda")]})
    @R.function
    def main(x: R.Tensor((4, 4), "float32", "cuda"), y: R.Tensor((4, 4), "float32", "llvm")):
        a = R.add(x, x)
        b = R.add(y, y)
        c = R.split(a, 2)
        return (a, b, c)
"""
    module = mlcc.parse(text)
    lowered = mlcc.run_passes(module, "lower-to-tir")
    assert str(lowered["main"].ret_struct_info) == str(module["main"].ret_struct_info)
    made = [b.value for block in lowered["main"].body.blocks for b in block.bindings]
    assert [v.op.name for v in made] == ["relax.call_tir"] * 3
    assert [str(v.sinfo_args[0]) for v in made] == [str(v.struct_info) for v in made]
    assert "cuda:0:global" in str(made[0].struct_info) and "llvm:0:global" in str(made[1].struct_info)
