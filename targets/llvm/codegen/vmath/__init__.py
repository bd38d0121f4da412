"""Elementary functions as inline code: of `float` and `double`, in any number of lanes, without a call of libm.

Each function of a type and lane count is one internal function that LLVM always inlines, made on first use. The same
formulas serve every lane count, 1 too, so that a scalar gives the bits that a lane gives. Scalar forms branch only to
call libm: LLVM vectorizes plain loops over them. docs/math.md has their measured errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.machine.cpu import vector_bytes_of
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer, vector
from mlcc.targets.llvm.codegen.vmath.ops import DOUBLE, FLOAT, Code, Format, Int, Num

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

UNARY = (
    "exp", "exp2", "exp10", "sigmoid", "tanh", "sinh", "cosh", "erf", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "atan", "asin", "acos", "sin", "cos", "tan", "asinh", "acosh", "atanh",
)  # fmt: skip
BINARY = ("pow", "hypot", "atan2", "fmod", "nextafter")
ROUNDING = ("floor", "ceil", "trunc", "nearbyint")
C_ONLY = ("expm1", "cbrt", "round", "fdim", "fmin", "fmax")  # functions of C alone, by their names there

_ATTRS = "alwaysinline nounwind"
# a vector of more registers than this is worked on in a loop; long code repeats less
_REPEATED, _LONG_REPEATED = 8, 2
_LONG = frozenset({"pow", "sin", "cos", "tan", "fmod"})
_DIVISIONS = 24  # of a register each, which take as long as getting ready for multiplications instead
# one step of these waits for the one before: registers are worked on in turn, where there are enough of them
_INTERLEAVED = {
    **dict.fromkeys(("exp", "exp2", "exp10", "sigmoid", "tanh", "erf", "log", "log2", "log10", "log1p"), 2), "pow": 4,
}  # fmt: skip


def call(e: Emitter, name: str, args: list[Value], lanes: int) -> Value:
    """A function of `UNARY`, `BINARY` or `ROUNDING` on values of one float type with so many lanes."""
    x = args[0]
    own = name in ROUNDING and e.ctx.has_rounding
    if own or name == "sqrt" and name not in e.ctx.formulas:
        return e.intrinsic(f"llvm.{name}", x)  # the machine's own
    return e.fn.call(x.type, _helper(e, name, _format_of(x), lanes, len(args)), args)


def fma(e: Emitter, args: list[Value], lanes: int) -> Value:
    """x * y + z, rounded once. For `double` on a CPU that cannot it is libm's, lane by lane."""
    form = _format_of(args[0])
    if e.ctx.has_fma or form is DOUBLE:
        return e.intrinsic("llvm.fma", *args)
    return e.fn.call(args[0].type, _helper(e, "fma", form, lanes, 3), args)


def ldexp(e: Emitter, x: Value, exponent: Value, lanes: int) -> Value:
    """x * 2**exponent; the exponent is an integer as wide as x, far from the ends of its range."""
    form = _format_of(x)
    symbol = e.ctx.module.own(f"mlcc.ldexp.{form.type}x{lanes}")
    if not e.ctx.module.has_helper(symbol):
        params = [(x.type, "x"), (exponent.type, "n")]
        fn = FunctionText(e.ctx.module, x.type, symbol, params, "internal", (), _ATTRS + e.ctx.module.helper_attrs)
        from mlcc.targets.llvm.codegen.vmath import rounding

        code = Code(fn, lanes, form, e.ctx.has_fma, scaling=_scaling(e))
        fn.ret(rounding.ldexp(code, Num(code, fn.params[0]), Int(code, fn.params[1])).v)
        e.ctx.module.helper(symbol, fn.text())
    return e.fn.call(x.type, f"@{symbol}", [x, exponent])


