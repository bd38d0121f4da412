"""An operator that is defined in one entry is treated right by passes that never heard of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc import ops, te
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ops import layout_rules, topi
from mlcc.ops.binary import infer_same
from mlcc.ops.registry import Cost, FusionKind, Impl, Inline, Precision, register, unregister
from mlcc.ops.unary import infer_any
from mlcc.te.scalar import Scalar, to_expr

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-an-operator.md"

TOYS = {
    "nn.hardswish": Impl(
        "data",
        infer_any,
        lambda call, x: x * np.clip(x + 3, 0, 6) / 6,
        lambda call, x: topi.elementwise(x, _hardswish),
        FusionKind.ELEMWISE,
        precision=Precision.FOLLOW,
        layout=layout_rules.elementwise,
        activation=True,
        aliases=("nn.hard_swish",),
    ),
    "toy.mean_of_two": Impl(
        "x1, x2",
        infer_same(lambda a, b: (a + b).expr),
        lambda call, a, b: (a + b) / 2,
        lambda call, a, b: topi.broadcast(_mean, a, b, name="T_mean"),
        FusionKind.BROADCAST,
        tir_name=lambda call: f"mean_{call.struct_info.dtype}",
        inline=Inline.ONE_OF_TWO,
        commutative=True,
        cost=Cost.CHEAP,
        precision=Precision.FOLLOW,
        layout=layout_rules.broadcast,
    ),
    "toy.count": Impl("x", infer_any, pure=False),
    "toy.room": Impl("x", infer_any, allocates=True),
    "toy.unknown": Impl("x", infer_any),
}


def _hardswish(v: Scalar) -> Scalar:
    three, six, zero = (te.const(n, v.dtype) for n in (3.0, 6.0, 0.0))
    return v * te.max(te.min(v + three, six), zero) / six


def _mean(a: Scalar, b: Scalar) -> Scalar:
    return Scalar(to_expr(a)) * te.const(0.5, "float32") + Scalar(to_expr(b)) * te.const(0.5, "float32")


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    for name, impl in TOYS.items():
        register(name, impl)
    yield
    for name in TOYS:
        unregister(name)


def function(parameters: str, bindings: str, result: str = "gv") -> IRModule:
    lines = "\n            ".join(bindings.strip().splitlines())
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


def run_pipeline(pipeline: str, module: IRModule, target: str = "llvm") -> str:
    return mlcc.script(mlcc.run_passes(module, pipeline, target=target))


IMAGE = 'x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((4, 4, 3, 3), "float32")'
CONV = "lv = R.nn.conv2d(x, w)\nlv1 = R.nn.hardswish(lv)\n"


def test_texts_call_it_by_all_its_names() -> None:
    mod = function('x: R.Tensor((2, 3), "float32")', "gv = R.nn.hard_swish(x)")
    text = mlcc.script(mod)
    assert 'gv: R.Tensor((2, 3), dtype="float32") = R.nn.hardswish(x)' in text
    mlcc.assert_structural_equal(mlcc.parse(text), mod)
    call = mlcc.relax.op.nn.hardswish(relax.Var("x", relax.TensorStructInfo(None, mlcc.ir.dtypes.FLOAT32, 2)))
    assert call.op.name == "relax.nn.hardswish"


def test_it_runs_as_its_reference_says() -> None:
    mod = function('x: R.Tensor((2, 3), "float32")', "lv = R.exp(x)\ngv = R.toy.mean_of_two(R.nn.hardswish(lv), x)")
    x = np.linspace(-4, 2, 6, dtype="float32").reshape(2, 3)
    e = np.exp(x)
    want = (e * np.clip(e + 3, 0, 6) / 6 + x) / 2
    np.testing.assert_allclose(mlcc.load(mlcc.build(mod, opt_level=2))["main"](x), want, rtol=1e-5)
    assert "fused_tir_exp_hardswish_mean_float32" in run_pipeline("O2", mod)


def test_mixed_precision_converts_it() -> None:
    text = run_pipeline("to-mixed-precision", function(IMAGE, CONV + "gv = R.toy.mean_of_two(lv1, lv1)"))
    assert re.search(r'lv1: R.Tensor\(\(1, 4, 6, 6\), dtype="float16"\) = R.nn.hardswish', text)
    assert re.search(r'dtype="float16"\) = R.toy.mean_of_two', text)
    text = run_pipeline("to-mixed-precision", function(IMAGE, CONV + "gv = R.toy.unknown(lv1)"))
    assert re.search(r'dtype="float32"\) = R.toy.unknown', text)


def test_layouts_go_through_it() -> None:
    convert = 'convert-layout{layouts={"nn.conv2d": ["NHWC", "OHWI"]}}'
    text = run_pipeline(convert, function(IMAGE, CONV + "gv = R.toy.mean_of_two(lv1, lv)"))
    assert text.index("R.toy.mean_of_two") < text.index("axes=[0, 3, 1, 2]")  # turned back at the end alone
    text = run_pipeline(convert, function(IMAGE, CONV + "gv = R.toy.unknown(lv1)"))
    assert text.index("R.nn.hardswish") < text.index("axes=[0, 3, 1, 2]") < text.index("R.toy.unknown")
    text = run_pipeline("auto-layout{always=true}", function(IMAGE, CONV + "gv = R.nn.conv2d(lv1, w)", "gv"))
    assert re.search(r"R.Tensor\(\(1, 6, 6, 4\), .*= R.nn.hardswish", text)


def test_names_of_functions_and_scalars() -> None:
    mod = function('x: R.Tensor((2, 3), "float32")', 'gv = R.toy.mean_of_two(x, R.const(2, "float32"))')
    text = run_pipeline("lower-to-tir", mod)
    assert re.search(r"def mean_float32\(", text) and "* T.float32(0.5) + T.float32(1.0)" in text
    assert "(x,), out_sinfo" in text  # the constant is no argument


def test_equal_calls_are_merged() -> None:
    twice = "lv = R.{0}(x)\nlv1 = R.{0}(x)\ngv = R.add(lv, lv1)"
    for name, calls in (("nn.hardswish", 1), ("toy.unknown", 1), ("toy.room", 2)):
        text = run_pipeline("eliminate-common-subexpr", function('x: R.Tensor((2,), "float32")', twice.format(name)))
        assert text.count(f"R.{name}(") == calls


def test_effects_are_kept() -> None:
    impure = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        a = R.toy.count(x)
        b = R.toy.unknown(x)
        return x
"""
    text = run_pipeline("dead-code", mlcc.parse(impure))
    assert "R.toy.count" in text and "R.toy.unknown" not in text


