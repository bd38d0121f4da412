"""Quotients of many numbers by one, as exact as the division's, at the cost of multiplications.

With y = 1 / b rounded, q = a * y and the remainder r = q * b - a, q - r * y rounds to a / b (Markstein;
Brisebarre, Muller and Raina: Accelerating Correctly Rounded Floating-Point Division when the Divisor Is Known in
Advance, 2004), as long as nothing leaves the range of normal numbers. Where that may be, and for what is no number, the
CPU divides. Zeros need no division: with b > 0 each keeps its sign.
"""

from __future__ import annotations

from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.vmath.ops import Code, Int, Num


def quotient(c: Code, a: Num, divisor: Value) -> Num:
    """a / divisor for a scalar divisor that many calls share."""
    fn, form = c.fn, c.format
    one = Code(fn, 1, form, c.fused)
    b = Num(one, divisor)
    inverse = fn.splat((1.0 / b).v, c.lanes)
    wide, y = Num(c, fn.splat(divisor, c.lanes)), Num(c, inverse)
    q = a * y
    rest = c.intrinsic("fma", q, wide, -a)
    usual = c.intrinsic("fma", -rest, y, q)
    # bits without the sign, doubled: 0 becomes the greatest by subtracting 1, so that a minimum sees what is small
    far = form.bias - form.fraction - 4
    least, most = form.bits_of(2.0**-far), form.bits_of(2.0**far)
    doubled = a.as_bits() << 1
    low = (doubled - 1).joined("umin")
    high = doubled.joined("umax")
    fits = (b >= 2.0**-form.fraction) & (b <= 2.0**form.fraction)
    top = one.choose_int(fits, one.integer(2 * most), one.integer(0))
    small = low.below(2 * least - 1)
    large = ~high.below(Int(high.code, fn.splat(top.v, high.code.lanes)))
    return _or_divided(c, (small | large).v, usual, a, wide)


def _or_divided(c: Code, rare: Value, usual: Num, a: Num, b: Num) -> Num:
    """`usual`, but by division where `rare` holds in some lane; lanes that are off may hold anything."""
    fn = c.fn
    if rare.type != "i1":
        lanes = rare.type[1:].split(" ")[0]
        rare = fn.call("i1", fn.module.declare(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [rare.type]), [rare])
    rare = fn.op("i1", f"freeze {rare}")
    aside, done = fn.label("rare"), fn.label("done")
    before = fn.block
    fn.cond_br(rare, aside, done, fn.module.metadata('!"branch_weights", i32 1, i32 2000'))
    fn.start(aside)
    divided = a / b
    after = fn.block
    fn.start(done)
    return Num(c, fn.phi(usual.v.type, [(usual.v, before), (divided.v, after)]))
