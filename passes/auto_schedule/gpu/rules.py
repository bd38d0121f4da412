"""The rules for GPUs, in the order in which they are tried; the first that applies schedules the function."""

from __future__ import annotations

from mlcc.passes.auto_schedule.rule import Rule

GPU_RULES: tuple[Rule, ...] = (
    Rule("gpu-wgmma", "gpu.warpgroups:warpgroups"),
    Rule("gpu-tensor-cores", "gpu.tensor_cores:tensor_cores"),
    Rule("gpu-wgmma-conv", "gpu.warpgroups:warpgroup_conv"),
    Rule("gpu-tensor-conv", "gpu.tensor_cores:tensor_conv"),
    Rule("gpu-matmul", "gpu.matmul:matmul"),
    Rule("gpu-conv", "gpu.matmul:conv"),
    Rule("gpu-gemv-columns", "gpu.gemv_columns:columns"),
    Rule("gpu-rows", "gpu.rows:rows"),
    Rule("gpu-transposes", "gpu.transposes:transposes"),
    Rule("gpu-elementwise", "gpu.elementwise:elementwise"),
    Rule("gpu-fallback", "gpu.fallback:fallback"),
)
