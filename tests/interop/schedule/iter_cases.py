"""Index maps as nested tuples, their reading by both sides, and one spelling for what both make of them."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm

from mlcc.arith.iter_map import IterSplit, IterSum
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32

NODES = {
    "+": "Add", "-": "Sub", "*": "Mul", "//": "FloorDiv", "%": "FloorMod", "min": "Min", "max": "Max", "<": "LT",
    "<=": "LE", ">": "GT", ">=": "GE", "==": "EQ", "!=": "NE", "and": "And", "or": "Or", "/": "Div",
}  # fmt: skip
SYMBOLS = {name: symbol for symbol, name in NODES.items()}
MAKE: dict[str, Callable[[Any, Any], Any]] = {
    "+": c.add, "-": c.sub, "*": c.mul, "//": c.floordiv, "%": c.floormod, "min": c.minimum, "max": c.maximum,
    "<": c.less, "<=": c.less_equal, ">": c.greater, ">=": c.greater_equal, "==": c.equal, "and": c.logical_and,
}  # fmt: skip
LEVELS = ("bijective", "surjective", "none")


@dataclass
class Case:
    """Bindings over loops, all as trees; both sides' variables are made on demand, by name."""

    bindings: list[Any]
    loops: dict[str, tuple[Any, Any]]
    predicate: Any = True
    mine_vars: dict[str, tir.Var] = field(default_factory=dict)
    their_vars: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.bindings} {self.loops} {self.predicate}"

    def mine(self, tree: Any) -> Any:
        if isinstance(tree, tuple):
            return MAKE[tree[0]](self.mine(tree[1]), self.mine(tree[2]))
        if isinstance(tree, str):
            return self.mine_vars.setdefault(tree, tir.Var(tree, INT32))
        return c.const(tree)

    def theirs(self, tree: Any) -> Any:
        if isinstance(tree, tuple):
            a, b = self.theirs(tree[1]), self.theirs(tree[2])
            return FOLDED[tree[0]](a, b)
        if isinstance(tree, str):
            if tree not in self.their_vars:
                self.their_vars[tree] = tvm.tirx.Var(tree, "int32")
            return self.their_vars[tree]
        return tvm.tirx.const(tree, "bool" if isinstance(tree, bool) else "int32")

    @property
    def my_iters(self) -> dict[tir.Var, tir.Range]:
        return {self.mine(n): tir.Range(self.mine(a), self.mine(b)) for n, (a, b) in self.loops.items()}

    @property
    def their_iters(self) -> dict[Any, Any]:
        make = tvm.ir.Range.from_min_extent
        return {self.theirs(n): make(self.theirs(a), self.theirs(b)) for n, (a, b) in self.loops.items()}


FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": tvm.tirx.floordiv,
    "%": tvm.tirx.floormod, "min": tvm.tirx.min, "max": tvm.tirx.max, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "==": tvm.tirx.EQ,
    "and": tvm.tirx.all,
}  # fmt: skip


def spelled(value: Any) -> str:
    """An expression, a sum or a digit of either side in one spelling."""
    name = type(value).__name__
    if isinstance(value, IterSum) or name == "IterSumExpr":
        return f"sum[{', '.join(spelled(a) for a in value.args)}] + {spelled(value.base)}"
    if isinstance(value, IterSplit) or name == "IterSplitExpr":
        mark = f"({spelled(value.source.source)} < {spelled(value.source.extent)})"
        return f"{mark} // {spelled(value.lower_factor)} % {spelled(value.extent)} * {spelled(value.scale)}"
    if name == "Var":
        return str(value.name)
    if name == "IntImm":
        return str(int(value.value))
    if name == "Not":
        return f"not {spelled(getattr(value, 'value', None) or value.a)}"
    if name == "Select":
        return f"({', '.join(map(spelled, (value.condition, value.true_value, value.false_value)))})"
    assert name in SYMBOLS, (name, value)
    left, right = (value.lhs, value.rhs) if isinstance(value, tir.Expr) else (value.a, value.b)
    return f"({spelled(left)} {SYMBOLS[name]} {spelled(right)})"


