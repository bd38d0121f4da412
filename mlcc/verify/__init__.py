"""The well-formedness rules: every invariant of the IR, in one place, with all violations listed.

`verify` is what any module must satisfy, `buildable` what building and running it asks for besides.
"""

from __future__ import annotations

from mlcc.errors import CompileError, Diagnostic, Severity
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.verify.report import Report

__all__ = ["check", "verify"]


def verify(module: IRModule | tir.PrimFunc | relax.Function) -> list[Diagnostic]:
    """All violations, warnings among them, function by function."""
    from mlcc.verify.prim_func import verify_prim_func

    if not isinstance(module, IRModule):
        module = IRModule.from_expr(module)
    report = Report()
    for func in module.functions.values():
        report.near = func.span
        if isinstance(func, tir.PrimFunc):
            verify_prim_func(func, report, module.functions)
    return report.found


def check(module: IRModule | tir.PrimFunc | relax.Function) -> None:
    """Raise CompileError if there is any violation (warnings aside)."""
    errors = [d for d in verify(module) if d.severity is Severity.ERROR]
    if errors:
        raise CompileError(errors)
