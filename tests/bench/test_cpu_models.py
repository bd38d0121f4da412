"""Inner loops for CPUs that are not at hand: no more spills, and no smaller share of the peak, than were recorded."""

from __future__ import annotations

import json

import pytest

from bench.cpu_models import CPUS, OPERATIONS, RECORD, WORKLOADS, InnerLoop, find_tool, hottest_loop, judge

SLACK = 1.03  # of cycles: choices of LLVM's scheduler between equals

NEST = """
kernel.mm:
.LBB0_1:
	vmovups	(%rdi), %zmm0
	jmp	.LBB0_3
.LBB0_2.u0:                             # an inner loop
	vbroadcastss	(%rsi), %zmm1
	vfmadd231ps	%zmm0, %zmm1, %zmm2
	vmovups	%zmm2, 64(%rsp)         # a spill
	decq	%rax
	jne	.LBB0_2.u0
.LBB0_3:
	vmovups	%zmm3, (%rsp)
	jne	.LBB0_1
.LBB0_4:
	vaddps	%zmm1, %zmm1, %zmm2
	vaddps	%zmm1, %zmm1, %zmm3
	jb	.LBB0_4
main:
.LBB1_1:
	vfmadd231ps	%zmm0, %zmm1, %zmm2
	vfmadd231ps	%zmm0, %zmm1, %zmm3
	jne	.LBB1_1
"""


def test_the_hottest_loop_is_an_innermost_one_of_a_kernel() -> None:
    loop = hottest_loop(NEST, OPERATIONS["x86_64"])
    assert len(loop) == 5
    assert sum(1 for line in loop if OPERATIONS["x86_64"].stack.search(line)) == 1


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_inner_loops_are_as_good_as_recorded(cpu: str, workload: str) -> None:
    now, then = judge(workload, cpu), InnerLoop(**json.loads(RECORD.read_text())[cpu][workload])
    assert now.instructions > 0
    assert now.spills <= then.spills
    if find_tool() is None:
        assert now.cycles is None
    elif now.share is not None and then.share is not None:
        assert now.share * SLACK >= then.share
