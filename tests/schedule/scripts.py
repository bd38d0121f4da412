"""Running scripts in tests: on a real schedule, or on one that only notes what it is asked."""

from __future__ import annotations

from typing import Any

import mlcc
from mlcc.errors import CompileError, Diagnostic, Source, Span
from mlcc.grammar.syntax.reader import parse_syntax
from mlcc.ir import tir
from mlcc.passes.schedule.handles import ExprRV, LoopRV
from mlcc.passes.schedule.mls.statements import Script
from mlcc.recursion import FRAMES_WITH_C, deep_recursion

MATMUL = """
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((32, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for i, j, k in T.grid(16, 8, 32):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


class Notes:
    """Stands for a schedule: notes every call, and answers a few."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any], dict[str, Any]]] = []
        self.names: dict[Any, str] = {}

    def primitives(self) -> list[str]:
        return ["split", "note", "loops", "sampled", "echo", "refuse", "index_map", "variable"]

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any], span: Span) -> Any:
        self.calls.append((name, args, kwargs))
        if name == "loops":
            made = [LoopRV("l") for _ in range(min(args[0], 100))]
            self.names |= {loop: "ijklmn"[at] for at, loop in enumerate(made)}
            return made
        if name == "sampled":
            return [ExprRV() for _ in range(min(args[0], 100))]
        if name == "refuse":
            raise CompileError(mlcc.errors.error("E0613", "refused", span))
        if name == "variable":
            return tir.Var("i", tir.DType.of("int32"))
        if name == "index_map":
            return args[0](*args[1:])
        return args[0] if name == "echo" else None

    def cost(self) -> int:
        return 100

    def name_of(self, value: Any) -> str | None:
        return self.names.get(value)

    def size_named(self, name: str) -> None:
        return None

    def register_intrinsic(self, *given: Any) -> None:
        self.calls.append(("register", list(given[:2]), {}))


def run(text: str) -> Script:
    """The script after it ran on `Notes`."""
    source = Source("test.mls", text)
    made = Script(source, Notes())
    with deep_recursion(FRAMES_WITH_C):
        made.run(parse_syntax(source, start="script"))
    return made


def noted(text: str) -> list[Any]:
    """The first arguments of all `sch.note(x)` of a script."""
    return [args[0] for name, args, _ in run(text).steps.calls if name == "note"]  # type: ignore[attr-defined]


def refused(text: str) -> Diagnostic:
    """The one diagnostic that a script ends with."""
    try:
        run(text)
    except CompileError as exc:
        (diagnostic,) = exc.diagnostics
        return diagnostic
    raise AssertionError("accepted")


def place(diagnostic: Diagnostic) -> tuple[int, int, str]:
    """Line, column and the text marked."""
    span = diagnostic.primary.span
    assert span is not None
    return (*span.source.line_col(span.start), span.source.text[span.start : span.end])
