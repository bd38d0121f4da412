"""Postprocessors of a sampled schedule: carry out its annotations, reject programs that the target cannot run."""

from mlcc.tune.postproc.disallow_dynamic_loop import DisallowDynamicLoop
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.postproc.rewrite_cooperative_fetch import RewriteCooperativeFetch
from mlcc.tune.postproc.rewrite_layout import RewriteLayout
from mlcc.tune.postproc.rewrite_parallel_vectorize_unroll import RewriteParallelVectorizeUnroll
from mlcc.tune.postproc.rewrite_reduction_block import RewriteReductionBlock
from mlcc.tune.postproc.rewrite_tensorize import RewriteTensorize
from mlcc.tune.postproc.rewrite_unbound_block import RewriteUnboundBlock
from mlcc.tune.postproc.verify_gpu_code import VerifyGPUCode

PyPostproc = Postproc  # TVM's base of postprocessors that are written in Python

__all__ = [
    "DisallowDynamicLoop", "Postproc", "PyPostproc", "RewriteCooperativeFetch", "RewriteLayout",
    "RewriteParallelVectorizeUnroll", "RewriteReductionBlock", "RewriteTensorize", "RewriteUnboundBlock",
    "VerifyGPUCode",
]  # fmt: skip
