"""Every pass with a counterpart in TVM gives the module that TVM gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir import IRModule
from mlcc.passes.graph.bind_params import bind
from mlcc.passes.manage.manager import Pipeline
from mlcc.reduce.program import Program as Reducible
from mlcc.verify import check

tvm = pytest.importorskip("tvm")

from tests.fuzz.reduction import Check, reduced  # noqa: E402
from tests.generate import graphs  # noqa: E402
from tests.interop.harness import from_tvm, rounded, to_tvm  # noqa: E402
from tests.passes.arguments import leaves  # noqa: E402
from tests.passes.networks import Network  # noqa: E402
from tests.passes.programs import Program  # noqa: E402

HERE = Path(__file__).resolve().parent / "pass_cases"
CASES = sorted(HERE.glob("*.mlc"))

T = tvm.relax.transform
COUNTERPARTS: dict[str, Callable[[Any], Any]] = {
    "adjust-matmul-order": lambda _: T.AdjustMatmulOrder(),
    "annotate-op-pattern": lambda _: T.AnnotateTIROpPattern(),
    "canonicalize": lambda _: T.CanonicalizeBindings(),
    "combine-parallel-matmul": lambda _: T.CombineParallelMatmul(),
    "convert-layout": lambda p: T.ConvertLayout({name: list(asked) for name, asked in p.layouts.items()}),
    "dead-code": lambda _: T.DeadCodeElimination(),
    "decompose": lambda p: {"inference": T.DecomposeOpsForInference, "training": T.DecomposeOpsForTraining}[p.mode](
        p.func
    ),
    "eliminate-common-subexpr": lambda _: T.EliminateCommonSubexpr(),
    "expand-tuple-arguments": lambda _: T.ExpandTupleArguments(),
    "fold-batch-norm": lambda _: T.FoldBatchnormToConv2D(),
    "fold-constants": lambda _: T.FoldConstant(),
    "fuse": lambda _: T.FuseOps(),
    "fuse-tir": lambda _: T.FuseTIR(),
    "inline-functions": lambda _: T.InlinePrivateFunctions(),
    "lambda-lift": lambda _: T.LambdaLift(),
    "lower-to-tir": lambda _: T.LegalizeOps(),
    "normalize": lambda _: T.Normalize(),
    "remove-unused-outputs": lambda _: T.RemoveUnusedOutputs(),
    "remove-unused-parameters": lambda _: T.RemoveUnusedParameters(),
    "rewrite-dataflow-reshape": lambda _: T.RewriteDataflowReshape(),
    "to-dataflow": lambda p: T.ConvertToDataflow(p.min_size),
    "to-mixed-precision": lambda p: T.ToMixedPrecision(p.out_dtype, list(p.fp16_input_names)),
    "topological-sort": lambda p: T.TopologicalSort(p.order, p.direction),
}  # by our pass: TVM's with the same options


def theirs(text: str, pipeline: str) -> Any:
    """The module that TVM's passes make of a text."""
    module = to_tvm(text)
    for made in Pipeline.parse(pipeline).passes:
        module = COUNTERPARTS[made.name](made)(module)
    return module


def assert_same(have: IRModule, want: Any) -> None:
    """Our module, as TVM reads it, is TVM's; the difference is shown as text."""
    read = to_tvm(mlcc.script(have, dialect="tvm"))
    try:
        tvm.ir.assert_structural_equal(read, want)
    except ValueError as exc:
        raise AssertionError(f"{exc}\n--- ours\n{read.script()}\n--- TVM's\n{want.script()}") from None


def compare(text: str, pipeline: str) -> IRModule:
    """Run both on one text; a failure names a small program that fails likewise."""
    with reduced(mlcc.parse(text), Check("tests.interop.test_passes:check_passes", (pipeline,))):
        return _compare(text, pipeline)


def check_passes(program: Reducible, pipeline: str) -> None:
    """Compare the module that passes give with TVM's."""
    _compare(mlcc.script(program.module), pipeline)


