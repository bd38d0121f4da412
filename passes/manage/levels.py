"""The pipelines of the optimisation levels and of lowering, as text."""

_SHAPES = "normalize,broadcast-operands,check-shapes"
# what `R.ones` and its kin create is folded as what any operator makes: weights may be packed, masks computed
_FOLDED = "fold-constants{created=65536}"
# what may fuse is read off the TIR functions
_FUSED = "annotate-op-pattern,fuse,fuse-tir{keep-public=true}"
# what operators compute, without TVM's roundings and with indices checked
_LOWERED = "lower-to-tir{accurate=true check-indices=true}"
_PROMOTED = "promote-narrow-floats"
OPERATORS = f"{_LOWERED},{_PROMOTED}"
_KERNELS = f"{_LOWERED},{_FUSED},{_PROMOTED}"
_SCHEDULED = f"{_LOWERED},split-kernels,fold-transposes,dead-code,{_FUSED},{_PROMOTED},auto-schedule,pack-weights"

LEVELS: dict[str, str] = {
    # as little as makes code: nothing is fused, folded or scheduled
    "O0": f"broadcast-operands,check-shapes,{OPERATORS}",
    "O1": f"{_SHAPES},canonicalize,{_FOLDED},dead-code,{OPERATORS}",
    # schedules take about as long to choose and to compile as all the rest: for what runs more than once
    "O2": f"{_SHAPES},canonicalize,{_FOLDED},dead-code,{_KERNELS}",
    "O3": f"{_SHAPES},canonicalize,"
    f"fold-batch-norm{{strict=true}},eliminate-common-subexpr,{_FOLDED},"
    f"auto-layout,{_FOLDED},dead-code,{_SCHEDULED}",
}

# on a GPU a kernel without a schedule is far from what one with it is, and scores of attention have no place in memory;
# what no rule takes is bound to threads as it is lowered
GPU_LEVELS: dict[str, str] = {
    "O0": LEVELS["O0"],
    "O1": LEVELS["O1"],
    "O2": f"{_SHAPES},canonicalize,{_FOLDED},fuse-attention,dead-code,{_LOWERED},fold-transposes,"
    f"dead-code,{_FUSED},{_PROMOTED},auto-schedule",
    "O3": f"{_SHAPES},canonicalize,"
    f"fold-batch-norm{{strict=true}},eliminate-common-subexpr,{_FOLDED},"
    f"fuse-attention,dead-code,{_LOWERED},split-kernels,fold-transposes,dead-code,{_FUSED},{_PROMOTED},auto-schedule",
}


# the steps from scheduled TensorIR to what code is generated from, by kind of target
LOWERING: dict[str, tuple[str, ...]] = {
    "llvm": (
        "init-empty-reductions", "realize-blocks", "simplify-divisions", "serialize-threads", "compact-buffers",
        "flatten-buffers", "partition-loops", "vectorize-loops", "transpose-registers", "unroll-loops",
        "select-parallel-loops",
    ),
    "cuda": (
        "init-empty-reductions", "combine-threads", "realize-blocks", "allocate-thread-memory", "form-kernels",
        "lower-allreduce", "simplify-divisions", "compact-buffers", "plan-swizzle", "form-bulk-copies",
        "bind-views", "flatten-buffers", "resolve-views", "pipeline-loops", "inject-virtual-threads",
        "lower-warp-memory", "lower-wmma", "allocate-barriers", "expand-matrix-calls", "narrow-indices",
        "insert-barriers", "group-products", "vectorize-loops", "inject-async-copies", "encode-descriptors",
        "swizzle-shared", "lower-bulk-copies", "select-unrolled-loops", "split-host-device", "narrow-kernels",
        "plan-dynamic-shared",
    ),
}  # fmt: skip


_FIRST = {"llvm": "remove-unused-functions", "cuda": "bind-threads,remove-unused-functions"}


def lowering_text(target: str = "llvm") -> str:
    """The pipeline from scheduled TensorIR to what code is generated from, for a kind of target: the group `lower`."""
    return ",".join((_FIRST[target], *LOWERING[target]))


def group_text(name: str, target: str = "llvm") -> str | None:
    """The passes that one of `GROUPS` stands for; None for other names."""
    if name in LEVELS:
        return level_text(int(name[1:]), target)
    kind = {"lower": target, "lower-loops": "llvm", "lower-gpu": "cuda"}.get(name.replace("_", "-"))
    return None if kind is None else lowering_text(kind)


# names that stand for passes: a level's, all of lowering for the target, for a CPU, for a GPU
GROUPS = (*LEVELS, "lower", "lower-loops", "lower-gpu")


def level_text(level: int, target: str = "llvm") -> str:
    """The passes of a level for a kind of target, up to scheduled TensorIR: the group `O<level>`."""
    return (GPU_LEVELS if target == "cuda" else LEVELS)[f"O{level}"]


def whole_text(level: int, target: str = "llvm") -> str:
    """The pipeline of `-O<level>` for a kind of target: what code is generated from comes out."""
    return f"{level_text(level, target)},{lowering_text(target)}"
