"""Read x86-64 instructions as far as the stack and the flow of control need it: lengths of all that compilers emit."""

from __future__ import annotations

from mlcc.runtime.stack_instructions import Instruction, Kind

_PREFIXES = frozenset((0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3))
_WITHOUT_MODRM = frozenset(
    (*range(0x50, 0x60), 0x68, 0x6A, *range(0x70, 0x80), *range(0x90, 0xC0), 0xC2, 0xC3, *range(0xC8, 0xD0),
     *range(0xE0, 0xF0), 0xF1, 0xF4, 0xF5, *range(0xF8, 0xFE))
)  # fmt: skip
_IMM8 = frozenset((0x6A, 0x6B, *range(0x70, 0x80), 0x80, 0x83, 0xA8, *range(0xB0, 0xB8), 0xC0, 0xC1, 0xC6, 0xCD,
                   *range(0xE0, 0xE8), 0xEB))  # fmt: skip
_IMM32 = frozenset((0x68, 0x69, 0x81, 0xA9, *range(0xB8, 0xC0), 0xC7, 0xE8, 0xE9))
_0F_WITHOUT_MODRM = frozenset((0x05, 0x06, 0x08, 0x09, 0x0B, *range(0x30, 0x36), 0x77, *range(0x80, 0x90), 0xA0,
                               0xA1, 0xA2, 0xA8, 0xA9, *range(0xC8, 0xD0)))  # fmt: skip
_0F_IMM8 = frozenset((0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6))
_RSP, _RBP = 4, 5


def read(code: memoryview, at: int) -> Instruction:
    """Read the instruction at an offset of a section. One beyond its end is UNKNOWN."""
    try:
        return _read(code, at)
    except IndexError:
        return Instruction(1, Kind.UNKNOWN)


def _signed(code: memoryview, at: int, size: int) -> int:
    if at + size > len(code):
        raise IndexError
    return int.from_bytes(code[at : at + size], "little", signed=True)


def _read(code: memoryview, start: int) -> Instruction:
    at, word, rex = start, False, 0
    while code[at] in _PREFIXES:
        word |= code[at] == 0x66
        at += 1
    if code[at] & 0xF0 == 0x40:
        rex, at = code[at], at + 1
    op = code[at]
    if op in (0xC4, 0xC5, 0x62):
        return _vector(code, start, at)
    if op == 0x0F:
        return _two_bytes(code, start, at + 1)
    at += 1
    modrm = at if not (op in _WITHOUT_MODRM or (op < 0x40 and op & 7 in (4, 5))) else -1
    if modrm >= 0:
        at = _operand_end(code, at)
    reg = code[modrm] >> 3 & 7 if modrm >= 0 else 0
    imm = 0
    if op in _IMM8 or (op < 0x40 and op & 7 == 4) or (op == 0xF6 and reg < 2):
        imm = 1
    elif op in _IMM32 or (op < 0x40 and op & 7 == 5) or (op == 0xF7 and reg < 2):
        imm = 2 if word and op not in (0xE8, 0xE9) else 8 if rex & 8 and 0xB8 <= op < 0xC0 else 4
    elif op in (0xC2, 0xCA):
        imm = 2
    elif op == 0xC8:
        imm = 3
    elif 0xA0 <= op < 0xA4:
        imm = 8
    end = at + imm
    value = _signed(code, at, imm) if imm else 0
    size = end - start
    if op in (0xE8, 0xE9, 0xEB) or 0x70 <= op < 0x80 or 0xE0 <= op < 0xE4:
        kind = Kind.CALL if op == 0xE8 else Kind.JUMP if op in (0xE9, 0xEB) else Kind.BRANCH
        return Instruction(size, kind, end + value)
    if op in (0xC2, 0xC3, 0xCC, 0xF4):
        return Instruction(size, Kind.END)
    if 0x50 <= op < 0x58 or op in (0x68, 0x6A, 0x9C):
        return Instruction(size, grows=8)
    if 0x58 <= op < 0x60 or op == 0x9D or (op == 0x8F and modrm >= 0):
        if op == 0x58 + _RSP and not rex & 1:
            return Instruction(size, Kind.UNKNOWN)
        return Instruction(size, grows=-8)
    if op == 0xC9:
        return Instruction(size, restores=0, grows=-8)
    if op == 0xFF:
        kinds = {2: Kind.CALL, 4: Kind.JUMP}
        return Instruction(size, kinds.get(reg, Kind.PLAIN), grows=8 if reg == 6 else 0)
    return _stack_pointer(code, op, rex, modrm, value, size)


