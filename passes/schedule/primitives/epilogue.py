"""`fuse_reduction_epilogue`: fusion of an elementwise epilogue into a sum."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr, IterKind
from mlcc.ir.visit import Substitute, substitute
from mlcc.passes.schedule.analysis.checks import (
    check_complete_block,
    check_not_output,
    check_reduction_block,
    scope_root,
)
from mlcc.passes.schedule.analysis.move_legality import partly_covered_axis
from mlcc.passes.schedule.analysis.reducers import REDUCERS, reduction_parts
from mlcc.passes.schedule.analysis.region_cover import stage_pipeline_violation
from mlcc.passes.schedule.analysis.scope import consumers
from mlcc.passes.schedule.primitives.inline import check_no_pointer_use
from mlcc.passes.schedule.primitives.suggestions import block_text
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.inline_producer import only_store
from mlcc.passes.schedule.rewrite.removal import removable_statement
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def fuse_reduction_epilogue(
    state: State, reduction_block: BlockRef, epilogue_block: BlockRef, every_step: bool = False
) -> None:
    """Let a sum start from what its only consumer adds to it, and store where that stores; the consumer is removed.

    `C[i] = sum(...)` and `D[i] = C[i] + bias[i]` become one block whose init is `D[i] = bias[i]`; the allocation of
    `C` stays, as in TVM. With `every_step` the consumer may also clip (`max(C[i] + bias[i], 0)`); clipping is then
    done after every addition, as TVM always does, which gives other results unless all partial sums stay within the
    limits. Refused otherwise (E0645, E0646, E0652, E0656, E0658, E0659, E0668, E0669).
    TVM: `fuse_reduction_epilogue`.
    """
    if reduction_block.func_name != epilogue_block.func_name:
        raise Refusal("E0648", f"block `{epilogue_block.block.name}` is in another function")
    tree, reduction, epilogue = reduction_block.tree, reduction_block.block, epilogue_block.block
    scope = scope_root(tree, epilogue, require_stage_pipeline=True)
    if scope_root(tree, reduction) is not scope:
        words = f"blocks `{reduction.name}` and `{epilogue.name}` are not in the same scope"
        raise Refusal("E0648", words, (reduction, epilogue))
    check_reduction_block(tree, reduction, scope)
    check_complete_block(tree, epilogue, scope)
    check_not_output(tree, reduction, scope)
    fusion = _Fusion(tree, reduction, epilogue)
    others = [b for b in consumers(tree, reduction) if b is not epilogue]
    if others:
        names = ", ".join(f"`{b.name}`" for b in others)
        words = f"`{fusion.buffer.name}` would no longer be computed: {names} reads it too"
        raise Refusal("E0646", words, (epilogue, *others))
    check_no_pointer_use(tree, scope, epilogue, fusion.buffer)
    if partly_covered_axis(tree, tree.realize(epilogue), (IterKind.SPATIAL,)) is not None:
        raise fusion.refusal("it runs for a part of its axes only")
    fused = fusion.block(every_step)
    edit = Rebuild(tree)
    edit.put(removable_statement(tree, epilogue))
    edit.put_block(reduction, fused)
    func = edit.build()
    fused_tree = Tree(func)
    wrong = stage_pipeline_violation(fused_tree, edit.reuse[scope])
    if wrong is not None:
        raise fusion.refusal(f"what it reads is not computed before `{reduction.name}` starts: {wrong[0]}")
    state.update(reduction_block.func_name, func, reuse=edit.reuse)


class _Fusion:
    """A sum, its epilogue, and the map between their axes."""

    def __init__(self, tree: Tree, reduction: tir.Block, epilogue: tir.Block) -> None:
        self._tree, self._reduction, self._epilogue = tree, reduction, epilogue
        self._parts = reduction_parts(reduction, REDUCERS[:1])
        (self._update,) = self._parts.updates
        self.buffer = self._update.buffer
        self._store = only_store(epilogue)
        if tir.const_int(tree.realize(epilogue).predicate) != 1:
            raise self.refusal(f"it runs only where {tree.realize(epilogue).predicate}")
        self._load = self._only_load()
        if self._store.buffer.dtype is not self.buffer.dtype:
            raise self.refusal(f"it converts sums from {self.buffer.dtype} to {self._store.buffer.dtype}")
        self._values = self._axes()
        self._out = self._in_reduction_axes(self._store.indices)

    def refusal(self, why: str, help: str | None = None) -> Refusal:
        epilogue, reduction = self._epilogue, self._reduction
        words = f"block `{epilogue.name}` cannot be fused into `{reduction.name}`: {why}"
        return Refusal("E0652", words, (reduction, epilogue), help)

    def _only_load(self) -> tir.BufferLoad:
        loads = [n for n in walk(self._store) if isinstance(n, tir.BufferLoad) and n.buffer is self.buffer]
        if len(loads) != 1:
            raise self.refusal(f"it loads {len(loads) or 'no'} elements of `{self.buffer.name}`, not one")
        return loads[0]

    def _axes(self) -> dict[tir.Var, Expr]:
        """Return the epilogue's axes as those of the reduction, matched by position in the indices of the sum."""
        mine = {a.var: a for a in self._epilogue.iter_vars}
        theirs = {a.var: a for a in self._reduction.iter_vars if a.kind is IterKind.SPATIAL}
        axes: dict[tir.Var, Expr] = {}
        analyzer = Analyzer()
        for index, stored in zip(self._load.indices, self._update.indices, strict=True):
            if index in mine and stored in theirs and index not in axes and stored not in axes.values():
                assert isinstance(index, tir.Var) and isinstance(stored, tir.Var)
                one, other = mine[index].dom, theirs[stored].dom
                if not (analyzer.prove_equal(one.min, other.min) and analyzer.prove_equal(one.extent, other.extent)):
                    raise self.refusal(f"its axis `{index.name}` and `{stored.name}` of the sum have different ranges")
                axes[index] = stored
            elif not analyzer.prove_equal(index, stored):
                raise self.refusal(f"it does not load `{self._load}` as `{self._update.buffer.name}` is stored")
        for var, axis in mine.items():
            if var not in axes and tir.const_int(axis.dom.extent) == 1:
                axes[var] = axis.dom.min
            elif var not in axes:
                raise self.refusal(f"its axis `{var.name}` is not an axis of the sum")
        return axes

    def _in_reduction_axes(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(substitute(i, self._values) for i in indices)

    # ------------------------------------------------------------ the fused block

    def block(self, every_step: bool) -> tir.Block:
        """The reduction with the epilogue in it."""
        out, buffer = self._store.buffer, self.buffer
        loaded = {self._load: self._parts.init_values[0]}
        start = Analyzer().simplify(substitute(Substitute(loaded).visit(self._store.value), self._values))
        sums = [n for n in walk(self._update.value) if isinstance(n, tir.BufferLoad) and n.buffer is buffer]
        step = Substitute({n: tir.BufferLoad(n.dtype, out, self._out) for n in sums}).visit(self._update.value)
        value = substitute(self._at_step(self._store.value, step, every_step), self._values)
        (read_back,) = [r for r in self._reduction.writes if r.buffer is buffer]
        (written,) = [r for r in self._epilogue.writes if r.buffer is out]
        writes = tuple(self._region(written) if r is read_back else r for r in self._reduction.writes)
        reads = {r.buffer: self._region(r) for r in self._epilogue.reads if r.buffer is not buffer}
        for region in self._reduction.reads:
            if region.buffer is not buffer:
                reads.setdefault(region.buffer, region)
        return replace(
            self._reduction,
            init=(tir.BufferStore(out, start, self._out),),
            body=(tir.BufferStore(out, value, self._out),),
            reads=tuple(reads.values()),
            writes=writes,
        )

    def _region(self, region: tir.BufferRegion) -> tir.BufferRegion:
        return substitute(region, self._values)

    def _at_step(self, value: Expr, step: Expr, every_step: bool) -> Expr:
        """The epilogue's value after one addition: what it adds itself was there from the start."""
        if value is self._load:
            return step
        match value:
            case tir.Add(lhs=a, rhs=b):
                return self._at_step(a if self._contains_load(a) else b, step, every_step)
            case tir.Min(lhs=a, rhs=b) | tir.Max(lhs=a, rhs=b):
                if not every_step:
                    raise self._clips(value)
                inside = self._contains_load(a)
                inner = self._at_step(a if inside else b, step, every_step)
                return type(value)(value.dtype, inner, b) if inside else type(value)(value.dtype, a, inner)
        raise self.refusal(f"it does more than add to the sum: {value}")

    def _contains_load(self, value: Expr) -> bool:
        return any(n is self._load for n in walk(value))

    def _clips(self, value: Expr) -> Refusal:
        tree = self._tree
        given = f"{block_text(tree, self._reduction)}, {block_text(tree, self._epilogue)}"
        return self.refusal(
            f"it clips, `{value}`, which the sum would do after every addition, giving different results",
            f"`sch.reverse_compute_at({block_text(tree, self._epilogue)}, ...)` keeps them; "
            f"`sch.fuse_reduction_epilogue({given}, every_step=True)` fuses all the same",
        )
