"""Workaround for an abort of LLVM's NVPTX backend: optimised IR with a vector byte swap that it cannot select.

The optimiser recognises `llvm.bswap` in shifts and masks; vectors of 32-bit lanes cannot be selected from sm_100 on.
Each call is replaced by a call of a function that swaps lane by lane.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_BSWAP = re.compile(r"llvm\.bswap\.v(\d+)i(\d+)\Z")


def replace_vector_bswap(names: Iterable[str], optimised: Callable[[], str]) -> str | None:
    """Replace vector byte swaps in a module's IR; return None if these function names include none."""
    swaps = [swap for swap in map(_BSWAP.match, names) if swap]
    if not swaps:
        return None
    text = optimised()
    for swap in swaps:
        name = swap[0]
        lanes, bits = int(swap[1]), int(swap[2])
        lines = [line for line in text.splitlines() if not (line.startswith("declare ") and f"@{name}(" in line)]
        replacement = f"mlcc.bswap.v{lanes}i{bits}"
        scalar = f"llvm.bswap.i{bits}"
        text = "\n".join([*lines, _scalarised_bswap(replacement, scalar, lanes, bits), ""]).replace(
            f"@{name}(", f"@{replacement}("
        )
        if f"declare i{bits} @{scalar}(" not in text:
            text += f"declare i{bits} @{scalar}(i{bits})\n"
    return text


def _scalarised_bswap(name: str, scalar: str, lanes: int, bits: int) -> str:
    type = f"<{lanes} x i{bits}>"
    lines = [f"define internal {type} @{name}({type} %x) nounwind {{"]
    vector = "poison"
    for lane in range(lanes):
        lines += [
            f"  %x{lane} = extractelement {type} %x, i64 {lane}",
            f"  %y{lane} = call i{bits} @{scalar}(i{bits} %x{lane})",
            f"  %z{lane} = insertelement {type} {vector}, i{bits} %y{lane}, i64 {lane}",
        ]
        vector = f"%z{lane}"
    return "\n".join([*lines, f"  ret {type} {vector}", "}"])
