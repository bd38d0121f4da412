"""A space of a few tilings and a runner that reads its times off the candidates: nothing is built or measured."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Generator, Sequence
from itertools import product

import mlcc
from mlcc.ir import tir
from mlcc.passes.schedule.schedule import Schedule
from mlcc.records.workload import MAIN, module_of
from mlcc.tune.contracts import Candidate, Outcome, Status, Task
from mlcc.tune.recorded_runner import candidate_key

PRODUCT = """
@T.prim_func
def NAME(a: T.Buffer((N, 32), "float32"), b: T.Buffer((32, 16), "float32"), c: T.Buffer((N, 16), "float32")):
    for i, j, k in T.grid(N, 16, 32):
        with T.block("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""


def product_of(name: str, size: int) -> str:
    """The text of a product of matrices with `size` rows."""
    return PRODUCT.replace("NAME", name).replace("N,", f"{size},")


def module(*sizes: int) -> mlcc.IRModule:
    """One product for each size."""
    return mlcc.parse("".join(product_of(f"mm{size}", size) for size in sizes))


class FakeSpace:
    """Splits of two loops; shuffled by the seed, and in later batches those near the best so far first."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.left = [*product((1, 2, 4, 8, 16), (1, 2, 4, 8), (False, True))]

    def default(self) -> Candidate | None:
        return self.made((4, 4, False))

    def made(self, decision: tuple[int, int, bool]) -> Candidate:
        return _made(str(self.task.key), module_of(self.task.func).script(), decision)

    def batches(self, seed: int, size: int) -> Generator[Sequence[Candidate], Sequence[float | None], None]:
        chance = random.Random(seed)
        chance.shuffle(self.left)
        best: tuple[float, tuple[int, int, bool]] | None = None
        while self.left:
            if best is not None:
                near = best[1]
                self.left.sort(key=lambda d: abs(d[0] - near[0]) + abs(d[1] - near[1]))
            chosen, self.left = self.left[:size], self.left[size:]
            ratios = yield [self.made(d) for d in chosen]
            for decision, ratio in zip(chosen, ratios, strict=True):
                if ratio is not None and (best is None or ratio < best[0]):
                    best = ratio, decision


@functools.cache
def _made(key: str, text: str, decision: tuple[int, int, bool]) -> Candidate:
    sch = Schedule(mlcc.parse(text))
    block = sch.get_block("mm", func_name=MAIN)
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(i, factors=[None, decision[0]])
    left, right = sch.split(j, factors=[None, decision[1]])
    sch.reorder(outer, left, *((k, inner, right) if decision[2] else (inner, k, right)))
    sch.mark_scheduled(func_name=MAIN)
    func = sch.mod[MAIN]
    assert isinstance(func, tir.PrimFunc)
    return Candidate(func, sch.trace, (("tile", list(decision)),))


class FakeRunner:
    """Ratios between 0.7 and 1.7 by the hash of the candidate, some of which fail; `each` is called before each."""

    def __init__(self, each: Callable[[], None] = lambda: None, noise: float = 0.001) -> None:
        self.each, self.noise = each, noise
        self.measured: list[str] = []
        self.closed = False

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        return [self.outcome(candidate_key(baseline), candidate_key(c), samples) for c in candidates]

    def outcome(self, baseline: str, key: str, samples: int) -> Outcome:
        self.each()
        self.measured.append(key)
        number = int(key, 16)
        if number % 11 == 0 and key != baseline:
            return Outcome((Status.WRONG, Status.TIMEOUT, Status.CRASH)[number % 3], why="as it goes")
        ratio = 1.0 if key == baseline else self.ratio(number)
        chance = random.Random(number + samples)
        ratios = tuple(ratio * (1 + chance.uniform(-self.noise, self.noise)) for _ in range(samples))
        return Outcome(Status.OK, tuple(1e-4 * r for r in ratios), ratios)

    def ratio(self, number: int) -> float:
        return 0.7 + number % 1009 / 1009

    def close(self) -> None:
        self.closed = True
