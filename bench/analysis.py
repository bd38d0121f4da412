"""CPU time of simplification and region analysis of kernels whose indices are clamped to a border.

Interleaved with TVM, if it is installed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.measure import machine, median_and_quartiles


def stencils(stages: int, taps: int, rows: int = 1) -> str:
    """Return a pipeline of sums over `rows` x `taps` neighbours, clamped at the borders."""
    names = ["A", *(f"B{i}" for i in range(1, stages)), "D"]
    lines = ["@T.prim_func", 'def main(A: T.Buffer((64, 64), "float32"), D: T.Buffer((64, 64), "float32")):']
    lines += [f"    {name} = T.alloc_buffer((64, 64))" for name in names[1:-1]]
    for source, target in zip(names, names[1:], strict=False):
        clamped = [
            f"{source}[T.max(T.min(vi + {k}, 63), 0), T.max(T.min(vj + {n}, 63), 0)]"
            for k in range(rows)
            for n in range(taps)
        ]
        lines += [
            "    for i, j in T.grid(64, 64):",
            f'        with T.block("{target}"):',
            '            vi, vj = T.axis.remap("SS", [i, j])',
            f"            {target}[vi, vj] = {' + '.join(clamped)}",
        ]
    return "\n".join(lines) + "\n"


def nested(depth: int) -> str:
    """Return a copy whose index nests `depth` alternating minima and maxima."""
    index = "vi"
    for k in range(depth):
        index = f"T.{'min' if k % 2 else 'max'}({index} + vj, vj * {k + 2} - vi)"
    return stencils(2, 1).replace("T.min(vi + 0, 63)", f"T.min({index}, 63)")


def inline(sch: Any) -> None:
    """Inline every stage except the last."""
    for block in sch.get_child_blocks(sch.get_sblock("root"))[:-1]:
        sch.compute_inline(block)


CASES = {
    "3 stages of 3 taps": stencils(3, 3),
    "3 stages of 5 taps": stencils(3, 5),
    "2 stages of 3 x 3": stencils(2, 3, 3),
    "32 nested min, max": nested(32),
}


def main() -> None:
    import mlcc

    try:
        import tvm
        from tvm.script import from_source
    except ImportError:
        tvm = None
        print("TVM is not installed: no comparison")
    runs: dict[str, Callable[[], Any]] = {}
    for name, text in CASES.items():
        module = mlcc.parse(text)
        runs[name] = lambda module=module: inline(mlcc.Schedule(module))  # type: ignore[misc]
        if tvm is not None:
            theirs = from_source(mlcc.script(module, dialect="tvm"))
            runs[f"tvm {name}"] = lambda theirs=theirs: inline(tvm.s_tir.Schedule(theirs))  # type: ignore[misc]
    print(f"inlining stages with clamped indices, ms of CPU; {machine()}")
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(5):
        for name, run in runs.items():
            began = time.process_time()
            run()
            samples[name].append((time.process_time() - began) * 1e3)
    for name, times in samples.items():
        base = samples.get(f"tvm {name}")
        ratio = f"   {statistics.median(times) / statistics.median(base):6.2f} x TVM's" if base else ""
        print(f"{name:24} {median_and_quartiles(times)}{ratio}")
