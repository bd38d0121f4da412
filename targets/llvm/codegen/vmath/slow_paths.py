"""Arguments that no formula covers and programs hardly have: libm, lane by lane, in a block beside the common path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value
from mlcc.targets.llvm.codegen.libm import LIBM
from mlcc.targets.llvm.codegen.vmath.ops import Code, Int, Mask, Num

_UNLIKELY = '!"branch_weights", i32 1, i32 2000'


def with_libm_fallback(c: Code, rare: Mask, usual: Num, name: str, *args: Num) -> Num:
    """`usual`, but libm's function of the arguments in lanes where `rare` holds."""
    return Num(c, with_slow_path(c, rare, [usual.v], lambda: [_from_libm(c, name, [a.v for a in args])])[0])


def unless_usual(
    c: Code, keys: Sequence[tuple[Int, int]], usual: Callable[[], list[Num]], general: Callable[[], list[Num]]
) -> list[Num]:
    """What `usual` computes where every key is below its bound in all lanes, as unsigned numbers; else, in a block
    beside the common path, what `general` does, which is right for all arguments and calls nothing.

    Scalars compute `general` alone: LLVM vectorizes the loops around them.
    """
    if c.lanes == 1:
        return general()
    fn, within = c.fn, None
    for key, bound in keys:
        largest = Int(key.code, fn.op(key.v.type, f"freeze {key.v}")).joined("umax")
        test = largest.below(bound)
        within = test if within is None else within & test
    assert within is not None
    common = usual()
    rare, done = fn.label("rare"), fn.label("done")
    before = fn.block
    fn.cond_br(_any(within.code, ~within), rare, done, fn.module.metadata(_UNLIKELY))
    fn.start(rare)
    others = general()
    after = fn.block
    fn.start(done)
    return [Num(c, fn.phi(u.v.type, [(u.v, before), (o.v, after)])) for u, o in zip(common, others, strict=True)]


def with_slow_path(c: Code, rare: Mask, usual: Sequence[Value], make: Callable[[], Sequence[Value]]) -> list[Value]:
    """`usual`, but what `make` computes in lanes where `rare` holds, in a block beside the common path."""
    fn = c.fn
    away, done = fn.label("rare"), fn.label("done")
    before = fn.block
    fn.cond_br(_any(c, rare), away, done, fn.module.metadata(_UNLIKELY))
    fn.start(away)
    merged = [fn.select(rare.v, m, u) for m, u in zip(make(), usual, strict=True)]
    after = fn.block
    fn.start(done)
    return [fn.phi(m.type, [(u, before), (m, after)]) for m, u in zip(merged, usual, strict=True)]


def _any(c: Code, mask: Mask) -> Value:
    if c.lanes == 1:
        return mask.v
    type = mask.v.type
    return c.fn.call("i1", c.fn.module.declare(f"llvm.vector.reduce.or.v{c.lanes}i1", "i1", [type]), [mask.v])


def _from_libm(c: Code, name: str, args: list[Value]) -> Value:
    """Lanes go through a function of their own: it costs no space where it is used, and nothing else is its matter."""
    module, scalar = c.fn.module, c.format.type
    symbol = name if scalar == "double" else f"{name}f"
    callee = module.declare(symbol, scalar, LIBM[symbol][1:], "nounwind willreturn memory(none)")
    if c.lanes == 1:
        return c.fn.call(scalar, callee, args)
    helper, type = module.own(f"mlcc.libm.{symbol}.x{c.lanes}"), args[0].type
    if not module.has_helper(helper):
        params = [(type, hint) for hint in ("x", "y")[: len(args)]]
        attrs = "noinline cold nounwind willreturn memory(none)" + module.helper_attrs
        fn = FunctionText(module, type, helper, params, "internal", (), attrs)
        result = Value(type, "poison")
        for lane in range(c.lanes):
            result = fn.insert(result, fn.call(scalar, callee, [fn.extract(p, lane) for p in fn.params]), lane)
        fn.ret(result)
        module.helper(helper, fn.text())
    return c.fn.call(type, f"@{helper}", args)
