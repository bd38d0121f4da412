"""Debug locations in LLVM IR: the line of the source text that an instruction comes from.

LLVM writes them as `.loc` directives into assembly and PTX, and as a line table into objects. There are locations only:
no types and no variables, as with `clang -gline-directives-only`, so that the same code is generated as without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from mlcc.errors import Span

_FLAGS = ('i32 2, !"Debug Info Version", i32 3', 'i32 7, !"Dwarf Version", i32 4')


class DebugLines:
    """The metadata of debug locations of a module. `add` makes a node of a text, and `quote` the inside of a string."""

    def __init__(self, add: Callable[[str], str], quote: Callable[[str], str]) -> None:
        self._add = add
        self._quote = quote
        self._known: dict[str, str] = {}
        self._unit = ""

    def _node(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = self._add(text)
        return self._known[text]

    def _file(self, name: str) -> str:
        return self._node(f'!DIFile(filename: "{self._quote(name)}", directory: "")')

    def function(self, symbol: str, span: Span) -> str:
        """Return the node of a function that begins at a place."""
        file = self._file(span.source.name)
        if not self._unit:
            self._unit = self._node(
                f'distinct !DICompileUnit(language: DW_LANG_C99, file: {file}, producer: "mlcc", isOptimized: true, '
                "runtimeVersion: 0, emissionKind: DebugDirectivesOnly)"
            )
        type = self._node(f"!DISubroutineType(types: {self._node('!{}')})")
        line, _ = span.source.line_col(span.start)
        return self._node(
            f'distinct !DISubprogram(name: "{self._quote(symbol)}", scope: {file}, file: {file}, line: {line}, '
            f"type: {type}, scopeLine: {line}, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self._unit})"
        )

    def location(self, function: str, span: Span) -> str:
        """Return the node of a place in a function."""
        line, column = span.source.line_col(span.start)
        return self._node(f"!DILocation(line: {line}, column: {column}, scope: {function})")

    def module_nodes(self, used: Collection[str] | None = None) -> list[str]:
        """Return the lines that a module with a function has once; none if it does not use the nodes of functions."""
        if not self._unit or used is not None and self._unit not in used:
            return []
        flags = ", ".join(self._node(f"!{{{flag}}}") for flag in _FLAGS)
        return [f"!llvm.dbg.cu = !{{{self._unit}}}", f"!llvm.module.flags = !{{{flags}}}"]
