"""Comparison of a block with the description of a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.tir import Expr, Stmt

_BINARY = (
    tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.EQ, tir.NE, tir.LT,
    tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
)  # fmt: skip


class Mismatch(Exception):
    """A difference: the reason `why`, the text of both places and, if a fix is known, `help`."""

    def __init__(self, why: str, here: Any, described: Any, help: str | None = None) -> None:
        super().__init__(why)
        self.why, self.help = why, help
        self.here, self.described = excerpt(here), excerpt(described)


def excerpt(node: Any) -> str:
    """The beginning of a node's text, on one line."""
    if isinstance(node, tuple):
        return ", ".join(excerpt(n) for n in node) or "nothing"
    if isinstance(node, tir.BufferRegion):
        spans = (f"{r.min}" if tir.const_int(r.extent) == 1 else f"{r.min} .. +{r.extent}" for r in node.region)
        return f"{node.buffer.name}[{', '.join(spans)}]"
    lines = [line.strip() for line in str(node).splitlines() if line.strip() and not line.lstrip().startswith("#")]
    text = " ".join(lines[:3]) + (" ..." if len(lines) > 3 else "")
    return text if len(text) <= 120 else text[:117] + "..."


class DescriptionMatcher:
    """Match a block with a description, outermost blocks first. Variables and buffers are matched where they are bound.

    The outermost blocks differ in where they are: their axes are not compared, and the regions of the block may begin
    anywhere; `base` has where. Afterwards `buffers` maps each buffer of the description to the one that it stands for.
    """

    def __init__(self) -> None:
        self.buffers: dict[tir.Buffer, tir.Buffer] = {}
        self.base: dict[tir.Buffer, list[Expr]] = {}
        self._outermost = True
        self._pairs: dict[Any, Any] = {}
        self._paired_analyzer = Analyzer()  # variables of the block are those of the description
        self._own_analyzer = Analyzer()  # the block's variables by their ranges

    def match(self, here: tir.BlockRealize, described: tir.BlockRealize) -> None:
        """Match the block. Raises Mismatch."""
        if not structural_equal(here.predicate, described.predicate):
            raise Mismatch("it runs only under a condition", here.predicate, described.predicate)
        self._bind_axes(here.block)
        self._blocks(here.block, described.block)

    # ------------------------------------------------------------ statements

    def _body(self, here: tuple[Stmt, ...], described: tuple[Stmt, ...]) -> None:
        if len(here) != len(described):
            raise Mismatch(f"{len(here)} statements instead of {len(described)}", here, described)
        for a, b in zip(here, described, strict=True):
            self._stmt(a, b)

    def _stmt(self, here: Stmt, described: Stmt) -> None:
        match here, described:
            case tir.For(), tir.For():
                self._loops(here, described)
            case tir.BufferStore(), tir.BufferStore():
                self._access(here, described)
                self._expr(here.value, described.value)
            case tir.BlockRealize(), tir.BlockRealize():
                self._count(here.values, described.values, "values of axes", (here.block, described.block))
                for a, b in zip(here.values, described.values, strict=True):
                    self._expr(a, b)
                self._expr(here.predicate, described.predicate)
                self._bind_axes(here.block)
                self._inner(here.block, described.block)
            case tir.Evaluate(), tir.Evaluate():
                self._expr(here.value, described.value)
            case tir.IfThenElse(), tir.IfThenElse():
                self._expr(here.condition, described.condition)
                self._body(here.then_body, described.then_body)
                self._body(here.else_body or (), described.else_body or ())
            case _:
                raise Mismatch("another kind of statement", here, described)

    def _loops(self, here: tir.For, described: tir.For) -> None:
        self._define(here.var, described.var)
        for a, b in ((here.min, described.min), (here.extent, described.extent)):
            try:
                self._expr(a, b)
            except Mismatch:
                name = here.var.name
                wanted = tir.const_int(described.extent)
                help = None if wanted is None else f"split the loop so that `{name}` has extent {wanted}"
                raise Mismatch(f"the loop `{name}` has another range", _range(here), _range(described), help) from None
        if here.kind is not described.kind or here.thread != described.thread:
            raise Mismatch(f"the loop `{here.var.name}` is of another kind", here.kind.value, described.kind.value)
        if not structural_equal(here.annotations, described.annotations):
            raise Mismatch(f"the loop `{here.var.name}` has other annotations", here.annotations, described.annotations)
        if not structural_equal(here.step or c.const(1), described.step or c.const(1)):
            raise Mismatch(f"the loop `{here.var.name}` has another step", here, described)
        self._body(here.body, described.body)

    def _bind_axes(self, block: tir.Block) -> None:
        for axis in block.iter_vars:
            self._own_analyzer.bind(axis.var, axis.dom)

    def _inner(self, here: tir.Block, described: tir.Block) -> None:
        self._count(here.iter_vars, described.iter_vars, "axes", (here, described))
        for a, b in zip(here.iter_vars, described.iter_vars, strict=True):
            self._define(a.var, b.var)
            if a.kind is not b.kind:
                raise Mismatch(
                    f"the axis `{a.var.name}` of block `{here.name}` is of another kind", a.kind.value, b.kind.value
                )
        self._count(here.alloc_buffers, described.alloc_buffers, "allocated buffers", (here, described))
        for mine, theirs in zip(here.alloc_buffers, described.alloc_buffers, strict=True):
            self._buffer(mine, theirs)
        if (here.init is None) != (described.init is None):
            has, lacks = ("it", "its description") if here.init is not None else ("its description", "it")
            raise Mismatch(f"block `{here.name}`: {has} has an init and {lacks} has none", here, described)
        self._blocks(here, described)
        if here.init is not None:
            self._body(here.init, described.init or ())

    def _blocks(self, here: tir.Block, described: tir.Block) -> None:
        for what, mine, theirs in (
            ("writes", here.writes, described.writes), ("reads", here.reads, described.reads)
        ):  # fmt: skip
            if len(mine) != len(theirs):
                help = None
                if self._outermost and here.init is not None and what == "reads":
                    help = f'separate the start value first: sch.decompose_reduction("{here.name}", loop)'
                why = f"block `{here.name}` {what} {len(mine)} regions instead of {len(theirs)}"
                raise Mismatch(why, mine, theirs, help)
            for a, b in zip(mine, theirs, strict=True):
                self._region(a, b, here)
        self._outermost = False
        self._body(here.body, described.body)

    # ------------------------------------------------------------ buffers

    def _buffer(self, here: tir.Buffer, described: tir.Buffer) -> None:
        if here is described:
            return
        known = self.buffers.get(described)
        if known is not None:
            if known is not here:
                raise Mismatch(f"`{here.name}` is in the place of `{known.name}`", here.name, described.name)
            return
        if here.data in self._pairs:
            other = next(d.name for d, mine in self.buffers.items() if mine.data is here.data)
            raise Mismatch(f"`{here.name}` would be two buffers of the description", here.name, (other, described.name))
        if here.dtype is not described.dtype:
            raise Mismatch(f"`{here.name}` has another dtype", here.dtype, described.dtype)
        if here.scope != described.scope:
            help = f'bring it there with cache_read or cache_write, or sch.set_scope(block, 0, "{described.scope}")'
            raise Mismatch(f"`{here.name}` is in another storage scope", here.scope, described.scope, help)
        self._pairs[here.data] = described.data
        self.buffers[described] = here

    def _region(self, here: tir.BufferRegion, described: tir.BufferRegion, block: tir.Block) -> None:
        self._buffer(here.buffer, described.buffer)
        lead = len(here.region) - len(described.region)
        where = f"the region of `{here.buffer.name}` in block `{block.name}`"
        if lead < 0:
            raise Mismatch(f"{where} has fewer dimensions", here, described)
        for span in here.region[:lead]:
            if tir.const_int(span.extent) != 1:
                raise Mismatch(f"{where} is more than one element in a leading dimension", here, described)
        for mine, theirs in zip(here.region[lead:], described.region, strict=True):
            if not self._paired_analyzer.prove_equal(mine.extent, theirs.extent):
                raise Mismatch(f"{where} has another extent", here, described)
        if self._outermost and here.buffer not in self.base:
            self.base[here.buffer] = [span.min for span in here.region]
            return
        base = self.base.get(here.buffer) or [c.const(0, span.min.dtype) for span in here.region]
        for at, span in enumerate(here.region):
            if at < lead:
                same = self._own_analyzer.prove_equal(base[at], span.min)
            else:
                inside = self._own_analyzer.simplify(c.sub(span.min, base[at]))
                same = self._paired_analyzer.prove_equal(inside, described.region[at - lead].min)
            if not same:
                raise Mismatch(f"{where} begins elsewhere", here, described)

    def _access(self, here: tir.BufferStore | tir.BufferLoad, described: tir.BufferStore | tir.BufferLoad) -> None:
        self._buffer(here.buffer, described.buffer)
        lead = len(here.indices) - len(described.indices)
        base = self.base.get(here.buffer) or [c.const(0, i.dtype.element) for i in here.indices]
        text = f"an index of `{here.buffer.name}` differs"
        if lead < 0 or len(base) != len(here.indices):
            raise Mismatch(text, here.indices, described.indices)
        for mine, start, theirs in zip(here.indices[lead:], base[lead:], described.indices, strict=True):
            if not self._paired_analyzer.prove_equal(c.sub(mine, start), theirs):
                raise Mismatch(text, here.indices, described.indices)

    # ------------------------------------------------------------ expressions

    def _define(self, here: tir.Var, described: tir.Var) -> None:
        known = self._pairs.get(here)
        if known is None:
            self._pairs[here] = described
            self._paired_analyzer.bind(here, c.cast(here.dtype, described))
        elif known is not described:
            raise Mismatch(f"`{here.name}` is bound twice", here, described)

    def _expr(self, here: Expr, described: Expr) -> None:
        """Equal up to the widths of integers, which may differ between a program and an intrinsic."""
        if here is described:
            return
        if type(here) is not type(described) or here.dtype.kind != described.dtype.kind:
            raise Mismatch("another expression", here, described)
        match here:
            case tir.BufferLoad():
                self._access(here, described)  # type: ignore[arg-type]
                return
            case tir.Var():
                same = self._pairs.get(here) is described
            case tir.IntImm() | tir.FloatImm() | tir.StringImm():
                same = here.value == described.value  # type: ignore[attr-defined]
            case tir.Call():
                same = here.op == described.op  # type: ignore[attr-defined]
            case _:
                same = isinstance(here, (*_BINARY, tir.Cast, tir.Not, tir.Select))
        if not same:
            raise Mismatch("another expression", here, described)
        mine, theirs = operands(here), operands(described)
        self._count(mine, theirs, "operands", (here, described))
        for a, b in zip(mine, theirs, strict=True):
            self._expr(a, b)

    def _count(self, here: Sequence[Any], described: Sequence[Any], what: str, at: tuple[Any, Any]) -> None:
        if len(here) != len(described):
            raise Mismatch(f"{len(here)} {what} instead of {len(described)}", *at)


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below an expression."""
    match expr:
        case tir.BinaryOp():
            return expr.lhs, expr.rhs
        case tir.Cast() | tir.Not():
            return (expr.value,)
        case tir.Select():
            return expr.condition, expr.true_value, expr.false_value
        case tir.Call():
            return expr.args
    return ()


def _range(loop: tir.For) -> str:
    return f"{loop.extent}" if tir.const_int(loop.min) == 0 else f"{loop.min} .. +{loop.extent}"
