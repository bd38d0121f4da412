"""The passes of TVM 0.27 and their counterparts here, for people who come with TVM's names."""

from __future__ import annotations

import re

# TVM's name -> the pass of `PASSES` that does the same; docs/passes.md has the table the other way round
COUNTERPARTS: dict[str, str] = {
    "AdjustMatmulOrder": "adjust-matmul-order",
    "AnnotateTIROpPattern": "annotate-op-pattern",
    "ApplyDefaultSchedule": "auto-schedule",
    "BindParams": "bind-params",
    "BindSymbolicVars": "bind-symbolic-vars",
    "CanonicalizeBindings": "canonicalize",
    "CombineParallelMatmul": "combine-parallel-matmul",
    "CompactBufferAllocation": "compact-buffers",
    "ConvertBlocksToOpaque": "realize-blocks",
    "ConvertLayout": "convert-layout",
    "ConvertToDataflow": "to-dataflow",
    "DeadCodeElimination": "dead-code",
    "DecomposeOpsForInference": "decompose",
    "DecomposeOpsForTraining": "decompose",
    "DefaultGPUSchedule": "bind-threads",
    "EliminateCommonSubexpr": "eliminate-common-subexpr",
    "ExpandTupleArguments": "expand-tuple-arguments",
    "FlattenBuffer": "flatten-buffers",
    "FoldBatchnormToConv2D": "fold-batch-norm",
    "FoldConstant": "fold-constants",
    "ForceNarrowIndexToInt32": "narrow-kernels",
    "FuseOps": "fuse",
    "FuseOpsByPattern": "fuse-by-pattern",
    "FuseTIR": "fuse-tir",
    "InjectPTXAsyncCopy": "inject-async-copies",
    "InjectPermutedLayout": "swizzle-shared",
    "InjectSoftwarePipeline": "pipeline-loops",
    "InjectVirtualThread": "inject-virtual-threads",
    "InlinePrivateFunctions": "inline-functions",
    "LambdaLift": "lambda-lift",
    "LegalizeOps": "lower-to-tir",
    "LoopPartition": "partition-loops",
    "LowerCrossThreadReduction": "combine-threads",
    "LowerMatchBuffer": "resolve-views",
    "LowerOpaqueBlock": "realize-blocks",
    "LowerThreadAllreduce": "lower-allreduce",
    "LowerWarpMemory": "lower-warp-memory",
    "MetaScheduleApplyDatabase": "apply-tuned",
    "NarrowDataType": "narrow-indices",
    "Normalize": "normalize",
    "PatternMatchingRewriter": "rewrite",
    "PlanAndUpdateBufferAllocationLocation": "compact-buffers",
    "RemoveUnusedFunctions": "remove-unused-functions",
    "RemoveUnusedOutputs": "remove-unused-outputs",
    "RemoveUnusedParameters": "remove-unused-parameters",
    "RewriteDataflowReshape": "rewrite-dataflow-reshape",
    "SplitHostDevice": "split-host-device",
    "SplitLayoutRewritePreproc": "pack-weights",
    "ThreadSync": "insert-barriers",
    "ToMixedPrecision": "to-mixed-precision",
    "TopologicalSort": "topological-sort",
    "UnifyThreadBinding": "form-kernels",
    "UnrollLoop": "unroll-loops",
    "VectorizeLoop": "vectorize-loops",
}
# passes of TVM without a counterpart -> what does their work
OTHERWISE: dict[str, str] = {
    "AllocateWorkspace": "an object plans its memory itself, when it is compiled",
    "AttachGlobalSymbol": "every public function is exported, under its name",
    "CallTIRRewrite": "compiling does that: a text keeps its calls as they are",
    "Gradient": "there is no differentiation here; write the backward function, or export it from PyTorch",
    "KillAfterLastUse": "an object plans its memory itself, when it is compiled",
    "LiftTransformParams": "bind the weights by `bind-params`, and `fold-constants` computes what depends on them only",
    "LowerAllocTensor": "an object plans its memory itself, when it is compiled",
    "LowerRuntimeBuiltin": "there is no virtual machine: graphs become machine code, by `mlcc compile`",
    "MergeCompositeFunctions": "`fuse-by-pattern{annotate-codegen=true}` makes a function of each composite",
    "MetaScheduleTuneIRMod": "tuning is a command: `mlcc tune model.mlc --budget 10m -o tuned.mlc`",
    "MetaScheduleTuneTIR": "tuning is a command: `mlcc tune model.mlc --budget 10m -o tuned.mlc`",
    "RewriteCUDAGraph": "there is no counterpart: kernels are launched one by one",
    "RunCodegen": "there are no external code generators; R.call_dps_packed calls functions of an environment",
    "StaticPlanBlockMemory": "an object plans its memory itself, when it is compiled",
    "ToNonDataflow": "compiling does that: a text keeps its dataflow blocks",
    "VMBuiltinLower": "there is no virtual machine: graphs become machine code, by `mlcc compile`",
    "VMShapeLower": "there is no virtual machine: sizes are computed in machine code; `check-shapes` checks them",
}
_PREFIX = re.compile(r"(?:\w+\.)*transform\.|(?:tvm|relax|tir|tirx|s_tir|dlight|meta_schedule)\.(?:\w+\.)*")


def names_in_tvm(name: str) -> list[str]:
    """Return TVM's names of a pass of `PASSES`.

    >>> names_in_tvm("decompose")
    ['DecomposeOpsForInference', 'DecomposeOpsForTraining']
    """
    return [known for known, ours in COUNTERPARTS.items() if ours == name]


def counterpart(name: str) -> str | None:
    """Return the pass that does what TVM's pass of that name does, or None.

    >>> counterpart("relax.transform.LegalizeOps")
    'lower-to-tir'
    """
    word = _plain(_PREFIX.sub("", name))
    return next((ours for known, ours in COUNTERPARTS.items() if _plain(known) == word), None)


def hint(name: str) -> str | None:
    """Return the help for a pass by TVM's name, such as `relax.transform.LegalizeOps`; None for other names.

    >>> hint("LegalizeOps")
    "TVM's LegalizeOps is `lower-to-tir` here"
    """
    word = _PREFIX.sub("", name)
    for known, ours in COUNTERPARTS.items():
        if _plain(known) == _plain(word):
            return f"TVM's {known} is `{ours}` here"
    for known, instead in OTHERWISE.items():
        if _plain(known) == _plain(word):
            return f"TVM's {known} has no counterpart: {instead}"
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_]", "", name).lower()
