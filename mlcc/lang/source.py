"""The source text of decorated objects: found by line in the file or notebook cell, with its place in it."""

from __future__ import annotations

import ast
import functools
import linecache
from dataclasses import dataclass
from types import FrameType, FunctionType

from mlcc.errors import CompileError, Diagnostic, Source, error

Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True, slots=True, eq=False)
class SourcePart(Source):
    """A part of a file, without the indentation that its lines share; lines and columns are those of the file."""

    first_line: int = 1
    indent: str = ""
    indented: tuple[bool, ...] = ()  # for each line, whether the indentation was removed from it

    def line_col(self, offset: int) -> tuple[int, int]:
        line, column = Source.line_col(self, offset)
        removed = len(self.indent) if self._is_indented(line) else 0
        return line + self.first_line - 1, column + removed

    def line(self, number: int) -> str:
        own = number - self.first_line + 1
        return (self.indent if self._is_indented(own) else "") + Source.line(self, own)

    def _is_indented(self, line: int) -> bool:
        return line <= len(self.indented) and self.indented[line - 1]


@dataclass(frozen=True)
class Decorated:
    """A definition in its file: its text, and the class whose body has it, if any."""

    text: SourcePart
    node: Definition
    owner: ast.ClassDef | None


def find(obj: type | FunctionType, frame: FrameType) -> Decorated:
    """Find the definition of a class or function, whose decorator runs in `frame`. Raise CompileError E0211."""
    code = obj.__code__ if isinstance(obj, FunctionType) else frame.f_code
    name = code.co_filename
    linecache.checkcache(name)
    lines = linecache.getlines(name, frame.f_globals)
    if not lines:
        raise CompileError(_missing(obj, f"{name} has no source text"))
    text = "".join(lines)
    try:
        found = _definitions(text)
    except SyntaxError:
        raise CompileError(_missing(obj, f"{name} has changed since it was read")) from None
    line = code.co_firstlineno if isinstance(obj, FunctionType) else frame.f_lineno
    kind = ast.FunctionDef if isinstance(obj, FunctionType) else ast.ClassDef
    named = [pair for pair in found if isinstance(pair[0], kind) and pair[0].name == obj.__name__]
    here = [pair for pair in named if _first_line(pair[0]) <= line <= _last_header_line(pair[0])]
    if not here and len(named) == 1:  # decorated by a call, elsewhere
        here = named
    if not here:
        raise CompileError(_missing(obj, f"{name} does not define it at line {line}: it may have changed since"))
    node, owner = here[-1]
    return Decorated(_part(name, text, node), node, owner)


def _missing(obj: type | FunctionType, why: str) -> Diagnostic:
    help = "write it in a file or a cell of a notebook, or give the text to mlcc.parse"
    return error("E0211", f"the source text of `{obj.__name__}` is not available: {why}", help=help)


@functools.lru_cache(maxsize=16)
def _definitions(text: str) -> list[tuple[Definition, ast.ClassDef | None]]:
    """All classes and functions of a file, each with the class whose body has it."""
    found: list[tuple[Definition, ast.ClassDef | None]] = []
    stack: list[tuple[ast.AST, ast.ClassDef | None]] = [(ast.parse(text), None)]
    while stack:
        node, owner = stack.pop()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.append((node, owner))
            owner = node if isinstance(node, ast.ClassDef) else None
        stack += [(child, owner) for child in ast.iter_child_nodes(node)]
    return found


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _last_header_line(node: Definition) -> int:
    return max([node.lineno, *(d.end_lineno or d.lineno for d in node.decorator_list)])


def _part(name: str, text: str, node: Definition) -> SourcePart:
    first = _first_line(node)
    lines = text.splitlines(keepends=True)[first - 1 : node.end_lineno]
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    indented = tuple(bool(indent) and line.startswith(indent) for line in lines)
    own = [line[len(indent) :] if cut else line for line, cut in zip(lines, indented, strict=True)]
    return SourcePart(name, "".join(own), first_line=first, indent=indent, indented=indented)
