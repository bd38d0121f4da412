"""TVM's side of the differential suite, in a process of its own: it may abort or hang without harm.

Reads one JSON request a line, writes one JSON reply a line: {"program": text} starts a schedule, {"name", "args",
"target"} is a step. A refused step leaves the schedule as it was.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    side = Side()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = side.start(request["program"]) if "program" in request else side.step(**request)
        except Exception as exc:
            reply = {"ok": False, "error": f"{type(exc).__name__}: {exc}"[-2000:]}
        out.write(json.dumps(reply) + "\n")


class Side:
    """The schedule, and the names that steps gave to their results."""

    def __init__(self) -> None:
        import tvm

        from tests.interop.harness import to_tvm
        from tests.interop.schedule.intrinsics import INTRINSICS

        self.tvm, self.read = tvm, to_tvm
        self.names: dict[str, Any] = {}
        schedule = tvm.s_tir.Schedule
        schedule.get_block = schedule.get_sblock
        for name, (description, implementation) in INTRINSICS.items():
            made = [to_tvm(text)["main"] for text in (description, implementation)]
            tvm.s_tir.TensorIntrin.register(name, *made)

    def start(self, program: str) -> dict[str, Any]:
        self.sch = self.tvm.s_tir.Schedule(self.read(program))
        self.names = {}
        return {"ok": True, "script": self.sch.mod.script(), "result": None}

    def step(self, name: str, args: str, target: str) -> dict[str, Any]:
        before = self.sch.copy()
        try:
            result = eval(f"sch.{name}({args})", {"__builtins__": {}, **self.names, "sch": self.sch})
            script = self.sch.mod.script()
        except Exception:
            self.sch = before
            raise
        if target:
            self.names[target] = result
        return {"ok": True, "script": script, "result": self.describe(result)}

    def describe(self, result: Any) -> Any:
        """A result as plain data: blocks by name, loops by variable and extent, integers by value."""
        tvm = self.tvm
        if result is None or isinstance(result, (bool, int, str)):
            return result
        if isinstance(result, (list, tuple, tvm.ir.Array)):
            return [-1 if r is None else self.describe(r) for r in result]  # None: a factor to be inferred
        try:
            found = self.sch.get(result)
        except Exception:
            return "nothing"
        if isinstance(found, tvm.tirx.For):
            extent = found.extent
            return ["loop", found.loop_var.name, int(extent) if isinstance(extent, tvm.tirx.IntImm) else "?"]
        if isinstance(found, int):
            return found
        if found is None:
            return "nothing"
        return ["block", found.name_hint]


if __name__ == "__main__":
    main()
