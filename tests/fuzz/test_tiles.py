"""Generated programs with temporaries: where they move and shrink to, every number stays what it was."""

from __future__ import annotations

import time

import numpy as np

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.passes.lowering.compact import compact_buffers
from mlcc.passes.lowering.realize import realize_blocks
from mlcc.reduce.program import Program
from tests.fuzz.reduction import Check, reduced
from tests.generate.tiles import Maker
from tests.lower import lower_func
from tests.targets.harness import Native

SHARE = 200


def generated(seed: int) -> tuple[bool, bool]:
    """Check one program; whether it ran (some read what nobody wrote), and whether anything moved."""
    maker = Maker(seed)
    text = maker.program()
    params = ", ".join(f'{name}: T.Buffer(({maker.n},), "int32")' for name in "AB")
    head = f"@T.prim_func(s_tir=False)\ndef main({params}):\n"
    module = mlcc.parse(head + "\n".join("    " + line for line in text.splitlines()))
    words = ("native",) if seed % 8 == 0 else ()
    with reduced(module, Check("tests.fuzz.test_tiles:check_program", words)):
        ran = check_program(Program(module), *words)
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    before = sum(isinstance(s, tir.AllocBuffer) for s in realize_blocks(func).body)
    after = compact_buffers(realize_blocks(func)).body
    return ran, ran and sum(isinstance(s, tir.AllocBuffer) for s in after) < before


def check_program(program: Program, native: str = "") -> bool:
    """Compare loop code, and native code if asked for, with the interpreter. False if the program cannot be run."""
    func = program.module["main"]
    assert isinstance(func, tir.PrimFunc)
    given = [np.arange(tir.const_int(b.shape[0]) or 0, dtype="int32") * 5 for b in func.buffers if b is not None]
    given[1:] = [np.zeros_like(array) for array in given[1:]]
    expected, lowered, compiled = ([a.copy() for a in given] for _ in range(3))
    try:
        run_prim_func(func, expected)
    except mlcc.CallError:
        return False
    run_prim_func(lower_func(func), lowered)
    text = mlcc.script(program.module)
    np.testing.assert_array_equal(lowered[-1], expected[-1], err_msg=text)
    if native:
        assert Native(func)(*compiled) == 0
        np.testing.assert_array_equal(compiled[-1], expected[-1], err_msg=text)
    return True


def test_generated_programs_keep_results(fuzz_seconds: float) -> None:
    ran = moved = seed = 0
    end = time.monotonic() + fuzz_seconds
    while seed < SHARE or (fuzz_seconds > 60 and time.monotonic() < end):
        one, two = generated(seed)
        ran, moved, seed = ran + one, moved + two, seed + 1
    assert ran > seed / 4 and moved > seed / 10
