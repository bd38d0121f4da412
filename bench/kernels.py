"""Where the time of a compiled graph goes: every kernel in the order in which the graph calls it.

`python -m bench kernels resnet18` takes a workload of `bench speed`, `python -m bench kernels model.mlc` a file. Each
kernel is called with what the graph would give it, so that it finds its weights and data in the caches as it does
there. Sizes have to be known.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mlcc
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.passes.manage.levels import DEFAULT
from mlcc.relax.origins import origin
from mlcc.relax.queries import all_bindings, tir_callee

TARGET = "llvm{cpu=native}"


@dataclass
class Kernel:
    """One call of the graph; `times` are seconds."""

    name: str
    call: Any
    origin: str  # what it was in the model that was imported
    times: list[float] = field(default_factory=list)


def kernels(module: IRModule, func: str = "main", level: int = DEFAULT) -> list[Kernel]:
    """The kernels that a function calls, bound to arrays. Raises CompileError for what does not compile."""
    lowered = mlcc.run_passes(module, f"O{level}", target=TARGET)
    alone = lowered.copy()
    alone.functions = {
        name: f.with_attr("global_symbol", name) for name, f in lowered.functions.items() if isinstance(f, tir.PrimFunc)
    }
    executable = mlcc.load(mlcc.build(alone, TARGET, level, ""))
    arrays: dict[relax.Expr, np.ndarray] = {}
    bound = []
    for binding, _ in all_bindings(lowered[func].body):
        name = tir_callee(binding.value)  # type: ignore[attr-defined]
        if name is None:
            continue
        call: Any = binding.value  # type: ignore[attr-defined]
        given = [_array(e, arrays) for e in (*call.args[1].fields, binding.var)]  # type: ignore[attr-defined]
        bound.append(Kernel(name, executable[name].bind(*given), origin(binding.span)))
    return bound


def _array(expr: Any, arrays: dict[relax.Expr, np.ndarray]) -> np.ndarray:
    """A constant's data; for anything else numbers that stay the same between the calls that share it."""
    if isinstance(expr, relax.Constant):
        return expr.data.array  # type: ignore[no-any-return]
    info = expr.struct_info
    if not isinstance(info, relax.TensorStructInfo) or info.dtype is None or info.dims is None:
        raise SystemExit("a kernel has an operand or a result that is no plain tensor: this is not timed here")
    sizes = [tir.const_int(d) for d in info.dims]
    if None in sizes:
        raise SystemExit("a size is not known: bind it before (bind-symbolic-vars)")
    if expr not in arrays:
        random = np.random.default_rng(len(arrays))
        arrays[expr] = random.uniform(0, 1, sizes).astype(str(info.dtype))  # type: ignore[arg-type]
    return arrays[expr]


def measure(found: list[Kernel], rounds: int = 25) -> None:
    """Time the kernels, one after the other, as often as that."""
    for _ in range(rounds):
        for kernel in found:
            before = time.perf_counter()
            kernel.call()
            kernel.times.append(time.perf_counter() - before)


def table(found: list[Kernel]) -> list[str]:
    """The least time of each kernel and the median, in microseconds, and its share of the whole, largest first."""
    total = sum(min(k.times) for k in found)
    lines = [f"{'least':>9} {'median':>9}  share  kernel"]
    for at, kernel in sorted(enumerate(found), key=lambda pair: -min(pair[1].times)):
        least, median = min(kernel.times), statistics.median(kernel.times)
        lines.append(
            f"{least * 1e6:9.1f} {median * 1e6:9.1f}  {least / total:5.1%}  {at}: {kernel.name}"
            + (f"  # {kernel.origin}" if kernel.origin else "")
        )
    return [*lines, f"{total * 1e6:9.1f} {sum(statistics.median(k.times) for k in found) * 1e6:9.1f}         all"]


def read(name: str) -> IRModule:
    """A file, or a workload with its weights bound."""
    from bench.speed.workloads import LISTED

    chosen = next((w for w in LISTED if w.name == name), None)
    if chosen is None:
        with open(name) as file:
            return mlcc.parse(file.read(), name=name)
    _, weights = chosen.arrays()
    with tempfile.TemporaryDirectory() as folder:
        np.savez(os.path.join(folder, "weights.npz"), **weights)
        return mlcc.run_passes(mlcc.parse(chosen.text.source), "bind-params{params=weights.npz}", folder=folder)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench kernels", description=__doc__)
    parser.add_argument("name", help="a workload or a file")
    parser.add_argument("--func", default="main")
    parser.add_argument("--level", type=int, default=DEFAULT, help="of optimisation")
    parser.add_argument("--rounds", type=int, default=25, help="calls of each kernel (default 25)")
    parser.add_argument("--threads", type=int, default=1, help="default 1")
    options = parser.parse_args(arguments)
    os.environ["MLCC_NUM_THREADS"] = str(options.threads)
    bound = kernels(read(options.name), options.func, options.level)
    measure(bound, options.rounds)
    print("\n".join(table(bound)))
    return 0
