"""Replacements of libm for rare arguments in code without it (for GPUs and bare metal), one lane at a time.

Payne-Hanek reduction of angles of any size: an angle is m * 2**e with an integer m, and whole multiples of 2 * pi drop
out, so m is multiplied with the 192 bits of 2 / pi that determine the position in the circle. A remainder is computed
by long division, 11 bits of the quotient at a time.
"""

from __future__ import annotations

from mlcc.targets.llvm.codegen.ir_text import ModuleText, Value, vector
from mlcc.targets.llvm.codegen.vmath.ops import DOUBLE, Code, Int, Num

# the bits of 2 / pi after the point
_2_PI = """
A2F9836E4E441529 FC2757D1F534DDC0 DB6295993C439041 FE5163ABDEBBC561 B7246E3A424DD2E0 06492EEA09D1921C FE1DEB1CB129A73E
E88235F52EBB4484 E99C7026B45F7E41 3991D639835339F4 9C845F8BBDF9283B 1FF897FFDE05980F EF2F118B5A0A6D1F 6D367ECF27CB09B7
4F463F669E5FEA2D 7527BAC7EBE5F17B 3D0739F78A5292EA 6BFB5FB11F8D5D08 56033046FC7B6BAB
"""

# an angle, positive and from 2**20 on -> the rest after the nearest multiple of pi / 2 and that multiple
_ANGLE = """
define internal { double, i64 } @mlcc.angle(double %x) noinline cold nounwind memory(read) {
entry:
  %bits = bitcast double %x to i64
  %exponent = lshr i64 %bits, 52
  %finite = icmp ult i64 %exponent, 2047
  %fraction = and i64 %bits, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  ; the bits of 2 / pi from exponent - 1077 on matter, after 64 zeros
  %start = sub i64 %exponent, 1013
  %safe = select i1 %finite, i64 %start, i64 0
  %word = lshr i64 %safe, 6
  %shift = and i64 %safe, 63
  %p0 = getelementptr inbounds i64, ptr addrspace(SPACE) @mlcc.two_over_pi, i64 %word
  %p1 = getelementptr inbounds i64, ptr addrspace(SPACE) %p0, i64 1
  %p2 = getelementptr inbounds i64, ptr addrspace(SPACE) %p0, i64 2
  %p3 = getelementptr inbounds i64, ptr addrspace(SPACE) %p0, i64 3
  %w0 = load i64, ptr addrspace(SPACE) %p0, align 8
  %w1 = load i64, ptr addrspace(SPACE) %p1, align 8
  %w2 = load i64, ptr addrspace(SPACE) %p2, align 8
  %w3 = load i64, ptr addrspace(SPACE) %p3, align 8
  %a = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %shift)
  %b = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %shift)
  %c = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %shift)
  ; the low 192 bits of m * abc: two bits of the multiple, 190 of the fraction
  %mw = zext i64 %m to i128
  %bw = zext i64 %b to i128
  %cw = zext i64 %c to i128
  %mc = mul nuw i128 %mw, %cw
  %mb = mul nuw i128 %mw, %bw
  %ma = mul i64 %m, %a
  %mch = lshr i128 %mc, 64
  %low = add nuw i128 %mb, %mch
  %t2 = trunc i128 %mc to i64
  %t1 = trunc i128 %low to i64
  %carry = lshr i128 %low, 64
  %carried = trunc i128 %carry to i64
  %t0 = add i64 %ma, %carried
  %f0 = call i64 @llvm.fshl.i64(i64 %t0, i64 %t1, i64 2)
  %f1 = call i64 @llvm.fshl.i64(i64 %t1, i64 %t2, i64 2)
  ; to the nearest multiple: what is above a half counts down from the next
  %whole = lshr i64 %t0, 62
  %over = lshr i64 %f0, 63
  %near = add i64 %whole, %over
  %sign = ashr i64 %f0, 63
  %g0 = xor i64 %f0, %sign
  %g1 = xor i64 %f1, %sign
  ; the leading 64 bits, as two doubles
  %none = icmp eq i64 %g0, 0
  %h0 = select i1 %none, i64 %g1, i64 %g0
  %h1 = select i1 %none, i64 0, i64 %g1
  %zeros = call i64 @llvm.ctlz.i64(i64 %h0, i1 false)
  %by = and i64 %zeros, 63
  %top = call i64 @llvm.fshl.i64(i64 %h0, i64 %h1, i64 %by)
  %head = and i64 %top, -2048
  %tail = and i64 %top, 2047
  %headf = uitofp i64 %head to double
  %tailf = uitofp i64 %tail to double
  %skipped = select i1 %none, i64 64, i64 0
  %places = add i64 %skipped, %by
  %power = sub i64 959, %places
  %scalebits = shl i64 %power, 52
  %signbit = shl i64 %over, 63
  %signed = or i64 %scalebits, %signbit
  %scale = bitcast i64 %signed to double
  %r = fmul double %headf, %scale
  %s = fmul double %tailf, %scale
  ; times pi / 2
  %high = fmul double %r, 0x3FF921FB54442D18
  %minus = fneg double %high
  %error = call double @llvm.fma.f64(double %r, double 0x3FF921FB54442D18, double %minus)
  %more = call double @llvm.fma.f64(double %r, double 0x3C91A62633145C07, double %error)
  %rest = call double @llvm.fma.f64(double %s, double 0x3FF921FB54442D18, double %more)
  %sum = fadd double %high, %rest
  %angle = select i1 %finite, double %sum, double 0x7FF8000000000000
  %one = insertvalue { double, i64 } poison, double %angle, 0
  %all = insertvalue { double, i64 } %one, i64 %near, 1
  ret { double, i64 } %all
}
"""

