"""The llvm target: loop code and graph functions to LLVM IR text, and from there to objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlcc.ir.module import IRModule
    from mlcc.machine.target import Target
    from mlcc.targets.llvm.artifact import ObjectArtifact


def compile_module(
    module: IRModule, target: Target, *, prefix: str | None = None, opt_level: int = 2, pipeline: str = "",
    allow_extern: tuple[str, ...] = (), allow_native: bool = True, sanitize: bool = False,
) -> ObjectArtifact:  # fmt: skip
    """Generate code for a lowered module. With `sanitize` its accesses are
    checked as they are made. Raises CompileError for all that has no native form."""
    from mlcc.targets.llvm.module import compile_module as work

    return work(module, target, prefix, opt_level, pipeline, allow_extern, allow_native, sanitize)
