"""The pipelines of the optimization levels as text: shared parts, and those that suit any target."""

# the passes that schedule functions by rules, the first of which `apply-tuned` comes before
SCHEDULING = ("version-sizes", "auto-schedule")
SHAPES = "normalize,broadcast-operands,check-shapes"
# fold the results of `R.ones` and the like as those of other operators, for packed weights and masks
FOLDED = "fold-constants{created=65536}"
# the same, without weights that `FUSED_DECODING` decodes inside products
FOLDED_DECODING = "fold-constants{created=65536 decoding=true}"
# fusion kinds are derived from the TIR functions
FUSED = "annotate-op-pattern,fuse,fuse-tir{keep-public=true}"
# the same, with dequantization fused into products
FUSED_DECODING = "annotate-op-pattern,fuse{dequantize=true},fuse-tir{keep-public=true}"
# operators without TVM's roundings, and with checked indices
LOWERED = "lower-to-tir{accurate=true check-indices=true}"
PROMOTED = "promote-narrow-floats"
OPERATORS = f"{LOWERED},{PROMOTED}"
_NORMS_AND_SUBEXPR = "fold-batch-norm{strict=true},eliminate-common-subexpr"
SHARED_WORK = f"{_NORMS_AND_SUBEXPR},{FOLDED}"
SHARED_WORK_DECODING = f"{_NORMS_AND_SUBEXPR},{FOLDED_DECODING}"

# without schedules: the code depends only on the loops
_ALL = f"{SHAPES},canonicalize,{SHARED_WORK},dead-code,{LOWERED},{FUSED},{PROMOTED}"
LEVELS: dict[str, str] = {
    # as written: nothing is fused, folded or scheduled
    "O0": f"broadcast-operands,check-shapes,{OPERATORS}",
    # quick to compile
    "O1": f"{SHAPES},canonicalize,{FOLDED},dead-code,{LOWERED},{FUSED},{PROMOTED}",
    "O2": _ALL,
    "O3": _ALL,
}

MEANING = "0 as written, 1 quick to compile, 2 scheduled by the target's rules, 3 with all of LLVM's passes too"
DEFAULT = 2


def level_of(asked: int | None, sanitize: bool = False) -> int:
    """Return the level of a build, given the requested one or None; sanitized builds default to unscheduled loops."""
    return (1 if sanitize else DEFAULT) if asked is None else asked
