"""Diagnostic codes: targets."""

CODES: dict[str, tuple[str, str]] = {
    "E0790": (
        "a target's text cannot be read",
        "A target is written `llvm`, `llvm{cpu=native}` or `cuda{arch=sm_90}`: a name, and options in braces separated "
        'by spaces or commas. TVM\'s forms `llvm -mcpu=skylake -num-cores 2` and {"kind": "llvm"} read too.',
    ),
    "E0791": (
        "no such target",
        "The targets are `llvm` (CPUs) and `cuda` (NVIDIA GPUs).",
    ),
    "E0792": (
        "the target has no such option",
        "`llvm` has cpu, triple, features and num-cores; `cuda` has arch. TVM's mcpu, mtriple and mattr mean cpu, "
        "triple and features.",
    ),
    "E0793": (
        "an option of the target has a wrong value",
        "cpu, triple and arch are single words (`native`, `aarch64-linux-gnu`, `sm_90`), features a list of LLVM's "
        'names each with its sign, as in `["+avx2", "-fma"]` or `+avx2`; num-cores 0 is all of the machine.',
    ),
    "E0794": (
        "no code generator for this target",
        "The target's text is right, but this version generates no code for it.",
    ),
}
