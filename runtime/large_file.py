"""Large objects, read once: tables and code into memory of their own, constants straight to where the code reads them.

Constants are not mapped from the file. A product with weights in its pages of 4 KiB was measured to take 1.4 times what
it takes with the large pages that anonymous memory gets (runtime/image.py); and whoever writes to a mapped file, or
cuts it off, changes what is loaded, or ends the process.
"""

from __future__ import annotations

import mmap
import os
import stat
import zlib

from mlcc.runtime import elf

LARGE = 4 << 20  # bytes from which on a section of constants is left out of `data`
_CHUNK = 1 << 20  # bytes that a checksum takes at a time


class LargeFile:
    """An open object. `data` is its content, but for large sections of constants, which have no memory there."""

    def __init__(self, handle: int, size: int) -> None:
        """Takes the descriptor over. Raises OSError, ValueError."""
        self.handle = handle
        self.data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._opened_identity = self._identity()
        self._omitted = _large_constants(handle, size)
        offset = 0
        with memoryview(self.data) as memory:
            for start, end in (*self._omitted, (size, size)):
                self._read(memory[offset:start], offset)
                offset = end

    def __del__(self) -> None:
        os.close(self.handle)

    @property
    def has_changed(self) -> bool:
        """True if the file was written or truncated since it was opened."""
        return self._identity() != self._opened_identity

    def fill(self, memory: memoryview, offset: int) -> bool:
        """Read what the file has from `offset` on, if that was left out of `data`. Raises OSError."""
        is_omitted = any(start <= offset and offset + len(memory) <= end for start, end in self._omitted)
        if is_omitted:
            self._read(memory, offset)
        return is_omitted

    def crc32(self, start: int, end: int, value: int = 0) -> int:
        """The CRC-32 of a part of the file, going on from `value`. Raises OSError."""
        with memoryview(self.data) as memory:
            for gap_start, gap_end in (*self._omitted, (end, end)):
                if start < gap_start:
                    value = zlib.crc32(memory[start : min(gap_start, end)], value)
                    start = min(gap_start, end)
                while start < min(gap_end, end):
                    chunk = memoryview(bytearray(min(_CHUNK, gap_end - start, end - start)))
                    self._read(chunk, start)
                    value = zlib.crc32(chunk, value)
                    start += len(chunk)
        return value

    def _read(self, memory: memoryview, offset: int) -> None:
        """Fill memory from the file; after truncation the rest is left unchanged, and the checksum fails."""
        while memory:
            count = os.preadv(self.handle, [memory], offset)
            if not count:
                return
            memory, offset = memory[count:], offset + count

    def _identity(self) -> tuple[int, int]:
        status = os.fstat(self.handle)
        return status.st_size, status.st_mtime_ns


def open_large(path: str) -> LargeFile | None:
    """A large object file; None for any other, which is to be read as a whole. Raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None  # who writes to a pipe waits for one reader
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_size >= LARGE and _large_constants(handle, status.st_size):
            return LargeFile(os.dup(handle), status.st_size)
        return None
    finally:
        os.close(handle)


def _large_constants(handle: int, size: int) -> tuple[tuple[int, int], ...]:
    """Return the file ranges of an object's large constant sections, in order; none for a malformed object."""
    head = os.pread(handle, elf.HEADER.size, 0)
    if len(head) < elf.HEADER.size or not elf.is_elf(head):
        return ()
    fields = elf.HEADER.unpack(head)
    if fields[1] != elf.RELOCATABLE or fields[11] != elf.SECTION_HEADER.size or fields[6] > size:
        return ()
    table = os.pread(handle, fields[12] * elf.SECTION_HEADER.size, fields[6])
    ranges = []
    for at in range(0, len(table) - elf.SECTION_HEADER.size + 1, elf.SECTION_HEADER.size):
        _, kind, flags, _, offset, length, *_ = elf.SECTION_HEADER.unpack_from(table, at)
        if kind == elf.PROGBITS and flags & ~elf.FAR == elf.ALLOC and length >= LARGE and offset + length <= size:
            ranges.append((offset, offset + length))
    ranges.sort()
    apart = all(before[1] <= after[0] for before, after in zip(ranges, ranges[1:], strict=False))
    return tuple(ranges) if apart else ()
