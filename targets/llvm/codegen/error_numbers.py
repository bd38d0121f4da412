"""Error codes that carry numbers: which index was wrong, and how many elements there are.

A kernel returns one int32. Where the text of an error needs values that only the failing call knows, the code also
names a slot of a small ring in the object, and the slot holds the values: `mlcc_fault(code, a, b)` takes the next slot
and gives the code with the slot in its upper bits; `mlcc_error_text` (`mlcc.targets.llvm.host`) fills the values into
the text. Texts mark the places by control characters (`mlcc.runtime.abi.FIRST` and its kin).

The ring is the only memory that calls share. Its slots are taken by an atomic counter; a text is that of its call until
`SLOTS` later calls of the same object have failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.runtime.abi import FIRST, FIRST_UNSIGNED, SECOND, SLOT_SHIFT, SLOTS
from mlcc.targets.llvm.codegen.ir_text import ModuleText

FAULT = "mlcc_fault"
_TEXT = "mlcc_fault_text"
_DIGITS = 20  # of the longest number, with its sign

_FAULT_IR = f"""define internal i32 @{FAULT}(i32 %code, i64 %a, i64 %b) cold noinline nounwind {{
entry:
  %count = atomicrmw add ptr @mlcc_fault_count, i32 1 monotonic
  %turn = urem i32 %count, {SLOTS}
  %slot = add i32 %turn, 1
  %at = zext i32 %turn to i64
  %a.p = getelementptr inbounds {{ i64, i64 }}, ptr @mlcc_fault_values, i64 %at
  %b.p = getelementptr inbounds {{ i64, i64 }}, ptr %a.p, i64 0, i32 1
  store atomic i64 %a, ptr %a.p monotonic, align 8
  store atomic i64 %b, ptr %b.p monotonic, align 8
  %high = shl i32 %slot, {SLOT_SHIFT}
  %made = or i32 %code, %high
  ret i32 %made
}}"""

# copy the text to the slot's own, numbers in the place of their marks
_TEXT_IR = """define internal ptr @{name}(ptr %text, i32 %slot) cold noinline nounwind {{
entry:
  %digits = alloca [{digits} x i8], align 1
  %turn = sub i32 %slot, 1
  %at = zext i32 %turn to i64
  %a.p = getelementptr inbounds {{ i64, i64 }}, ptr @mlcc_fault_values, i64 %at
  %b.p = getelementptr inbounds {{ i64, i64 }}, ptr %a.p, i64 0, i32 1
  %a = load atomic i64, ptr %a.p monotonic, align 8
  %b = load atomic i64, ptr %b.p monotonic, align 8
  %out = getelementptr inbounds [{length} x i8], ptr @mlcc_fault_texts, i64 %at
  br label %head
head:
  %in = phi ptr [ %text, %entry ], [ %in.next, %plain ], [ %in.next, %written ]
  %to = phi ptr [ %out, %entry ], [ %to.next, %plain ], [ %to.end, %written ]
  %c = load i8, ptr %in
  %in.next = getelementptr i8, ptr %in, i64 1
  switch i8 %c, label %plain [ i8 0, label %done i8 {first}, label %signed i8 {second}, label %signed
                               i8 {unsigned}, label %number ]
plain:
  store i8 %c, ptr %to
  %to.next = getelementptr i8, ptr %to, i64 1
  br label %head
signed:
  %is.second = icmp eq i8 %c, {second}
  %value = select i1 %is.second, i64 %b, i64 %a
  %negative = icmp slt i64 %value, 0
  br i1 %negative, label %minus, label %number
minus:
  store i8 45, ptr %to
  %to.digits = getelementptr i8, ptr %to, i64 1
  %turned = sub i64 0, %value
  br label %number
number:
  %start = phi ptr [ %to, %head ], [ %to, %signed ], [ %to.digits, %minus ]
  %all = phi i64 [ %a, %head ], [ %value, %signed ], [ %turned, %minus ]
  br label %divide
divide:
  %rest = phi i64 [ %all, %number ], [ %quotient, %divide ]
  %n = phi i64 [ 0, %number ], [ %n.next, %divide ]
  %quotient = udiv i64 %rest, 10
  %digit = urem i64 %rest, 10
  %small = trunc i64 %digit to i8
  %char = add i8 %small, 48
  %digit.p = getelementptr [{digits} x i8], ptr %digits, i64 0, i64 %n
  store i8 %char, ptr %digit.p
  %n.next = add i64 %n, 1
  %more = icmp ne i64 %quotient, 0
  br i1 %more, label %divide, label %write
write:
  %left = phi i64 [ %n.next, %divide ], [ %left.next, %write ]
  %here = phi ptr [ %start, %divide ], [ %here.next, %write ]
  %left.next = sub i64 %left, 1
  %from = getelementptr [{digits} x i8], ptr %digits, i64 0, i64 %left.next
  %one = load i8, ptr %from
  store i8 %one, ptr %here
  %here.next = getelementptr i8, ptr %here, i64 1
  %again = icmp ne i64 %left.next, 0
  br i1 %again, label %write, label %written
written:
  %to.end = phi ptr [ %here.next, %write ]
  br label %head
done:
  store i8 0, ptr %to
  ret ptr %out
}}"""


def add_fault(module: ModuleText) -> None:
    """Add the ring and the helper `FAULT` to the module, unless they are there."""
    if carries_faults(module):
        return
    module.global_("mlcc_fault_count", "internal global i32 0, align 4")
    module.global_("mlcc_fault_values", f"internal global [{SLOTS} x {{ i64, i64 }}] zeroinitializer, align 8")
    module.helper(FAULT, _FAULT_IR, shared=True)


def carries_faults(module: ModuleText) -> bool:
    return module.has_helper(FAULT)


def add_fault_text(module: ModuleText, texts: Iterable[str]) -> str:
    """Add `ptr text(ptr template, i32 slot)`, which fills in the values of a slot; gives its name. `texts` are all
    templates: they say how long the result can be."""
    length = max(len(t.encode()) + _DIGITS * sum(map(t.count, (FIRST, SECOND, FIRST_UNSIGNED))) for t in texts) + 1
    module.global_("mlcc_fault_texts", f"internal global [{SLOTS} x [{length} x i8]] zeroinitializer, align 1")
    marks = {"first": ord(FIRST), "second": ord(SECOND), "unsigned": ord(FIRST_UNSIGNED)}
    return module.helper(_TEXT, _TEXT_IR.format(name=_TEXT, length=length, digits=_DIGITS, **marks))
