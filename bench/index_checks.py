"""Overhead of bounds checks on data-dependent indices: kernels with and without checks, interleaved, on one thread.

python -m bench.index_checks [levels]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import mlcc

TEXT = """
@R.function
def take_rows(x: R.Tensor((100000, 64), "float32"), i: R.Tensor((50000,), "int64")):
    return R.take(x, i, axis=0)

@R.function
def take_elements(x: R.Tensor((1000000,), "float32"), i: R.Tensor((1000000,), "int32")):
    return R.take(x, i, axis=0)

@R.function
def take_from_table(x: R.Tensor((4096,), "float32"), i: R.Tensor((1000000,), "int32")):
    return R.take(x, i, axis=0)

@R.function
def gather_elements(x: R.Tensor((1000, 1000), "float32"), i: R.Tensor((1000, 1000), "int64")):
    return R.gather_elements(x, i, axis=1)

@R.function
def gather_nd(x: R.Tensor((1000, 1000), "float32"), i: R.Tensor((500000, 2), "int64")):
    return R.gather_nd(x, i)

@R.function
def scatter_add(x: R.Tensor((1000, 1000), "float32"), i: R.Tensor((1000, 1000), "int64"),
                u: R.Tensor((1000, 1000), "float32")):
    return R.scatter_elements(x, i, u, axis=0, reduction="add")

@R.function
def scatter_rows(x: R.Tensor((1000, 1000), "float32"), i: R.Tensor((500, 1), "int64"),
                 u: R.Tensor((500, 1000), "float32")):
    return R.scatter_nd(x, i, u)

@R.function
def embedding(x: R.Tensor((32000, 768), "float32"), i: R.Tensor((1, 128), "int32")):
    with R.dataflow():
        a = R.take(x, i, axis=0)
        b = R.multiply(a, R.const(27.7, "float32"))
        R.output(b)
    return b
"""
ROUNDS = 41


def arguments(func: Any, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    arrays = []
    limit = func.params[0].struct_info.dims[0].value
    for param in func.params:
        shape, dtype = tuple(d.value for d in param.struct_info.dims), str(param.struct_info.dtype)
        values = rng.integers(0, limit, shape) if param.name == "i" else rng.normal(size=shape)
        arrays.append(values.astype(dtype))
    return arrays


def main(levels: list[int]) -> None:
    module, rng = mlcc.parse(TEXT), np.random.default_rng(0)
    mlcc.set_num_threads(1)
    for level in levels:
        with_, without = (
            mlcc.load(mlcc.build(module, target=f"llvm{{cpu=native check-indices={on}}}", opt_level=level))  # type: ignore[arg-type]
            for on in ("true", "false")
        )
        for name, func in module.functions.items():
            args = arguments(func, rng)
            calls = [exe[name].bind(*args) for exe in (with_, without)]
            times = np.array([[_seconds(call) for call in calls] for _ in range(ROUNDS)])
            ratio, (checked, plain) = np.median(times[:, 0] / times[:, 1]), np.median(times, axis=0) * 1e3
            print(f"O{level} {name:16} {checked:8.3f} ms, {plain:8.3f} ms without checks: {ratio:.2f} x")


def _seconds(call: Any) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [2, 3])
