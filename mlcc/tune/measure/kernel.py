"""Compiled kernels as plain data, passed from the compile process to the measuring process."""

from __future__ import annotations

from dataclasses import dataclass

BUFFER, VALUE = "buffer", "value"
Word = tuple[str, int]  # (BUFFER, number of the memory) or (VALUE, 64 bits)


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a kernel: a tensor, or a scalar where `shape` is None.

    `read` and `written` are the kernel's accesses to it; integers used as indices are drawn below `below`. `value` is
    that of a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    read: bool = True
    written: bool = False
    below: int | None = None
    value: float = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of an object: `i32 symbol(ptr words, i64 stride, i64 sets, i64 count)`.

    It calls a kernel `count` times, in turn with each of `sets` sets of 64-bit words `stride` bytes apart, and ends
    with the first code that is not 0. A word is a parameter of the kernel, in memory as its type. The last one is the
    workspace, of `workspace` bytes.
    """

    symbol: str
    words: tuple[Word, ...]
    workspace: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """The machine code of a scheduled function. `digest` is that of its LLVM IR and target: equal ones run alike.

    Memory is numbered: the arguments, then `panels` (their sizes in bytes), which `prepare` fills from constant
    arguments before anything is measured.
    """

    digest: str
    obj: bytes
    main: Entry
    prepare: Entry | None = None
    panels: tuple[int, ...] = ()
