"""Random PrimFuncs that are well-formed and defined: no access out of bounds, no read of what was never written.

`prim_func(seed)` gives one function: inputs, then outputs. Every output element is written.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import EMPTY, Attrs, replace
from mlcc.ir.tir import IterKind
from tests.generate.blocks import unusual
from tests.generate.expressions import DTYPES, Expressions

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16)
Dims = tuple[tir.Expr, ...]


@dataclass(frozen=True)
class Options:
    """What may occur. The default is everything that an interpreter or a CPU can run."""

    symbolic: bool = True
    empty: bool = True  # extents of 0
    vectors: bool = True
    threads: bool = False
    asserts: bool = True
    matched: bool = True  # strides, offsets, views
    raw: bool = True  # nodes that construction would fold, and that TVM's printer does not keep
    dtypes: tuple[str, ...] = DTYPES


@dataclass
class Scope:
    """What may be read at a place: buffers that are written in full, and integer variables with exclusive bounds."""

    buffers: list[tir.Buffer] = field(default_factory=list)
    loops: list[tuple[tir.Var, tir.Expr]] = field(default_factory=list)
    scalars: list[tir.Var] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope([*self.buffers], [*self.loops], [*self.scalars])


def prim_func(seed: int, options: Options | None = None) -> tir.PrimFunc:
    """The function of that number."""
    return Generator(random.Random(seed), options or Options()).function()


class Generator:
    def __init__(self, rng: random.Random, options: Options) -> None:
        self.rng = rng
        self.options = options
        self.index = DType.of(rng.choice(["int32", "int32", "int64"]))
        self.symbols: list[tir.Var] = []
        self.accessed: dict[tir.Buffer, list[Dims]] = {}
        self.count = 0

    # ------------------------------------------------------------ the whole

    def function(self) -> tir.PrimFunc:
        rng = self.rng
        if self.options.symbolic and rng.random() < 0.3:
            self.symbols = [tir.Var(n, self.index) for n in ("n", "m")[: rng.randint(1, 2)]]
        shapes = [self.shape() for _ in range(rng.randint(1, 3))]
        inputs = [self.buffer(f"I{i}", rng.choice(shapes), parameter=True) for i in range(rng.randint(1, 3))]
        outputs = [self.buffer(f"O{i}", rng.choice(shapes), parameter=True) for i in range(rng.randint(1, 2))]
        for symbol in self.symbols:  # every symbol is some parameter's dimension as it stands
            if not any(symbol in b.shape for b in inputs + outputs):
                inputs.append(self.buffer(f"I{len(inputs)}", (symbol,), parameter=True))
        extra = (
            [tir.Var("a", DType.of(rng.choice(["int32", "float32", "bool", "int64"])))] if rng.random() < 0.3 else []
        )
        scope = Scope([*inputs], [], [*extra])
        blocks = rng.random() < 0.6
        body: list[tir.Stmt] = []
        allocated: list[tir.Buffer] = []
        for i in range(rng.randint(0, 2)):
            made = self.buffer(f"L{i}", rng.choice(shapes))
            if not blocks:
                body.append(tir.AllocBuffer(made, EMPTY))
            allocated.append(made)
            body += self.write_all(made, scope, blocks)
            scope.buffers.append(made)
        for target in outputs:
            body += self.write_all(target, scope, blocks)
            scope.buffers.append(target)
        if blocks:
            root = tir.Block("root", (), (), (), tuple(body), alloc_buffers=tuple(allocated))
            body = [tir.BlockRealize((), tir.TRUE, root)]
        handle = DType.of("handle")
        buffers = inputs + outputs
        params = [tir.Var(b.name, handle) for b in buffers] + extra
        attrs = {"global_symbol": "main", "tir.noalias": True}
        if rng.random() < 0.3:
            attrs["note"] = rng.choice([1, "text", 1.5, [1, 2], {"k": [True, "v"]}])  # type: ignore[assignment]
        return tir.PrimFunc(tuple(params), (*buffers, *[None] * len(extra)), Attrs(attrs), tuple(body))

    def shape(self) -> Dims:
        rng = self.rng
        dims: list[tir.Expr] = []
        for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3])):
            if self.symbols and rng.random() < 0.5:
                dims.append(rng.choice(self.symbols))
            elif self.options.empty and rng.random() < 0.03:
                dims.append(c.const(0, self.index))
            else:
                dims.append(c.const(rng.choice(EXTENTS), self.index))
        return tuple(dims)

    def buffer(self, name: str, shape: Dims, parameter: bool = False) -> tir.Buffer:
        rng = self.rng
        dtype = rng.choice(self.options.dtypes) if rng.random() < 0.5 else "float32"
        constant = all(isinstance(n, tir.IntImm) for n in shape)
        if parameter and self.options.matched and shape and constant and rng.random() < 0.15:
            strides, step = [], 1
            for n in reversed(shape):
                strides.append(step)
                step *= max(c.tir.const_int(n) or 0, 1) + rng.randint(0, 2)
            made = tuple(c.const(s, self.index) for s in reversed(strides))
            return c.make_buffer(name, shape, dtype, strides=made)
        scope = "global" if parameter or rng.random() < 0.8 else "local"
        return c.make_buffer(name, shape, dtype, scope)

    # ------------------------------------------------------------ writing a buffer in full

    def write_all(self, target: tir.Buffer, scope: Scope, blocks: bool) -> list[tir.Stmt]:
        rng = self.rng
        if blocks:
            roll = rng.random()
            if roll < 0.3:
                return [self.reduction(target, scope)]
            return [unusual(self, target, scope) if roll < 0.5 else self.elementwise(target, scope)]
        made: list[tir.Stmt] = []
        if rng.random() < 0.3:
            made += self.prologue(scope)
        if self.options.vectors and target.shape and not target.strides and rng.random() < 0.35:
            vector = self.vector_loop(target, scope)
            if vector is not None:
                return [*made, vector]
        return [*made, self.loop_nest(target, scope)]

    def axes(self, names: str, extents: Dims) -> tuple[list[tir.Var], list[tir.Var], list[tir.For]]:
        """Loop variables and block variables over the extents, and the loops with empty bodies, outermost first."""
        rng = self.rng
        loops = [tir.Var(f"{n}", e.dtype) for n, e in zip(names, extents, strict=False)]
        axes = [tir.Var(f"v{n}", e.dtype) for n, e in zip(names, extents, strict=False)]
        made = []
        for var, extent in zip(loops, extents, strict=True):
            kind = tir.ForKind.SERIAL
            notes = EMPTY
            if rng.random() < 0.15:
                kind = rng.choice([tir.ForKind.PARALLEL, tir.ForKind.UNROLLED, tir.ForKind.SERIAL])
                notes = Attrs({"pragma": rng.choice([1, "x", True])}) if rng.random() < 0.5 else EMPTY
            thread = None
            if self.options.threads and rng.random() < 0.1 and isinstance(extent, tir.IntImm):
                kind, thread = tir.ForKind.THREAD_BINDING, rng.choice(["threadIdx.x", "blockIdx.x", "vthread.x"])
            made.append(tir.For(var, c.const(0, extent.dtype), extent, kind, (), thread, notes))
        return loops, axes, made

    def nest(self, loops: list[tir.For], body: tuple[tir.Stmt, ...]) -> tir.Stmt:
        for loop in reversed(loops):
            body = (
                tir.For(loop.var, loop.min, loop.extent, loop.kind, body, loop.thread, loop.annotations, loop.step),
            )
        return body[0]

    def block(
        self, name: str, axes: list[tir.IterVar], values: list[tir.Expr], body: tuple[tir.Stmt, ...],
        target: tir.Buffer, init: tuple[tir.Stmt, ...] | None = None, predicate: tir.Expr = tir.TRUE,
        outer: set[tir.Var] | None = None,
    ) -> tir.BlockRealize:  # fmt: skip
        """A block around what was generated since `accessed` was emptied; `outer`: variables of blocks around it."""
        own = {a.var for a in axes} | set(self.symbols) | (outer or set())
        reads = tuple(self.region(b, places, own) for b, places in self.accessed.items() if b is not target)
        written = self.region(target, self.accessed.get(target, []), own)
        self.accessed = {}
        self.count += 1
        notes = Attrs({"meta": self.rng.choice([1, [1, 2], "s"])}) if self.rng.random() < 0.1 else EMPTY
        made = tir.Block(f"{name}{self.count}", tuple(axes), reads, (written,), body, init, annotations=notes)
        return tir.BlockRealize(tuple(values), predicate, made)

    def region(self, buffer: tir.Buffer, places: list[Dims], own: set[tir.Var]) -> tir.BufferRegion:
        """One element if all accesses are to one that the axes name; else the dimension in full."""
        made = []
        for i, extent in enumerate(buffer.shape):
            first = places[0][i] if places else extent
            plain = isinstance(first, (tir.Var, tir.IntImm)) and (not isinstance(first, tir.Var) or first in own)
            same = all(p[i] is first or _same_const(p[i], first) for p in places)
            if plain and same:
                made.append(tir.Range(first, c.const(1, extent.dtype)))
            else:
                made.append(tir.Range(c.const(0, extent.dtype), extent))
        return tir.BufferRegion(buffer, tuple(made))

    def elementwise(self, target: tir.Buffer, scope: Scope) -> tir.Stmt:
        rng = self.rng
        loops, axes, nest = self.axes("ijkl", target.shape)
        inner = scope.inner()
        inner.loops = list(zip(axes, target.shape, strict=True))
        self.accessed = {target: [tuple(axes)]}
        value = self.value(target.dtype, inner)
        order = [*range(len(axes))]
        if rng.random() < 0.3:
            rng.shuffle(order)
        iter_vars = [_axis(axes[i], target.shape[i], IterKind.SPATIAL) for i in order]
        store = c.store(target, value, *axes)
        values: list[tir.Expr] = [loops[i] for i in order]
        predicate: tir.Expr = tir.TRUE
        split = [i for i, n in enumerate(target.shape) if isinstance(n, tir.IntImm) and n.value > 2]
        if split and rng.random() < 0.25:
            at = rng.choice(split)
            nest, values[order.index(at)], predicate = self.split(nest, at, target.shape[at])
        realize = self.block("E", iter_vars, values, (store,), target, predicate=predicate)
        return self.nest(nest, (realize,))

    def split(self, nest: list[tir.For], at: int, extent: tir.Expr) -> tuple[list[tir.For], tir.Expr, tir.Expr]:
        """Loop `at` as two, with a predicate where the factor does not divide the extent."""
        total = c.tir.const_int(extent) or 0
        factor = self.rng.randint(2, total)
        loop = nest[at]
        outer = tir.Var(loop.var.name + "_0", extent.dtype)
        inner = tir.Var(loop.var.name + "_1", extent.dtype)
        zero = c.const(0, extent.dtype)
        pair = [
            tir.For(outer, zero, c.const(-(-total // factor), extent.dtype), tir.ForKind.SERIAL, ()),
            tir.For(inner, zero, c.const(factor, extent.dtype), loop.kind, (), loop.thread, loop.annotations),
        ]
        value = c.add(c.mul(outer, c.const(factor, extent.dtype)), inner)
        fits = tir.TRUE if total % factor == 0 else c.less(value, extent)
        return [*nest[:at], *pair, *nest[at + 1 :]], value, fits

    def reduction(self, target: tir.Buffer, scope: Scope) -> tir.Stmt:
        """target[spatial] = fold of an expression over one or two reduce axes."""
        rng = self.rng
        extents = tuple(c.const(rng.choice([1, 2, 3, 5, 8]), self.index) for _ in range(rng.randint(1, 2)))
        loops, axes, nest = self.axes("ijklmn", target.shape + extents)
        spatial = len(target.shape)
        nest[spatial:] = [_in_order(loop) for loop in nest[spatial:]]
        inner = scope.inner()
        inner.loops = list(zip(axes, target.shape + extents, strict=True))
        place = tuple(axes[:spatial])
        self.accessed = {target: [place]}
        dtype = target.dtype
        value = self.value(dtype, inner)
        if dtype.is_bool:
            fold, start = c.logical_or, c.const(False, dtype)
        else:
            fold, start = rng.choice(
                [(c.add, c.const(0, dtype)), (c.maximum, c.min_value(dtype)), (c.mul, c.const(1, dtype))]
            )
        update = c.store(target, fold(c.load(target, *place), value), *place)
        kinds = [IterKind.SPATIAL] * spatial + [IterKind.REDUCE] * len(extents)
        iter_vars = [_axis(v, n, k) for v, n, k in zip(axes, target.shape + extents, kinds, strict=True)]
        init = (c.store(target, start, *place),)
        realize = self.block("R", iter_vars, list(loops), (update,), target, init)
        return self.nest(nest, (realize,))

    # ------------------------------------------------------------ plain loops

    def loop_nest(self, target: tir.Buffer, scope: Scope) -> tir.Stmt:
        rng = self.rng
        loops, _, nest = self.axes("ijkl", target.shape)
        if nest and rng.random() < 0.2 and all(isinstance(n, tir.IntImm) for n in target.shape):
            nest[0] = _shifted(nest[0], rng.randint(1, 4))
            places: list[tir.Expr] = [c.sub(loops[0], nest[0].min), *loops[1:]]
        else:
            places = list(loops)
        inner = scope.inner()
        inner.loops += [(v, n) for v, n in list(zip(loops, target.shape, strict=True))[1:]]
        body: list[tir.Stmt] = []
        if rng.random() < 0.3:
            var = tir.Var("t", DType.of(rng.choice(["int32", "float32", "bool"])))
            body.append(tir.Bind(var, self.value(var.dtype, inner)))
            inner.scalars.append(var)
        store = c.store(target, self.value(target.dtype, inner), *places)
        kind = rng.randrange(5)
        if kind == 0:
            other = c.store(target, self.value(target.dtype, inner), *places)
            condition = self.condition(inner)
            body.append(tir.IfThenElse(condition, (store,), (other,)))
        elif kind == 1:
            body.append(store)
            again = c.store(target, self.value(target.dtype, inner), *places)
            body.append(tir.IfThenElse(self.condition(inner), (again,), None))
        elif kind == 2:
            body += [store, *self.counted(target, tuple(places), inner)]
        else:
            body.append(store)
        if self.options.asserts and rng.random() < 0.1:
            message = rng.choice([("fine",), ("a ", "b")])
            body.append(tir.AssertStmt(c.less(c.const(0), c.add(c.const(1), self.counter())), "ValueError", message))
        made = self.nest(nest, tuple(body))
        if not nest and len(body) > 1:  # nothing to hold them together
            return tir.IfThenElse(tir.TRUE, tuple(body), None)
        return made

    def counter(self) -> tir.Expr:
        """A value that is 0 and does not look like it."""
        symbol = self.symbols[0] if self.symbols else c.const(3, self.index)
        return c.cast("int32", c.sub(symbol, symbol)) if self.symbols else c.const(0)

    def condition(self, scope: Scope) -> tir.Expr:
        return self.value(DType.of("bool"), scope)

    def counted(self, target: tir.Buffer, place: Dims, scope: Scope) -> list[tir.Stmt]:
        """A loop that ends by its own condition."""
        counter = c.make_buffer("count", (1,), "int32", "local")
        zero = c.const(0)
        step = c.store(counter, c.add(c.load(counter, zero), 1), zero)
        body: list[tir.Stmt] = [step, c.store(target, self.value(target.dtype, scope), *place)]
        if self.rng.random() < 0.4:
            body.insert(1, tir.IfThenElse(c.greater(c.load(counter, zero), 2), (tir.Break(),), None))
        loop = tir.While(c.less(c.load(counter, zero), self.rng.randint(1, 4)), tuple(body))
        return [tir.AllocBuffer(counter, EMPTY), c.store(counter, 0, zero), loop]

    def prologue(self, scope: Scope) -> list[tir.Stmt]:
        """Local names, views and annotations before the loops; they stay in scope."""
        rng = self.rng
        made: list[tir.Stmt] = []
        var = tir.Var("s", DType.of(rng.choice(["int32", "int64", "float32"])))
        made.append(tir.Bind(var, self.value(var.dtype, scope)))
        scope.scalars.append(var)
        flat = [b for b in scope.buffers if _count(b) and not b.strides]
        if self.options.matched and flat and rng.random() < 0.5:
            source = rng.choice(flat)
            view = tir.Buffer("V", source.data, source.dtype, (c.const(_count(source), self.index),), (), c.const(0))
            made.append(tir.DeclBuffer(view, source.data))
            scope.buffers.append(view)
        return made

    def vector_loop(self, target: tir.Buffer, scope: Scope) -> tir.Stmt | None:
        """The last dimension in vectors, if a width divides it."""
        rng = self.rng
        last = c.tir.const_int(target.shape[-1])
        widths = [w for w in (2, 4, 8) if last and last % w == 0]
        if not widths:
            return None
        lanes = rng.choice(widths)
        extents = (*target.shape[:-1], c.const(last // lanes, self.index))  # type: ignore[operator]
        loops, _, nest = self.axes("ijkl", extents)
        base = c.mul(loops[-1], c.const(lanes, self.index))
        ramp = tir.Ramp(base.dtype.with_lanes(lanes), base, c.const(1, self.index), lanes)
        inner = scope.inner()

        def leaf(dtype: DType) -> tir.Expr | None:
            fits = [b for b in scope.buffers if b.dtype.element is dtype.element and b.dtype.lanes == 1]
            same = [b for b in fits if len(b.shape) == len(target.shape) and _same_shape(b.shape, target.shape)]
            if dtype.lanes == lanes and same:
                return c.load(rng.choice(same), *loops[:-1], ramp)
            return self.leaf(dtype, inner) if dtype.lanes == 1 else None

        value = Expressions(rng, leaf, self.options.raw).make(target.dtype.with_lanes(lanes), rng.randint(1, 3))
        return self.nest(nest, (c.store(target, value, *loops[:-1], ramp),))

    # ------------------------------------------------------------ reading

    def value(self, dtype: DType, scope: Scope) -> tir.Expr:
        return self.expressions(scope).make(dtype, self.rng.randint(1, 4))

    def expressions(self, scope: Scope) -> Expressions:
        return Expressions(self.rng, lambda d: self.leaf(d, scope), self.options.raw)

    def leaf(self, dtype: DType, scope: Scope) -> tir.Expr | None:
        """A load with indices in bounds, or a variable."""
        rng = self.rng
        scalars: list[tir.Expr] = [v for v in scope.scalars if v.dtype is dtype]
        scalars += [v for v, _ in scope.loops if v.dtype is dtype]
        loads = [b for b in scope.buffers if b.dtype is dtype]
        rng.shuffle(loads)
        if scalars and (not loads or rng.random() < 0.3):
            return rng.choice(scalars)
        for buffer in loads[:3]:
            places = [self.place(n, scope) for n in buffer.shape]
            if all(p is not None for p in places):
                made = tuple(p for p in places if p is not None)
                self.accessed.setdefault(buffer, []).append(made)
                return c.load(buffer, *made)
        return None

    def place(self, extent: tir.Expr, scope: Scope) -> tir.Expr | None:
        """An index below `extent`, which may be symbolic: then only a loop over the same extent will do."""
        rng = self.rng
        same = [v for v, n in scope.loops if n is extent or _same_const(n, extent)]
        if same and rng.random() < 0.7:
            return rng.choice(same)
        size = c.tir.const_int(extent)
        if size is None or size == 0:
            return rng.choice(same) if same else None
        others = [v for v, _ in scope.loops if v.dtype is extent.dtype]
        if others and rng.random() < 0.5:
            shifted = c.add(c.mul(rng.choice(others), c.const(rng.randint(1, 3), extent.dtype)), rng.randint(0, 2))
            return c.floormod(shifted, extent)
        return c.const(rng.randrange(size), extent.dtype)


def _axis(var: tir.Var, extent: tir.Expr, kind: IterKind) -> tir.IterVar:
    return tir.IterVar(var, tir.Range(c.const(0, extent.dtype), extent), kind)


def _in_order(loop: tir.For) -> tir.For:
    """A loop that may carry a reduction."""
    parallel = loop.kind in (tir.ForKind.PARALLEL, tir.ForKind.THREAD_BINDING)
    return replace(loop, kind=tir.ForKind.SERIAL, thread=None) if parallel else loop


def _shifted(loop: tir.For, by: int) -> tir.For:
    start = c.const(by, loop.extent.dtype)
    return tir.For(loop.var, start, loop.extent, loop.kind, (), loop.thread, loop.annotations)


def _same_const(a: tir.Expr, b: tir.Expr) -> bool:
    return isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm) and a.value == b.value and a.dtype is b.dtype


def _same_shape(a: Dims, b: Dims) -> bool:
    return all(x is y or _same_const(x, y) for x, y in zip(a, b, strict=True))


def _count(buffer: tir.Buffer) -> int:
    """The number of elements where it is a constant above 0, else 0."""
    made = 1
    for n in buffer.shape:
        made *= c.tir.const_int(n) or 0
    return made
