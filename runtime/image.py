"""Link a relocatable object into memory: layout, slots for external symbols, relocation, page protection.

Text is r-x, constants (and the slot table, once filled) r--, the rest rw-; no page is ever writable and executable.
Constants of more than 1 GiB are placed after everything else, where code reaches them through slots. An image stays
mapped for the life of the process: its code may run in another thread, or be called by a pool.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mlcc.errors import Diagnostic, LoadError, error
from mlcc.runtime import elf
from mlcc.runtime.elf import ObjectFile, Relocation, Section, Symbol, damaged
from mlcc.runtime.large_file import LargeFile

PAGE = max(mmap.PAGESIZE, 4096)
STUB = 16  # bytes of a jump to an external function

Resolve = Callable[[str, bool], int | None]  # (name, weak) -> address


@dataclass(slots=True)
class Layout:
    """The memory layout of an image, as offsets from its start."""

    section: dict[int, int] = field(default_factory=dict)
    stub: dict[int, int] = field(default_factory=dict)  # symbol index -> offset of its jump
    slot: dict[int, int] = field(default_factory=dict)  # symbol index -> offset of the word with its address
    text_end: int = 0
    constant_end: int = 0
    far: int = 0  # start of constants that are too large to lie between text and data
    end: int = 0


def plan_layout(obj: ObjectFile) -> Layout:
    """Lay out text and stubs, constants and slots, data, and far constants; each group starts on a page."""
    layout = Layout()
    loaded = [s for s in obj.sections if s.is_loaded]
    text = [s for s in loaded if s.flags & elf.EXECINSTR]
    data = [s for s in loaded if s.flags & elf.WRITE and not s.name.startswith(".data.rel.ro")]
    far = [s for s in loaded if s.is_far]
    constants = [s for s in loaded if s not in text and s not in data and s not in far]
    external = sorted(
        {r.symbol for rs in obj.relocations.values() for r in rs if obj.symbols[r.symbol].section == elf.UNDEFINED}
    )
    slotted = {r.symbol for rs in obj.relocations.values() for r in rs if r.type in SLOT_TYPES[obj.machine]}
    offset = _place(layout, text, 0)
    offset = _align(offset, STUB)
    for symbol in external:
        layout.stub[symbol] = offset
        offset += STUB
    layout.text_end = offset = _align(offset, PAGE)
    offset = _align(_place(layout, constants, offset), 8)
    for symbol in sorted(slotted | set(external)):
        layout.slot[symbol] = offset
        offset += 8
    layout.constant_end = offset = _align(offset, PAGE)
    layout.far = max(_align(_place(layout, data, offset), PAGE), PAGE)
    if layout.far > elf.MAX_MEMORY - PAGE:
        raise damaged("it needs more than 2 GiB beside its constants")
    layout.end = _align(_place(layout, far, layout.far), PAGE)
    return layout


def _place(layout: Layout, sections: list[Section], offset: int) -> int:
    for section in sections:
        offset = _align(offset, section.align)
        layout.section[section.index] = offset
        offset += section.size
    return offset


def _align(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) & -alignment


# ---------------------------------------------------------------- relocation


class Linker:
    """Fill a buffer for the address `base` with the image of an object."""

    def __init__(
        self, obj: ObjectFile, layout: Layout, base: int, resolve: Resolve, file: LargeFile | None = None
    ) -> None:
        self.obj = obj
        self.file = file
        self.layout = layout
        self.base = base
        self.resolve = resolve
        self.external: dict[int, int] = {}

    def fill(self, memory: memoryview) -> None:
        """Copy the sections, resolve external symbols and apply all relocations."""
        for section in self.obj.sections:
            if section.is_loaded and section.type == elf.PROGBITS:
                at = self.layout.section[section.index]
                into = memory[at : at + section.size]
                if self.file is None or not self.file.fill(into, section.offset):
                    into[:] = self.obj.bytes_of(section)
        self._fill_slots(memory)
        apply = APPLY[self.obj.machine]
        for target, relocations in self.obj.relocations.items():
            start = self.layout.section[target]
            room = self.obj.sections[target].size
            for relocation in relocations:
                apply(self, memory, start, room, relocation)

    def address(self, index: int) -> int:
        """Return the address of a symbol; for an undefined one, that of its stub, which a branch can reach."""
        symbol = self.obj.symbols[index]
        if symbol.section == elf.UNDEFINED:
            return self.base + self.layout.stub[index]
        if symbol.section not in self.layout.section:
            raise damaged(f"`{symbol.name}` is in a section that is not loaded")
        return self.base + self.layout.section[symbol.section] + symbol.value

    def final(self, index: int) -> int:
        """Return the address of a symbol itself, at any distance."""
        return self.external[index] if index in self.external else self.address(index)

    def _fill_slots(self, memory: memoryview) -> None:
        missing = []
        for index in self.layout.stub:
            symbol = self.obj.symbols[index]
            address = self.resolve(symbol.name, symbol.bind == elf.WEAK) if symbol.name else None
            if address is None:
                missing.append(symbol.name or "(no name)")
            else:
                self.external[index] = address
        if missing:
            raise LoadError([undefined(name) for name in missing])
        for index, at in self.layout.slot.items():
            struct.pack_into("<Q", memory, at, self.final(index))
        for index, at in self.layout.stub.items():
            memory[at : at + STUB] = make_stub(self.obj.machine, self.layout.slot[index] - at, self.base + at)


def undefined(name: str) -> Diagnostic:
    """Return the diagnostic for an undefined symbol."""
    return error(
        "E0855", f"the object needs the C symbol `{name}`, which is not allowed or not found",
        help="pass allow_extern=(name,) or --allow-extern to let the object call it; it must be in a loaded library",
    )  # fmt: skip


def make_stub(machine: int, to_slot: int, address: int) -> bytes:
    """Return code that jumps to the address in a slot, `to_slot` bytes from the stub at `address`."""
    if machine == elf.X86_64:
        return b"\xff\x25" + struct.pack("<i", to_slot - 6) + b"\xcc" * 10  # jmp *[rip + x]
    slot = address + to_slot
    page = ((slot >> 12) - (address >> 12)) & 0x1FFFFF
    adrp = 0x90000010 | (page & 3) << 29 | (page >> 2) << 5  # adrp x16, slot
    load = 0xF9400210 | ((slot & 0xFFF) >> 3) << 10  # ldr x16, [x16, slot]
    return struct.pack("<IIII", adrp, load, 0xD61F0200, 0xD503201F)  # br x16; nop


def _store(memory: memoryview, start: int, room: int, r: Relocation, code: str, value: int) -> None:
    size = struct.calcsize(code)
    if r.offset + size > room:
        raise damaged("a relocation lies outside its section")
    low, high = (-(1 << 31), (1 << 31) - 1) if code == "<i" else (0, (1 << 64) - 1)
    if code == "<Q":
        value &= high
    if not low <= value <= high:
        raise damaged("a relocation is out of range")
    struct.pack_into(code, memory, start + r.offset, value)


def _apply_x86_64(link: Linker, memory: memoryview, start: int, size: int, r: Relocation) -> None:
    address = link.base + start + r.offset
    match r.type:
        case 0:
            return
        case 1:  # R_X86_64_64
            _store(memory, start, size, r, "<Q", link.final(r.symbol) + r.addend)
        case 2 | 4:  # PC32, PLT32
            _store(memory, start, size, r, "<i", link.address(r.symbol) + r.addend - address)
        case 24:  # PC64
            _store(memory, start, size, r, "<Q", link.final(r.symbol) + r.addend - address)
        case 9 | 41 | 42:  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
            _store(memory, start, size, r, "<i", link.base + link.layout.slot[r.symbol] + r.addend - address)
        case _:
            raise damaged(f"relocation type {r.type} is not supported")


def _apply_aarch64(link: Linker, memory: memoryview, start: int, size: int, r: Relocation) -> None:
    address = link.base + start + r.offset
    match r.type:
        case 0 | 256:
            return
        case 257:  # ABS64
            _store(memory, start, size, r, "<Q", link.final(r.symbol) + r.addend)
        case 260:  # PREL64
            _store(memory, start, size, r, "<Q", link.final(r.symbol) + r.addend - address)
        case 261:  # PREL32
            _store(memory, start, size, r, "<i", link.address(r.symbol) + r.addend - address)
        case 282 | 283:  # JUMP26, CALL26
            _patch(memory, start, size, r, _branch(link.address(r.symbol) + r.addend - address, 26), 0x03FFFFFF, 0)
        case 280 | 273:  # CONDBR19, LD_PREL_LO19
            _patch(memory, start, size, r, _branch(link.address(r.symbol) + r.addend - address, 19), 0x7FFFF, 5)
        case 279:  # TSTBR14
            _patch(memory, start, size, r, _branch(link.address(r.symbol) + r.addend - address, 14), 0x3FFF, 5)
        case 275 | 311:  # ADR_PREL_PG_HI21, ADR_GOT_PAGE
            _patch_adr(memory, start, size, r, (_target(link, r) >> 12) - (address >> 12))
        case 274:  # ADR_PREL_LO21
            _patch_adr(memory, start, size, r, _target(link, r) - address)
        case _:
            shift = LOW12.get(r.type)
            if shift is None:
                raise damaged(f"relocation type {r.type} is not supported")
            low = _target(link, r) & 0xFFF
            if low & ((1 << shift) - 1):
                raise damaged("a relocation is misaligned")
            _patch(memory, start, size, r, low >> shift, 0xFFF, 10)


# relocation type of ADD, loads and stores of 1 to 16 bytes, and loads of slots -> shift of the low 12 bits
LOW12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}


def _target(link: Linker, r: Relocation) -> int:
    if r.type in SLOT_TYPES[elf.AARCH64]:
        return link.base + link.layout.slot[r.symbol]
    return link.address(r.symbol) + r.addend


def _branch(distance: int, bits: int) -> int:
    if distance & 3 or not -(1 << (bits + 1)) <= distance < 1 << (bits + 1):
        raise damaged("a branch is out of range")
    return distance >> 2


def _patch(memory: memoryview, start: int, size: int, r: Relocation, value: int, mask: int, shift: int) -> None:
    """Set the bits `mask << shift` of an instruction."""
    if r.offset + 4 > size or r.offset & 3:
        raise damaged("a relocation lies outside its section")
    (word,) = struct.unpack_from("<I", memory, start + r.offset)
    struct.pack_into("<I", memory, start + r.offset, word & ~(mask << shift) & 0xFFFFFFFF | (value & mask) << shift)


def _patch_adr(memory: memoryview, start: int, size: int, r: Relocation, value: int) -> None:
    if not -(1 << 20) <= value < 1 << 20:
        raise damaged("an address is out of range")
    _patch(memory, start, size, r, value & 3, 3, 29)
    _patch(memory, start, size, r, value >> 2, 0x7FFFF, 5)


APPLY = {elf.X86_64: _apply_x86_64, elf.AARCH64: _apply_aarch64}
SLOT_TYPES = {elf.X86_64: {9, 41, 42}, elf.AARCH64: {311, 312}}


# ---------------------------------------------------------------- memory


class Image(NamedTuple):
    """A linked object in memory.

    `functions` maps exported names to addresses, `constants` is an address range, and `code` lists (start, size, name)
    of all functions.
    """

    base: int
    functions: dict[str, int]
    constants: tuple[int, int]
    code: tuple[tuple[int, int, str], ...]


_IMAGES: list[tuple[Image, mmap.mmap]] = []  # never unloaded
_SHARED: dict[str, int] = {}  # weak `mlcc_*` symbols: the first object that defines one serves all later ones
_LOCK = threading.Lock()
READ, EXEC = 1, 4


def link_image(obj: ObjectFile, resolve: Callable[[str], int | None], file: LargeFile | None = None) -> Image:
    """Map, relocate and protect an object. `file` is its file, if it is large. Raises LoadError, OSError."""
    with _LOCK:  # the first object's shared symbols are used
        return _link_image(bind_shared(obj, _SHARED), resolve, file)


HUGE = 4 << 20  # minimum bytes for huge pages


def _ask_for_huge_pages(pages: mmap.mmap) -> None:
    """Request huge pages, if the system has them: weights are read sequentially in every call."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):
            pages.madvise(advice)


