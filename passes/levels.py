"""The pipelines of the optimisation levels, as text. What lowers TIR to loop code follows in every target."""

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
# what no rule takes is bound to threads last
GPU_LEVELS: dict[str, str] = {
    "O0": f"{LEVELS['O0']},bind-threads",
    "O1": f"{LEVELS['O1']},bind-threads",
    "O2": f"{_SHAPES},canonicalize,{_FOLDED},fuse-attention,dead-code,{_LOWERED},fold-transposes,"
    f"dead-code,{_FUSED},{_PROMOTED},auto-schedule,bind-threads",
    "O3": f"{_SHAPES},canonicalize,"
    f"fold-batch-norm{{strict=true}},eliminate-common-subexpr,{_FOLDED},"
    f"fuse-attention,dead-code,{_LOWERED},split-kernels,fold-transposes,dead-code,{_FUSED},{_PROMOTED},auto-schedule,"
    "bind-threads",
}


def level_text(level: int, target: str = "llvm") -> str:
    """The pipeline of `-O<level>` for a kind of target."""
    return (GPU_LEVELS if target == "cuda" else LEVELS)[f"O{level}"]