def _compare(text: str, pipeline: str) -> IRModule:
    made = mlcc.run_passes(mlcc.parse(text, name="case.mlc"), pipeline)
    check(made)
    assert_same(made, theirs(text, pipeline))
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_modules_of_the_cases_agree(case: Path) -> None:
    """The first line names the passes: `# PASSES: fuse,fuse-tir`."""
    text = case.read_text()
    found = re.match(r"# PASSES: (.*)", text)
    assert found is not None
    compare(text, found[1])


PIPELINES = {
    "lower-to-tir": "lower-to-tir",
    "fuse": "lower-to-tir,annotate-op-pattern,fuse",
    "fuse-tir": "lower-to-tir,annotate-op-pattern,fuse,fuse-tir",
    "canonicalize": "canonicalize,dead-code",
    "fold-constants": "fold-constants",
    "combine": "combine-parallel-matmul",
    "sort-depth": "topological-sort",
    "sort-breadth": "topological-sort{order=breadth-first}",
    "sort-depth-outputs": "topological-sort{direction=from-outputs}",
    "sort-breadth-outputs": "topological-sort{order=breadth-first direction=from-outputs}",
    "cse": "eliminate-common-subexpr,canonicalize,dead-code",
}


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_modules_of_random_programs_agree(pipeline: str, all_cases: bool) -> None:
    for seed in range(400 if all_cases else 25):
        compare(Program(seed, length=6 + seed % 9).text(), pipeline)


NHWC = 'convert-layout{layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]}}'
NETWORK_PIPELINES = {
    "nhwc": NHWC,
    "nhwc-out": 'convert-layout{layouts={"relax.nn.conv2d": ["NHWC", "HWIO", "NCHW"]}}',
    "decompose": "decompose",
    "mixed": "to-mixed-precision",
    "mixed-float16": 'to-mixed-precision{out-dtype=float16 fp16-input-names=["x"]}',
}


@pytest.mark.parametrize("pipeline", NETWORK_PIPELINES.values(), ids=NETWORK_PIPELINES)
def test_modules_of_random_networks_agree(pipeline: str, all_cases: bool) -> None:
    """Networks of images: TVM's module, and the numbers of the interpreter stay."""
    for seed in range(300 if all_cases else 20):
        network = Network(seed, length=4 + seed % 9)
        made = compare(network.text(), pipeline)
        given = network.inputs()
        want = leaves(run_function(mlcc.parse(network.text()), "main", given))
        kinds = [str(p.struct_info.dtype) for p in made["main"].params]
        changed = [array.astype(kind) for array, kind in zip(given, kinds, strict=True)]
        for a, b in zip(leaves(run_function(made, "main", changed)), want, strict=True):
            np.testing.assert_allclose(a, b, network.tolerance(pipeline), network.tolerance(pipeline))


def test_bind_params_agrees() -> None:
    text = (HERE / "bind-params.txt").read_text()
    arrays = {"w": np.arange(6, dtype="float32").reshape(3, 2), "u": np.zeros(2, "float32")}
    given = {name: tvm.runtime.tensor(array) for name, array in arrays.items()}
    want = T.BindParams("main", given)(to_tvm(text))
    module = mlcc.parse(text)
    module.update_func("main", bind(module["main"], arrays, "main", module))
    assert_same(module, want)


def test_bind_symbolic_vars() -> None:
    text = (HERE / "bind-params.txt").read_text()
    want = T.BindSymbolicVars({"n": 4}, "main")(to_tvm(text))
    assert_same(mlcc.run_passes(mlcc.parse(text), 'bind-symbolic-vars{vars={"n": 4}}'), want)