def _link_image(obj: ObjectFile, resolve: Callable[[str], int | None], file: LargeFile | None) -> Image:
    layout = plan_layout(obj)
    try:
        pages = mmap.mmap(-1, layout.end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as exc:
        raise LoadError(error("E0856", f"cannot map {layout.end} bytes: {exc}")) from None
    if layout.end >= HUGE:
        _ask_for_huge_pages(pages)
    base = ctypes.addressof(ctypes.c_char.from_buffer(pages))

    def resolve_symbol(name: str, weak: bool) -> int | None:
        address = _SHARED.get(name) or resolve(name)
        return 0 if address is None and weak else address

    with memoryview(pages) as memory:
        Linker(obj, layout, base, resolve_symbol, file).fill(memory)
    if file is not None and file.has_changed:
        raise damaged("it was written to while it was loaded")
    protect(base, layout.text_end, READ | EXEC)
    protect(base + layout.text_end, layout.constant_end - layout.text_end, READ)
    protect(base + layout.far, layout.end - layout.far, READ)
    flush_instructions(base, base + layout.text_end)
    addresses = {s.name: base + layout.section[s.section] + s.value for s in obj.symbols if s.section in layout.section}
    functions = {
        s.name: addresses[s.name]
        for s in obj.symbols
        if s.type == elf.FUNC
        and s.bind != elf.LOCAL
        and s.name in addresses
        and addresses[s.name] < base + layout.text_end
    }
    for symbol in obj.symbols:
        if is_shared(symbol):
            _SHARED.setdefault(symbol.name, addresses[symbol.name])
    # never unmap: pool threads may still run the code when the interpreter exits
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pages))
    code = tuple(
        (base + layout.section[s.section] + s.value, s.size, s.name)
        for s in obj.symbols
        if s.type == elf.FUNC and s.section in layout.section
    )
    end = layout.end if layout.end > layout.far else layout.constant_end
    image = Image(base, functions, (base + layout.text_end, base + end), code)
    _IMAGES.append((image, pages))
    return image


