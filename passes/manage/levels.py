"""The pipelines of the optimization levels as text: shared parts, and those that suit any target."""

SHAPES = "normalize,broadcast-operands,check-shapes"
# what `R.ones` and its kin create is folded as what any operator makes: weights may be packed, masks computed
FOLDED = "fold-constants{created=65536}"
# what may fuse is read off the TIR functions
FUSED = "annotate-op-pattern,fuse,fuse-tir{keep-public=true}"
# the same where products of few rows decode their weights
FUSED_DECODING = "annotate-op-pattern,fuse{dequantize=true},fuse-tir{keep-public=true}"
# what operators compute, without TVM's roundings and with indices checked
LOWERED = "lower-to-tir{accurate=true check-indices=true}"
PROMOTED = "promote-narrow-floats"
OPERATORS = f"{LOWERED},{PROMOTED}"
SHARED_WORK = f"fold-batch-norm{{strict=true}},eliminate-common-subexpr,{FOLDED}"

# no schedules: what code is then depends on nothing but its loops
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
