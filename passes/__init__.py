"""The pass manager and the passes. `PASSES` names each pass; its module is imported when the pass is first named."""

if __name__ != "mlcc.passes":
    raise ImportError("import mlcc.passes, not " + __name__)

PASSES: dict[str, str] = {
    "adjust-matmul-order": "mlcc.passes.adjust_matmul_order:AdjustMatmulOrder",
    "annotate-op-pattern": "mlcc.passes.annotate_op_pattern:AnnotateOpPattern",
    "auto-layout": "mlcc.passes.auto_layout:AutoLayout",
    "auto-schedule": "mlcc.passes.auto_schedule.auto_pass:AutoSchedule",
    "bind-threads": "mlcc.passes.bind_threads:BindThreads",
    "bind-params": "mlcc.passes.bind_params:BindParams",
    "bind-symbolic-vars": "mlcc.passes.bind_symbolic_vars:BindSymbolicVars",
    "canonicalize": "mlcc.passes.canonicalize:Canonicalize",
    "check-shapes": "mlcc.passes.check_shapes:CheckShapes",
    "combine-parallel-matmul": "mlcc.passes.combine_parallel_matmul:CombineParallelMatmul",
    "convert-layout": "mlcc.passes.convert_layout:ConvertLayout",
    "dead-code": "mlcc.passes.dead_code:DeadCode",
    "decompose": "mlcc.passes.decompose:Decompose",
    "eliminate-common-subexpr": "mlcc.passes.eliminate_common_subexpr:EliminateCommonSubexpr",
    "ewise-fma": "mlcc.passes.ewise_fma:EwiseFma",
    "expand-tuple-arguments": "mlcc.passes.expand_tuple_arguments:ExpandTupleArguments",
    "fold-batch-norm": "mlcc.passes.fold_batch_norm:FoldBatchNorm",
    "fold-constants": "mlcc.passes.fold_constants:FoldConstants",
    "fold-transposes": "mlcc.passes.fold_transposes:FoldTransposes",
    "fuse": "mlcc.passes.fuse:Fuse",
    "fuse-by-pattern": "mlcc.passes.fuse_by_pattern:FuseByPattern",
    "fuse-dense-add": "mlcc.passes.fuse_pair:FuseDenseAdd",
    "fuse-matmul-add": "mlcc.passes.fuse_pair:FuseMatmulAdd",
    "fuse-tir": "mlcc.passes.fuse_tir:FuseTir",
    "inline-functions": "mlcc.passes.inline_functions:InlineFunctions",
    "lambda-lift": "mlcc.passes.lambda_lift:LambdaLift",
    "lower-loops": "mlcc.passes.lower_loops:LowerLoops",
    "lower-to-tir": "mlcc.passes.lower_to_tir:LowerToTir",
    "normalize": "mlcc.passes.normalize:Normalize",
    "pack-weights": "mlcc.passes.pack_weights:PackWeights",
    "remove-unused-outputs": "mlcc.passes.remove_unused_outputs:RemoveUnusedOutputs",
    "remove-unused-parameters": "mlcc.passes.remove_unused_parameters:RemoveUnusedParameters",
    "rewrite": "mlcc.passes.rewrite:Rewrite",
    "rewrite-dataflow-reshape": "mlcc.passes.rewrite_dataflow_reshape:RewriteDataflowReshape",
    "schedule": "mlcc.passes.schedule_pass:ApplyScript",
    "split-kernels": "mlcc.passes.split_kernels:SplitKernels",
    "to-dataflow": "mlcc.passes.to_dataflow:ToDataflow",
    "to-mixed-precision": "mlcc.passes.to_mixed_precision:ToMixedPrecision",
    "topological-sort": "mlcc.passes.topological_sort:TopologicalSort",
    "update-func": "mlcc.passes.update_func:UpdateFunc",
}

ALIASES: dict[str, str] = {"remove-unused": "dead-code"}
