"""The well-formedness rules: every invariant of the IR, in one place, with all violations listed.

`verify` checks rules for all modules; `buildable` those for building and running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcc.errors import CompileError, Diagnostic, Severity
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import find
from mlcc.recursion import deep_recursion
from mlcc.verify.report import Report

__all__ = ["buildable", "check", "lint", "verify"]

Subject = IRModule | Func


def verify(subject: Subject, verified: Mapping[str, Func] | None = None) -> list[Diagnostic]:
    """Return all violations, including warnings, function by function.

    `verified` are functions without violations, by name. A TensorIR function among them is not checked again, unless a
    function that it calls is another one now.
    """
    from mlcc.verify.graph import verify_function
    from mlcc.verify.prim_func import verify_prim_func

    verified = verified or {}
    unchanged = set(verified.values())

    def each(func: Func, module: IRModule, report: Report) -> None:
        if isinstance(func, relax.Function):
            verify_function(func, report, module.functions)
        elif func not in unchanged or _has_new_callee(func, module.functions, verified):
            verify_prim_func(func, report, module.functions)

    return _each_function(subject, each)


def _has_new_callee(func: tir.PrimFunc, functions: Mapping[str, Func], verified: Mapping[str, Func]) -> bool:
    called = {var.name for var in find(func.body, relax.GlobalVar)}
    return any(functions.get(name) is not verified.get(name) for name in called)


def lint(subject: Subject) -> list[Diagnostic]:
    """Warnings on a well-formed module: code that is legal but certainly not intended, function by function."""
    from mlcc.verify.linting import lint_function, lint_prim_func

    def each(func: Func, module: IRModule, report: Report) -> None:
        if isinstance(func, tir.PrimFunc):
            lint_prim_func(func, report)
        else:
            lint_function(func, report)

    return _each_function(subject, each)


def buildable(subject: Subject) -> list[Diagnostic]:
    """Return the errors that keep a well-formed module from being built: missing functions, constants without data."""
    from mlcc.ir.node import walk
    from mlcc.verify.graph_calls import missing_functions

    def each(func: Func, module: IRModule, report: Report) -> None:
        missing_functions(func, module.functions, report)
        for node in walk(func) if isinstance(func, relax.Function) else ():
            if isinstance(node, relax.Constant) and node.data.array is None:
                message = f"the data of constant `{node.data.key}` are missing"
                help = "arrays written with a text lie beside it, model.npz beside model.mlc: move the two together"
                report.add("E0489", message, node, "only a reference", help=help)

    return _each_function(subject, each)


def check(subject: Subject, build: bool = False) -> None:
    """Raise CompileError for any violation except warnings; with `build` also for whatever prevents building."""
    diagnostics = verify(subject) + (buildable(subject) if build else [])
    errors = [d for d in diagnostics if d.severity is Severity.ERROR]
    if errors:
        raise CompileError(errors)


def _each_function(subject: Subject, rule: Callable[[Func, IRModule, Report], None]) -> list[Diagnostic]:
    module = subject if isinstance(subject, IRModule) else IRModule.from_expr(subject)
    report = Report()
    with deep_recursion():
        for func in module.functions.values():
            report.nearest_span = func.span
            rule(func, module, report)
    return report.found
