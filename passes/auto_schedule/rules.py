"""The rules for CPUs, in the order in which they are tried; the first that applies schedules the function."""

from __future__ import annotations

from mlcc.passes.auto_schedule.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("decoded", "decoded:decoded"),
    Rule("matvec", "matvec:matvec"),
    Rule("matmul", "matmul:matmul"),
    Rule("dots", "dot_products:dots"),
    Rule("conv", "conv:conv"),
    Rule("transposes", "transposes:transposes"),
    Rule("elementwise", "elementwise:elementwise"),
    Rule("rows", "rows:rows"),
    Rule("columns", "columns:columns"),
    Rule("fallback", "fallback:fallback"),
)
