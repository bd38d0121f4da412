"""The target `cuda`: NVIDIA GPUs."""

from __future__ import annotations

from mlcc.backends import Backend, LazyFunction
from mlcc.machine.target import CudaTarget
from mlcc.outputs import ARCHIVE, CUDA_C, LLVM_IR, METAL, PTX
from mlcc.passes.manage.levels import FUSED, LEVELS, LOWERED, PROMOTED, SHAPES, SHARED_WORK

# attention is fused so that its scores are never stored; blocks without a schedule rule are bound to threads in
# lowering
_SCHEDULED = (
    f"{SHAPES},canonicalize,{SHARED_WORK},fuse-attention,dead-code,{LOWERED},split-kernels,fold-transposes,"
    f"dead-code,{FUSED},{PROMOTED},auto-schedule"
)
BACKEND = Backend(
    options=CudaTarget,
    facts=LazyFunction("mlcc.machine.gpu_tables:GpuFacts.of"),
    levels={**LEVELS, "O2": _SCHEDULED, "O3": _SCHEDULED},
    before_lowering=("bind-threads", "remove-unused-functions"),
    lowering=(
        "init-empty-reductions", "combine-threads", "realize-blocks", "allocate-thread-memory", "form-kernels",
        "lower-allreduce", "simplify-divisions", "compact-buffers", "plan-swizzle", "form-bulk-copies",
        "bind-views", "flatten-buffers", "resolve-views", "pipeline-loops", "inject-virtual-threads",
        "lower-warp-memory", "lower-wmma", "allocate-barriers", "expand-matrix-calls", "narrow-indices",
        "share-reciprocals", "insert-barriers", "group-products", "vectorize-loops", "inject-async-copies",
        "encode-descriptors", "swizzle-shared", "lower-bulk-copies", "select-unrolled-loops", "split-host-device",
        "narrow-kernels", "plan-dynamic-shared",
    ),
    lower_names=("lower-gpu",),
    lower_options=LazyFunction("mlcc.passes.lowering.options:gpu_lower_options"),
    compile=LazyFunction("mlcc.targets.cuda.module:compile_module"),
    outputs=(PTX, ARCHIVE, LLVM_IR, CUDA_C, METAL),
    loadable=ARCHIVE,
    inspect=LazyFunction("mlcc.targets.cuda.ptxas:add_assembled"),
    many_threads=True,
    emulated=True,
)  # fmt: skip