def symbol_at(address: int) -> str | None:
    """Return the name of the loaded function whose code contains an address; None if there is none."""
    for image, _ in _IMAGES:
        for start, size, name in image.code if image.base <= address < image.constants[0] else ():
            if start <= address < start + size:
                return name
    return None


def shared_symbol(name: str) -> int | None:
    """Return the address of a symbol that all loaded objects share; None if no object has it."""
    return _SHARED.get(name)


def share_symbols(addresses: Mapping[str, int]) -> dict[str, int]:
    """Share symbols with all objects loaded later; earlier definitions win. Return the addresses in use."""
    with _LOCK:
        return {name: _SHARED.setdefault(name, address) for name, address in addresses.items()}


def is_shared(symbol: Symbol) -> bool:
    """Return True if all objects of a process share one definition of the symbol (the thread pool)."""
    return symbol.bind == elf.WEAK and symbol.name.startswith("mlcc_") and symbol.section != elf.UNDEFINED


def bind_shared(obj: ObjectFile, known: Mapping[str, int]) -> ObjectFile:
    """Make shared symbols that the process already has external symbols of the object."""
    if not any(is_shared(s) and s.name in known for s in obj.symbols):
        return obj
    symbols = tuple(
        s._replace(section=elf.UNDEFINED, value=0, size=0) if is_shared(s) and s.name in known else s
        for s in obj.symbols
    )
    return obj._replace(symbols=symbols)


def protect(address: int, size: int, rights: int) -> None:
    """Set the access rights of pages. Raises LoadError."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, use_errno=True)(
        ("mprotect", libc)
    )
    if size and call(address, size, rights) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise LoadError(error("E0856", f"cannot protect the object's memory: {reason}"))


def flush_instructions(start: int, end: int) -> None:
    """Invalidate the instruction cache for new code, where it is not coherent with the data cache (AArch64)."""
    if os.uname().machine != "aarch64":
        return
    with contextlib.suppress(OSError, AttributeError):
        clear = ctypes.CDLL("libgcc_s.so.1").__clear_cache
        clear.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        clear(start, end)
