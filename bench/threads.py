"""Overhead of an empty parallel loop, and speedup of two threads over one on 15 us to 1.5 ms of work."""

from __future__ import annotations

import ctypes
import statistics
import time

from bench.measure import machine, median_and_quartiles

# sixteen equal pieces of work that stays in registers, as long as `steps` says; three chains, so that the estimate of
# the compiler is about right
WORK = """
@T.prim_func
def f(A: T.Buffer((16, 3), "float32"), steps: T.int32):
    T.func_attr({"tir.noalias": True})
    for i in T.KIND(16):
        with T.block("row"):
            vi = T.axis.spatial(16, i)
            for k in range(steps):
                with T.block("step"):
                    A[vi, 0] = A[vi, 0] * T.float32(0.9) + T.float32(0.1)
                    A[vi, 1] = A[vi, 1] * T.float32(0.8) + T.float32(0.2)
                    A[vi, 2] = A[vi, 2] * T.float32(0.7) + T.float32(0.3)
"""

EMPTY = """
define i32 @nothing(ptr %context, i64 %begin, i64 %end) {
  ret i32 0
}
define i64 @regions(i64 %number) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %code = call i32 @mlcc_pool_v1_run(ptr @nothing, ptr null, i64 2, i64 0)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %number
  br i1 %more, label %head, label %done
done:
  ret i64 %next
}
"""


def main() -> None:
    import mlcc
    from mlcc.runtime.cores import num_cores

    print(f"parallel loops; {machine()}")
    if num_cores() < 2:
        print("one core: nothing to compare")
        return
    mlcc.set_num_threads(2)
    _empty()
    _work()


def _empty() -> None:
    """Measure an empty loop of two chunks: many in a row, and after pauses of the program."""
    from mlcc.runtime import elf, externs
    from mlcc.runtime.image import link_image
    from mlcc.runtime.threads import configure_pool
    from mlcc.targets.llvm.codegen.ir_text import ModuleText
    from mlcc.targets.llvm.codegen.pool import add_pool
    from mlcc.targets.llvm.object.compile import Machine, compile_text

    module = ModuleText(Machine().triple)
    add_pool(module)
    obj = elf.read_object(compile_text(module.text() + EMPTY, Machine()).obj)
    image = link_image(obj, lambda name: externs.address_of(name, externs.ALLOWED | externs.POOL))
    configure_pool()
    regions = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(image.functions["regions"])

    def timed(count: int) -> float:
        begin = time.perf_counter()
        regions(count)
        return (time.perf_counter() - begin) * 1e6 / count

    timed(10_000)
    print(f"empty, back to back            us {median_and_quartiles([timed(10_000) for _ in range(51)])}")
    for pause in (1e-4, 2e-2):
        samples = []
        for _ in range(51):
            if pause < 1e-3:
                end = time.perf_counter() + pause
                while time.perf_counter() < end:
                    pass
            else:
                time.sleep(pause)
            samples.append(timed(1))
        print(
            f"empty, after {pause * 1e3:4.1f} ms of pause   us {median_and_quartiles(samples)}   "
            "(with the call from Python)"
        )


def _work() -> None:
    """Measure the same work in a serial and a parallel loop, interleaved."""
    import numpy as np

    import mlcc

    exes = {kind: mlcc.load(mlcc.build(mlcc.parse(WORK.replace("KIND", kind)))) for kind in ("serial", "parallel")}
    data = np.ones((16, 3), np.float32)
    trial = exes["serial"]["f"].bind(data, 1000)
    once = min(trial.timed(10) / 10 for _ in range(20)) / 1000
    for wanted in (15e-6, 150e-6, 1.5e-3):
        steps = max(round(wanted / once), 1)
        number = max(round(2e-3 / wanted), 1)
        calls = {kind: exe["f"].bind(data, steps) for kind, exe in exes.items()}
        times: dict[str, list[float]] = {kind: [] for kind in exes}
        for kind in [*exes] * 41:
            times[kind].append(calls[kind].timed(number) / number * 1e6)
        for kind, samples in times.items():
            base = statistics.median(times["serial"])
            least = min(times["serial"]) / min(samples)
            print(
                f"work of {wanted * 1e6:6.0f} us, {kind:8}      us {median_and_quartiles(samples)}   "
                f"{base / statistics.median(samples):5.2f} x serial (fastest of each: {least:.2f})"
            )
