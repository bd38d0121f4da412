"""The pass manager and the passes. `PASSES` names each pass; its module is imported when the pass is first named.

`Pass`, `PassContext`, `Pipeline`, `register` and `unregister` are for passes from outside.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mlcc import plugins

if TYPE_CHECKING:
    from mlcc.passes.manage.manager import Pass as Pass
    from mlcc.passes.manage.manager import PassContext as PassContext
    from mlcc.passes.manage.manager import Pipeline as Pipeline
    from mlcc.passes.manage.registry import register as register
    from mlcc.passes.manage.registry import unregister as unregister

if __name__ != "mlcc.passes":
    raise ImportError("import mlcc.passes, not " + __name__)

PASSES: dict[str, str | type[Pass]] = {  # registered passes are classes
    "adjust-matmul-order": "mlcc.passes.graph.adjust_matmul_order:AdjustMatmulOrder",
    "allocate-barriers": "mlcc.passes.gpu.mbarriers:AllocateBarriers",
    "allocate-thread-memory": "mlcc.passes.gpu.thread_workspace:AllocateThreadMemory",
    "annotate-op-pattern": "mlcc.passes.fusion.annotate_op_pattern:AnnotateOpPattern",
    "apply-tuned": "mlcc.passes.auto_schedule.apply_tuned:ApplyTuned",
    "auto-layout": "mlcc.passes.layout.auto_layout:AutoLayout",
    "auto-schedule": "mlcc.passes.auto_schedule.auto_pass:AutoSchedule",
    "bind-params": "mlcc.passes.graph.bind_params:BindParams",
    "bind-symbolic-vars": "mlcc.passes.graph.bind_symbolic_vars:BindSymbolicVars",
    "bind-threads": "mlcc.passes.auto_schedule.gpu.bind_threads:BindThreads",
    "bind-views": "mlcc.passes.gpu.bind_views:BindViews",
    "broadcast-operands": "mlcc.passes.graph.broadcast_operands:BroadcastOperands",
    "canonicalize": "mlcc.passes.graph.canonicalize:Canonicalize",
    "check-shapes": "mlcc.passes.graph.check_shapes:CheckShapes",
    "combine-parallel-matmul": "mlcc.passes.graph.combine_parallel_matmul:CombineParallelMatmul",
    "combine-threads": "mlcc.passes.gpu.combine_threads:CombineThreads",
    "compact-buffers": "mlcc.passes.lowering.compact:CompactBuffers",
    "convert-layout": "mlcc.passes.layout.convert_layout:ConvertLayout",
    "dead-code": "mlcc.passes.graph.dead_code:DeadCode",
    "decompose": "mlcc.passes.graph.decompose:Decompose",
    "eliminate-common-subexpr": "mlcc.passes.graph.eliminate_common_subexpr:EliminateCommonSubexpr",
    "encode-descriptors": "mlcc.passes.gpu.wgmma_descriptors:EncodeDescriptors",
    "ewise-fma": "mlcc.passes.graph.ewise_fma:EwiseFma",
    "expand-matrix-calls": "mlcc.passes.gpu.matrix_calls:ExpandMatrixCalls",
    "expand-tuple-arguments": "mlcc.passes.graph.expand_tuple_arguments:ExpandTupleArguments",
    "fixed-point-products": "mlcc.passes.precision.fixed_point:FixedPointProducts",
    "flatten-buffers": "mlcc.passes.lowering.flatten:FlattenBuffers",
    "fold-batch-norm": "mlcc.passes.graph.fold_batch_norm:FoldBatchNorm",
    "fold-constants": "mlcc.passes.graph.fold_constants:FoldConstants",
    "fold-transposes": "mlcc.passes.layout.fold_transposes:FoldTransposes",
    "form-bulk-copies": "mlcc.passes.gpu.bulk_tiles:FormBulkCopies",
    "form-kernels": "mlcc.passes.gpu.form_kernels:FormKernels",
    "fuse": "mlcc.passes.fusion.fuse:Fuse",
    "fuse-attention": "mlcc.passes.attention.fuse_attention:FuseAttention",
    "fuse-by-pattern": "mlcc.passes.patterns.fuse_by_pattern:FuseByPattern",
    "fuse-dense-add": "mlcc.passes.fusion.fuse_dense_add:FuseDenseAdd",
    "fuse-matmul-add": "mlcc.passes.fusion.fuse_dense_add:FuseMatmulAdd",
    "fuse-tir": "mlcc.passes.fusion.fuse_tir:FuseTir",
    "group-products": "mlcc.passes.gpu.wgmma_groups:GroupProducts",
    "init-empty-reductions": "mlcc.passes.lowering.empty_inits:InitEmptyReductions",
    "inject-async-copies": "mlcc.passes.gpu.async_copy:InjectAsyncCopies",
    "inject-virtual-threads": "mlcc.passes.gpu.virtual_threads:InjectVirtualThreads",
    "inline-functions": "mlcc.passes.graph.inline_functions:InlineFunctions",
    "insert-access-checks": "mlcc.passes.lowering.access_checks:InsertAccessChecks",
    "insert-barriers": "mlcc.passes.gpu.insert_barriers:InsertBarriers",
    "insert-index-checks": "mlcc.passes.lowering.sanitized_indices:InsertIndexChecks",
    "integer-products": "mlcc.passes.graph.integer_products:IntegerProducts",
    "lambda-lift": "mlcc.passes.graph.lambda_lift:LambdaLift",
    "lower-allreduce": "mlcc.passes.gpu.allreduce:LowerAllreduce",
    "lower-bulk-copies": "mlcc.passes.gpu.bulk_barriers:LowerBulkCopies",
    "lower-to-tir": "mlcc.passes.graph.lower_to_tir:LowerToTir",
    "lower-warp-memory": "mlcc.passes.gpu.warp_memory:LowerWarpMemory",
    "lower-wmma": "mlcc.passes.gpu.wmma:LowerWmma",
    "mark-new-outputs": "mlcc.passes.lowering.new_outputs:MarkNewOutputs",
    "narrow-indices": "mlcc.passes.gpu.narrow_indices:NarrowIndices",
    "narrow-kernels": "mlcc.passes.gpu.narrow_indices:NarrowKernels",
    "normalize": "mlcc.passes.graph.normalize:Normalize",
    "pack-weights": "mlcc.passes.layout.pack_weights:PackWeights",
    "pad-temporaries": "mlcc.passes.lowering.temporaries:PadTemporaries",
    "partition-loops": "mlcc.passes.lowering.loop_partition:PartitionLoops",
    "pipeline-loops": "mlcc.passes.gpu.pipeline:PipelineLoops",
    "plan-dynamic-shared": "mlcc.passes.gpu.dynamic_shared:PlanDynamicShared",
    "plan-swizzle": "mlcc.passes.gpu.swizzle:PlanSwizzle",
    "promote-narrow-floats": "mlcc.passes.precision.promote_narrow_floats:PromoteNarrowFloats",
    "quantize-weights": "mlcc.passes.precision.quantize_weights:QuantizeWeights",
    "realize-blocks": "mlcc.passes.lowering.realize:RealizeBlocks",
    "recognize-operators": "mlcc.passes.recognition.recognize:RecognizeOperators",
    "remove-unused-functions": "mlcc.passes.graph.remove_unused_functions:RemoveUnusedFunctions",
    "remove-unused-outputs": "mlcc.passes.graph.remove_unused_outputs:RemoveUnusedOutputs",
    "remove-unused-parameters": "mlcc.passes.graph.remove_unused_parameters:RemoveUnusedParameters",
    "resolve-views": "mlcc.passes.gpu.views:ResolveViews",
    "reuse-outputs": "mlcc.passes.lowering.output_reuse:ReuseOutputs",
    "rewrite": "mlcc.passes.patterns.rewrite:Rewrite",
    "rewrite-dataflow-reshape": "mlcc.passes.graph.rewrite_dataflow_reshape:RewriteDataflowReshape",
    "schedule": "mlcc.passes.schedule.schedule_pass:ApplyScript",
    "select-parallel-loops": "mlcc.passes.lowering.parallel:SelectParallelLoops",
    "select-unrolled-loops": "mlcc.passes.lowering.unroll:SelectUnrolledLoops",
    "serialize-threads": "mlcc.passes.lowering.threads:SerializeThreads",
    "share-reciprocals": "mlcc.passes.gpu.share_reciprocals:ShareReciprocals",
    "simplify-arg-updates": "mlcc.passes.lowering.arg_updates:SimplifyArgUpdates",
    "simplify-divisions": "mlcc.passes.lowering.divisions:SimplifyDivisions",
    "split-host-device": "mlcc.passes.gpu.split_host_device:SplitHostDevice",
    "split-kernels": "mlcc.passes.fusion.split_kernels:SplitKernels",
    "swizzle-shared": "mlcc.passes.gpu.swizzle:SwizzleShared",
    "to-dataflow": "mlcc.passes.graph.to_dataflow:ToDataflow",
    "to-mixed-precision": "mlcc.passes.precision.to_mixed_precision:ToMixedPrecision",
    "topological-sort": "mlcc.passes.graph.topological_sort:TopologicalSort",
    "transpose-registers": "mlcc.passes.lowering.register_transpose:TransposeRegisters",
    "unroll-loops": "mlcc.passes.lowering.unroll:UnrollLoops",
    "update-func": "mlcc.passes.patterns.update_func:UpdateFunc",
    "vectorize-loops": "mlcc.passes.lowering.vectorize:VectorizeLoops",
    "version-kernels": "mlcc.passes.fusion.version_kernels:VersionKernels",
    "version-sizes": "mlcc.passes.auto_schedule.version_sizes:VersionSizes",
    "winograd": "mlcc.passes.convolution.winograd:Winograd",
}

ALIASES: dict[str, str] = {"remove-unused": "dead-code"}

_PUBLIC = {
    "Pass": "mlcc.passes.manage.manager",
    "PassContext": "mlcc.passes.manage.manager",
    "Pipeline": "mlcc.passes.manage.manager",
    "register": "mlcc.passes.manage.registry",
    "unregister": "mlcc.passes.manage.registry",
}


def is_pass(name: str) -> bool:
    """Return True for the name or alias of a pass: mlcc's, a registered one, or that of an installed package."""
    return name in PASSES or name in ALIASES or name in plugins.installed(plugins.PASSES)


def names() -> list[str]:
    """Return the names of all passes, those of installed packages last."""
    return list(dict.fromkeys([*PASSES, *plugins.installed(plugins.PASSES)]))


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'mlcc.passes' has no attribute {name!r}")
