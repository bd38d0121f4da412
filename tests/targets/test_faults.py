"""Error codes that carry numbers: the ring of their values, and their texts."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mlcc.machine.target import Target
from mlcc.runtime import elf, externs
from mlcc.runtime.abi import FIRST, FIRST_UNSIGNED, SECOND, SLOT_SHIFT, SLOTS, fill_numbers
from mlcc.runtime.image import link_image
from mlcc.targets.llvm.codegen.error_numbers import FAULT, add_fault, add_fault_text
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.object.compile import Machine, compile_text

TEMPLATES = [
    f"index {FIRST} of {SECOND}",
    "no numbers",
    f"{FIRST}{SECOND}{FIRST}",
    f"unsigned {FIRST_UNSIGNED}, signed {FIRST}",
    "",
]
NUMBERS = [0, 1, -1, 7, 10, -10, 99, 2**31, -(2**31), 2**63 - 1, -(2**63)]


@pytest.fixture(scope="module")
def ring() -> Any:
    machine = Machine.of(Target.parse("llvm"))
    module = ModuleText(machine.triple)
    add_fault(module)
    text = add_fault_text(module, TEMPLATES)
    note = module.function("i32", "note", [("i32", "code"), ("i64", "a"), ("i64", "b")], linkage="")
    note.ret(note.call("i32", f"@{FAULT}", note.params))
    show = module.function("ptr", "show", [("ptr", "text"), ("i32", "slot")], linkage="")
    show.ret(show.call("ptr", text, show.params))
    image = link_image(
        elf.read_object(compile_text(module.text(), machine).obj),
        lambda name: externs.address_of(name, externs.ALLOWED),
    )
    i32, i64 = ctypes.c_int32, ctypes.c_int64
    made: Any = type("Ring", (), {})()
    made.image = image
    made.note = ctypes.CFUNCTYPE(i32, i32, i64, i64)(image.functions["note"])
    made.show = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_char_p, i32)(image.functions["show"])
    return made


@pytest.mark.parametrize("template", TEMPLATES)
def test_numbers_are_filled_in(ring: Any, template: str) -> None:
    for a in NUMBERS:
        for b in (0, -5, 2**63 - 1):
            code = ring.note(17 | 3 << 8, a, b)
            slot = code >> SLOT_SHIFT
            assert code & (1 << SLOT_SHIFT) - 1 == 17 | 3 << 8 and 1 <= slot <= SLOTS
            assert ring.show(template.encode(), slot).decode() == fill_numbers(template, a, b)


def test_threads_do_not_share_slots(ring: Any) -> None:
    """As long as fewer than `SLOTS` calls fail between a failure and the question for its text."""

    def once(number: int) -> tuple[str, str]:
        slot = ring.note(17, number, -number) >> SLOT_SHIFT
        return ring.show(TEMPLATES[0].encode(), slot).decode(), fill_numbers(TEMPLATES[0], number, -number)

    with ThreadPoolExecutor(8) as pool:
        for found, wanted in pool.map(once, range(SLOTS - 1)):
            assert found == wanted
