"""Workaround for optimised IR that LLVM's NVPTX backend cannot select; it aborts the process.

One case is known, vector byte swap (`llvm.bswap`): the optimiser recognises it in shifts and masks, and it cannot be
selected for lanes of 32 bits from sm_100 on. Each call is replaced by a call of a function that swaps lane by lane.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_BSWAP = re.compile(r"llvm\.bswap\.v(\d+)i(\d+)\Z")


def mended(names: Iterable[str], optimised: Callable[[], str]) -> str | None:
    """Replace calls in a module's IR that cannot be selected; None if there are none among these function names."""
    wrong = [swap for swap in map(_BSWAP.match, names) if swap]
    if not wrong:
        return None
    text = optimised()
    for swap in wrong:
        name = swap[0]
        lanes, bits = int(swap[1]), int(swap[2])
        kept = [line for line in text.splitlines() if not (line.startswith("declare ") and f"@{name}(" in line)]
        own = f"mlcc.bswap.v{lanes}i{bits}"
        scalar = f"llvm.bswap.i{bits}"
        text = "\n".join([*kept, _by_lane(own, scalar, lanes, bits), ""]).replace(f"@{name}(", f"@{own}(")
        if f"declare i{bits} @{scalar}(" not in text:
            text += f"declare i{bits} @{scalar}(i{bits})\n"
    return text


def _by_lane(name: str, scalar: str, lanes: int, bits: int) -> str:
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
