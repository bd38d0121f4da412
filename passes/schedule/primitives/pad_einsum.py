"""pad_einsum: an einsum over axes rounded up to multiples, on padded copies of its buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import linear_parts
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import Rewriter, substitute
from mlcc.passes.schedule.analysis.bindings import vars_of
from mlcc.passes.schedule.analysis.block_access import points
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.reducers import reduction_parts
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.cache_stage import covers_relaxed_region
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild, child_realizes

_Extents = dict[tir.Var, tir.Expr]


@primitive()
def pad_einsum(state: State, block: BlockRef, padding: list[int]) -> None:
    """Round the extent of each axis of an einsum up to a multiple of `padding[axis]`, such as 127 to 128.

    Buffers indexed by a padded axis are copied before into buffers `X_pad` with zeros at the end, and the output back
    after. An einsum indexes its buffers by axes or constants alone; what it only reads also by sums of axes, such as
    the window `y * 2 + r` of a convolution, of which spatial axes may be padded, those of integers also along reduced
    ones, and in any way by axes that are not padded. Refused: another block than that (E0674), padding that is not one
    positive number for each axis (E0673), and where the zeros would show: a reduction other
    than a sum of products, integer division, or a spatial axis that does not index the output (E0675). TVM:
    `pad_einsum`, which pads those too, and no windows.
    """
    tree, old, realize = block.tree, block.block, block.realize
    scope = scope_root(tree, old, require_stage_pipeline=True)
    if len(padding) != len(old.iter_vars) or any(p <= 0 for p in padding):
        names = ", ".join(f"`{a.var.name}`" for a in old.iter_vars)
        message = f"block `{old.name}` has {len(old.iter_vars)} axes ({names}), but the padding {padding} is for "
        raise Refusal("E0673", message + f"{len(padding)}; each must be a positive number", old)
    _check_einsum(block, {a.var for a, factor in zip(old.iter_vars, padding, strict=True) if factor > 1})
    axes = {axis.var: axis for axis in old.iter_vars}
    analyzer = Analyzer()
    padded: _Extents = {}  # of axes, and of the loops that drive them
    loops = {loop.var: loop for loop in tree.loops_above(old)}
    for axis, value, factor in zip(old.iter_vars, realize.values, padding, strict=True):
        size = axis.dom.extent
        if factor >= 1 << (size.dtype.bits - 1):
            message = f"axis `{axis.var.name}` of block `{old.name}` is of {size.dtype}, which {factor} does not fit"
            raise Refusal("E0673", message, old)
        by = c.const(factor, size.dtype)
        rounded = analyzer.simplify(c.mul(c.floordiv(c.sub(c.add(size, by), 1), by), by))
        if analyzer.prove_equal(rounded, size):
            continue
        padded[axis.var] = rounded
        if isinstance(value, tir.Var) and value in loops:
            padded[value] = rounded
        else:
            message = (
                f"axis `{axis.var.name}` of block `{old.name}` is driven by `{value}`, but must be driven by one loop"
            )
            raise Refusal("E0674", message, old)
    _check_writes_all(block, scope, padded)
    top = tree.child_of(scope, realize)
    _check_zeros(block, padded, analyzer)
    if len(child_realizes(top)) != 1 and padded:
        others = tuple(r.block for r in child_realizes(top) if r.block is not old)
        raise Refusal("E0674", f"block `{old.name}` shares its loops with block `{others[0].name}`", (old, *others))
    copies: dict[tir.Buffer, _Padded] = {}
    for region in (*old.reads, *old.writes):
        if any(vars_of(span.min) & padded.keys() for span in region.region):
            copies[region.buffer] = _Padded.of(region, axes, padded, analyzer)
    edit = Rebuild(tree)
    before = [copies[r.buffer].nest(True, analyzer) for r in old.reads if r.buffer in copies]
    after = [copies[r.buffer].nest(False, analyzer) for r in old.writes if r.buffer in copies]
    rewriter = _PaddingRewriter(padded, {b: p.padded for b, p in copies.items()})
    new_top = rewriter.visit(top)
    edit.put(top, *before, new_top, *after)
    edit.allocate(scope, *(p.padded for p in copies.values()))
    state.update(block.func_name, edit, rewriter.reuse)


# ---------------------------------------------------------------- what is required


def _check_einsum(block: BlockRef, widened: set[tir.Var]) -> None:
    """Refuse (E0674) a block that is not an einsum in the axes to be padded."""
    old = block.block

    def refusal(words: str) -> Refusal:
        return Refusal("E0674", f"block `{old.name}` is not an einsum: {words}", old)

    axes = {axis.var for axis in old.iter_vars}
    seen: set[tir.Buffer] = set()
    for region in (*old.reads, *old.writes):
        buffer = region.buffer
        if buffer in seen:
            raise refusal(f"it uses `{buffer.name}` twice")
        seen.add(buffer)
        for span in region.region:
            plain = isinstance(span.min, (tir.Var, tir.IntImm)) or (
                region in old.reads and (_window(span.min, axes) is not None or not vars_of(span.min) & widened)
            )
            if not plain or tir.const_int(span.extent) != 1:
                shown = f"{span.min}" if tir.const_int(span.extent) == 1 else f"{span.min} .. +{span.extent}"
                raise refusal(f"it indexes `{buffer.name}` by `{shown}`, neither an axis nor a constant")
    if old.alloc_buffers or old.match_buffers:
        raise refusal("it allocates buffers")
    if tir.const_int(block.realize.predicate) != 1:
        raise refusal(f"it runs only where `{block.realize.predicate}`")


def _window(index: tir.Expr, axes: set[tir.Var]) -> tuple[dict[tir.Var, int], int] | None:
    """An index as axes times positive numbers, and a constant that is not negative; None for another one."""
    parts = linear_parts(index)
    if parts is None or not parts[0] or not parts[0].keys() <= axes:
        return None
    if parts[1] < 0 or any(k <= 0 for k in parts[0].values()):
        return None
    return parts


def _check_writes_all(block: BlockRef, scope: tir.Block, padded: _Extents) -> None:
    """Refuse (E0674) a block that leaves out a part of its output, which the copy back would write."""
    for region in block.block.writes:
        if any(span.min in padded for span in region.region) and not covers_relaxed_region(
            block.tree, block.block, region, scope
        ):
            message = f"block `{block.block.name}` does not write all of `{region.buffer.name}` that its axes reach"
            raise Refusal("E0674", message, block.block)


def _check_zeros(block: BlockRef, padded: _Extents, analyzer: Analyzer) -> None:
    """Refuse padding that could show in the result: zeros must be neutral, and buffers end where their axes do."""
    old = block.block
    extents = {a.var: a.dom for a in old.iter_vars}

    reduced = {a.var for a in old.iter_vars if a.kind is not tir.IterKind.SPATIAL}

    def refusal(words: str) -> Refusal:
        return Refusal("E0675", f"block `{old.name}` cannot be padded with zeros: {words}", old)

    for region in (*old.reads, *old.writes):
        if not any(vars_of(span.min) & padded.keys() for span in region.region):
            continue
        for span, size in zip(region.region, region.buffer.shape, strict=True):
            if not isinstance(span.min, (tir.Var, tir.IntImm)):
                shown = next((v for v in vars_of(span.min) & padded.keys() if v in reduced), None)
                if shown is not None and not region.buffer.dtype.is_int:  # infinity times 0 is not 0
                    raise refusal(
                        f"the element that a padded `{shown.name}` reads at `{span.min}` of `{region.buffer.name}` is "
                        "not zero"
                    )
                continue
            dom = extents.get(span.min) if isinstance(span.min, tir.Var) else None
            if dom is not None and (span.min in padded or region in old.writes):  # all of what is copied back
                ends = analyzer.prove_equal(dom.extent, size) and tir.const_int(dom.min) == 0
            elif dom is not None:
                ends = True
            else:
                ends = tir.const_int(span.min) == 0 and (region not in old.writes or tir.const_int(size) == 1)
            if not ends:
                raise refusal(f"`{span.min}` does not run over all of a dimension of `{region.buffer.name}` ({size})")
    for axis in old.iter_vars:
        if axis.var in padded and axis.kind is tir.IterKind.SPATIAL:
            for region in old.writes:
                if all(span.min is not axis.var for span in region.region):
                    raise refusal(f"more iterations of `{axis.var.name}` would write `{region.buffer.name}` again")
    for node in walk((*old.body, *(old.init or ()))):
        divides = isinstance(node, (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)) and not node.dtype.is_float
        if divides and padded and not tir.const_int(node.rhs):
            raise refusal(f"`{node}` would divide by zero, or by elements beyond the end")
    reduce = [a.var for a in old.iter_vars if a.kind is not tir.IterKind.SPATIAL and a.var in padded]
    if not reduce:
        return
    parts = reduction_parts(old)
    if len(parts.buffers) != 1 or not isinstance(parts.reducer.result[0], tir.Add):
        raise refusal(f"it reduces over `{reduce[0].name}` by another reduction than a sum")
    factors = [f for f in _factors(parts.rhs[0]) if isinstance(f, tir.BufferLoad)]
    for var in reduce:
        if not any(var in load.indices for load in factors):
            raise refusal(
                f"the summand over `{var.name}` (`{parts.rhs[0]}`) is not a product with a buffer indexed by it"
            )


def _factors(value: tir.Expr) -> list[tir.Expr]:
    match value:
        case tir.Mul(lhs=a, rhs=b):
            return [*_factors(a), *_factors(b)]
        case tir.Cast(value=inner):
            return _factors(inner)
    return [value]


# ---------------------------------------------------------------- padded copies


@dataclass(frozen=True, slots=True)
class _Padded:
    buffer: tir.Buffer
    padded: tir.Buffer

    @staticmethod
    def of(region: tir.BufferRegion, axes: dict[tir.Var, tir.IterVar], padded: _Extents, analyzer: Analyzer) -> _Padded:
        old = region.buffer
        shape = []
        for span, size in zip(region.region, old.shape, strict=True):
            if isinstance(span.min, tir.Var):
                shape.append(padded.get(span.min, size))
            elif isinstance(span.min, tir.IntImm):
                shape.append(c.const(1, span.min.dtype))
            elif not vars_of(span.min) & padded.keys():
                shape.append(size)
            else:
                last = {
                    v: c.sub(c.add(axes[v].dom.min, padded.get(v, axes[v].dom.extent)), 1) for v in vars_of(span.min)
                }
                shape.append(analyzer.simplify(c.maximum(size, c.add(substitute(span.min, last), 1))))
        return _Padded(old, c.make_buffer(f"{old.name}_pad", tuple(shape), old.dtype, old.scope))

    def nest(self, into: bool, analyzer: Analyzer) -> tir.Stmt:
        """Return the loops that copy into the padded buffer, with zeros beyond the end, or back out of it."""
        source, target = (self.buffer, self.padded) if into else (self.padded, self.buffer)
        dims = target.shape
        loops = tuple(tir.Var(f"i{n}", d.dtype) for n, d in enumerate(dims))
        axes = tuple(
            tir.IterVar(tir.Var(f"v{n}", d.dtype), tir.Range(c.const(0, d.dtype), d), tir.IterKind.SPATIAL)
            for n, d in enumerate(dims)
        )
        indices = tuple(a.var for a in axes)
        value: tir.Expr = c.load(source, *indices)
        if into:
            inside: tir.Expr = tir.TRUE
            for index, size, wide in zip(indices, self.buffer.shape, self.padded.shape, strict=True):
                if not analyzer.prove_equal(size, wide):
                    inside = c.logical_and(inside, c.less(index, size))
            if tir.const_int(inside) != 1:
                value = c.call(value.dtype, "if_then_else", inside, value, c.const(0, value.dtype))
        element = points(indices)
        block = tir.Block(
            self.padded.name, axes, (tir.BufferRegion(source, element),), (tir.BufferRegion(target, element),),
            (tir.BufferStore(target, value, indices),),
        )  # fmt: skip
        stmt: tir.Stmt = tir.BlockRealize(loops, tir.TRUE, block)
        for var, size in zip(reversed(loops), reversed(dims), strict=True):
            stmt = tir.For(var, c.const(0, size.dtype), size, tir.ForKind.SERIAL, (stmt,))
        return stmt


class _PaddingRewriter(Rewriter):
    """Replace loops and axes by ones of the padded extents, and buffers by padded ones."""

    def __init__(self, extents: _Extents, buffers: dict[tir.Buffer, tir.Buffer]) -> None:
        super().__init__()
        self.reuse: dict[tir.Block, tir.Block] = {}
        self._extents = extents
        for old, new in buffers.items():
            self._memo[id(old)] = (old, new)

    def visit(self, node: Any) -> Any:
        rewritten = super().visit(node)
        if isinstance(node, tir.Block) and rewritten is not node:
            self.reuse[node] = rewritten
        return rewritten

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.For(var=var) if var in self._extents:
                return replace(node, extent=self._extents[var])
            case tir.IterVar(var=var) if var in self._extents:
                return replace(node, dom=replace(node.dom, extent=self._extents[var]))
        return node
