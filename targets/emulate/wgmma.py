"""Products of warpgroups, by what descriptors say: the bits of each are read as the PTX ISA lays them out, so that one
that is encoded wrongly gives wrong numbers here as well ("Matrix Descriptor Format", "Strides", "Swizzling Modes").

Every thread loads its share of the matrices, element by element from the addresses that descriptors give, which checks
see; then the group multiplies. The sums go to a twin of the accumulator, which gets the registers' values at a fence
and gives its own back where a wait is over: sums that are read before that, and registers that are set after a fence,
do not show what was meant. What happens to shared memory before a wait does not show: it is read at once.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.wgmma_layout import THREADS, M, Wgmma, dtype_of
from mlcc.targets.emulate.collectives import GROUPS, Gathered
from mlcc.targets.emulate.tensor_cores import operand, part

_BITS = DType.of("uint64")
_SPACE = 1 << 18  # bytes of shared memory that an address of 14 bits and 4 more reaches


def product_of(node: tir.Call) -> Wgmma:
    """What a call multiplies. Raises CompileError E0749."""
    texts = [a.value if isinstance(a, tir.StringImm) else "" for a in node.args[:4]]
    found = Wgmma.of(*texts)
    if found is None or len(node.args) != 13:
        raise CompileError(error("E0749", f"`T.{node.op.name[4:]}` of {' '.join(texts)} is not known", node.span))
    return found


def _loop(name: str, extent: int, body: Callable[[tir.Var], list[Stmt]]) -> Stmt:
    var = tir.Var(name, INT32)
    return tir.For(var, c.const(0), c.const(extent), ForKind.SERIAL, tuple(body(var)))


def _size(buffer: tir.Buffer) -> int:
    return tir.const_int(buffer.shape[0]) or 0


def _copy(to: tir.Buffer, given: tir.Buffer) -> Stmt:
    return _loop("e", _size(to), lambda e: [c.store(to, c.load(given, e), e)])


# ---------------------------------------------------------------- what a thread does


class Sums:
    """The accumulators of a kernel by data variable, each with its twin and the number of the group (from 0) that has
    the last product on it, -1 for none on its way; `groups` counts those that were closed."""

    def __init__(self) -> None:
        self.groups = c.make_buffer("groups", (1,), INT32, "local")
        self._known: dict[tir.Var, tuple[tir.Buffer, tir.Buffer, tir.Buffer]] = {}
        self.inside: list[tir.Var] = []  # those allocated around where the code under way stands

    def allocated(self, node: tir.AllocBuffer) -> list[Stmt]:
        """An accumulator, and what goes with it."""
        buffer = node.buffer
        twin = c.make_buffer(f"{buffer.name}_later", tuple(buffer.shape), buffer.dtype, "local")
        last = c.make_buffer("last", (1,), INT32, "local")
        self._known[buffer.data] = (buffer, twin, last)
        self.inside.append(buffer.data)
        unset = c.const(float("nan") if buffer.dtype.is_float else 1 << 30, buffer.dtype)
        fill = _loop("e", _size(buffer), lambda e: [c.store(twin, unset, e)])
        return [node, tir.AllocBuffer(twin), tir.AllocBuffer(last), c.store(last, c.const(-1), 0), fill]

    def fence(self) -> list[Stmt]:
        """Products see the registers as they are, but for sums on their way."""
        made: list[Stmt] = []
        for data in self.inside:
            buffer, twin, last = self._known[data]
            copy = _copy(twin, buffer)
            made.append(tir.IfThenElse(c.less(c.load(last, 0), 0), (copy,)))
        return made

    def commit(self) -> list[Stmt]:
        return [c.store(self.groups, c.add(c.load(self.groups, 0), 1), 0)]

    def wait(self, count: Expr) -> list[Stmt]:
        """All but the last `count` groups are done."""
        made: list[Stmt] = []
        for data in self.inside:
            buffer, twin, last = self._known[data]
            copy = _copy(buffer, twin)
            done = c.less(c.load(last, 0), c.sub(c.load(self.groups, 0), count))
            over = c.logical_and(c.greater_equal(c.load(last, 0), 0), done)
            made.append(tir.IfThenElse(over, (copy, c.store(last, c.const(-1), 0))))
        return made

    def product(self, node: tir.Call, thread: Expr) -> list[Stmt]:
        """A product: this thread's share of what it reads from shared memory, and what the group does."""
        found = product_of(node)
        data = node.args[8]
        if not isinstance(data, tir.Var) or data not in self._known:
            raise CompileError(error("E0749", "the accumulator of `wgmma` is no local buffer of its kernel", node.span))
        _, twin, last = self._known[data]
        own = c.floormod(thread, THREADS)
        args = list(node.args)
        made: list[Stmt] = []
        both = node.op == tir.Op("tir.ptx_wgmma_ss")
        if both:
            made += _share(node, 6, 4, M, found.k, dtype_of(found.a), own, args)
        made += _share(node, 7, 5 if both else 6, found.n, found.k, dtype_of(found.b), own, args)
        args[8] = twin.data
        call = tir.Call(node.dtype, node.op, tuple(args), span=node.span)
        return [*made, tir.Evaluate(call, span=node.span), c.store(last, c.load(self.groups, 0), 0)]


