"""Every pass with a counterpart in TVM gives the module that TVM gives."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.ir import IRModule
from mlcc.passes.bind_params import bind

tvm = pytest.importorskip("tvm")
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "passes")]

from harness import to_tvm  # noqa: E402
from programs import Program  # noqa: E402

HERE = Path(__file__).resolve().parent / "pass_cases"
CASES = sorted(HERE.glob("*.mlc"))

T = tvm.relax.transform
COUNTERPARTS: dict[str, Callable[[], Any]] = {
    "annotate-op-pattern": T.AnnotateTIROpPattern,
    "canonicalize": T.CanonicalizeBindings,
    "dead-code": T.DeadCodeElimination,
    "eliminate-common-subexpr": T.EliminateCommonSubexpr,
    "fold-constants": T.FoldConstant,
    "fuse": T.FuseOps,
    "fuse-tir": T.FuseTIR,
    "inline-functions": T.InlinePrivateFunctions,
    "lower-to-tir": T.LegalizeOps,
    "normalize": T.Normalize,
}


def theirs(text: str, names: list[str]) -> Any:
    """The module that TVM's passes make of a text."""
    module = to_tvm(text)
    for name in names:
        module = COUNTERPARTS[name]()(module)
    return module


def assert_same(have: IRModule, want: Any) -> None:
    """Our module, as TVM reads it, is TVM's; the difference is shown as text."""
    read = to_tvm(mlcc.script(have, dialect="tvm"))
    try:
        tvm.ir.assert_structural_equal(read, want)
    except ValueError as exc:
        raise AssertionError(f"{exc}\n--- ours\n{read.script()}\n--- TVM's\n{want.script()}") from None


def compare(text: str, names: list[str]) -> None:
    """Run both on one text."""
    assert_same(mlcc.run_passes(mlcc.parse(text, name="case.mlc"), ",".join(names)), theirs(text, names))


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_case(case: Path) -> None:
    """The first line names the passes: `# PASSES: fuse,fuse-tir`."""
    text = case.read_text()
    found = re.match(r"# PASSES: (.*)", text)
    assert found is not None
    compare(text, found[1].split(","))


LOWER = ["lower-to-tir", "annotate-op-pattern"]
PIPELINES = {
    "lower-to-tir": ["lower-to-tir"],
    "fuse": [*LOWER, "fuse"],
    "fuse-tir": [*LOWER, "fuse", "fuse-tir"],
    "canonicalize": ["canonicalize", "dead-code"],
    "fold-constants": ["fold-constants"],
    "cse": ["eliminate-common-subexpr", "canonicalize", "dead-code"],
}


@pytest.mark.parametrize("names", PIPELINES.values(), ids=PIPELINES)
def test_random_programs(names: list[str], all_cases: bool) -> None:
    for seed in range(400 if all_cases else 25):
        compare(Program(seed, length=6 + seed % 9).text(), names)


def test_bind_params() -> None:
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