def test_activation_of_parallel_products_is_merged() -> None:
    inputs = ", ".join(f'{name}: R.Tensor((8, 8), "float32")' for name in ("x", "w0", "w1"))
    branches = "\n".join(f"a{i} = R.matmul(x, w{i})\nb{i} = R.nn.hardswish(a{i})" for i in (0, 1))
    text = run_pipeline("combine-parallel-matmul", function(inputs, f"{branches}\ngv = R.add(b0, b1)"))
    assert text.count("R.nn.hardswish(") == text.count("R.matmul(") == 1


def test_commutative_operators_match_either_way() -> None:
    assert "relax.toy.mean_of_two" in ops.commutative_names() and "relax.nn.hardswish" not in ops.commutative_names()


def test_an_operator_is_registered_once() -> None:
    with pytest.raises(ValueError, match="already"):
        register("nn.hardswish", TOYS["nn.hardswish"])
    with pytest.raises(ValueError, match="already"):
        register("nn.relu", TOYS["nn.hardswish"])


def test_examples_of_the_page_run() -> None:
    """The examples of docs/adding-an-operator.md run, in their order."""
    unregister("nn.hardswish")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    exec("\n".join(blocks), {})
    fields = set(re.findall(r"`(\w+)[`(]", PAGE.read_text()))
    assert set(Impl.__dataclass_fields__) <= fields | {"shape_only"}


def test_wrong_definitions_are_refused() -> None:
    for parameters in ("data: strange", "data: 3"):
        with pytest.raises(ValueError, match="not a parameter of an operator"):
            register("toy.wrong", Impl(parameters))
    assert ops.get("toy.wrong") is None
    with pytest.raises(ValueError, match="already"):
        register("R.nn.relu", Impl("data"))


def test_names_are_taken_with_any_prefix() -> None:
    register("relax.toy.prefixed", Impl("data"))
    try:
        assert ops.is_operator("toy.prefixed") and "relax.toy.prefixed" in ops.names()
    finally:
        unregister("R.toy.prefixed")
    assert not ops.is_operator("toy.prefixed")
