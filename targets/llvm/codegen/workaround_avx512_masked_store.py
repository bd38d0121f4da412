"""Workaround for an LLVM 22.1 miscompile: a truncated vector stored under a constant one-lane mask on AVX-512.

The store includes the bytes that truncation removes, and overwrites the memory behind the element. Such stores are
rewritten as scalar stores in the optimised text, before code is generated from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"llvm\.masked\.store\.v\d+i(?:8|16|32)\.p0$")
_STORE = re.compile(
    r"^ +(?:tail )?call void @llvm\.masked\.store\.v\d+(i8|i16|i32)\.p0\((<\d+ x i\d+>) (%[^,]+), ptr (?:\w+ )*?"
    r"(?:align (\d+) )?(?:\w+ )*?([%@][^,]+), (?:i32 (\d+), )?<\d+ x i1> <([^>]*)>\)[^\n]*$",
    re.M,
)


def has_masked_stores(names: Iterable[str]) -> bool:
    """Return True if these function names of a module include a masked store of 8-, 16- or 32-bit integers."""
    return any(_NAME.match(name) for name in names)


def replace_masked_stores(text: str) -> str | None:
    """The text with stores of one lane in the place of those under a constant mask; None if there are none."""
    count = 0

    def scalar(found: re.Match[str]) -> str:
        nonlocal count
        element, vector, value, align, pointer, old_align, mask = found.groups()
        lanes = [n for n, lane in enumerate(mask.split(", ")) if lane == "i1 true"]
        if len(lanes) != 1:
            return found[0]
        count += 1
        at = f"%mlcc.lane.{count}"
        return (
            f"  {at}.place = getelementptr {element}, ptr {pointer}, i64 {lanes[0]}\n"
            f"  {at} = extractelement {vector} {value}, i64 {lanes[0]}\n"
            f"  store {element} {at}, ptr {at}.place, align {align or old_align or 1}"
        )

    rewritten = _STORE.sub(scalar, text)
    return rewritten if count else None
