"""What belongs to the process is as it was after a build: the recursion limit, the collector, memory of the caller."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc import driver
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, INT32
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import Node, children, find, replace, walk
from mlcc.ir.tensor_data import TensorData
from mlcc.passes.graph.dead_code import DeadCode
from mlcc.passes.manage.manager import PassFailed
from mlcc.recursion import deep_recursion, gc_disabled


def test_settings_of_threads_that_overlap() -> None:
    """The last to leave restores what was before the first."""
    limit, running = sys.getrecursionlimit(), gc.isenabled()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with gc_disabled(), deep_recursion(50_000):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with gc_disabled(), deep_recursion(30_000):
        thread.start()
        assert inside.wait(10) and not gc.isenabled() and sys.getrecursionlimit() == 50_000
    assert not gc.isenabled() and sys.getrecursionlimit() == 50_000
    leave.set()
    thread.join()
    assert gc.isenabled() == running and sys.getrecursionlimit() == limit


def test_settings_are_restored_after_a_failure() -> None:
    before = gc.isenabled(), sys.getrecursionlimit()
    with pytest.raises(ZeroDivisionError), gc_disabled(), deep_recursion():
        raise ZeroDivisionError
    assert (gc.isenabled(), sys.getrecursionlimit()) == before


@pytest.mark.parametrize("kind", ["file", "anonymous"])
def test_the_memory_of_the_caller_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    """Weights on a private map that was written to: its pages exist nowhere else."""
    if kind == "file":
        np.save(tmp_path / "w.npy", np.ones((512, 512), np.float32))
        w: np.ndarray = np.load(tmp_path / "w.npy", mmap_mode="c")
    else:
        w = np.frombuffer(mmap.mmap(-1, 512 * 512 * 4), np.float32).reshape(512, 512)
    w[...] = 3
    data = TensorData.of(w)
    digest = data.sha256
    data.release()
    assert (w == 3).all() and digest == TensorData.of(np.full((512, 512), 3, np.float32)).sha256


def test_shared_expressions_are_compared_once() -> None:
    buffer = c.make_buffer("A", (4,), "float32")

    def tree() -> tir.Expr:
        made: tir.Expr = c.load(buffer, 0)
        for _ in range(64):
            made = tir.Add(FLOAT32, made, made)
        return made

    assert structural_equal(tree(), tree())


def test_what_is_no_node_is_passed_over() -> None:
    broken = tir.Add(INT32, c.const(1), 1)  # type: ignore[arg-type]
    assert [n for n in walk(broken) if isinstance(n, Node)] == [broken, broken.lhs]
    assert list(find(broken, tir.Add)) == [broken] and len(list(find(broken, Node))) == 2
    assert children(broken)[0] is broken.lhs


GRAPH = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.add(x, x)
        R.output(y)
    return y
"""


def test_a_module_that_a_pass_breaks_is_blamed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users run it: verified once."""

    def broken(self: DeadCode, module: mlcc.IRModule, ctx: object) -> mlcc.IRModule:
        made = module.copy()
        main = made["main"]
        nobody = mlcc.relax.Var("nobody", main.ret_struct_info)
        made.update_func("main", replace(main, body=replace(main.body, body=nobody)))
        return made

    monkeypatch.setattr(driver, "VERIFY_EACH", False)
    monkeypatch.setattr(DeadCode, "run", broken)
    with pytest.raises(PassFailed, match="dead-code"):
        mlcc.build(mlcc.parse(GRAPH))
