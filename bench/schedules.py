"""CPU time of a matmul schedule with 28 steps: by method calls, from a script, and replayed from the trace.

Interleaved with TVM, if it is installed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.measure import machine, median_and_quartiles

PROGRAM = """
@T.prim_func
def main(A: T.Buffer((1024, 1024), "float32"), B: T.Buffer((1024, 1024), "float32"),
         C: T.Buffer((1024, 1024), "float32")):
    for i, j, k in T.grid(1024, 1024, 1024):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def schedule(sch: Any) -> None:
    """Apply a schedule of 28 steps that tiles, packs, vectorizes and parallelizes a matmul."""
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    back = sch.cache_write(block, 0, "global")
    i0, i1 = sch.split(i, [None, 32])
    j0, j1 = sch.split(j, [None, 64])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, i1, k1, j1)
    i2, i3 = sch.split(i1, [None, 4])
    j2, j3 = sch.split(j1, [None, 16])
    sch.reorder(i2, j2, k1, i3, j3)
    outer = sch.fuse(i0, j0)
    sch.parallel(outer)
    packed = sch.cache_read(block, 1, "global")
    sch.vectorize(j3)
    sch.unroll(i3)
    init = sch.decompose_reduction(block, k0)
    sch.vectorize(sch.get_loops(init)[-1])
    rows, lanes = sch.split(sch.fuse(*sch.get_loops(packed)), [None, 16])
    sch.vectorize(lanes)
    sch.parallel(rows)
    sch.annotate(outer, "pragma_auto_unroll_max_step", 16)
    loops = sch.get_loops(back)
    sch.vectorize(sch.split(loops[1], [None, 16])[1])
    sch.parallel(loops[0])


def main() -> None:
    import mlcc

    module = mlcc.parse(PROGRAM)
    first = mlcc.Schedule(module)
    schedule(first)
    text = str(first.trace)

    def replay() -> None:
        first.trace.apply_to_schedule(mlcc.Schedule(module))

    runs: dict[str, Callable[[], Any]] = {
        "methods": lambda: schedule(mlcc.Schedule(module)),
        "script": lambda: mlcc.apply_schedule(module, text),
        "trace": replay,
        "copy": first.copy,
    }
    try:
        import tvm
        from tvm.script import from_source
    except ImportError:
        print("TVM is not installed: no comparison")
    else:
        theirs = from_source(mlcc.script(module, dialect="tvm"))
        done = tvm.s_tir.Schedule(theirs)
        schedule(done)
        runs["tvm methods"] = lambda: schedule(tvm.s_tir.Schedule(theirs))
        runs["tvm trace"] = lambda: done.trace.apply_to_schedule(tvm.s_tir.Schedule(theirs), remove_postproc=False)
        runs["tvm copy"] = done.copy
    print(f"a schedule of {len(first.trace)} steps, ms of CPU; {machine()}")
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(15):
        for name, run in runs.items():
            began = time.process_time()
            run()
            samples[name].append((time.process_time() - began) * 1e3)
    for name, times in samples.items():
        base = samples.get(f"tvm {name}")
        ratio = f"   {statistics.median(times) / statistics.median(base):6.2f} x TVM's" if base else ""
        print(f"{name:14} {median_and_quartiles(times)}{ratio}")
