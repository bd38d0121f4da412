"""The execution log of a profiled object: a row for each call of a kernel or packed function, copy, and parallel loop.

`ptr PREFIX_profile_log()` returns four cells: the address of the rows, how many there is space for, how many events
there were, and the address of `gettid`. Without rows nothing is logged. A row has five int64: the event, an index into
`events` of the manifest; its start and stop in nanoseconds of the monotonic clock; the thread, 0 if unknown; and its
size, the iterations of a loop or a part of one. Threads take rows by an atomic counter, so that rows are in the order
in which events end. Events that find no space left are counted only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcc.relax.origins import place_facts
from mlcc.runtime.abi import PLACEHOLDER_PREFIX
from mlcc.targets.llvm.codegen.context import LoggedEvent
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.context import ModuleContext

TABLE = "mlcc_profile_table"  # its first cell is the address of `clock_gettime`
NOW = "mlcc_profile_now"
_LOG = "mlcc_profile_log"
_START = "mlcc_profile_start"
_STOP = "mlcc_profile_stop"
_EVENT = "mlcc_profile_event"
_NOW_TEXT = f"""define internal i64 @{NOW}() noinline nounwind {{
entry:
  %time = alloca [2 x i64], align 8
  %clock = load ptr, ptr @{TABLE}
  %unset = icmp eq ptr %clock, null
  br i1 %unset, label %none, label %read
none:
  ret i64 0
read:
  %code = call i32 %clock(i32 1, ptr %time)
  %s = load i64, ptr %time
  %n.p = getelementptr inbounds i64, ptr %time, i64 1
  %n = load i64, ptr %n.p
  %sn = mul i64 %s, 1000000000
  %now = add i64 %sn, %n
  ret i64 %now
}}"""
# the time if events are logged, else 0
_START_TEXT = f"""define internal i64 @{_START}() noinline nounwind {{
entry:
  %rows = load ptr, ptr @{_LOG}
  %off = icmp eq ptr %rows, null
  br i1 %off, label %none, label %read
none:
  ret i64 0
read:
  %now = call i64 @{NOW}()
  ret i64 %now
}}"""
_EVENT_TEXT = f"""define internal void @{_EVENT}(i64 %event, i64 %start, i64 %stop, i64 %size) noinline nounwind {{
entry:
  %rows = load ptr, ptr @{_LOG}
  %off = icmp eq ptr %rows, null
  %unstarted = icmp eq i64 %start, 0
  %ignored = or i1 %off, %unstarted
  br i1 %ignored, label %done, label %take
take:
  %space.p = getelementptr inbounds i64, ptr @{_LOG}, i64 1
  %count.p = getelementptr inbounds i64, ptr @{_LOG}, i64 2
  %gettid.p = getelementptr inbounds i64, ptr @{_LOG}, i64 3
  %space = load i64, ptr %space.p
  %at = atomicrmw add ptr %count.p, i64 1 monotonic
  %fits = icmp slt i64 %at, %space
  br i1 %fits, label %thread, label %done
thread:
  %gettid = load ptr, ptr %gettid.p
  %unknown = icmp eq ptr %gettid, null
  br i1 %unknown, label %write, label %ask
ask:
  %asked = call i32 %gettid()
  %wide = zext i32 %asked to i64
  br label %write
write:
  %tid = phi i64 [ 0, %thread ], [ %wide, %ask ]
  %row = getelementptr inbounds [5 x i64], ptr %rows, i64 %at
  store i64 %event, ptr %row
  %start.p = getelementptr inbounds i64, ptr %row, i64 1
  store i64 %start, ptr %start.p
  %stop.p = getelementptr inbounds i64, ptr %row, i64 2
  store i64 %stop, ptr %stop.p
  %tid.p = getelementptr inbounds i64, ptr %row, i64 3
  store i64 %tid, ptr %tid.p
  %size.p = getelementptr inbounds i64, ptr %row, i64 4
  store i64 %size, ptr %size.p
  br label %done
done:
  ret void
}}"""
_STOP_TEXT = f"""define internal void @{_STOP}(i64 %event, i64 %start, i64 %size) noinline nounwind {{
entry:
  %unstarted = icmp eq i64 %start, 0
  br i1 %unstarted, label %done, label %read
read:
  %now = call i64 @{NOW}()
  call void @{_EVENT}(i64 %event, i64 %start, i64 %now, i64 %size)
  br label %done
done:
  ret void
}}"""
_ACCESS = f"""define ptr @{PLACEHOLDER_PREFIX}_profile_log() nounwind {{
entry:
  ret ptr @{_LOG}
}}"""


def now(ctx: ModuleContext, fn: FunctionText) -> Value:
    """Emit a reading of the clock; 0 without a clock."""
    _add_helpers(ctx)
    return fn.call("i64", f"@{NOW}", [])


def start(ctx: ModuleContext, fn: FunctionText) -> Value | None:
    """Emit the begin of an event: a reading of the clock if events are logged; None in code without a log."""
    if not ctx.options.profile:
        return None
    _add_helpers(ctx)
    return fn.call("i64", f"@{_START}", [])


def stop(ctx: ModuleContext, fn: FunctionText, event: LoggedEvent, begun: Value | None, size: Value) -> None:
    """Emit the end of an event that `start` began."""
    if begun is not None:
        fn.call("void", f"@{_STOP}", [_number(ctx, event), begun, size])


def log_event(ctx: ModuleContext, fn: FunctionText, event: LoggedEvent, begun: Value, ended: Value) -> None:
    """Emit the row of an event between two readings of the clock."""
    fn.call("void", f"@{_EVENT}", [_number(ctx, event), begun, ended, integer("i64", 0)])


def define_log(ctx: ModuleContext) -> None:
    """Define the head of the log, after all functions are emitted."""
    _add_helpers(ctx)
    ctx.module.helper(f"{PLACEHOLDER_PREFIX}_profile_log", _ACCESS)


def event_facts(ctx: ModuleContext) -> list[dict[str, Any]]:
    """Return the manifest entries of the events."""
    facts = []
    for event in ctx.events:
        entry: dict[str, Any] = {"kind": event.kind, "name": event.name}
        if event.function:
            entry["function"] = event.function
        facts.append(entry | place_facts(event.span))
    return facts


def _number(ctx: ModuleContext, event: LoggedEvent) -> Value:
    ctx.events.append(event)
    return integer("i64", len(ctx.events) - 1)


def _add_helpers(ctx: ModuleContext) -> None:
    module = ctx.module
    module.global_(_LOG, "internal global [4 x i64] zeroinitializer, align 8")
    for symbol, text in ((NOW, _NOW_TEXT), (_START, _START_TEXT), (_EVENT, _EVENT_TEXT), (_STOP, _STOP_TEXT)):
        module.helper(symbol, text, shared=True)
