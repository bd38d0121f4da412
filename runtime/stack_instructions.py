"""What an instruction does to the stack pointer and the flow of control, for every machine."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.Enum):
    """PLAIN falls through, BRANCH may, JUMP and END do not. UNKNOWN: the stack pointer is set to what no one knows."""

    PLAIN = enum.auto()
    CALL = enum.auto()
    BRANCH = enum.auto()
    JUMP = enum.auto()
    END = enum.auto()
    UNKNOWN = enum.auto()


class Instruction(NamedTuple):
    """An instruction of `size` bytes.

    `target`: where a call, branch or jump goes, in its section; None through a register or memory. `grows`: bytes by
    which the stack grows. `keeps`: the frame pointer gets the stack pointer plus so many bytes; `restores`: the stack
    pointer gets the frame pointer plus so many.
    """

    size: int
    kind: Kind = Kind.PLAIN
    target: int | None = None
    grows: int = 0
    keeps: int | None = None
    restores: int | None = None

    def moved(self, depth: int, kept: int) -> tuple[int, int]:
        """Return the depth and that which the frame pointer keeps, after the instruction."""
        if self.restores is not None:
            depth = kept - self.restores
        depth += self.grows
        return depth, kept if self.keeps is None else depth - self.keeps
