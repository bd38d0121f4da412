"""The default rules of targets: TVM's, with TVM's parameters."""

from __future__ import annotations

from mlcc.tune.schedule_rule.add_rfactor import AddRFactor
from mlcc.tune.schedule_rule.apply_custom_rule import ApplyCustomRule
from mlcc.tune.schedule_rule.auto_bind import AutoBind
from mlcc.tune.schedule_rule.auto_inline import AutoInline, InlineConstantScalars
from mlcc.tune.schedule_rule.cross_thread_reduction import CrossThreadReduction
from mlcc.tune.schedule_rule.multi_level_tiling import MultiLevelTiling, ReuseType
from mlcc.tune.schedule_rule.multi_level_tiling_with_intrin import MultiLevelTilingWithIntrin
from mlcc.tune.schedule_rule.parallel_vectorize_unroll import ParallelizeVectorizeUnroll
from mlcc.tune.schedule_rule.random_compute_location import RandomComputeLocation
from mlcc.tune.schedule_rule.rule import ScheduleRule

# intrinsics, maximum extent of an innermost tile and of a vector, jobs per core, unroll limits
_X86 = (64, 16, (0, 16, 64, 512))
_ARM = (32, 8, (0, 8, 32, 256))
_CPUS: dict[str, tuple[tuple[str, ...], tuple[int, int, tuple[int, ...]]]] = {
    "llvm": ((), _X86),
    "vnni": (("dot_16x4_vnni",), _X86),
    "avx512": (("dot_16x4_avx512",), _X86),
    "asimd": (("dot_4x4_i8i8s32_neon",), _ARM),
    "dotprod": (("dot_4x4_i8i8s32_sdot", "dot_4x4_u8u8u32_udot", "dot_4x4_u8u8i32_hdot"), _ARM),
}


def default_rules(kind: str) -> list[ScheduleRule]:
    """The rules of a kind of target. Raises ValueError for an unknown kind."""
    if kind in _CPUS:
        return _cpu_rules(*_CPUS[kind])
    if kind == "cuda":
        return _gpu_rules()
    raise ValueError(f"there are no rules for `{kind}`; there are for {', '.join((*_CPUS, 'cuda'))}")


def _cpu_rules(intrins: tuple[str, ...], sizes: tuple[int, int, tuple[int, ...]]) -> list[ScheduleRule]:
    widest, jobs, unroll = sizes
    reuse = ReuseType("may", [1, 2], "global")
    return [
        ApplyCustomRule(),
        InlineConstantScalars(),
        AutoInline(
            into_producer=False, into_consumer=True, inline_const_tensor=True, disallow_if_then_else=True,
            require_injective=True, require_ordered=True, disallow_op=["tir.exp"],
        ),
        AddRFactor(max_jobs_per_core=jobs, max_innermost_factor=widest),
        *(
            MultiLevelTilingWithIntrin(name, "SSRSRS", max_innermost_factor=widest, reuse_write=reuse)
            for name in intrins
        ),
        MultiLevelTiling("SSRSRS", max_innermost_factor=widest, reuse_write=reuse),
        ParallelizeVectorizeUnroll(
            max_jobs_per_core=jobs, max_vectorize_extent=widest, unroll_max_steps=unroll, unroll_explicit=True
        ),
        RandomComputeLocation(),
    ]  # fmt: skip


def _gpu_rules() -> list[ScheduleRule]:
    return [
        ApplyCustomRule(),
        MultiLevelTiling(
            "SSSRRSRS", ["blockIdx.x", "vthread.x", "threadIdx.x"], 64, [1, 2, 3, 4, 8, 16],
            ReuseType("must", [4], "shared"), ReuseType("must", [3], "local"),
        ),
        InlineConstantScalars(),
        AutoInline(
            into_producer=True, into_consumer=True, inline_const_tensor=True, disallow_if_then_else=False,
            require_injective=False, require_ordered=False,
        ),
        CrossThreadReduction([4, 8, 16, 32, 64, 128, 256, 512]),
        ParallelizeVectorizeUnroll(-1, -1, [0, 16, 32, 64, 128, 256, 512, 1024], unroll_explicit=True),
        AutoBind(256, [32, 64, 128, 256, 512, 1024]),
    ]  # fmt: skip
