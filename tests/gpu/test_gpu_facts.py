"""What is known of GPUs by their architecture, and what a target overrides."""

from __future__ import annotations

import pytest

from mlcc import CompileError
from mlcc.gpu_facts import GpuFacts
from mlcc.gpus import ISA
from mlcc.target import Target


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


def test_what_runs_at_once_is_bounded_by_each_resource() -> None:
    facts = GpuFacts.of("cuda{arch=sm_80}")
    assert facts.blocks_at_once(256, 32, 0) == 8  # threads
    assert facts.blocks_at_once(256, 128, 0) == 2  # registers
    assert facts.blocks_at_once(32, 32, 0) == 32  # blocks
    assert facts.blocks_at_once(256, 32, 48 * 1024) == 3  # shared memory
    assert facts.blocks_at_once(1024, 255, 0) == 0
