"""Handlers of faults (SIGSEGV and the like) in native code, which report the fault and its location.

The handler is machine code: it writes the signal's number and the addresses of its `siginfo` and `ucontext` to a
pipe, and sleeps. A Python thread reads the pipe, finds the faulting function, reports it, and ends the process; this
works because a thread in native code does not hold the GIL. If nothing is reported within a second (the fault was in
the interpreter itself), the handler writes a message, restores the previous handler, and returns to the fault.

Only command lines use this: programs have handlers of their own.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

from mlcc.errors import LoadError
from mlcc.runtime import elf, image
from mlcc.runtime.abi import MANIFEST_SECTION

SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")
    if hasattr(signal, name)
)
# layout of the data after the code: the pipe and the length of the message (4 bytes each), the time (16), 32 previous
# actions (32 each), the message
_DATA, _FORMER, _MESSAGE = 128, 24, 1048
_HANDLER_SECONDS = 1
_ACTION = struct.Struct("<QQQQ")  # the kernel's sigaction: handler, flags, restorer, mask
_FLAGS = 0x4 | 0x0800_0000  # SA_SIGINFO, SA_ONSTACK
_STACK = 1 << 16  # bytes of an alternate stack: the thread's own may have overflowed
_SCANNED = 1 << 16  # bytes of the stack that are searched for return addresses
_NEAR_STACK = 1 << 16  # maximum distance in bytes of a stack address from the stack pointer


class _Machine(NamedTuple):
    """The handler for an architecture, and offsets of registers in the kernel's context."""

    code: str  # a listing: machine code, assembly
    restorer: int | None  # offset of the code that returns from a handler, if programs must provide it
    rt_sigaction: int
    sigaltstack: int
    counter: int  # offsets in ucontext
    stack: int
    link: int | None


_X86_64 = """
52              push rdx
56              push rsi
57              push rdi
b801000000      mov eax, 1                      # write(pipe, {signal, siginfo, ucontext}, 24)
8b3d72000000    mov edi, dword ptr [rip + data]
4889e6          mov rsi, rsp
ba18000000      mov edx, 24
0f05            syscall
b823000000      mov eax, 35                     # nanosleep(time, 0)
488d3d64000000  lea rdi, [rip + data + 8]
31f6            xor esi, esi
0f05            syscall
b801000000      mov eax, 1                      # write(2, message, its length)
bf02000000      mov edi, 2
488d355f040000  lea rsi, [rip + data + 1048]
8b1545000000    mov edx, dword ptr [rip + data + 4]
0f05            syscall
b80d000000      mov eax, 13                     # rt_sigaction(signal, former + 32 * signal, 0, 8)
488b3c24        mov rdi, qword ptr [rsp]
4889fe          mov rsi, rdi
48c1e605        shl rsi, 5
488d1540000000  lea rdx, [rip + data + 24]
4801d6          add rsi, rdx
31d2            xor edx, edx
41ba08000000    mov r10d, 8
0f05            syscall
4883c418        add rsp, 24
c3              ret
b80f000000      mov eax, 15                     # the restorer: rt_sigreturn()
0f05            syscall
"""
_AARCH64 = """
ff8300d1        sub sp, sp, #32
e00700a9        stp x0, x1, [sp]
e20b00f9        str x2, [sp, #16]
a9030010        adr x9, data                    // write(pipe, {signal, siginfo, ucontext}, 24)
200140b9        ldr w0, [x9]
e1030091        mov x1, sp
020380d2        mov x2, #24
080880d2        mov x8, #64
010000d4        svc #0
20030010        adr x0, data + 8                // nanosleep(time, 0)
010080d2        mov x1, #0
a80c80d2        mov x8, #101
010000d4        svc #0
400080d2        mov x0, #2                      // write(2, message, its length)
01230010        adr x1, data + 1048
220540b9        ldr w2, [x9, #4]
080880d2        mov x8, #64
010000d4        svc #0
e00340f9        ldr x0, [sp]                    // rt_sigaction(signal, former + 32 * signal, 0, 8)
61020010        adr x1, data + 24
2114008b        add x1, x1, x0, lsl #5
020080d2        mov x2, #0
030180d2        mov x3, #8
c81080d2        mov x8, #134
010000d4        svc #0
ff830091        add sp, sp, #32
c0035fd6        ret
"""
MACHINES = {
    "x86_64": _Machine(_X86_64, 0x6A, 13, 131, 168, 160, None),
    "aarch64": _Machine(_AARCH64, None, 134, 132, 440, 432, 424),
}


class Fault(NamedTuple):
    """A fault: the signal, the address that was accessed, and the functions of loaded code on the call stack.

    The innermost function comes first; some that had just returned may be among them.
    """

    number: int
    address: int | None
    symbols: tuple[str, ...]
    in_stack: bool

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name


def machine_code(machine: _Machine) -> bytes:
    """Assemble the first column of the listing."""
    return bytes.fromhex("".join(line.split(maxsplit=1)[0] for line in machine.code.split("\n") if line.strip()))


