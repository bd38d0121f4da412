"""Judging a shared library before the system's loader sees it: `verify` lets through what `--emit shared` writes.

The loader believes all that a library says, and runs its constructors before anybody can ask. So everything that the
loader reads (program headers, the dynamic section, symbols, versions, relocations) is checked here against the file;
start-up code, indirect functions, other libraries than the C library's, and symbols that are not allowed are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from mlcc.errors import LoadError, error
from mlcc.runtime import elf
from mlcc.runtime.elf import AARCH64, SYMBOL, UNDEFINED, X86_64, damaged

LOAD, DYNAMIC, INTERP, NOTE, PHDR = 1, 2, 3, 4, 6
EH_FRAME, STACK, RELRO, PROPERTY = 0x6474E550, 0x6474E551, 0x6474E552, 0x6474E553
EXECUTE, WRITABLE, READABLE = 1, 2, 4
PAGE = 4096  # segments of 64 KiB pages are apart by more

NEEDED, PLTRELSZ, HASH, STRTAB, SYMTAB, RELA, RELASZ, RELAENT = 1, 2, 4, 5, 6, 7, 8, 9
STRSZ, SYMENT, PLTREL, JMPREL, FLAGS, RELRSZ, RELR, RELRENT = 10, 11, 20, 23, 30, 35, 36, 37
GNU_HASH, VERSYM, FLAGS_1, VERNEED, VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB, 0x6FFFFFFE, 0x6FFFFFFF
_HARMLESS_TAGS = frozenset(
    (3, 14, 21, 24, 0x6FFFFFF9, 0x70000001, 0x70000003, 0x70000005)
)  # PLTGOT, SONAME, ..., counts
_KNOWN_TAGS = _HARMLESS_TAGS | {
    NEEDED, PLTRELSZ, HASH, STRTAB, SYMTAB, RELA, RELASZ, RELAENT, STRSZ, SYMENT, PLTREL, JMPREL, FLAGS, RELRSZ, RELR,
    RELRENT, GNU_HASH, VERSYM, FLAGS_1, VERNEED, VERNEEDNUM,
}  # fmt: skip
_STARTUP_TAGS = {12: "DT_INIT", 13: "DT_FINI", 25: "DT_INIT_ARRAY", 26: "DT_FINI_ARRAY", 27: "DT_INIT_ARRAYSZ",
            28: "DT_FINI_ARRAYSZ", 32: "DT_PREINIT_ARRAY", 33: "DT_PREINIT_ARRAYSZ"}  # fmt: skip
_REFUSED_TAGS = {15: "DT_RPATH", 22: "DT_TEXTREL", 29: "DT_RUNPATH", 0x6FFFFEFC: "DT_AUDIT", 0x6FFFFEFB: "DT_DEPAUDIT",
            0x7FFFFFFD: "DT_AUXILIARY", 0x7FFFFFFF: "DT_FILTER"}  # fmt: skip
_BIND_NOW, _NOW, _NODELETE = 0x8, 0x1, 0x8
LIBRARIES = frozenset((
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
    "libc.so", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1",
))  # fmt: skip
_TAG_GROUPS = ((STRTAB, STRSZ, SYMTAB, SYMENT), (RELA, RELASZ, RELAENT), (JMPREL, PLTRELSZ, PLTREL),
             (RELR, RELRSZ, RELRENT), (VERNEED, VERNEEDNUM, VERSYM))  # fmt: skip
_RELATIVE = {X86_64: 8, AARCH64: 1027}
_SYMBOLIC = {X86_64: frozenset((1, 6, 7)), AARCH64: frozenset((257, 1025, 1026))}
_HOOKS = frozenset(("_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__", "__cxa_finalize"))
_PLAIN_SYMBOLS = frozenset((0, 1, elf.FUNC, 3))  # no type, object, function, section


class Segment(NamedTuple):
    """A part of the file and its address in memory, relative to that of the library."""

    flags: int
    offset: int
    address: int
    size: int
    memory: int

    def holds(self, address: int, size: int, in_file: bool) -> bool:
        return self.address <= address and address + size <= self.address + (self.size if in_file else self.memory)


def verify(data: bytes, allowed: frozenset[str]) -> None:
    """Raises LoadError for a library that is not sound, or has anything that runs before it is called.

    `allowed` are the symbols that it may take from the C library.
    """
    _Library(data).verify(allowed)


class _Library:
    def __init__(self, data: bytes) -> None:
        kind, self.machine, fields = elf.read_header(data)
        if kind != elf.SHARED or self.machine not in elf.MACHINES:
            raise damaged("not a shared library for a machine that is known here")
        self.data = data
        self.segments, self.dynamic = _segments(data, fields)
        self.needed, self.tags = self._read_tags()

    def verify(self, allowed: frozenset[str]) -> None:
        self._check_tags()
        names = self.table(STRTAB, self.tags.get(STRSZ, 0), "string table")
        self.strings = elf.Strings(self.data, names, self.tags.get(STRSZ, 0))
        for at in self.needed:
            if self.strings.at(at) not in LIBRARIES:
                raise _unexpected(f"it needs the library `{self.strings.at(at)}`")
        count = self._count_symbols()
        self._check_symbols(count, allowed)
        self._check_versions(count)
        self._check_relocations(count)

    # ------------------------------------------------------------ where things are

    def file_offset(self, address: int, size: int) -> int:
        """The offset in the file of a range of addresses; -1 if the file does not hold it."""
        for segment in self.segments:
            if segment.holds(address, size, in_file=True):
                return segment.offset + address - segment.address
        return -1

    def table(self, tag: int, size: int, what: str) -> int:
        at = self.file_offset(self.tags[tag], size) if tag in self.tags else -1
        if at < 0:
            raise damaged(f"its {what} lies outside the file")
        return at

    def read_integers(self, at: int, count: int, code: str) -> tuple[int, ...]:
        """`count` integers at an offset of the file that was checked."""
        return struct.unpack_from(f"<{count}{code}", self.data, at)

    # ------------------------------------------------------------ the dynamic section

    def _read_tags(self) -> tuple[list[int], dict[int, int]]:
        needed: list[int] = []
        tags: dict[int, int] = {}
        at, size = self.dynamic
        for index in range(size // 16):
            tag, value = struct.unpack_from("<QQ", self.data, at + 16 * index)
            if tag == 0:
                if any(self.data[at + 16 * index : at + size]):
                    raise damaged("its dynamic section ends early")
                return needed, tags
            if tag == NEEDED:
                needed.append(value)
                continue
            if tag in tags:
                raise damaged("its dynamic section says something twice")
            tags[tag] = value
        raise damaged("its dynamic section does not end")

    def _check_tags(self) -> None:
        tags = self.tags
        for tag in tags:
            if tag in _STARTUP_TAGS:
                raise _unexpected(f"it has start-up code ({_STARTUP_TAGS[tag]})")
            if tag not in _KNOWN_TAGS:
                raise _unexpected(f"its dynamic section has {_REFUSED_TAGS.get(tag, f'the entry {tag:#x}')}")
        if tags.get(FLAGS, 0) & ~_BIND_NOW or tags.get(FLAGS_1, 0) & ~(_NOW | _NODELETE):
            raise _unexpected("it asks the loader for something else than binding at once")
        sizes = ((SYMENT, SYMBOL.size), (RELAENT, elf.RELOCATION.size), (RELRENT, 8), (PLTREL, RELA))
        if any(tags.get(tag, want) != want for tag, want in sizes):
            raise damaged("its tables have entries of another size")
        if any(0 < sum(tag in tags for tag in group) < len(group) for group in _TAG_GROUPS):
            raise damaged("its dynamic section says only half of what belongs together")

    # ------------------------------------------------------------ symbols

    def _count_symbols(self) -> int:
        """Return the number of symbols by the hash table that the loader uses, whose chains must end in the file."""
        if GNU_HASH not in self.tags:
            if HASH not in self.tags:
                raise damaged("it has no hash table of symbols")
            buckets, count = self.read_integers(self.table(HASH, 8, "hash table"), 2, "I")
            at = self.table(HASH, 8 + 4 * (buckets + count), "hash table")
            chains = self.read_integers(at + 8, buckets + count, "I")
            if not buckets or any(c >= count for c in chains):
                raise damaged("its hash table is damaged")
            self._check_chains(chains[:buckets], chains[buckets:])
            return count
        buckets, first, bloom, _ = self.read_integers(self.table(GNU_HASH, 16, "hash table"), 4, "I")
        head = 16 + 8 * bloom
        if not buckets or not bloom or bloom & (bloom - 1):
            raise damaged("its hash table is damaged")
        starts = self.read_integers(self.table(GNU_HASH, head + 4 * buckets, "hash table") + head, buckets, "I")
        last = max(starts)
        if last == 0:
            return first
        if any(0 < s < first for s in starts):
            raise damaged("its hash table is damaged")
        while True:
            size = head + 4 * (buckets + last - first + 1)
            (word,) = self.read_integers(self.table(GNU_HASH, size, "hash table") + size - 4, 1, "I")
            last += 1
            if word & 1:
                return last

    def _check_chains(self, starts: tuple[int, ...], chains: tuple[int, ...]) -> None:
        steps = 0
        for start in starts:
            while start:
                start, steps = chains[start], steps + 1
                if steps > len(chains):
                    raise damaged("its hash table goes in circles")

    def _check_symbols(self, count: int, allowed: frozenset[str]) -> None:
        at = self.table(SYMTAB, count * SYMBOL.size, "symbol table")
        for name, info, _, section, value, size in SYMBOL.iter_unpack(self.data[at : at + count * SYMBOL.size]):
            text = self.strings.at(name) if name else ""
            if info & 15 not in _PLAIN_SYMBOLS or info >> 4 not in (elf.LOCAL, elf.GLOBAL, elf.WEAK):
                raise _unexpected(f"the symbol `{text}` is an indirect function, or of another unexpected kind")
            if section == UNDEFINED:
                is_hook = text in _HOOKS and info >> 4 == elf.WEAK
                if text and text not in allowed and not is_hook:
                    help = "allow it by name (--allow-extern), if you trust the file"
                    raise LoadError(error("E0855", f"it uses the symbol `{text}`, which is not allowed", help=help))
            elif value and not any(s.holds(value, size, in_file=False) for s in self.segments):
                raise damaged(f"the symbol `{text}` lies outside it")

    def _check_versions(self, count: int) -> None:
        """The versions of symbols that it needs: lists inside the file, and numbers that are in them."""
        if VERNEED not in self.tags and VERSYM not in self.tags:
            return
        known = {0, 1}
        at = self.table(VERNEED, 16, "list of versions") if VERNEED in self.tags else -1
        for _ in range(self.tags.get(VERNEEDNUM, 0) if at >= 0 else 0):
            version, entries, file, aux, following = self._read_record(at, "<HHIII")
            if version != 1 or self.strings.at(file) not in LIBRARIES:
                raise damaged("its list of versions is damaged")
            part = at + aux
            for _ in range(entries):
                _, _, number, name, more = self._read_record(part, "<IHHII")
                known.add(number & 0x7FFF)
                self.strings.at(name)
                part += more
            at += following
        if VERSYM in self.tags:
            numbers = self.read_integers(self.table(VERSYM, 2 * count, "list of versions"), count, "H")
            if any(n & 0x7FFF not in known for n in numbers):
                raise damaged("a symbol is of a version that it does not list")

    def _read_record(self, at: int, form: str) -> tuple[int, ...]:
        inside = any(s.offset <= at and at + 16 <= s.offset + s.size for s in self.segments)
        if not inside:
            raise damaged("its list of versions lies outside the file")
        return struct.unpack_from(form, self.data, at)

    # ------------------------------------------------------------ relocations

    def _check_relocations(self, symbols: int) -> None:
        for start, size in ((RELA, RELASZ), (JMPREL, PLTRELSZ)):
            if start not in self.tags:
                continue
            length = self.tags.get(size, 0)
            if length % elf.RELOCATION.size:
                raise damaged("its relocations are of a wrong size")
            at = self.table(start, length, "list of relocations")
            for offset, info, addend in elf.RELOCATION.iter_unpack(self.data[at : at + length]):
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                if kind == _RELATIVE[self.machine]:
                    sound = not symbol and any(s.holds(addend, 0, in_file=False) for s in self.segments)
                else:
                    sound = kind in _SYMBOLIC[self.machine] and symbol < symbols
                if not sound:
                    raise _unexpected(f"it has a relocation of the unexpected kind {kind}, or to nowhere")
                self._check_target(offset)
        for offset in self._relr_addresses():
            self._check_target(offset)

    def _relr_addresses(self) -> Iterator[int]:
        """The addresses that packed relative relocations patch."""
        size = self.tags.get(RELRSZ, 0)
        if RELR not in self.tags or not size:
            return
        offset = self.table(RELR, size, "list of relocations")
        address = 0
        for word in self.read_integers(offset, size // 8, "Q"):
            if not word & 1:
                yield word
                address = word + 8
                continue
            yield from (address + 8 * i for i in range(63) if word >> (i + 1) & 1)
            address += 63 * 8

    def _check_target(self, address: int) -> None:
        """Refuse a relocation of anything but data; of what the loader itself reads, too."""
        start, size = self.dynamic
        inside = [s for s in self.segments if s.flags & WRITABLE and s.holds(address, 8, in_file=False)]
        offset = inside[0].offset + address - inside[0].address if inside else -1
        if not inside or start - 8 < offset < start + size:
            raise _unexpected("a relocation changes something else than data")


def _segments(data: bytes, fields: tuple[int, ...]) -> tuple[list[Segment], tuple[int, int]]:
    """Return the segments to map, in order and on separate pages, and offset and size of the dynamic section."""
    table, entry, count = fields[5], fields[9], fields[10]
    if entry != elf.PROGRAM_HEADER.size or not count or table + count * entry > len(data):
        raise damaged("its program headers lie outside the file")
    segments: list[Segment] = []
    dynamic: list[tuple[int, int, int]] = []
    for kind, flags, offset, address, _, size, memory, align in elf.PROGRAM_HEADER.iter_unpack(
        data[table : table + count * entry]
    ):
        if kind == LOAD:
            segments.append(_segment(data, Segment(flags, offset, address, size, memory), align, segments))
        elif kind == DYNAMIC:
            dynamic.append((address, offset, size))
        elif kind == STACK and flags & EXECUTE:
            raise _unexpected("it asks for a stack that can be executed")
        elif kind not in (0, NOTE, PHDR, EH_FRAME, STACK, RELRO, PROPERTY):
            raise _unexpected(f"it has a segment of the unexpected kind {kind:#x}")
        elif kind == RELRO and not any(s.holds(address, memory, in_file=False) for s in segments):
            raise damaged("a segment lies outside the file")
    if len(dynamic) != 1:
        raise damaged("it has no dynamic section of its own")
    address, offset, size = dynamic[0]
    for segment in segments:
        if segment.holds(address, size, in_file=True) and offset - segment.offset == address - segment.address:
            return segments, (offset, size)
    raise damaged("its dynamic section lies outside the file")


def _segment(data: bytes, segments: Segment, align: int, previous_end: list[Segment]) -> Segment:
    end = segments.address + segments.memory
    if segments.offset + segments.size > len(data) or segments.size > segments.memory or end > elf.MAX_CONSTANTS:
        raise damaged("a segment lies outside the file")
    if align < PAGE or align & (align - 1) or align > 1 << 21 or (segments.address - segments.offset) % align:
        raise damaged("a segment is not aligned to pages")
    if segments.flags & WRITABLE and segments.flags & EXECUTE:
        raise _unexpected("a segment is both writable and executable")
    end = previous_end[-1].address + previous_end[-1].memory if previous_end else 0
    if previous_end and segments.address // PAGE < -(-end // PAGE):
        raise damaged("segments share a page")
    return segments


def _unexpected(reason: str) -> LoadError:
    help = "load what `mlcc compile --emit shared` wrote, as it was written; a library linked by hand is for C programs"
    return LoadError(error("E0851", f"not a valid artifact: {reason}", help=help))