def scheduled(seed: int) -> Case:
    """What splitting, fusing and computing at other places makes of the loops of a block."""
    rng = random.Random(seed)
    symbolic = rng.random() < 0.3
    axes = [f"a{k}" for k in range(rng.randint(1, 3))]
    sizes = [4, 6, 8, 12, 16, 18, 24, 32, 60, 64, 1, 5]
    extents: dict[str, Any] = {
        a: rng.choice(["n", "m"]) if symbolic and rng.random() < 0.6 else rng.choice(sizes) for a in axes
    }
    loops = list(axes)
    values: dict[str, Any] = {}
    conditions: list[Any] = []
    for step in range(rng.randint(0, 4)):
        if rng.random() < 0.55 or len(loops) < 2:
            at = rng.randrange(len(loops))
            var, factor = loops[at], rng.choice([1, 2, 3, 4, 4, 8])
            outer, inner = f"o{step}", f"i{step}"
            extent = extents[var]
            exact = isinstance(extent, int) and extent % factor == 0
            up: Any = -(-extent // factor) if isinstance(extent, int) else ("//", ("+", extent, factor - 1), factor)
            extents |= {outer: up, inner: factor}
            values[var] = ("+", ("*", outer, factor), inner)
            if not exact:
                conditions.append(("<", values[var], extent))
            loops[at : at + 1] = [outer, inner]
        else:
            at = rng.randrange(len(loops) - 1)
            first, second = loops[at : at + 2]
            fused = f"f{step}"
            a, b = extents[first], extents[second]
            extents[fused] = a * b if isinstance(a, int) and isinstance(b, int) else ("*", a, b)
            values[first], values[second] = ("//", fused, b), ("%", fused, b)
            loops[at : at + 2] = [fused]
        if rng.random() < 0.3:
            rng.shuffle(loops)
    bindings: list[Any] = list(axes)
    if rng.random() < 0.15:
        bindings = bindings[:-1] or bindings
    if rng.random() < 0.2:
        k = rng.randrange(len(bindings))
        bindings[k] = (rng.choice(["+", "-", "*", "//", "%"]), bindings[k], rng.choice([1, 2, 3, 4, 8]))
    if rng.random() < 0.1 and len(bindings) > 1:
        bindings[:2] = [("+", ("*", bindings[0], rng.choice([2, 4, 6, 8])), bindings[1])]

    def expand(tree: Any) -> Any:
        if isinstance(tree, tuple):
            return (tree[0], expand(tree[1]), expand(tree[2]))
        return expand(values[tree]) if tree in values else tree

    predicate: Any = True
    for condition in conditions:
        made = (condition[0], expand(condition[1]), expand(condition[2]))
        predicate = made if predicate is True else ("and", predicate, made)
    if rng.random() < 0.1 and loops:
        var = rng.choice(loops)
        made = (rng.choice(["<", ">=", "<=", ">"]), var, rng.choice([1, 2, 3]))
        predicate = made if predicate is True else ("and", predicate, made)
    start = 2 if rng.random() < 0.05 else 0
    return Case([expand(b) for b in bindings], {v: (start, extents[v]) for v in loops}, predicate)


def digits(seed: int) -> Case:
    """Sums of scaled quotients and remainders of loops, most of which are no map."""
    rng = random.Random(seed)
    loops = {f"x{k}": (0, rng.choice([2, 3, 4, 8, 12, 16, 20, 24])) for k in range(rng.randint(1, 3))}

    def digit() -> Any:
        made: Any = rng.choice([*loops])
        if rng.random() < 0.2:
            made = ("+", made, rng.choice([1, 2, 4]))
        if rng.random() < 0.4:
            made = ("//", made, rng.choice([2, 3, 4]))
        if rng.random() < 0.4:
            made = ("%", made, rng.choice([2, 3, 4, 8]))
        return made

    def total() -> Any:
        made = digit()
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            made = ("+", ("*", digit(), rng.choice([2, 3, 4, 8, 12])), made)
        if rng.random() < 0.2:
            made = ("%" if rng.random() < 0.5 else "//", made, rng.choice([2, 4, 6, 8]))
        return made

    predicate: Any = True
    if rng.random() < 0.25:
        predicate = ("<", total(), rng.choice([3, 5, 7, 10]))
    return Case([total() for _ in range(rng.randint(1, 3))], loops, predicate)


def refuted(case: Case, spelled_bindings: list[str], extents: list[str] | None) -> bool:
    """Does running the loops (for one size each) show a spelling, or a claim of how many values there are, wrong?"""
    sizes = {"n": 7, "m": 5}
    try:
        spans = {v: (plain(a, sizes), plain(b, sizes)) for v, (a, b) in case.loops.items()}
        if math.prod(size for _, size in spans.values()) > 50_000:
            return False
        code = [compile(text, "spelled", "eval") for text in spelled_bindings]
        seen = set()
        for values in itertools.product(*(range(a, a + n) for a, n in spans.values())):
            at = sizes | dict(zip(spans, values, strict=True))
            if case.predicate is not True and not plain(case.predicate, at):
                continue
            seen.add(tuple(plain(b, at) for b in case.bindings))
            if [eval(text, dict(at)) for text in code] != [plain(b, at) for b in case.bindings]:
                return True
        return extents is not None and len(seen) != math.prod(eval(e, dict(sizes)) for e in extents)
    except (SyntaxError, ZeroDivisionError):  # min and max have no spelling as operators
        return False


def plain(tree: Any, at: dict[str, int]) -> int:
    """The value of a tree."""
    if isinstance(tree, tuple):
        return PLAIN[tree[0]](plain(tree[1], at), plain(tree[2], at))
    return at[tree] if isinstance(tree, str) else int(tree)


PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "and": operator.and_,
}  # fmt: skip
