"""The pipelines of the optimisation levels, as text. What lowers TIR to loop code follows in every target."""

LEVELS: dict[str, str] = {
    # as little as makes code: nothing is fused, folded or scheduled
    "O0": "lower-to-tir",
    "O1": "normalize,canonicalize,fold-constants,dead-code,lower-to-tir",
    "O2": "normalize,canonicalize,fold-constants,dead-code,fuse,lower-to-tir,fuse-tir",
    "O3": "normalize,canonicalize,eliminate-common-subexpr,fold-constants,dead-code,fuse,lower-to-tir,fuse-tir",
}


def level_text(level: int) -> str:
    """The pipeline of `-O<level>`."""
    return LEVELS[f"O{level}"]