def install_handler(report: Callable[[Fault], None], otherwise: str) -> None:
    """Install a handler that calls `report`, on a separate thread, when native code of this process faults.

    `report` should end the process; `otherwise` is written to stderr if it cannot be called. The handler serves the
    main thread for the life of the process, but not forked children. On machines without a handler, nothing happens.
    """
    machine = MACHINES.get(os.uname().machine) if sys.platform == "linux" else None
    if machine is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    reading, writing = os.pipe()
    _alternate_stack(libc, machine)
    try:
        _thread.start_new_thread(_wait, (reading, machine, report))
    except RuntimeError:  # no thread is to be had
        return
    page = _keep_alive(mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    base = ctypes.addressof(ctypes.c_char.from_buffer(page))
    code = machine_code(machine)
    assert len(code) <= _DATA
    page[: len(code)] = code
    message = otherwise.encode()[: len(page) - _DATA - _MESSAGE]
    page[_DATA + _MESSAGE : _DATA + _MESSAGE + len(message)] = message
    struct.pack_into("<IIqq", page, _DATA, writing, len(message), _HANDLER_SECONDS, 0)
    restorer = 0 if machine.restorer is None else base + machine.restorer
    flags = _FLAGS if machine.restorer is None else _FLAGS | 0x0400_0000  # SA_RESTORER
    action = ctypes.create_string_buffer(_ACTION.pack(base, flags, restorer, 0xFFFF_FFFF_FFFF_FFFF), _ACTION.size)
    for number in SIGNALS:
        former = ctypes.c_void_p(base + _DATA + _FORMER + _ACTION.size * number)
        libc.syscall(machine.rt_sigaction, int(number), None, former, ctypes.c_size_t(8))
    image.protect(base, mmap.PAGESIZE, image.READ | image.EXEC)
    image.flush_instructions(base, base + _DATA)
    for number in SIGNALS:
        libc.syscall(machine.rt_sigaction, int(number), action, None, ctypes.c_size_t(8))

    def restore() -> None:
        for number in SIGNALS:
            former = ctypes.c_void_p(base + _DATA + _FORMER + _ACTION.size * number)
            libc.syscall(machine.rt_sigaction, int(number), former, None, ctypes.c_size_t(8))

    os.register_at_fork(after_in_child=restore)  # its addresses would mean nothing to our thread


def _alternate_stack(libc: ctypes.CDLL, machine: _Machine) -> None:
    """Install an alternate stack for the handlers of this thread."""
    memory = _keep_alive(mmap.mmap(-1, _STACK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    stack = struct.pack("<QQQ", ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0, _STACK)
    libc.syscall(machine.sigaltstack, ctypes.create_string_buffer(stack, len(stack)), None)


def _keep_alive(pages: mmap.mmap) -> mmap.mmap:
    """Keep memory mapped for the life of the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pages))
    return pages


def _wait(reading: int, machine: _Machine, report: Callable[[Fault], None]) -> None:
    record = os.read(reading, 24)
    if len(record) == 24:
        report(_fault(machine, *struct.unpack("<QQQ", record)))


def _fault(machine: _Machine, number: int, info: int, context: int) -> Fault:
    """Decode the kernel's description of a fault; its addresses belong to a thread that sleeps in the handler."""
    code, address = struct.unpack("<i4xQ", ctypes.string_at(info + 8, 16))
    counter, stack = (_word(context + at) for at in (machine.counter, machine.stack))
    addresses = [counter] if machine.link is None else [counter, _word(context + machine.link)]
    symbol_at = _Symbols().at
    symbols = dict.fromkeys(filter(None, map(symbol_at, [*addresses, *_return_addresses(stack)])))
    is_access = code > 0 and number in (signal.SIGSEGV, signal.SIGBUS)
    return Fault(
        number, address if is_access else None, tuple(symbols), is_access and abs(address - stack) < _NEAR_STACK
    )


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("path", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("start", ctypes.c_void_p),
    )  # fmt: skip


class _Symbols:
    """The functions of loaded objects, and those of shared libraries that are artifacts, by their symbol tables."""

    def __init__(self) -> None:
        self._libraries: dict[bytes, list[tuple[int, int, str]]] = {}
        self._ranges = _executable_ranges()

    def at(self, address: int) -> str | None:
        """Return the name of the function whose code contains an address."""
        if not any(start <= address < end for start, end in self._ranges):
            return None
        symbol = image.symbol_at(address)
        info = _DlInfo()
        if symbol is not None or not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
            return symbol
        if info.path not in self._libraries:
            self._libraries[info.path] = _functions(info.path)
        offset = address - (info.base or 0)
        return next((n for start, size, n in self._libraries[info.path] if start <= offset < start + size), None)


def _executable_ranges() -> list[tuple[int, int]]:
    """Return the address ranges of executable memory of this process."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as file:
        parts = [line.split(maxsplit=2)[:2] for line in file]
        ranges = [words.split("-") for words, rights in parts if "x" in rights]
        return [(int(start, 16), int(end, 16)) for start, end in ranges]
    return [(0, 1 << 64)]


def _functions(path: bytes) -> list[tuple[int, int, str]]:
    """Return the functions of a shared library that is an artifact, by offset from its base."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        sections = elf.read_sections(data)
        if not any(s.name == MANIFEST_SECTION for s in sections):
            return []
        table = next(s for s in sections if s.type == elf.SYMTAB)
        strings = sections[table.link]
        names = elf.Strings(data, strings.offset, strings.size)
        content = data[table.offset : table.offset + table.size // elf.SYMBOL.size * elf.SYMBOL.size]
        entries = elf.SYMBOL.iter_unpack(content)
        return [(at, size, names.at(name)) for name, kind, _, _, at, size in entries if kind & 15 == elf.FUNC and size]
    except (OSError, LoadError, StopIteration, IndexError):
        return []


def _word(address: int) -> int:
    word: int = struct.unpack("<Q", ctypes.string_at(address, 8))[0]
    return word


def _return_addresses(stack: int) -> tuple[int, ...]:
    """Return the words of the stack, innermost first; some are return addresses."""
    with contextlib.suppress(OSError, OverflowError), open("/proc/self/mem", "rb", buffering=0) as memory:
        words = os.pread(memory.fileno(), _SCANNED, stack)
        return struct.unpack(f"<{len(words) // 8}Q", words[: len(words) // 8 * 8])
    return ()
