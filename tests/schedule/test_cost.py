"""Stages whose indices are clamped inline at a cost that follows the number of accesses: Python calls are counted."""

from __future__ import annotations

import pytest

import mlcc
from tests.counting import calls

INDEX = {
    "clamped": "T.max(T.min({v} + {k}, 63), 0)",
    "clamped the other way": "T.min(T.max({v} + {k}, 0), 63)",
    "reflected": "T.min(T.max({v} + {k}, 0 - ({v} + {k})), 126 - ({v} + {k}))",
}


def stencils(stages: int, taps: int, index: str) -> str:
    """A pipeline in which each stage sums `taps` neighbours, with indices that stay inside at the borders."""
    names = ["A", *(f"B{i}" for i in range(1, stages)), "D"]
    lines = ["@T.prim_func", 'def main(A: T.Buffer((64, 64), "float32"), D: T.Buffer((64, 64), "float32")):']
    lines += [f"    {name} = T.alloc_buffer((64, 64))" for name in names[1:-1]]
    for source, made in zip(names, names[1:], strict=False):
        value = " + ".join(f"{source}[{index.format(v='vi', k=k)}, vj]" for k in range(taps))
        lines += [
            "    for i, j in T.grid(64, 64):",
            f'        with T.block("{made}"):',
            '            vi, vj = T.axis.remap("SS", [i, j])',
            f"            {made}[vi, vj] = {value}",
        ]
    return "\n".join(lines) + "\n"


def inlining(stages: int, taps: int, index: str) -> int:
    """The calls that inlining the last but one stage takes, with the others inlined."""
    sch = mlcc.Schedule(mlcc.parse(stencils(stages, taps, index)))
    for i in range(1, stages - 1):
        sch.compute_inline(sch.get_block(f"B{i}"))
    last = sch.get_block(f"B{stages - 1}")
    return calls(lambda: sch.compute_inline(last))


@pytest.mark.parametrize("index", INDEX.values(), ids=INDEX)
def test_inlining_costs_what_it_makes(index: str) -> None:
    """Stages of `taps` accesses, inlined, are `taps ** stages` accesses."""
    assert inlining(2, 6, index) < 4.5 * inlining(2, 3, index)
    assert inlining(3, 3, index) < 5 * inlining(2, 3, index)


def chain(stages: int) -> str:
    """Stages over symbolic sizes, one after the other."""
    names = ["A", *(f"B{i}" for i in range(1, stages)), "D"]
    lines = ["@T.prim_func", "def main(a: T.handle, d: T.handle):", "    n = T.int64()"]
    lines += ["    A = T.match_buffer(a, (n, 64))", "    D = T.match_buffer(d, (n, 64))"]
    lines += [f"    {name} = T.alloc_buffer((n, 64))" for name in names[1:-1]]
    for source, made in zip(names, names[1:], strict=False):
        lines += [
            "    for i, j in T.grid(n, 64):",
            f'        with T.block("{made}"):',
            '            vi, vj = T.axis.remap("SS", [i, j])',
            f"            {made}[vi, vj] = {source}[vi, vj] + T.float32(1)",
        ]
    return "\n".join(lines) + "\n"


def compute_at_calls(stages: int) -> int:
    """The calls that moving the last stage takes into a loop where all others stand."""
    sch = mlcc.Schedule(mlcc.parse(chain(stages)))
    loop = sch.get_loops("B1")[0]
    for i in range(2, stages):
        sch.reverse_compute_at(f"B{i}", loop)
    return calls(lambda: sch.reverse_compute_at("D", loop))


def test_a_step_costs_by_what_it_moves() -> None:
    """Regions of the stages that stay are not worked out again: 4 times as many cost less than twice."""
    assert compute_at_calls(32) < 2 * compute_at_calls(8)
