"""The sample for tensor cores: equal to NumPy under emulation, in order between threads, assembled without spills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.gpu import DeviceProgram
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

SAMPLE = Path(__file__).parents[2] / "samples" / "tensor-cores"
# the schedule of the sample, and one that makes blocks of 2 warps with 32 x 16 sums each
SMALL = {
    "[None, 2, 4, 16]": "[None, 1, 2, 16]", "[None, 4, 2, 16]": "[None, 2, 1, 16]",
    "[None, 2, 4, 32, 8]": "[None, 1, 2, 32, 8]",
}  # fmt: skip


def program(size: int, changes: dict[str, str]) -> DeviceProgram:
    script = (SAMPLE / "mma-sync.mls").read_text()
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    mod = mlcc.parse((SAMPLE / "matmul.mlc").read_text().replace("1024", str(size)))
    func = mlcc.apply_schedule(mod, script)["matmul"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("matmul", func)


def test_blocks_of_two_warps_match_numpy() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (96, 96)).astype(np.float32) for _ in range(2))
    got = np.zeros((96, 96), np.float32)
    run_program(program(96, SMALL), *((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)), got)
    np.testing.assert_array_equal(got, a @ b)
    text = emit_ptx(program(96, SMALL).kernels, "cuda{arch=sm_80}").text
    # two rounds before the loop copy, the loop copies and multiplies, two rounds after it multiply
    assert text.count("cp.async.cg.shared.global") == 3 * 4
    assert text.count("mma.sync") == 8 + 2 * 8 and text.count("ldmatrix") == 3 * 6
    if find_ptxas() is not None:
        (found,) = assemble(text, "sm_80").values()
        assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


def test_steps_stay_a_loop() -> None:
    """Registers have constant indices in each round; what differs is where in shared memory they are loaded from. In a
    round products stand before the copies, which overwrite what the round before used up: one barrier."""
    text = emit_ptx(program(768, SMALL).kernels, "cuda{arch=sm_80}").text
    assert text.count("mma.sync") == 8 + 2 * 8
    assert text.count("bar.sync") == 1 + 2


def test_the_whole_sample_fits_registers(all_cases: bool) -> None:
    if not all_cases or find_ptxas() is None:
        return
    made = program(1024, {})
    (found,) = assemble(emit_ptx(made.kernels, "cuda{arch=sm_90}").text, "sm_90").values()
    assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)
    assert found.registers <= 128


def test_a_cpu_has_no_tensor_cores() -> None:
    script = (SAMPLE / "mma-sync.mls").read_text()
    mod = mlcc.apply_schedule(mlcc.parse((SAMPLE / "matmul.mlc").read_text()), script)
    with pytest.raises(mlcc.CompileError, match="E0707") as caught:
        mlcc.build(mod, target="llvm", opt_level=0)
    assert "needs threads that run concurrently" in caught.value.diagnostics[0].message
