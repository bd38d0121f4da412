"""The counters of a profiled object: the time, the number and the sizes of every call of a kernel.

`ptr PREFIX_profile()` returns a writable table of int64: first the address of `clock_gettime`, which whoever measures
stores there, then a row for each call site: nanoseconds, calls, and the kernel's symbols at the last call. A call is
timed by two readings of the clock around it. Without a clock the times stay 0.
"""

from __future__ import annotations

from typing import Any

from mlcc.relax.origins import place_facts
from mlcc.runtime.abi import PLACEHOLDER_PREFIX
from mlcc.targets.llvm.codegen.context import LoggedEvent, ProfiledCall, Shared
from mlcc.targets.llvm.codegen.execution_log import TABLE, define_log, log_event, now
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer
from mlcc.targets.plan.steps import CallKernel

_FIXED = 2  # cells of a row before the symbols
_ACCESS = f"""define ptr @{PLACEHOLDER_PREFIX}_profile() nounwind {{
entry:
  ret ptr @{TABLE}
}}"""


def start_timing(shared: Shared, fn: FunctionText) -> Value:
    """Emit the reading of the clock before a call."""
    return now(shared.ctx, fn)


def count_call(
    shared: Shared, fn: FunctionText, func: str, step: CallKernel, symbols: list[Value], start: Value
) -> None:
    """Emit the second reading of the clock, the update of the call site's counters, and the row of the log."""
    calls = shared.ctx.profiled
    row = 1 + sum(_FIXED + len(call.symbols) for call in calls)
    names = tuple(s.name for s in shared.ctx.kernels[step.kernel].signature.symbols)
    calls.append(ProfiledCall(func, step.kernel, names, step.span))
    stop = now(shared.ctx, fn)
    elapsed = fn.binary("sub", stop, start)
    table = Value("ptr", f"@{TABLE}")
    for at, amount in enumerate((elapsed, integer("i64", 1))):
        cell = fn.gep("i64", table, integer("i64", row + at))
        fn.store(fn.binary("add", fn.load("i64", cell, 8), amount), cell, 8)
    for at, symbol in enumerate(symbols):
        fn.store(symbol, fn.gep("i64", table, integer("i64", row + _FIXED + at)), 8)
    log_event(shared.ctx, fn, LoggedEvent("kernel", step.kernel, func, step.span), start, stop)


def define_counters(shared: Shared) -> None:
    """Define the table, after all functions are emitted."""
    cells = 1 + sum(_FIXED + len(call.symbols) for call in shared.ctx.profiled)
    shared.ctx.module.global_(TABLE, f"internal global [{cells} x i64] zeroinitializer, align 8")
    shared.ctx.module.helper(f"{PLACEHOLDER_PREFIX}_profile", _ACCESS)
    define_log(shared.ctx)


def profile_facts(shared: Shared) -> list[dict[str, Any]]:
    """Return the manifest entries of the rows: function, kernel, symbols, and the place of the call in the text."""
    facts = []
    for call in shared.ctx.profiled:
        entry = {"function": call.function, "kernel": call.kernel, "symbols": list(call.symbols)}
        facts.append(entry | place_facts(call.span))
    return facts
