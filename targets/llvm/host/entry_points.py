"""The host part of an object: what C programs and the runtime call, around the kernels.

For every public function `f` the object exports `PREFIX_f`, `PREFIX_f_ws`, `PREFIX_f_ws_size`, `PREFIX_f_shape`,
`PREFIX_f_error` for C, and `PREFIX_f_query` and `PREFIX_f_run` for the runtime; once, `PREFIX_time_run`, and where
packed functions are called, `PREFIX_set_packed` and `PREFIX_set_packed_slot`, where loops are parallel,
`PREFIX_set_parallel_for` and `PREFIX_set_num_threads`. `docs/abi.md` says what they do.
"""

from __future__ import annotations

from mlcc.errors import CompileError, Diagnostic, merge_repeated
from mlcc.ir import relax, tir
from mlcc.runtime.abi import DETAIL_SHIFT, KIND_BY_NAME, PLACEHOLDER_PREFIX, SLOT_SHIFT, SLOTS
from mlcc.targets.llvm.codegen.context import PACKED_CALL, Shared
from mlcc.targets.llvm.codegen.error_numbers import add_fault_text, carries_faults
from mlcc.targets.llvm.codegen.ir_text import quoted
from mlcc.targets.llvm.codegen.pool import SET_PARALLEL_FOR, SET_THREADS, carries_pool
from mlcc.targets.llvm.host.c_functions import emit_c_functions
from mlcc.targets.llvm.host.profile_counters import define_counters
from mlcc.targets.llvm.host.query import Query
from mlcc.targets.llvm.host.run import Run
from mlcc.targets.plan.exports import error_messages, public_functions, symbol_of
from mlcc.targets.plan.memory import assign_workspace
from mlcc.targets.plan.observe import add_observers
from mlcc.targets.plan.planner import plan_relax
from mlcc.targets.plan.prim import plan_prim
from mlcc.targets.plan.steps import HostFunction

_TIME = """define i32 @{name}(
  ptr %run, ptr %args, ptr %symbols, ptr %workspace, i64 %number, ptr %clock, ptr %out
) nounwind {{
entry:
  %start = alloca [2 x i64], align 8
  %stop = alloca [2 x i64], align 8
  %c0 = call i32 %clock(i32 1, ptr %start)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %more = icmp slt i64 %i, %number
  br i1 %more, label %body, label %done
body:
  %code = call i32 %run(ptr %args, ptr %symbols, ptr %workspace)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %again, label %failed
again:
  %next = add i64 %i, 1
  br label %head
failed:
  ret i32 %code
done:
  %c1 = call i32 %clock(i32 1, ptr %stop)
  %s0 = load i64, ptr %start
  %s1 = load i64, ptr %stop
  %n0.p = getelementptr inbounds i64, ptr %start, i64 1
  %n1.p = getelementptr inbounds i64, ptr %stop, i64 1
  %n0 = load i64, ptr %n0.p
  %n1 = load i64, ptr %n1.p
  %s = sub i64 %s1, %s0
  %sn = mul i64 %s, 1000000000
  %n = sub i64 %n1, %n0
  %total = add i64 %sn, %n
  store i64 %total, ptr %out
  ret i32 0
}}"""

