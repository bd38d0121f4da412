"""The target `llvm`: CPUs."""

from __future__ import annotations

from mlcc.backends import Backend, LazyFunction
from mlcc.machine.target import LlvmTarget
from mlcc.outputs import ASSEMBLY, LLVM_IR, OBJECT, SHARED, STATIC
from mlcc.passes.manage.levels import (
    FOLDED_DECODING,
    FUSED_DECODING,
    LEVELS,
    LOWERED,
    PROMOTED,
    SHAPES,
    SHARED_WORK_DECODING,
)

_SCHEDULED = (
    f"{SHAPES},canonicalize,integer-products,{SHARED_WORK_DECODING},auto-layout,{FOLDED_DECODING},dead-code,"
    f"winograd,fixed-point-products,{LOWERED},split-kernels,fold-transposes,dead-code,{FUSED_DECODING},{PROMOTED},"
    "version-kernels,version-sizes,auto-schedule,pack-weights"
)
BACKEND = Backend(
    options=LlvmTarget,
    facts=LazyFunction("mlcc.machine.cpu_tables:CpuFacts.of"),
    # -O3 differs by what LLVM does behind them
    levels={**LEVELS, "O2": _SCHEDULED, "O3": _SCHEDULED},
    lowering=(
        "init-empty-reductions", "simplify-arg-updates", "realize-blocks", "simplify-divisions", "serialize-threads",
        "reuse-outputs", "compact-buffers", "flatten-buffers", "pad-temporaries", "partition-loops",
        "vectorize-loops", "transpose-registers", "unroll-loops", "select-parallel-loops",
    ),
    sanitizing=(
        "mark-new-outputs", "init-empty-reductions", "realize-blocks", "serialize-threads", "insert-index-checks",
        "flatten-buffers", "insert-access-checks",
    ),
    lower_names=("lower-loops",),
    lower_options=LazyFunction("mlcc.passes.lowering.options:cpu_lower_options"),
    compile=LazyFunction("mlcc.targets.llvm.module:compile_module"),
    outputs=(OBJECT, SHARED, STATIC, ASSEMBLY, LLVM_IR),
    loadable=OBJECT,
    header=LazyFunction("mlcc.targets.plan.header:c_header"),
    regroups=True,
)  # fmt: skip