# fmod of magnitudes, whatever they are
_REMAINDER = """
define internal double @mlcc.remainder(double %x, double %y) noinline cold nounwind memory(none) {
entry:
  %a = bitcast double %x to i64
  %b = bitcast double %y to i64
  %infinite = icmp uge i64 %a, 9218868437227405312
  %nan = icmp ugt i64 %b, 9218868437227405312
  %zero = icmp eq i64 %b, 0
  %none = or i1 %infinite, %nan
  %undefined = or i1 %none, %zero
  br i1 %undefined, label %invalid, label %compare
invalid:
  ret double 0x7FF8000000000000
compare:
  %less = icmp ult i64 %a, %b
  br i1 %less, label %done, label %divide
done:
  ret double %x
divide:
  %ea = lshr i64 %a, 52
  %eb = lshr i64 %b, 52
  %na = call i64 @llvm.umax.i64(i64 %ea, i64 1)
  %nb = call i64 @llvm.umax.i64(i64 %eb, i64 1)
  %fa = and i64 %a, 4503599627370495
  %fb = and i64 %b, 4503599627370495
  %ha = or i64 %fa, 4503599627370496
  %hb = or i64 %fb, 4503599627370496
  %sa = icmp eq i64 %ea, 0
  %sb = icmp eq i64 %eb, 0
  %ma = select i1 %sa, i64 %fa, i64 %ha
  %mb = select i1 %sb, i64 %fb, i64 %hb
  %first = urem i64 %ma, %mb
  %steps = sub i64 %na, %nb
  br label %head
head:
  %r = phi i64 [ %first, %divide ], [ %next, %body ]
  %left = phi i64 [ %steps, %divide ], [ %fewer, %body ]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %body, label %end
body:
  %by = call i64 @llvm.umin.i64(i64 %left, i64 11)
  %moved = shl i64 %r, %by
  %next = urem i64 %moved, %mb
  %fewer = sub i64 %left, %by
  br label %head
end:
  %count = uitofp i64 %r to double
  %small = fmul double %count, 0x3CB0000000000000
  %scalebits = shl i64 %nb, 52
  %scale = bitcast i64 %scalebits to double
  %made = fmul double %small, %scale
  ret double %made
}
"""


def angle(c: Code, size: Num) -> tuple[Num, Int]:
    """The rest of a large angle that is not negative after the nearest multiple of pi / 2, and that multiple."""
    fn, module = c.fn, c.fn.module
    space = "4" if module.triple.startswith("nvptx") else "0"
    words = ["0", *(str(int(word, 16)) for word in _2_PI.split())]
    table = ", ".join(f"i64 {word}" for word in words)
    definition = f"internal addrspace({space}) constant [{len(words)} x i64] [{table}], align 8"
    module.global_("mlcc.two_over_pi", definition)
    _declare(module, fshl=3)
    module.declare("llvm.ctlz.i64", "i64", ["i64", "i1"])
    module.declare("llvm.fma.f64", "double", ["double"] * 3)
    module.helper("mlcc.angle", _ANGLE.strip().replace("SPACE", space))
    wide = c.other(DOUBLE)
    values = _lanes(c, size.v if c.format.bits == 64 else size.to(wide).v)
    reduced = [fn.call("{ double, i64 }", "@mlcc.angle", [value]) for value in values]
    r = Num(wide, _vector(c, [fn.extract_value("double", pair, 0) for pair in reduced]))
    n = Int(wide, _vector(c, [fn.extract_value("i64", pair, 1) for pair in reduced]))
    return (r, n) if c.format.bits == 64 else (r.to(c), n.to(c))


def remainder(c: Code, x: Num, y: Num) -> Num:
    """fmod of values that are not negative."""
    _declare(c.fn.module, umax=2, umin=2)
    c.fn.module.helper("mlcc.remainder", _REMAINDER.strip())
    wide = c.other(DOUBLE)
    values = [_lanes(c, v.v if c.format.bits == 64 else v.to(wide).v) for v in (x, y)]
    rests = [c.fn.call("double", "@mlcc.remainder", list(pair)) for pair in zip(*values, strict=True)]
    rest = Num(wide, _vector(c, rests))
    return rest if c.format.bits == 64 else rest.to(c)


def _lanes(c: Code, value: Value) -> list[Value]:
    """Return the lanes of a value."""
    return [value] if c.lanes == 1 else [c.fn.extract(value, lane) for lane in range(c.lanes)]


def _vector(c: Code, lanes: list[Value]) -> Value:
    """Return the vector of some lanes."""
    if len(lanes) == 1:
        return lanes[0]
    result = Value(vector(lanes[0].type, len(lanes)), "poison")
    for lane, value in enumerate(lanes):
        result = c.fn.insert(result, value, lane)
    return result


def _declare(module: ModuleText, **names: int) -> None:
    for name, count in names.items():
        module.declare(f"llvm.{name}.i64", "i64", ["i64"] * count)