def _share(
    node: tir.Call, at: int, turned: int, rows: int, k: int, dtype: DType, thread: Expr, args: list[Expr]
) -> list[Stmt]:
    """What a thread loads of the matrix whose descriptor is argument `at`; that becomes a pointer to it. Of the matrix
    by rows with the elements of a sum after each other, a thread has as many as there are for each, one after another.
    """
    base = _base(node.args[at])
    if base is None:
        message = "the descriptor of a matrix has to stand where it is used"
        raise CompileError(error("E0749", message, node.span, help="`T.ptx_wgmma_descriptor` in the call"))
    each = -(-rows * k // THREADS)
    own = c.make_buffer("share", (each,), dtype, "local")
    given = c.make_buffer("matrix", (_SPACE // dtype.bytes,), dtype, base.pointer.scope if base.pointer else "shared")
    descriptor = tir.Var("descriptor", _BITS)
    start = tir.Var("base", _BITS)
    kind = tir.Call(DType.of("uint8"), tir.Op("tir.type_annotation"), ())
    first = c.call("handle", "tvm_access_ptr", kind, base, 0, 0, 1)
    address = c.cast(_BITS, tir.Call(DType.of("uint32"), tir.Op("tir.ptx_shared_address"), (first,)))

    def load(e: tir.Var) -> list[Stmt]:
        number = c.add(c.mul(thread, each), e)
        place = _address(descriptor, c.floordiv(number, k), c.floormod(number, k), args[turned], dtype)
        inside = c.cast(INT32, _op("bitwise_and", c.sub(c.cast(_BITS, place), start), c.const(_SPACE - 1, _BITS)))
        value = tir.BufferLoad(dtype, given, (c.floordiv(inside, dtype.bytes),), span=node.span)
        return [tir.IfThenElse(c.less(number, rows * k), (c.store(own, value, e),))]

    loop = _loop("e", each, load)
    args[at] = own.data
    return [
        tir.AllocBuffer(own), tir.DeclBuffer(given, base), tir.Bind(descriptor, node.args[at]),
        tir.Bind(start, address), loop,
    ]  # fmt: skip


def _base(descriptor: Expr) -> tir.Var | None:
    """The memory that a descriptor speaks of, where its address is taken."""
    for node in walk(descriptor):
        if isinstance(node, tir.Call) and node.op == tir.Op("tir.ptx_shared_address"):
            return next((n for n in walk(node) if isinstance(n, tir.Var) and n.dtype.is_handle), None)
    return None


def _address(bits: Expr, row: Expr, k: Expr, turned: Expr, dtype: DType) -> Expr:
    """Where element (row, k) lies, by a descriptor: bits 0 to 13, 16 to 29 and 32 to 45 are the start, the leading and
    the stride distance in units of 16 bytes, bits 62 and 63 the mode.

    With the sum's elements side by side, 8 rows of as many bytes as the swizzle is wide (16 for none) are one piece of
    memory, and the stride leads to the next 8; without a swizzle the leading distance leads to the next 16 bytes of a
    row. With rows (of A; columns of B) side by side, 8 elements of a sum of that width are one piece; the stride leads
    to the next 8 and the leading distance to the next rows, or the other way round without a swizzle.
    """
    start, leading, stride = (_field(bits, at) for at in (0, 16, 32))
    mode = c.cast(INT32, _op("shift_right", bits, c.const(62, _BITS)))
    plain = c.equal(mode, 0)
    width = tir.Select(INT32, plain, c.const(16), _op("shift_right", c.const(256), mode))
    size = dtype.bytes
    chunk = 16 // size
    if tir.const_int(turned):
        wide = c.floordiv(width, size)
        next_rows = tir.Select(INT32, plain, stride, leading)
        next_sum = tir.Select(INT32, plain, leading, stride)
        across = c.add(c.mul(c.floormod(row, wide), size), c.mul(c.floordiv(row, wide), next_rows))
        along = c.add(c.mul(c.floormod(k, 8), width), c.mul(c.floordiv(k, 8), next_sum))
    else:
        next_chunk = tir.Select(INT32, plain, leading, c.const(16))
        across = c.add(c.mul(c.floormod(row, 8), width), c.mul(c.floordiv(row, 8), stride))
        along = c.add(c.mul(c.floormod(k, chunk), size), c.mul(c.floordiv(k, chunk), next_chunk))
    place = c.add(start, c.add(across, along))
    exchange = _op("bitwise_and", _op("shift_right", place, c.const(3)), c.sub(width, 16))
    return _op("bitwise_xor", place, exchange)


def _field(bits: Expr, at: int) -> Expr:
    """14 bits, as bytes (int32)."""
    low = _op("bitwise_and", _op("shift_right", bits, c.const(at, _BITS)), c.const(0x3FFF, _BITS))
    return c.mul(c.cast(INT32, low), 16)


def _op(name: str, a: Expr, b: Expr) -> Expr:
    return tir.Call(a.dtype, tir.Op(f"tir.{name}"), (a, b))


# ---------------------------------------------------------------- what the group does


def _multiply(g: Gathered, first: Expr) -> list[Stmt]:
    """The sum of products in float32 (int32), in the order of k, rounded once to the accumulator's type."""
    product = product_of(g.call)
    in_registers = g.call.op == tir.Op("tir.ptx_wgmma_rs")
    a_dtype, b_dtype, dtype = (dtype_of(t) for t in (product.a, product.b, product.accumulator))
    wide = DType.of("int32" if dtype.is_int else "float32")
    n, k = product.n, product.k
    left = c.make_buffer("left", (M * k,), wide, "local")
    right = c.make_buffer("right", (n * k,), wide, "local")
    total = c.make_buffer("total", (1,), wide, "local")
    signs = [c.cast(wide, a) for a in g.call.args[11:13]]

    def fill(to: tir.Buffer, rows: int, at: int, kind: str, source: DType, sign: Expr) -> Stmt:
        each = -(-rows * k // THREADS)

        def element(e: tir.Var) -> list[Stmt]:
            if at == 4:
                thread, number = product.place_a(c.floordiv(e, k), c.floormod(e, k))
                decl, given = part(g, 4, c.add(first, thread), source, product.a_count)
            else:
                number = c.floormod(e, each)
                pointer = g.arg(at, c.add(first, c.floordiv(e, each)))
                given = c.make_buffer("shares", (each,), source, "local")
                decl = tir.DeclBuffer(given, pointer)
            value = c.mul(operand(c.load(given, number), wide, kind), sign)
            return [decl, c.store(to, value, e)]

        return _loop("e", rows * k, element)

    def row(i: tir.Var) -> list[Stmt]:
        return [_loop("j", n, lambda j: element(i, j))]

    def element(i: tir.Var, j: tir.Var) -> list[Stmt]:
        thread, number = product.place_c(i, j)
        decl, sums = part(g, 8, c.add(first, thread), dtype, product.sums)
        start = tir.Call(
            wide, tir.Op("tir.if_then_else"), (g.arg(10, first), c.cast(wide, c.load(sums, number)), c.const(0, wide))
        )

        def step(x: tir.Var) -> list[Stmt]:
            factors = c.load(left, c.add(c.mul(i, k), x)), c.load(right, c.add(c.mul(j, k), x))
            return [c.store(total, c.add(c.load(total, 0), c.mul(*factors)), 0)]

        return [decl, c.store(total, start, 0), _loop("k", k, step),
                c.store(sums, c.cast(dtype, c.load(total, 0)), number)]  # fmt: skip

    body: tuple[Stmt, ...] = (
        tir.AllocBuffer(left), tir.AllocBuffer(right), tir.AllocBuffer(total),
        fill(left, M, 4 if in_registers else 6, product.a, a_dtype, signs[0]),
        fill(right, n, 7, product.b, b_dtype, signs[1]), _loop("i", M, row),
    )  # fmt: skip
    return [tir.IfThenElse(g.is_active(c.add(first, THREADS - 1)), body)]


GROUPS.update({"tir.ptx_wgmma_ss": (THREADS, _multiply), "tir.ptx_wgmma_rs": (THREADS, _multiply)})
