"""Emit the checks of sanitized code: `T.sanitize_*` return the index, or end the call with an error.

Passes wrap indices in these calls, and allocate the shadow memory that they use (`mlcc.passes.lowering.access_checks`
documents the arguments). Inactive lanes are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.intrinsics import name_of
from mlcc.targets.llvm.codegen import casts, index_checks
from mlcc.targets.llvm.codegen.ir_text import Value, integer, vector
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.plan.exports import OUTSIDE, RACE, UNWRITTEN

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

_TRUE = Value("i1", "true")
_MAX_MESSAGES = 60_000  # error codes have 16 bits for the number of a message
_SHORT_MESSAGES = {
    OUTSIDE: "index \x01 is out of bounds", UNWRITTEN: "element \x01 is read before it is written",
    RACE: "element \x01 is accessed by two iterations of a parallel loop",
}  # fmt: skip
_ARGUMENT_KINDS: dict[str, Callable[[tir.Expr], bool]] = {  # letter of a signature -> check of an argument
    "x": lambda arg: arg.dtype.element is INT64, "i": lambda arg: arg.dtype is INT64,
    "p": lambda arg: arg.dtype.is_handle, "v": lambda arg: not arg.dtype.is_handle,
    "n": lambda arg: (tir.const_int(arg) or 0) > 0, "s": lambda arg: isinstance(arg, tir.StringImm),
}  # fmt: skip


class Element(NamedTuple):
    """An accessed element: its number, its offset in bytes, and whether its lane is active (None: always)."""

    number: Value
    offset: Value
    on: Value | None


def _sanitize_index(e: Emitter, node: tir.Call) -> Value:
    """(index, extent, text): check that the index is in bounds of its dimension."""
    index, extent, text = node.args
    are_integers = all(arg.dtype.is_int or arg.dtype.is_uint for arg in (index, extent))
    if not (are_integers and extent.dtype.lanes == 1 and _ARGUMENT_KINDS["s"](text)) or index.dtype is not node.dtype:
        raise _invalid_arguments(node)
    code = _code(e, OUTSIDE, text)

    def check(index_value: Value, place: Value, inside: Value, size: Value) -> Value:
        return e.check_index(index_value, place, inside, size, code)

    resolved = index_checks.resolve_index(e, index, extent, False, node.dtype.lanes, check)
    type = vector(f"i{node.dtype.bits}", node.dtype.lanes)
    return resolved if resolved.type == type else e.fn.convert("trunc", resolved, type)


def _sanitize_view(e: Emitter, node: tir.Call) -> Value:
    """(index, data, memory, bytes of an element, bytes of the memory, text): check that the element is in the
    memory."""
    fn = e.fn
    index, elements = _elements(e, node, "xppnis")
    size, total = _number(node.args[3]), e.index(node.args[4])
    for element in elements:
        end = fn.binary("add", element.offset, integer("i64", size))
        low = fn.icmp("sge", element.offset, integer("i64", 0))
        in_bounds = fn.binary("and", low, fn.icmp("sle", end, total))
        _require(e, in_bounds, element, _code(e, OUTSIDE, node.args[5]))
    return index


def _sanitize_read(e: Emitter, node: tir.Call) -> Value:
    """(index, data, memory, bytes of an element, of a cell, written cells, text): check that the element was
    written."""
    fn = e.fn
    index, elements = _elements(e, node, "xppnnps")
    written = e.expr(node.args[5])
    for element in elements:
        for cell in _cells(e, node, element):
            mark = fn.load("i8", fn.gep("i8", written, cell), 1)
            _require(e, fn.icmp("ne", mark, integer("i8", 0)), element, _code(e, UNWRITTEN, node.args[6]))
    return index


def _sanitize_write(e: Emitter, node: tir.Call) -> Value:
    """(index, data, memory, bytes of an element, of a cell, written cells): mark the element as written."""
    fn, one = e.fn, integer("i8", 1)
    index, elements = _elements(e, node, "xppnnp")
    written = e.expr(node.args[5])
    for element in elements:
        for cell in _cells(e, node, element):
            address = fn.gep("i8", written, cell)
            new = one if element.on is None else fn.select(element.on, one, fn.load("i8", address, 1))
            fn.store(new, address, 1)
    return index


def _sanitize_shared_read(e: Emitter, node: tir.Call) -> Value:
    """Check that no other iteration of a parallel loop wrote the element.

    Arguments: index, data, memory, bytes of an element, bytes of a cell, last writers, last readers, first iteration of
    the loop, current iteration, a number that stands for several iterations, text.
    """
    fn = e.fn
    index, elements = _elements(e, node, "xppnnppiiis")
    writers, readers, base, me, several = map(e.expr, node.args[5:10])
    for element in elements:
        for cell in _cells(e, node, element):
            writer, reader = fn.gep("i64", writers, cell), fn.gep("i64", readers, cell)
            is_safe = _is_own_mark(e, fn.load("i64", writer, 8), base, me)
            _require(e, is_safe, element, _code(e, RACE, node.args[10]))
            last = fn.load("i64", reader, 8)
            _store_mark(e, reader, last, fn.select(_is_own_mark(e, last, base, me), me, several), element.on)
    return index


def _sanitize_shared_write(e: Emitter, node: tir.Call) -> Value:
    """Check that no other iteration of a parallel loop accessed the element, unless it wrote the same value.

    Arguments: index, data, memory, bytes of an element, bytes of a cell, last writers, last readers, first iteration of
    the loop, current iteration, text, text, value.
    """
    fn = e.fn
    value = node.args[11] if len(node.args) > 11 else None
    if value is not None and 1 < value.dtype.lanes < node.dtype.lanes:
        raise _invalid_arguments(node)
    index, elements = _elements(e, node, "xppnnppiiss" + ("" if value is None else "v"))
    writers, readers, base, me = map(e.expr, node.args[5:9])
    write_write, read_write = (_code(e, RACE, text) for text in node.args[9:11])
    for lane, element in enumerate(elements):
        for cell in _cells(e, node, element):
            writer, reader = fn.gep("i64", writers, cell), fn.gep("i64", readers, cell)
            last_writer = fn.load("i64", writer, 8)
            is_safe = _is_own_mark(e, last_writer, base, me)
            if value is not None:
                is_safe = fn.binary("or", is_safe, _stores_same_value(e, node.args[1], value, lane, element))
            _require(e, is_safe, element, write_write)
            _require(e, _is_own_mark(e, fn.load("i64", reader, 8), base, me), element, read_write)
            _store_mark(e, writer, last_writer, me, element.on)
    return index


# ---------------------------------------------------------------- elements and cells


def _elements(e: Emitter, node: tir.Call, signature: str) -> tuple[Value, list[Element]]:
    """Return the index and its elements. Raises CompileError if the arguments do not match the letters of
    `signature`."""
    fn, args, lanes = e.fn, node.args, node.dtype.lanes
    if len(args) != len(signature) or node.dtype is not args[0].dtype:
        raise _invalid_arguments(node)
    if not all(_ARGUMENT_KINDS[letter](arg) for letter, arg in zip(signature, args, strict=True)):
        raise _invalid_arguments(node)
    index = e.index(args[0]) if lanes == 1 else e.expr(args[0])
    start = integer("i64", 0)
    if args[1] is not args[2]:
        address, base = (fn.convert("ptrtoint", e.expr(pointer), "i64") for pointer in args[1:3])
        start = fn.binary("sub", address, base)
    mask = e.mask if e.mask is not None and e.mask.type == vector("i1", lanes) else None
    elements = []
    for lane in range(lanes):
        number = index if lanes == 1 else fn.extract(index, lane)
        offset = fn.binary("add", start, fn.binary("mul", number, integer("i64", _number(args[3]))))
        elements.append(Element(number, offset, None if mask is None or lanes == 1 else fn.extract(mask, lane)))
    return index, elements


def _cells(e: Emitter, node: tir.Call, element: Element) -> Iterator[Value]:
    """Yield the cells of shadow memory of an element."""
    fn = e.fn
    size, granule = _number(node.args[3]), _number(node.args[4])
    first = fn.binary("sdiv", element.offset, integer("i64", granule))
    if element.on is not None:
        first = fn.select(element.on, first, integer("i64", 0))
    for number in range(max(size // granule, 1)):
        yield fn.binary("add", first, integer("i64", number))


def _number(arg: tir.Expr) -> int:
    return tir.const_int(arg) or 1


def _is_own_mark(e: Emitter, mark: Value, base: Value, me: Value) -> Value:
    """Return the condition that no other iteration of the loop left this mark."""
    return e.fn.binary("or", e.fn.icmp("slt", mark, base), e.fn.icmp("eq", mark, me))


def _store_mark(e: Emitter, address: Value, old: Value, new: Value, on: Value | None) -> None:
    e.fn.store(new if on is None else e.fn.select(on, new, old), address, 8)


def _stores_same_value(e: Emitter, data: tir.Expr, value: tir.Expr, lane: int, element: Element) -> Value:
    """Return the condition that memory already holds the stored value: several iterations may write the same one."""
    fn, dtype = e.fn, value.dtype
    new = casts.to_memory(e, e.expr(value), dtype)
    if dtype.lanes > 1:
        new = fn.extract(new, lane)
    bits = f"i{dtype.element.bytes * 8}"
    offset = fn.binary("mul", element.number, integer("i64", dtype.element.bytes))
    if element.on is not None:
        offset = fn.select(element.on, offset, integer("i64", 0))
    old = fn.load(bits, fn.gep("i8", e.expr(data), offset), 1)
    return fn.icmp("eq", old, new if new.type == bits else fn.convert("bitcast", new, bits))


# ---------------------------------------------------------------- reports


def _require(e: Emitter, condition: Value, element: Element, code: int) -> None:
    """End the call with an error unless the condition holds or the lane is inactive."""
    if element.on is not None:
        condition = e.fn.binary("or", condition, e.fn.binary("xor", element.on, _TRUE))
    e.report_unless(condition, code, lambda: (element.number, integer("i64", 0)))


def _code(e: Emitter, kind: str, text: tir.Expr) -> int:
    assert isinstance(text, tir.StringImm)
    use_short = len(e.ctx.errors) > _MAX_MESSAGES
    return e.ctx.error_code(kind, f"{e.ctx.emitting[-1]}: {_SHORT_MESSAGES[kind]}" if use_short else text.value)


def _invalid_arguments(node: tir.Call) -> Exception:
    return unsupported(f"`T.{name_of(node)}` of these arguments", node.span, help="`insert-access-checks` makes them")


TABLE: dict[str, Callable[[Emitter, tir.Call], Value]] = {
    "sanitize_index": _sanitize_index, "sanitize_view": _sanitize_view, "sanitize_read": _sanitize_read,
    "sanitize_write": _sanitize_write, "sanitize_shared_read": _sanitize_shared_read,
    "sanitize_shared_write": _sanitize_shared_write,
}  # fmt: skip