# a slot holds a function and its context; an empty one fails with the code that names it
_PACKED = """define internal i32 @{call}(i32 %slot, ptr %args, i32 %count) nounwind {{
entry:
  %at = sext i32 %slot to i64
  %place = getelementptr inbounds {{ ptr, ptr }}, ptr @mlcc_packed_slots, i64 %at
  %fn = load ptr, ptr %place
  %number = add i32 %slot, 1
  %detail = shl i32 %number, {shift}
  %set = icmp ne ptr %fn, null
  br i1 %set, label %call, label %unset
call:
  %context.p = getelementptr inbounds {{ ptr, ptr }}, ptr %place, i64 0, i32 1
  %context = load ptr, ptr %context.p
  %code = call i32 %fn(ptr %context, ptr %args, i32 %count)
  %good = icmp eq i32 %code, 0
  %failed = or i32 %detail, {failed}
  %result = select i1 %good, i32 0, i32 %failed
  ret i32 %result
unset:
  %missing = or i32 %detail, {unset}
  ret i32 %missing
}}"""
_SET_SLOT = """define i32 @{name}(i32 %slot, ptr %fn, ptr %context) nounwind {{
entry:
  %known = icmp ult i32 %slot, {count}
  br i1 %known, label %set, label %unknown
set:
  %at = sext i32 %slot to i64
  %place = getelementptr inbounds {{ ptr, ptr }}, ptr @mlcc_packed_slots, i64 %at
  store ptr %fn, ptr %place
  %context.p = getelementptr inbounds {{ ptr, ptr }}, ptr %place, i64 0, i32 1
  store ptr %context, ptr %context.p
  ret i32 0
unknown:
  ret i32 {value}
}}"""
_SET_POOL = """define void @{name}({type} %value) nounwind {{
entry:
  call void @{callee}({type} %value)
  ret void
}}"""
_SAME_TEXT = """define internal i1 @mlcc_same_text(ptr %a, ptr %b) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %go ]
  %pa = getelementptr inbounds i8, ptr %a, i64 %i
  %pb = getelementptr inbounds i8, ptr %b, i64 %i
  %ca = load i8, ptr %pa
  %cb = load i8, ptr %pb
  %equal = icmp eq i8 %ca, %cb
  br i1 %equal, label %look, label %no
look:
  %end = icmp eq i8 %ca, 0
  br i1 %end, label %yes, label %go
go:
  %next = add i64 %i, 1
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}"""


# look for the code, then for its kind
_ERROR_TEXT = """define internal ptr @mlcc_error_text(i32 %given) noinline nounwind {{
entry:
  %code = and i32 %given, {mask}
  %slot = lshr i32 %given, {shift}
  br label %head
head:
  %wanted = phi i32 [ %code, %entry ], [ %wanted, %go ], [ %kind, %by.kind ]
  %i = phi i64 [ 0, %entry ], [ %next, %go ], [ 0, %by.kind ]
  %entry.p = getelementptr inbounds {{ i32, i32 }}, ptr @mlcc_error_table, i64 %i
  %known = load i32, ptr %entry.p
  %same = icmp eq i32 %known, %wanted
  br i1 %same, label %found, label %go
go:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {count}
  br i1 %more, label %head, label %missed
missed:
  %kind = and i32 %code, 255
  %tried = icmp eq i32 %kind, %wanted
  br i1 %tried, label %unknown, label %by.kind
by.kind:
  br label %head
found:
  %offset.p = getelementptr inbounds {{ i32, i32 }}, ptr %entry.p, i64 0, i32 1
  %offset = load i32, ptr %offset.p
  %at = zext i32 %offset to i64
  %text = getelementptr inbounds i8, ptr @mlcc_error_texts, i64 %at
{found}
unknown:
  ret ptr getelementptr inbounds (i8, ptr @mlcc_error_texts, i64 {unknown})
}}"""
_FILLED = """  %has.numbers = icmp ne i32 %slot, 0
  %is.slot = icmp ule i32 %slot, {slots}
  %fill = and i1 %has.numbers, %is.slot
  br i1 %fill, label %filled, label %plain
filled:
  %full = call ptr {name}(ptr %text, i32 %slot)
  ret ptr %full
plain:
  ret ptr %text"""


def emit_host(shared: Shared) -> list[HostFunction]:
    """Plan and emit every public function. Raises CompileError with all that has no native form."""
    functions: list[HostFunction] = []
    wrong: list[Diagnostic] = []
    for name, func in public_functions(shared).items():
        try:
            functions.append(_emit(name, func, shared))
        except CompileError as exc:
            wrong += [d for d in exc.diagnostics if d not in wrong]
    if wrong:
        raise CompileError(merge_repeated(wrong))
    _module_wide(shared)
    return functions


def _emit(name: str, func: relax.Function | tir.PrimFunc, shared: Shared) -> HostFunction:
    plan = plan_prim(name, func, shared) if isinstance(func, tir.PrimFunc) else plan_relax(name, func, shared)
    add_observers(plan, shared)
    assign_workspace(plan)
    Query(plan, shared, symbol_of(name, "_query")).emit()
    Run(plan, shared, symbol_of(name, "_run")).emit()
    emit_c_functions(plan, shared, lambda suffix: symbol_of(name, suffix))
    return plan


