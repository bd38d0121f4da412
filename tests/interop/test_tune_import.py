"""Databases that TVM writes are read as TVM reads them: the same workloads, and traces that give the same modules."""

from __future__ import annotations

from pathlib import Path

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.passes.schedule.mls.run import apply_schedule  # noqa: E402
from mlcc.records.database import MEMORY, Database  # noqa: E402
from mlcc.records.workload import MAIN, without_module_attrs  # noqa: E402
from mlcc.tune.import_tvm import import_records  # noqa: E402
from tests.interop.harness import from_tvm, to_tvm  # noqa: E402
from tests.interop.tune_tvm import meta_schedule  # noqa: E402
from tests.tune.fakes import product_of  # noqa: E402

MIXED = """
@T.prim_func
def main(a: T.Buffer((8, 8), "float32"), e: T.Buffer((4,), "int32"), b: T.Buffer((8, 8), "float32")):
    t = T.alloc_buffer((8, 8), "float32")
    for i, j in T.grid(8, 8):
        with T.block("x"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = T.if_then_else(
                vi < 7 and not (vj >= 3 or vi == 2), T.exp(a[vi, vj]) - T.sigmoid(a[vi, vj]),
                T.max(a[vi, vj], T.float32(0))
            )
    for i, j in T.grid(8, 8):
        with T.block("y"):
            vi, vj = T.axis.remap("SR", [i, j])
            T.where(i * 8 + j < 60)
            with T.init():
                b[vi, 0] = T.float32(0)
            b[vi, 0] = b[vi, 0] + T.Select(vj % 2 == 0, T.Cast("float32", e[vj // 2] % 3), t[vi, vj])
"""


def schedule(mod: tvm.IRModule, block: str) -> tvm.s_tir.Schedule:
    """A split with a sampled decision, a cache, and an annotation."""
    sch = tvm.s_tir.Schedule(mod, seed=3)
    found = sch.get_sblock(block)
    loop = sch.get_loops(found)[0]
    factors = sch.sample_perfect_tile(loop, n=2, max_innermost_factor=8)
    outer, inner = sch.split(loop, factors=factors)
    sch.annotate(outer, "some_key", "some text")
    sch.unroll(inner)
    sch.cache_read(found, 0, "global")
    return sch


@pytest.mark.parametrize(("text", "block"), [(product_of("main", 64), "mm"), (MIXED, "y")])
def test_tvm_reads_the_same(tmp_path: Path, text: str, block: str) -> None:
    ms = meta_schedule()
    mod = to_tvm(mlcc.script(mlcc.parse(text), dialect="tvm"))
    saved = ms.database.JSONDatabase(work_dir=str(tmp_path))
    workload = saved.commit_workload(mod)
    sch = schedule(mod, block)
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    info = ms.arg_info.ArgInfo.from_prim_func(mod["main"])
    saved.commit_tuning_record(ms.database.TuningRecord(sch.trace, workload, [1e-5], target, info))
    with Database(MEMORY) as db:
        assert import_records(db, str(tmp_path)) == (1, [])
        (record,) = db.records()
        ours = mlcc.parse(db.text(record.workload) or "")
    theirs = from_tvm(mod)
    mlcc.assert_structural_equal(without_module_attrs(ours[MAIN]), without_module_attrs(theirs[MAIN]))
    mlcc.assert_structural_equal(
        without_module_attrs(apply_schedule(ours, record.trace)[MAIN]), without_module_attrs(from_tvm(sch.mod)[MAIN])
    )
