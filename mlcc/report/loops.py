"""The lowered functions of a build as one text, read again so that every statement knows its line in it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcc.grammar.parser import parse
from mlcc.grammar.printer.printer import script
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import Node, find, walk

NAME = "lowered.mlc"  # of the text in debug locations


@dataclass(frozen=True)
class LoopText:
    """The text of some functions. `lines` maps lines of the whole text to lines of this one, `sources` lines of this
    one to the lines of the source that they come from: several if several calls share the function."""

    text: str
    lines: dict[int, int]
    sources: dict[int, list[int]]


class LoweredText:
    """The text of the PrimFuncs of a lowered module, and the module `reread` whose statements have places in it."""

    def __init__(self, lowered: IRModule) -> None:
        functions = {name: f for name, f in lowered.functions.items() if isinstance(f, tir.PrimFunc)}
        text = script(IRModule(functions, lowered.attrs), data=False)
        parsed = parse(text, name=NAME) if functions else IRModule({})
        self.functions = functions
        self.reread = IRModule(
            {name: parsed.functions.get(name, func) for name, func in lowered.functions.items()},
            lowered.attrs, lowered.name, lowered.global_infos,
        )  # fmt: skip
        self._lines = text.splitlines()
        starts = [_line(parsed[name]) - 1 for name in functions]  # of the decorators
        ends = [start - 1 for start in (*starts[1:], len(self._lines) + 2)][: len(starts)]
        self._extents = dict(zip(functions, zip(starts, ends, strict=True), strict=True))

    def of_kernel(self, name: str) -> LoopText:
        """Return the text of a PrimFunc and of those that it calls or launches."""
        text: list[str] = []
        lines: dict[int, int] = {}
        sources: dict[int, list[int]] = {}
        for member in self.members(name):
            start, end = self._extents[member]
            if text:
                text.append("")
            lines |= {line: len(text) + line - start + 1 for line in range(start, end)}
            text += textwrap.dedent("\n".join(self._lines[start - 1 : end - 1])).splitlines()
            sources |= {lines[at]: found for at, found in self._sources(member) if at in lines}
        return LoopText("\n".join(text) + "\n", lines, sources)

    def members(self, name: str) -> list[str]:
        """Return a PrimFunc and all that it calls or launches, itself first."""
        found = {name: None}
        waiting = [name]
        while waiting:
            callees = [var.name for var in find(self.functions[waiting.pop()].body, relax.GlobalVar)]
            new = [callee for callee in callees if callee in self.functions and callee not in found]
            found.update(dict.fromkeys(new))
            waiting += new
        return list(found)

    def _sources(self, name: str) -> Iterator[tuple[int, list[int]]]:
        """Yield lines of the whole text with the lines of the source that the statements there come from."""
        statements, again = _statements(self.functions[name]), _statements(self.reread[name])
        if [type(stmt) for stmt in statements] != [type(stmt) for stmt in again]:
            return
        for stmt, there in zip(statements, again, strict=True):
            if stmt.span is not None and there.span is not None:
                yield _line(there), sorted({span.source.line_col(span.start)[0] for span in stmt.span.all})


def _statements(func: object) -> Sequence[tir.Stmt]:
    return [node for node in walk(func) if isinstance(node, tir.Stmt)]


def _line(node: Node) -> int:
    assert node.span is not None
    return node.span.source.line_col(node.span.start)[0]
