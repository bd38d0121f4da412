"""A cost that follows from decisions alone: what strategies are compared on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mlcc
from mlcc.ir.module import IRModule
from mlcc.tune import TuneContext
from mlcc.tune.runner import RunnerResult

MATMUL = """
@T.prim_func
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), D: T.Buffer((128, 128), "float32")):
    C = T.alloc_buffer((128, 128))
    for i, j, k in T.grid(128, 128, 128):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(128, 128):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))
"""


def matmul() -> IRModule:
    return mlcc.parse(MATMUL)


def seconds(candidate: Any) -> float:
    """Bumps around one best tiling, another for each design space, and a rest that looks like noise."""
    cost = 1.0 + 0.3 * candidate.space
    wanted = [(4.0, 1.0, 1.0, 1.0), (1.0, 2.0, 0.0, 4.0), (5.0, 2.0)]
    at = 0
    for inst in candidate.steps:
        decision = inst.decision
        if isinstance(decision, list) and at < len(wanted):
            cost += sum((math.log2(f) - w) ** 2 for f, w in zip(decision, wanted[at], strict=True)) / 8
            at += 1
        elif inst.name == "sample_categorical":
            cost += 0.1 * abs(decision - 2)
    noise = sum(ord(c) * (n + 1) for n, c in enumerate(repr(candidate.decisions))) % 97
    return cost * (1 + noise / 970) * 1e-3


def best_found(strategy: Any, trials: int, seed: int, per_iter: int = 16) -> float:
    """The least cost that a strategy finds."""
    context = TuneContext(
        matmul(), target="llvm{num-cores=4}", space_generator="post-order-apply", search_strategy=strategy,
        rand_state=seed,
    )  # fmt: skip
    context.pre_tuning(trials, per_iter)
    found: list[float] = []
    while True:
        candidates: Sequence[Any] | None = context.generate_measure_candidates()
        if candidates is None:
            return min(found)
        costs = [seconds(c) for c in candidates]
        found += costs
        context.notify_runner_results(candidates, [RunnerResult([cost]) for cost in costs])
