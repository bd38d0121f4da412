"""Print kernels as source text, to read or to compile elsewhere: CUDA C++ and Metal.

The input is the same loop code that the PTX backend compiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.recursion import deep_recursion
from mlcc.targets.source.cuda_c import CudaC
from mlcc.targets.source.dialect import Dialect
from mlcc.targets.source.kernel import kernel_text
from mlcc.targets.source.metal import Metal

LANGUAGES: dict[str, type[Dialect]] = {"cuda-c": CudaC, "metal": Metal}


def emit_source(kernels: Sequence[DeviceKernel], language: str) -> str:
    """Print kernels in one of `LANGUAGES`, preceded by the helper functions that they use.

    Raises CompileError (E0780) for constructs that the language cannot express.
    """
    factory = LANGUAGES.get(language)
    if factory is None:
        help = did_you_mean(language, LANGUAGES) or f"the source languages are {', '.join(LANGUAGES)}"
        raise CompileError(error("E0781", f"unknown source language `{language}`", help=help))
    dialect = factory()
    with deep_recursion():
        texts = [kernel_text(k, dialect) for k in kernels]
    return "\n".join([*dialect.prelude(), *texts])
