"""Bounds of the stack that functions of an object use, from their machine code.

The depth of the stack is followed through the instructions of each function: from branch to branch, as a dataflow over
the difference of the stack pointer to its value at entry (`mlcc.runtime.stack_x86_64` reads instructions). A function's
bound is the largest of its own depth and of the depth at each call plus the callee's bound. Realignment of the stack
counts with the most that it can take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mlcc.runtime import elf, stack_x86_64
from mlcc.runtime.stack_instructions import Instruction, Kind

_READERS: Mapping[int, tuple[Callable[[memoryview, int], Instruction], int]] = {
    elf.X86_64: (stack_x86_64.read, 8),  # and the bytes of the stack that a call takes
}
_SECTION_SYMBOL = 3


class StackBound(NamedTuple):
    """The most bytes below the caller's stack pointer that a call uses, itself; None if the code does not tell.

    `calls` are functions from outside that it may reach, whose own stack comes on top.
    """

    bytes: int | None
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Function:
    section: int
    start: int
    end: int


@dataclass(slots=True)
class _Frame:
    """The deepest that a function's own code goes, and the depth at each call of a function or a name from outside."""

    depth: int | None
    calls: list[tuple[int, _Function | str]] = field(default_factory=list)


def stack_bounds(data: elf.Data, symbols: list[str]) -> dict[str, StackBound] | None:
    """Return the bounds of functions of a relocatable object; None for a machine whose code is not read.

    Raises LoadError for a damaged file.
    """
    kind, machine, _ = elf.read_header(data)
    if machine not in _READERS or kind != elf.RELOCATABLE:
        return None
    return _Analysis(elf.read_object(data)).bounds(symbols)


class _Analysis:
    def __init__(self, obj: elf.ObjectFile) -> None:
        self.obj = obj
        self.read, self.call_bytes = _READERS[obj.machine]
        self.by_name: dict[str, _Function] = {}
        self.by_start: dict[tuple[int, int], _Function] = {}
        for symbol in obj.symbols:
            if symbol.type == elf.FUNC and symbol.section != elf.UNDEFINED and symbol.size:
                function = _Function(symbol.section, symbol.value, symbol.value + symbol.size)
                function = self.by_start.setdefault((symbol.section, symbol.value), function)
                self.by_name[symbol.name] = function
        self.relocations = {
            section: {r.offset: r for r in relocations} for section, relocations in obj.relocations.items()
        }
        self.known: dict[_Function, StackBound] = {}

    def bounds(self, symbols: list[str]) -> dict[str, StackBound]:
        return {name: self.bound(self.by_name[name], ()) for name in symbols if name in self.by_name}

    def bound(self, function: _Function, callers: tuple[_Function, ...]) -> StackBound:
        """Return the bound of a function. A recursive one has none."""
        if function in callers:
            return StackBound(None, ())
        if function not in self.known:
            frame = self._frame(function)
            most, outside = frame.depth, set[str]()
            for depth, callee in frame.calls:
                if isinstance(callee, str):
                    outside.add(callee)
                    continue
                inner = self.bound(callee, (*callers, function))
                outside.update(inner.calls)
                most = None if most is None or inner.bytes is None else max(most, depth + inner.bytes)
            self.known[function] = StackBound(most, tuple(sorted(outside)))
        return self.known[function]

    def _frame(self, function: _Function) -> _Frame:
        """Follow the depth of the stack through a function."""
        content = self.obj.bytes_of(self.obj.sections[function.section])
        frame = _Frame(self.call_bytes)
        depths: dict[
            int, tuple[int, int]
        ] = {}  # of an address: the depth there, and that which the frame pointer keeps
        waiting = [(function.start, self.call_bytes, 0)]
        jumps: tuple[int, int] | None = None  # the state at a jump through a table
        while waiting:
            at, depth, kept = waiting.pop()
            while function.start <= at < function.end and at not in depths:
                depths[at] = depth, kept
                instruction = self.read(content, at)
                if instruction.kind is Kind.UNKNOWN:
                    return _Frame(None)
                depth, kept = instruction.moved(depth, kept)
                assert frame.depth is not None
                frame.depth = max(frame.depth, depth)
                callee = self._target(function, at, instruction)
                after = at + instruction.size
                if instruction.kind is Kind.CALL:
                    if callee is None:
                        return _Frame(None)
                    frame.calls.append((depth, callee))
                elif instruction.kind in (Kind.JUMP, Kind.BRANCH):
                    if callee is not None:  # a tail call
                        frame.calls.append((depth - self.call_bytes, callee))
                    elif instruction.target is not None:
                        waiting.append((instruction.target, depth, kept))
                    else:
                        jumps = depth, kept
                if instruction.kind in (Kind.JUMP, Kind.END):
                    break
                at = after
            if not waiting and jumps is not None:  # what no branch leads to follows a table
                waiting = self._unvisited(content, function, depths, jumps)
        return frame

    def _unvisited(
        self, content: memoryview, function: _Function, depths: dict[int, tuple[int, int]], state: tuple[int, int]
    ) -> list[tuple[int, int, int]]:
        at = function.start
        while at < function.end:
            if at not in depths:
                return [(at, *state)]
            at += self.read(content, at).size
        return []

    def _target(self, function: _Function, at: int, instruction: Instruction) -> _Function | str | None:
        """Return the function that an instruction calls or jumps to; None for the function itself, and if unknown."""
        if instruction.kind not in (Kind.CALL, Kind.JUMP, Kind.BRANCH):
            return None
        relocations = self.relocations.get(function.section, {})
        for offset in range(at, at + instruction.size):
            relocation = relocations.get(offset)
            if relocation is None:
                continue
            symbol = self.obj.symbols[relocation.symbol]
            if symbol.section == elf.UNDEFINED:
                return symbol.name
            value = symbol.value
            if symbol.type == _SECTION_SYMBOL:
                value += relocation.addend + (at + instruction.size - offset if self.call_bytes else 0)
            return self.by_start.get((symbol.section, value))
        target = instruction.target
        if target is None or (function.start <= target < function.end and instruction.kind is not Kind.CALL):
            return None
        return self.by_start.get((function.section, target))