def min_profitable_quotients(e: Emitter, x: Value, lanes: int) -> int | None:
    """Return how many quotients by one divisor make `quotient` faster than divisions; None if none do."""
    if not e.ctx.has_fma or e.ctx.is_gpu:
        return None
    return -(-_DIVISIONS * _native_lanes(e, _format_of(x)) // lanes)


def quotient(e: Emitter, x: Value, divisor: Value, lanes: int) -> Value:
    """x / divisor, a scalar that is the same for many x, on a CPU with fused multiply-add."""
    form = _format_of(x)
    symbol = e.ctx.module.own(f"mlcc.quotient.{form.type}x{lanes}")
    if not e.ctx.module.has_helper(symbol):
        params, attrs = [(x.type, "x"), (divisor.type, "d")], _ATTRS + e.ctx.module.helper_attrs
        fn = FunctionText(e.ctx.module, x.type, symbol, params, "internal", (), attrs)
        from mlcc.targets.llvm.codegen.vmath import quotients

        code = Code(fn, lanes, form, True, native=_native_lanes(e, form))
        fn.ret(quotients.quotient(code, Num(code, fn.params[0]), fn.params[1]).v)
        e.ctx.module.helper(symbol, fn.text())
    return e.fn.call(x.type, f"@{symbol}", [x, divisor])


def _format_of(x: Value) -> Format:
    return DOUBLE if "double" in x.type else FLOAT


def _native_lanes(e: Emitter, form: Format) -> int:
    """Return the number of lanes of a vector register."""
    features = e.ctx.features
    if e.ctx.is_gpu:
        return 1
    if e.ctx.architecture == "riscv64":
        return vector_bytes_of("riscv64", features) * 8 // form.bits
    return (512 if "avx512f" in features else 256 if "avx" in features else 128) // form.bits


def _piece(e: Emitter, name: str, form: Format) -> int:
    """Return the number of lanes that a function computes at a time: one register, or some to hide latency."""
    many = "avx512f" in e.ctx.features or not (e.ctx.is_x86 or e.ctx.is_gpu)  # 32 registers
    return _native_lanes(e, form) * (_INTERLEAVED.get(name, 1) if many and (name != "pow" or form is FLOAT) else 1)


def _scaling(e: Emitter) -> tuple[int, ...]:
    """The vectors, in bits, that the CPU multiplies by powers of two."""
    features = e.ctx.features
    return () if "avx512f" not in features else (128, 256, 512) if "avx512vl" in features else (512,)


def _helper(e: Emitter, name: str, form: Format, lanes: int, arity: int) -> str:
    """The name of the function for so many lanes."""
    module = e.ctx.module
    symbol = module.own(f"mlcc.{name}.{form.type}x{lanes}")
    if module.has_helper(symbol):
        return f"@{symbol}"
    type = vector(form.type, lanes)
    params = [(type, hint) for hint in ("x", "y", "z")[:arity]]
    fn = FunctionText(module, type, symbol, params, "internal", (), _ATTRS + module.helper_attrs)
    if lanes > _native_lanes(e, form) and _piece(e, name, form) % lanes:
        fn.ret(_in_pieces(e, fn, name, form, lanes))
    else:
        from mlcc.targets.llvm.codegen.vmath.formulas import FORMULAS

        code = Code(fn, lanes, form, e.ctx.has_fma, e.ctx.has_libm, _scaling(e), _native_lanes(e, form))
        formula = e.ctx.formulas.get(name) if form is FLOAT else None
        fn.ret((formula or FORMULAS[name])(code, *(Num(code, p) for p in fn.params)).v)
    return module.helper(symbol, fn.text())


def _in_pieces(e: Emitter, fn: FunctionText, name: str, form: Format, lanes: int) -> Value:
    """A wide vector register by register, so that what is live at once fits the CPU's; many in a loop over memory,
    so that code stays small."""
    piece = _piece(e, name, form)
    most = max(piece, (_LONG_REPEATED if name in _LONG else _REPEATED) * _native_lanes(e, form))
    looped = lanes // piece * piece if lanes > most and not e.ctx.is_gpu else 0
    whole = _in_loop(e, fn, name, form, lanes, looped) if looped else Value(fn.ret_type, "poison")
    start = looped
    while start < lanes:
        count = piece
        while count > max(lanes - start, _native_lanes(e, form)):
            count //= 2
        count = min(count, lanes - start)
        parts = [_slice(fn, p, form, start, count) for p in fn.params]
        values = fn.call(vector(form.type, count), _helper(e, name, form, count, len(parts)), parts)
        whole = _placed(fn, whole, values, start, count, lanes)
        start += count
    return whole


def _in_loop(e: Emitter, fn: FunctionText, name: str, form: Format, lanes: int, count: int) -> Value:
    """The first `count` lanes, a multiple of a piece's."""
    piece = _piece(e, name, form)
    type, size = vector(form.type, piece), form.bits // 8
    places = [fn.alloca(p.type, align=size * piece) for p in fn.params]
    for value, place in zip(fn.params, places, strict=True):
        fn.store(value, place, size * piece)
    head, body, latch, done = (fn.label(hint) for hint in ("pieces", "piece", "next", "done"))
    before = fn.block
    fn.start(head)
    step = Value("i64", f"%{fn.label('k')}")
    at = fn.phi("i64", [(integer("i64", 0), before), (step, latch)])
    fn.cond_br(fn.icmp("ult", at, integer("i64", count)), body, done)
    fn.start(body)
    parts = [fn.load(type, fn.gep(form.type, place, at), size * piece) for place in places]
    values = fn.call(type, _helper(e, name, form, piece, len(parts)), parts)
    fn.store(values, fn.gep(form.type, places[0], at), size * piece)
    fn.start(latch)
    fn.line(f"{step.ref} = add nuw nsw i64 {at.ref}, {piece}")
    again = fn.module.metadata('!"llvm.loop.unroll.disable"')
    fn.br(head, loop=fn.module.metadata(f"!self, {again}", distinct=True))
    fn.start(done)
    return fn.load(fn.ret_type, places[0], size * piece)


def _slice(fn: FunctionText, x: Value, form: Format, start: int, count: int) -> Value:
    if count == 1:
        return fn.extract(x, start)
    mask = ", ".join(f"i32 {start + i}" for i in range(count))
    return fn.op(vector(form.type, count), f"shufflevector {x}, {x.type} poison, <{count} x i32> <{mask}>")


def _placed(fn: FunctionText, whole: Value, part: Value, start: int, count: int, lanes: int) -> Value:
    if count == 1:
        return fn.insert(whole, part, start)
    mask = ", ".join(f"i32 {i}" if i < count else "i32 poison" for i in range(lanes))
    wide = fn.op(whole.type, f"shufflevector {part}, {part.type} poison, <{lanes} x i32> <{mask}>")
    if start == 0:
        return wide
    mask = ", ".join(f"i32 {i if i < start else lanes + i - start}" for i in range(lanes))
    return fn.op(whole.type, f"shufflevector {whole}, {wide}, <{lanes} x i32> <{mask}>")
