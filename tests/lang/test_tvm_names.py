"""`from mlcc.lang import tvm`: programs with TVM's names compute what NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.lang import tvm
from mlcc.lang.tvm import relax
from mlcc.passes.tvm_names import COUNTERPARTS, OTHERWISE
from tests.lang.test_decorators import cell

PROGRAM = """
import numpy as np
from mlcc.lang import tvm
from mlcc.lang import tir as T, relax as R
from mlcc.lang.tvm import relax, IRModule

@tvm.script.ir_module
class Model:
    @T.prim_func
    def linear0(X: T.Buffer((1, 6), "float32"), W: T.Buffer((4, 6), "float32"), Z: T.Buffer((1, 4), "float32")):
        T.func_attr({"global_symbol": "linear0", "tir.noalias": True})
        for i, j, k in T.grid(1, 4, 6):
            with T.block("Z"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Z[vi, vj] = T.float32(0)
                Z[vi, vj] += X[vi, vk] * W[vj, vk]

    @R.function
    def main(x: R.Tensor((1, 6), "float32"), w: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            y = R.call_dps_packed("linear0", (x, w), R.Tensor((1, 4), "float32"))
            z = R.nn.relu(y)
            R.output(z)
        return z
"""


def test_a_program_of_the_course() -> None:
    model = cell(PROGRAM).Model
    random = np.random.default_rng(0)
    x, w = (random.normal(size=shape).astype("float32") for shape in ((1, 6), (4, 6)))
    bound = relax.transform.BindParams("main", {"w": tvm.nd.array(w)})(model)
    ex = relax.build(bound, tvm.target.Target("llvm"))
    vm = relax.VirtualMachine(ex, tvm.cpu())
    result = vm["main"](tvm.nd.array(x)).numpy()
    tvm.testing.assert_allclose(result, np.maximum(x @ w.T, 0), rtol=1e-5)
    assert type(result) is np.ndarray

    sch = tvm.tir.Schedule(model)
    i, j, k = sch.get_loops(sch.get_block("Z", func_name="linear0"))
    sch.reorder(k, j)
    lib = tvm.compile(sch.mod, target="llvm")
    z = tvm.runtime.tensor(np.empty((1, 4), "float32"))
    lib["linear0"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), z)
    np.testing.assert_allclose(z.numpy(), x @ w.T, rtol=1e-5)
    assert lib.module is lib
    assert lib.mod.time_evaluator("linear0", tvm.cpu(), number=1)(x, w, z).mean > 0


def test_passes_by_their_names() -> None:
    model = cell(PROGRAM).Model
    steps = [relax.transform.LegalizeOps(), relax.transform.FuseOps(fuse_opt_level=2), relax.transform.FuseTIR()]
    made = tvm.transform.Sequential(steps)(model)
    mlcc.assert_structural_equal(made, mlcc.run_passes(model, "lower-to-tir,fuse{level=2},fuse-tir"))
    swept = relax.transform.DeadCodeElimination(entry_functions=["main"])(model)
    mlcc.assert_structural_equal(swept, mlcc.run_passes(model, 'dead-code{entry=["main"]}'))


@pytest.mark.parametrize("name", sorted({**COUNTERPARTS, **OTHERWISE}))
def test_every_pass_of_the_table_is_made_or_explained(name: str) -> None:
    if name in COUNTERPARTS:
        assert callable(getattr(tvm.tir.transform, name)) and name in dir(relax.transform)
        return
    with pytest.raises(AttributeError, match=f"no counterpart of `tvm.relax.transform.{name}`: "):
        getattr(relax.transform, name)


def test_wrong_names_and_options_are_explained() -> None:
    with pytest.raises(TypeError, match=r"FuseOps is the pass `fuse` here, which has options level, dequantize"):
        relax.transform.FuseOps(depth=3)
    with pytest.raises(TypeError, match="no options"):
        relax.transform.LambdaLift(1)
    for namespace, name in ((tvm, "rpc"), (relax, "training"), (tvm.topi, "sort"), (relax.transform, "FuzeOps")):
        with pytest.raises(AttributeError, match=f"mlcc has no counterpart of `tvm.*{name}`"):
            getattr(namespace, name)


def test_tensor_expressions_by_their_names() -> None:
    topi, random = tvm.topi, np.random.default_rng(3)
    a, b = (random.normal(size=shape).astype("float32") for shape in ((3, 5), (5, 4)))
    row, column = (random.normal(size=shape).astype("float32") for shape in ((5,), (3, 1)))
    cases: list[tuple[Any, list[Any], Any]] = [
        (topi.add, [a, row], a + row), (topi.subtract, [column, a], column - a), (topi.multiply, [a, 2.0], a * 2),
        (topi.divide, [a, column], a / column), (topi.maximum, [a, row], np.maximum(a, row)),
        (topi.minimum, [row, column], np.minimum(row, column)), (topi.transpose, [a], a.T),
        (topi.nn.matmul, [a, b], a @ b), (topi.nn.dense, [a, b.T.copy()], a @ b), (topi.nn.relu, [a], np.maximum(a, 0)),
        (topi.nn.dense, [a, b.T.copy(), row[:4]], a @ b + row[:4]),
        (lambda x: topi.transpose(x, (1, 0, 2)), [np.ones((2, 3, 4), "float32")], np.ones((3, 2, 4), "float32")),
    ]  # fmt: skip
    for operator, values, expected in cases:
        params = [relax.Var(f"x{at}", relax.TensorStructInfo(v.shape, "float32")) for at, v in enumerate(values)
                  if isinstance(v, np.ndarray)]  # fmt: skip
        numbers = [v for v in values if not isinstance(v, np.ndarray)]
        bb = relax.BlockBuilder()
        with bb.function("main", params):
            with bb.dataflow():
                out = bb.emit_output(bb.call_te(operator, *params, *numbers))
            bb.emit_func_output(out)
        arrays = [v for v in values if isinstance(v, np.ndarray)]
        made = mlcc.load(mlcc.build(bb.get()))["main"](*arrays)
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="extents 3 and 5 differ"):
        topi.add(tvm.te.placeholder((3,), name="A"), tvm.te.placeholder((5,), name="B"))


def test_own_passes() -> None:
    @tvm.ir.transform.module_pass(opt_level=0, name="Rename")
    class Rename:
        def __init__(self, name: str) -> None:
            self.name = name

        def transform_module(self, mod: mlcc.IRModule, ctx: object) -> mlcc.IRModule:
            return tvm.IRModule({self.name: mod["main"]})

    @tvm.transform.module_pass(opt_level=0)
    def identity(mod: mlcc.IRModule, ctx: object) -> mlcc.IRModule:
        return mod

    model = cell(PROGRAM).Model
    assert list(Rename("first")(model).functions) == ["first"]
    assert identity(model) is model


def test_namespaces_have_what_mlcc_has() -> None:
    assert tvm.relax.BlockBuilder is mlcc.relax.BlockBuilder
    assert tvm.te is mlcc.te and tvm.meta_schedule is mlcc.tune
    assert tvm.ir.Op.get("relax.add") == mlcc.relax.Op.get("relax.add")
    assert {"BlockBuilder", "transform", "build"} <= set(dir(tvm.relax))
    assert tvm.cuda(1).index == 1 and tvm.cpu() == tvm.cpu(0)