def test_bind_symbolic_vars_everywhere() -> None:
    text = """\
@I.ir_module
class Module:
    @R.function
    def first(x: R.Tensor(("n", "m"), "float32")):
        return R.add(x, x)

    @R.function
    def second(x: R.Tensor(("k", "m"), "float32"), y: R.Tensor(("k", 3), "float32")):
        return R.sum(x)

    @R.function
    def third(x: R.Tensor((2,), "float32")):
        return x
"""
    want = T.BindSymbolicVars({"m": 4, "n": 5})(to_tvm(text))
    assert_same(mlcc.run_passes(mlcc.parse(text), 'bind-symbolic-vars{vars={"m": 4, "n": 5} func=null}'), want)
    with pytest.raises(mlcc.CompileError, match="no function has a symbolic variable `j`"):
        mlcc.run_passes(mlcc.parse(text), 'bind-symbolic-vars{vars={"m": 4, "j": 5} func=null}')


@pytest.mark.parametrize("part", range(3))
def test_fusion_of_generated_graphs_agrees(part: int, all_cases: bool) -> None:
    """Symbolic sizes, tuples, branches, packed calls, constants, several dtypes: the groups are TVM's."""
    for seed in range(part, 300 if all_cases else 36, 3):
        dtypes = ("float32", "float64", "int32", "int64")
        options = graphs.Options(packed=seed % 2 == 0, branches=seed % 4 == 1, nested=False, dtypes=dtypes)
        module = mlcc.run_passes(graphs.module(seed, options), "normalize")
        with reduced(module, Check("tests.interop.test_passes:check_fusion")):
            check_fusion(Reducible(module))


def check_fusion(program: Reducible) -> None:
    """Compare the groups of operators with TVM's.

    Lowering has tests of its own: TVM's functions are the ones to fuse, so that only fusion differs.
    """
    lowered = theirs(mlcc.script(program.module, dialect="tvm"), "lower-to-tir,annotate-op-pattern")
    want = rounded(T.FuseOps()(lowered))
    have = mlcc.run_passes(from_tvm(lowered), "fuse")
    tvm.ir.assert_structural_equal(rounded(to_tvm(mlcc.script(have, dialect="tvm"))), want)


GRAPH_PASSES = [
    "adjust-matmul-order", "canonicalize", "combine-parallel-matmul", "dead-code", "decompose",
    "eliminate-common-subexpr", "expand-tuple-arguments", "fold-batch-norm", "fold-constants", "inline-functions",
    "lambda-lift", "remove-unused-outputs", "remove-unused-parameters", "rewrite-dataflow-reshape",
    "to-dataflow{min-size=1}", "topological-sort", "topological-sort{order=breadth-first direction=from-outputs}",
    "to-mixed-precision",
]  # fmt: skip


@pytest.mark.parametrize("name", [*GRAPH_PASSES, "fuse-tir"])
def test_passes_over_generated_graphs_agree(name: str, all_cases: bool) -> None:
    """Unused values, renamings, casts, private functions that nobody calls: what TVM leaves of them is left."""
    first = len(name)  # other graphs for each pass
    for seed in range(0 if all_cases else first, 200 if all_cases else first + 2):
        options = graphs.Options(
            packed=seed % 2 == 0, branches=False, nested=seed % 5 == 0, dtypes=("float32", "float64", "int32", "int64")
        )
        module = to_tvm(mlcc.script(graphs.module(seed, options), dialect="tvm"))
        if name == "fuse-tir":
            for wanted in Pipeline.parse("lower-to-tir,annotate-op-pattern,fuse").passes:
                module = COUNTERPARTS[wanted.name](wanted)(module)
            if any(isinstance(f, tvm.tirx.PrimFunc) and "global_symbol" in f.attrs for f in module.functions.values()):
                continue  # we drop those that nothing but fused functions call
        try:
            (wanted,) = Pipeline.parse(name).passes
            want = COUNTERPARTS[wanted.name](wanted)(module)
        except tvm.error.InternalError:
            continue  # of a function in a function
        have = mlcc.run_passes(from_tvm(module), name)
        check(have)
        assert_same_rounded(have, want)


def assert_same_rounded(have: IRModule, want: Any) -> None:
    """As `assert_same`, for numbers that TVM keeps as the float64 that they came from."""
    tvm.ir.assert_structural_equal(rounded(to_tvm(mlcc.script(have, dialect="tvm"))), rounded(want))
