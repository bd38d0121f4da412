"""The postprocessors that targets have by default, as TVM has them."""

from __future__ import annotations

from mlcc.tune.postproc.disallow_dynamic_loop import DisallowDynamicLoop
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.postproc.rewrite_cooperative_fetch import RewriteCooperativeFetch
from mlcc.tune.postproc.rewrite_layout import RewriteLayout
from mlcc.tune.postproc.rewrite_parallel_vectorize_unroll import RewriteParallelVectorizeUnroll
from mlcc.tune.postproc.rewrite_reduction_block import RewriteReductionBlock
from mlcc.tune.postproc.rewrite_tensorize import RewriteTensorize
from mlcc.tune.postproc.rewrite_unbound_block import RewriteUnboundBlock
from mlcc.tune.postproc.verify_gpu_code import VerifyGPUCode

_CPUS = ("llvm", "vnni", "avx512", "asimd", "dotprod")


def default_postprocs(kind: str) -> list[Postproc]:
    """The postprocessors of a kind of target. Raises ValueError for an unknown kind."""
    if kind in _CPUS:
        return [
            DisallowDynamicLoop(),
            RewriteParallelVectorizeUnroll(),
            RewriteReductionBlock(),
            *([] if kind == "llvm" else [RewriteTensorize(vectorize_init_loop=True)]),
            RewriteLayout(),
        ]
    if kind == "cuda":
        return [
            DisallowDynamicLoop(),
            RewriteCooperativeFetch(),
            RewriteUnboundBlock(max_threadblocks=256),
            RewriteParallelVectorizeUnroll(),
            RewriteReductionBlock(),
            VerifyGPUCode(),
        ]
    raise ValueError(f"there are no postprocessors for `{kind}`; there are for {', '.join((*_CPUS, 'cuda'))}")
