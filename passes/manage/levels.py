"""What the pipelines of the optimisation levels are made of, as text, and those that suit any target."""

SHAPES = "normalize,broadcast-operands,check-shapes"
# what `R.ones` and its kin create is folded as what any operator makes: weights may be packed, masks computed
FOLDED = "fold-constants{created=65536}"
# what may fuse is read off the TIR functions
FUSED = "annotate-op-pattern,fuse,fuse-tir{keep-public=true}"
# what operators compute, without TVM's roundings and with indices checked
LOWERED = "lower-to-tir{accurate=true check-indices=true}"
PROMOTED = "promote-narrow-floats"
OPERATORS = f"{LOWERED},{PROMOTED}"
SHARED_WORK = f"fold-batch-norm{{strict=true}},eliminate-common-subexpr,{FOLDED}"

# no schedules: what code is then depends on nothing but its loops
LEVELS: dict[str, str] = {
    # as little as makes code: nothing is fused, folded or scheduled
    "O0": f"broadcast-operands,check-shapes,{OPERATORS}",
    "O1": f"{SHAPES},canonicalize,{FOLDED},dead-code,{OPERATORS}",
    "O2": f"{SHAPES},canonicalize,{FOLDED},dead-code,{LOWERED},{FUSED},{PROMOTED}",
    "O3": f"{SHAPES},canonicalize,{SHARED_WORK},dead-code,{LOWERED},{FUSED},{PROMOTED}",
}
