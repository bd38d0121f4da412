"""Kernels as source text to read, and to compile elsewhere: CUDA C++ and Metal. A second printer of the loop code that
becomes PTX."""

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
    """Kernels as one text in a language of `LANGUAGES`, with the helpers that they use before them.

    Raises CompileError (E0780) for what the language cannot state.
    """
    factory = LANGUAGES.get(language)
    if factory is None:
        help = did_you_mean(language, LANGUAGES) or f"the languages are {', '.join(LANGUAGES)}"
        raise CompileError(error("E0781", f"no source is printed in `{language}`", help=help))
    dialect = factory()
    with deep_recursion():
        texts = [kernel_text(k, dialect) for k in kernels]
    return "\n".join([*dialect.prelude(), *texts])
