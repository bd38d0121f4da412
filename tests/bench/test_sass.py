"""Counts of machine code, in listings as cuobjdump prints them."""

from __future__ import annotations

import importlib.util

import pytest

from bench.gpu.sass import Code, cases, hot_loop, instructions, machine_code, of_mlcc, of_triton, row
from mlcc.targets.cuda.ptxas import KernelResources

LISTING = """
	.headerflags	@"EF_CUDA_SM80 EF_CUDA_PTX_SM(EF_CUDA_SM80)"
        /*0000*/                   MOV R1, c[0x0][0x28] ;                      /* 0x00000a0000017a02 */
                                                                               /* 0x000fc40000000f00 */
        /*0010*/                   HMMA.16816.F32 R4, R8, R10, R4 ;            /* 0x0000000a0804723c */
        /*0020*/                   LDSM.16.M88.4 R8, [R2] ;                    /* 0x000000000208783b */
        /*0030*/                   HMMA.16816.F32 R4, R8, R10, R4 ;            /* 0x0000000a0804723c */
        /*0040*/                   IADD3 R2, R2, 0x40, RZ ;                    /* 0x0000004002027810 */
        /*0050*/              @!P0 FMUL R3, R3, R3 ;                           /* 0x0000000303038220 */
        /*0060*/               @P1 BRA 0x20 ;                                  /* 0xffffff9000001947 */
        /*0070*/                   IADD3 R5, R5, 0x1, RZ ;                     /* 0x0000000105057810 */
        /*0080*/               @P2 BRA 0x10 ;                                  /* 0xffffff7000001947 */
        /*0090*/                   EXIT ;                                      /* 0x000000000000794d */
        /*00a0*/                   HMMA.16816.F32 R4, R8, R10, R4 ;            /* 0x0000000a0804723c */
        /*00b0*/                   BRA 0x0 ;                                   /* 0xffffff4000007947 */
        /*00c0*/                   NOP ;                                       /* 0x0000000000007918 */
"""


def test_the_hot_loop_is_the_innermost_with_products() -> None:
    """Not the loop around it, and no branch back from behind the end; all of the code if no loop multiplies."""
    code = instructions(LISTING)
    assert len(code) == 12 and code[5][1:] == ("FMUL", "R3, R3, R3")
    loop = hot_loop(code)
    assert loop == {"LDSM.16.M88.4": 1, "HMMA.16816.F32": 1, "IADD3": 1, "FMUL": 1, "BRA": 1}
    made = Code(len(code), loop, KernelResources(40, 0, 0, 8, 4))
    kinds = {kind: made.count(kind) for kind in ("products", "floats", "special", "shared", "global", "integers")}
    assert kinds == {"products": 1, "floats": 1, "special": 0, "shared": 1, "global": 0, "integers": 1}
    assert made.multiply_adds == 16 * 8 * 16
    assert row("a", "sm_80", "mlcc", made) == "| a | sm_80 | mlcc | 40 | 12 | 12 | 5 | 1 | 1 | 0 | 1 | 0 | 1 | 64.0 |"
    straight = [one for one in code if "HMMA" not in one[1]]
    assert sum(hot_loop(straight).values()) == len(straight)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_both_compile_the_same_functions() -> None:
    softmax = cases()[0]
    mine, other = (machine_code(make(softmax, "sm_80"), "sm_80") for make in (of_mlcc, of_triton))
    assert mine.count("special") >= 32 and other.count("special") >= 8 and not mine.multiply_adds
