"""Generated programs with temporaries: where they move and shrink to, every number stays what it was."""

from __future__ import annotations

import time

import numpy as np

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.passes.lowering.compact import compact_buffers
from mlcc.passes.lowering.realize import realize_blocks
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
    func = mlcc.parse(head + "\n".join("    " + line for line in text.splitlines()))["main"]
    assert isinstance(func, tir.PrimFunc)
    arrays = [np.arange(maker.n, dtype="int32") * 5, np.zeros(maker.n, "int32")]
    expected, lowered, native = ([a.copy() for a in arrays] for _ in range(3))
    try:
        run_prim_func(func, expected)
    except mlcc.CallError:
        return False, False
    run_prim_func(lower_func(func), lowered)
    np.testing.assert_array_equal(lowered[1], expected[1], err_msg=text)
    if seed % 8 == 0:
        assert Native(func)(*native) == 0
        np.testing.assert_array_equal(native[1], expected[1], err_msg=text)
    before = sum(isinstance(s, tir.AllocBuffer) for s in realize_blocks(func).body)
    after = compact_buffers(realize_blocks(func)).body
    return True, sum(isinstance(s, tir.AllocBuffer) for s in after) < before


def test_generated_programs_keep_results(fuzz_seconds: float) -> None:
    ran = moved = seed = 0
    end = time.monotonic() + fuzz_seconds
    while seed < SHARE or (fuzz_seconds > 60 and time.monotonic() < end):
        one, two = generated(seed)
        ran, moved, seed = ran + one, moved + two, seed + 1
    assert ran > seed / 4 and moved > seed / 10
