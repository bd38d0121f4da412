"""What is known of GPUs by their architecture, and what a target overrides."""

from __future__ import annotations

import pytest

import mlcc.runtime.cuda
from mlcc import CompileError
from mlcc.errors import MachineError
from mlcc.machine import host
from mlcc.machine.gpu import ISA, best_for
from mlcc.machine.gpu_rates import GpuRates
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.machine.target import Target
from mlcc.runtime.cuda.device import CudaDevice
from tests.runtime.fake_driver import FakeDriver


@pytest.mark.parametrize("arch", sorted(ISA))
def test_every_architecture_has_facts(arch: str) -> None:
    facts = GpuFacts.of(f"cuda{{arch={arch}}}")
    assert facts.shared_static <= facts.shared_per_block < facts.shared_per_sm + 1
    assert facts.threads_per_sm == 32 * facts.warps_per_sm
    assert facts.has_wgmma is (arch == "sm_90a")
    assert facts.has_cp_async is (facts.arch.number >= 80)
    assert "float16" in facts.mma_types
    assert str(facts.sm_count) in str(facts)


def test_a_target_overrides_them() -> None:
    facts = GpuFacts.of("cuda{arch=sm_86 sm-count=46 shared-bytes=49152 max-threads=512 registers=32768 l2=4194304}")
    assert (facts.sm_count, facts.shared_per_block, facts.max_threads) == (46, 49152, 512)
    assert (facts.registers_per_sm, facts.l2_bytes) == (32768, 4194304)
    tvm = GpuFacts.of("cuda -arch=sm_80 -max_threads_per_block=512 -max_shared_memory_per_block=49152")
    assert (tvm.max_threads, tvm.shared_per_block) == (512, 49152)
    with pytest.raises(CompileError):
        Target.parse("cuda{arch=sm_80 sm-count=-1}")
    with pytest.raises(CompileError):
        Target.parse("llvm{sm-count=4}")


def test_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlcc.runtime.cuda, "default_device", lambda: CudaDevice(FakeDriver()))
    host.gpu.cache_clear()
    try:
        facts = GpuFacts.of("cuda{arch=native}")
        assert (facts.arch.name, facts.sm_count, facts.shared_per_block) == ("sm_86", 46, 99 << 10)
        assert (facts.l2_bytes, facts.registers_per_sm, facts.max_threads) == (4 << 20, 65536, 1024)
        assert GpuFacts.of("cuda{arch=native sm-count=10}").sm_count == 10
        with pytest.raises(MachineError, match="E0860"):
            monkeypatch.setattr(mlcc.runtime.cuda, "default_device", lambda: CudaDevice(FakeDriver(), 3))
            host.gpu.cache_clear()
            GpuFacts.of("cuda{arch=native}")
    finally:
        host.gpu.cache_clear()
    assert [best_for(c) for c in ((9, 0), (8, 0), (8, 8), (7, 0))] == ["sm_90a", "sm_80", "sm_87", "sm_75"]


def test_what_runs_at_once_is_bounded_by_each_resource() -> None:
    facts = GpuFacts.of("cuda{arch=sm_80}")
    assert facts.blocks_at_once(256, 32, 0) == 8  # threads
    assert facts.blocks_at_once(256, 128, 0) == 2  # registers
    assert facts.blocks_at_once(32, 32, 0) == 32  # blocks
    assert facts.blocks_at_once(256, 32, 48 * 1024) == 3  # shared memory
    assert facts.blocks_at_once(1024, 255, 0) == 0


@pytest.mark.parametrize("arch", sorted(ISA))
def test_every_architecture_has_rates(arch: str) -> None:
    rates = GpuRates.of(GpuFacts.of(f"cuda{{arch={arch}}}"))
    assert 1e9 < rates.hertz < 3e9 and 1e11 < rates.bytes_per_second < 1e13
    assert rates.lanes["float32"] >= rates.lanes["int32"] >= rates.lanes["float64"]
    assert rates.tensor("f16", True) > 2 * rates.lanes["float32"], "tensor cores are there to be faster"
    assert rates.tensor("s8", True) == 2 * rates.tensor("bf16", True) == 4 * rates.tensor("tf32", True)
    assert rates.tensor("f16", False) <= rates.tensor("f16", True)
