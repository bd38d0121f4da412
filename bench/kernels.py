"""Profile a compiled graph by kernel, in the order in which the graph calls them.

`python -m bench kernels resnet18` takes a workload of `bench speed`, `python -m bench kernels model.mlc` a file, which
may be ONNX. Each kernel is called with the arguments that the graph passes, so that its weights and data are cached as
they are there. Shapes must be static.
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
    """Return the kernels that a function calls, bound to arrays. Raises CompileError if one does not compile."""
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
    """Return a constant's data, or for other values random data that the calls using the value share."""
    if isinstance(expr, relax.Constant):
        return expr.data.array  # type: ignore[no-any-return]
    info = expr.struct_info
    if not isinstance(info, relax.TensorStructInfo) or info.dtype is None or info.dims is None:
        raise SystemExit("cannot time a kernel with an operand or a result that is not a plain tensor")
    sizes = [tir.const_int(d) for d in info.dims]
    if None in sizes:
        raise SystemExit("cannot time a symbolic shape: bind its sizes first (bind-symbolic-vars)")
    if expr not in arrays:
        random = np.random.default_rng(len(arrays))
        arrays[expr] = random.uniform(0, 1, sizes).astype(str(info.dtype))  # type: ignore[arg-type]
    return arrays[expr]


def measure(found: list[Kernel], rounds: int = 25) -> None:
    """Time the kernels in sequence, for that number of rounds."""
    for _ in range(rounds):
        for kernel in found:
            before = time.perf_counter()
            kernel.call()
            kernel.times.append(time.perf_counter() - before)


def table(found: list[Kernel]) -> list[str]:
    """Return each kernel's minimum and median in microseconds and its share of the total, largest first."""
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
    """Load a file, of text or ONNX, or a workload with its weights bound."""
    from bench.speed.workloads import LISTED

    chosen = next((w for w in LISTED if w.name == name), None)
    if chosen is None and name.endswith(".onnx"):
        return mlcc.frontend.from_onnx(name)
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
    parser.add_argument("--level", type=int, default=DEFAULT, help="optimization level")
    parser.add_argument("--rounds", type=int, default=25, help="calls of each kernel (default 25)")
    parser.add_argument("--threads", type=int, default=1, help="default 1")
    options = parser.parse_args(arguments)
    os.environ["MLCC_NUM_THREADS"] = str(options.threads)
    bound = kernels(read(options.name), options.func, options.level)
    measure(bound, options.rounds)
    print("\n".join(table(bound)))
    return 0
