"""Programs that go from mlcc to TVM and back, and the other way round, come back equal."""

from __future__ import annotations

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.ir.module import IRModule  # noqa: E402
from mlcc.reduce.program import Program  # noqa: E402
from tests.fuzz.reduction import Check, reduced  # noqa: E402
from tests.generate.functions import Options, prim_func  # noqa: E402
from tests.generate.graphs import module  # noqa: E402
from tests.grammar.samples import SAMPLES  # noqa: E402
from tests.interop.corpus import modules  # noqa: E402
from tests.interop.harness import back_and_there, there_and_back  # noqa: E402

CORPUS = modules()
FAITHFUL = Options(raw=False)  # `T.Min(1, 2)` is printed by TVM as `T.min(1, 2)`, which it reads as 1
SHARE = 5  # functions or graphs in one test


def check(generated: IRModule) -> None:
    with reduced(generated, Check("tests.interop.test_cycles:check_cycle")):
        there_and_back(generated)


def check_cycle(program: Program) -> None:
    """Give a module to TVM, and read what TVM prints."""
    there_and_back(program.module)


@pytest.mark.parametrize("batch", range(30))
def test_generated_functions_come_back_equal(batch: int, all_cases: bool) -> None:
    for seed in range(batch * 100, batch * 100 + (100 if all_cases else SHARE)):
        check(IRModule({"main": prim_func(seed, FAITHFUL)}))


@pytest.mark.parametrize("batch", range(20))
def test_generated_graphs_come_back_equal(batch: int, all_cases: bool) -> None:
    for seed in range(batch * 50, batch * 50 + (50 if all_cases else SHARE)):
        check(module(seed))


@pytest.mark.parametrize("name", ["matmul", "buffers", "statements", "graph", "weights"])
def test_samples_come_back_equal(name: str) -> None:
    there_and_back(SAMPLES[name]())


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_modules_of_tvm_come_back_equal(name: str) -> None:
    back_and_there(CORPUS[name]())