def _stack_pointer(code: memoryview, op: int, rex: int, modrm: int, value: int, size: int) -> Instruction:
    """Return what an instruction with operands does to the stack pointer and the frame pointer."""
    if modrm < 0:
        return Instruction(size)
    mode, reg, rm = code[modrm] >> 6, code[modrm] >> 3 & 7, code[modrm] & 7
    to_reg, to_rm = reg | (rex & 4) << 1, rm | (rex & 1) << 3
    if op in (0x81, 0x83) and mode == 3 and to_rm == _RSP:
        if reg in (0, 5):
            return Instruction(size, grows=value if reg == 5 else -value)
        if reg == 4:  # aligned: by a multiple of 8 below that
            return Instruction(size, grows=-value - 8)
        return Instruction(size, Kind.PLAIN if reg == 7 else Kind.UNKNOWN)
    if op in (0x89, 0x8B) and mode == 3:
        to, source = (to_rm, to_reg) if op == 0x89 else (to_reg, to_rm)
        if to == _RSP:
            return Instruction(size, restores=0) if source == _RBP else Instruction(size, Kind.UNKNOWN)
        return Instruction(size, keeps=0 if to == _RBP and source == _RSP else None)
    if op == 0x8D and to_reg in (_RSP, _RBP) and mode in (1, 2):
        by_rsp = rm == 4 and code[modrm + 1] == 0x24 and not rex & 1
        displacement = _signed(code, modrm + 1 + (rm == 4), 1 if mode == 1 else 4)
        if to_reg == _RSP:
            if to_rm == _RBP:
                return Instruction(size, restores=displacement)
            return Instruction(size, grows=-displacement) if by_rsp else Instruction(size, Kind.UNKNOWN)
        return Instruction(size, keeps=displacement if by_rsp else None)
    writes_rm = op < 0x40 and op & 7 == 1 and op != 0x39 and mode == 3 and to_rm == _RSP
    writes_reg = op < 0x40 and op & 7 == 3 and op != 0x3B and to_reg == _RSP
    return Instruction(size, Kind.UNKNOWN if writes_rm or writes_reg else Kind.PLAIN)


def _two_bytes(code: memoryview, start: int, at: int) -> Instruction:
    op, at = code[at], at + 1
    if op in (0x38, 0x3A):
        end = _operand_end(code, at + 1) + (op == 0x3A)
        return Instruction(end - start)
    if 0x80 <= op < 0x90:
        return Instruction(at + 4 - start, Kind.BRANCH, at + 4 + _signed(code, at, 4))
    if op == 0x0B:
        return Instruction(at - start, Kind.END)
    end = at if op in _0F_WITHOUT_MODRM else _operand_end(code, at)
    return Instruction(end + (op in _0F_IMM8) - start)


def _vector(code: memoryview, start: int, at: int) -> Instruction:
    """Read an instruction with a VEX or EVEX prefix."""
    prefix = code[at]
    table = 1 if prefix == 0xC5 else code[at + 1] & (0x1F if prefix == 0xC4 else 7)
    at += {0xC5: 2, 0xC4: 3, 0x62: 4}[prefix]
    op, at = code[at], at + 1
    if table == 1 and op == 0x77 and prefix != 0x62:
        return Instruction(at - start)
    has_imm = table == 3 or (table in (1, 5) and op in _0F_IMM8)
    return Instruction(_operand_end(code, at) + has_imm - start)


def _operand_end(code: memoryview, at: int) -> int:
    """Return the offset behind a ModRM byte, what it says of a SIB byte, and a displacement."""
    mode, rm = code[at] >> 6, code[at] & 7
    at += 1
    if mode == 3:
        return at
    base = rm
    if rm == 4:
        base, at = code[at] & 7, at + 1
    if mode == 0:
        return at + 4 * (base == 5)
    return at + (1 if mode == 1 else 4)
