"""The target `c`: portable C source for CPUs."""

from __future__ import annotations

from mlcc.backends import Backend, LazyFunction
from mlcc.machine.target import CTarget
from mlcc.outputs import C_SOURCE
from mlcc.passes.manage.levels import FOLDED, FUSED_DECODING, LEVELS, LOWERED, PROMOTED, SHAPES, SHARED_WORK

_SCHEDULED = (
    f"{SHAPES},canonicalize,integer-products,{SHARED_WORK},auto-layout,{FOLDED},dead-code,{LOWERED},split-kernels,"
    f"fold-transposes,dead-code,{FUSED_DECODING},{PROMOTED},auto-schedule,pack-weights"
)
BACKEND = Backend(
    options=CTarget,
    facts=LazyFunction("mlcc.targets.c.facts:portable_facts"),
    levels={**LEVELS, "O2": _SCHEDULED, "O3": _SCHEDULED},
    lowering=(
        "init-empty-reductions", "realize-blocks", "simplify-divisions", "serialize-threads", "compact-buffers",
        "flatten-buffers", "partition-loops",
    ),
    lower_options=LazyFunction("mlcc.passes.lowering.options:source_lower_options"),
    compile=LazyFunction("mlcc.targets.c.artifact:make_artifact"),
    outputs=(C_SOURCE,),
    loadable=C_SOURCE,
    header=LazyFunction("mlcc.targets.plan.header:c_header"),
)  # fmt: skip