def _module_wide(shared: Shared) -> None:
    module = shared.ctx.module
    name = f"{PLACEHOLDER_PREFIX}_time_run"
    module.helper(name, _TIME.format(name=name), shared=True)
    if shared.ctx.packed:
        _packed_functions(shared)
    if shared.ctx.options.profile:
        define_counters(shared)
    if carries_pool(module):
        for word, callee, type in (
            ("set_parallel_for", SET_PARALLEL_FOR, "ptr"), ("set_num_threads", SET_THREADS, "i32"),
        ):  # fmt: skip
            name = f"{PLACEHOLDER_PREFIX}_{word}"
            module.helper(name, _SET_POOL.format(name=name, callee=callee, type=type))
    module.helper("mlcc_error_text", error_text(shared))


def _packed_functions(shared: Shared) -> None:
    module, specs = shared.ctx.module, shared.packed_specs()
    count = len(specs)
    module.global_("mlcc_packed_slots", f"internal global [{count} x {{ ptr, ptr }}] zeroinitializer, align 8")
    failed, unset = (KIND_BY_NAME[k].code for k in ("PACKED_FAILED", "PACKED_UNSET"))
    definition = _PACKED.format(call=PACKED_CALL, shift=DETAIL_SHIFT, failed=failed, unset=unset)
    module.helper(PACKED_CALL, definition, shared=True)
    slot = f"{PLACEHOLDER_PREFIX}_set_packed_slot"
    module.helper(slot, _SET_SLOT.format(name=slot, count=count, value=KIND_BY_NAME["VALUE"].code))
    module.helper("mlcc_same_text", _SAME_TEXT)
    by_name = f"{PLACEHOLDER_PREFIX}_set_packed"
    lines = [f"define i32 @{by_name}(ptr %name, ptr %fn, ptr %context) nounwind {{", "entry:", "  br label %test.0"]
    lines += ["test.0:"]
    result = str(KIND_BY_NAME["VALUE"].code)
    for index, spec in enumerate(specs):
        text = module.string(spec.name.encode())
        lines += [
            f"  %found.{index} = phi i32 [ {result}, %{'entry' if index == 0 else f'next.{index - 1}'} ]",
            f"  %same.{index} = call i1 @mlcc_same_text(ptr %name, {text})",
            f"  br i1 %same.{index}, label %set.{index}, label %next.{index}",
            f"set.{index}:",
            f"  %code.{index} = call i32 @{slot}(i32 {index}, ptr %fn, ptr %context)",
            f"  br label %next.{index}",
            f"next.{index}:",
            f"  %now.{index} = phi i32 [ %found.{index}, %test.{index} ], [ 0, %set.{index} ]",
            f"  br label %test.{index + 1}",
            f"test.{index + 1}:",
        ]
        result = f"%now.{index}"
    lines += [f"  ret i32 {result}", "}"]
    module.helper(by_name, "\n".join(lines))


def error_text(shared: Shared) -> str:
    """`ptr mlcc_error_text(i32 code)`: the text of a code; of its kind where the code is of another object."""
    known = dict(error_messages(shared))
    offsets: dict[str, int] = {}
    blob = bytearray()
    for text in [*known.values(), "unknown error"]:
        if text not in offsets:
            offsets[text] = len(blob)
            blob += text.encode() + b"\0"
    module = shared.ctx.module
    module.global_(
        "mlcc_error_texts", f'private unnamed_addr constant [{len(blob)} x i8] c"{quoted(bytes(blob))}", align 1'
    )
    table = ", ".join(f"{{ i32, i32 }} {{ i32 {code}, i32 {offsets[text]} }}" for code, text in known.items())
    module.global_(
        "mlcc_error_table", f"private unnamed_addr constant [{len(known)} x {{ i32, i32 }}] [{table}], align 4"
    )
    ending = "  ret ptr %text"
    if carries_faults(module):
        ending = _FILLED.format(name=add_fault_text(module, known.values()), slots=SLOTS)
    mask = (1 << SLOT_SHIFT) - 1
    return _ERROR_TEXT.format(
        count=len(known), unknown=offsets["unknown error"], found=ending, mask=mask, shift=SLOT_SHIFT
    )
