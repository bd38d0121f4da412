"""The pass manager and the passes. `PASSES` names each pass; its module is imported when the pass is first named."""

if __name__ != "mlcc.passes":
    raise ImportError("import mlcc.passes, not " + __name__)

PASSES: dict[str, str] = {
    "annotate-op-pattern": "mlcc.passes.annotate_op_pattern:AnnotateOpPattern",
    "bind-params": "mlcc.passes.bind_params:BindParams",
    "bind-symbolic-vars": "mlcc.passes.bind_symbolic_vars:BindSymbolicVars",
    "canonicalize": "mlcc.passes.canonicalize:Canonicalize",
    "convert-layout": "mlcc.passes.convert_layout:ConvertLayout",
    "dead-code": "mlcc.passes.dead_code:DeadCode",
    "eliminate-common-subexpr": "mlcc.passes.eliminate_common_subexpr:EliminateCommonSubexpr",
    "ewise-fma": "mlcc.passes.ewise_fma:EwiseFma",
    "fold-constants": "mlcc.passes.fold_constants:FoldConstants",
    "fuse": "mlcc.passes.fuse:Fuse",
    "fuse-by-pattern": "mlcc.passes.fuse_by_pattern:FuseByPattern",
    "fuse-dense-add": "mlcc.passes.fuse_pair:FuseDenseAdd",
    "fuse-matmul-add": "mlcc.passes.fuse_pair:FuseMatmulAdd",
    "fuse-tir": "mlcc.passes.fuse_tir:FuseTir",
    "inline-functions": "mlcc.passes.inline_functions:InlineFunctions",
    "lower-loops": "mlcc.passes.lower_loops:LowerLoops",
    "lower-to-tir": "mlcc.passes.lower_to_tir:LowerToTir",
    "normalize": "mlcc.passes.normalize:Normalize",
    "rewrite": "mlcc.passes.rewrite:Rewrite",
    "schedule": "mlcc.passes.schedule_pass:ApplyScript",
    "to-mixed-precision": "mlcc.passes.to_mixed_precision:ToMixedPrecision",
    "update-func": "mlcc.passes.update_func:UpdateFunc",
}

ALIASES: dict[str, str] = {"remove-unused": "dead-code"}
