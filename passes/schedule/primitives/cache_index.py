"""cache_index: index computations of a block, done once and kept in buffers."""

from __future__ import annotations

from typing import Any

from mlcc.arith.intset import eval_set, from_range
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import TRUE, Expr, IterKind, Range
from mlcc.ir.visit import Rewriter, substitute, used_vars
from mlcc.passes.schedule.analysis.bindings import bindings
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.common_terms import TermEquality, repeated_terms, vars_in_order
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.cache_stage import Stage, driving_loops, stage_in_loops, with_new_data
from mlcc.passes.schedule.rewrite.retarget import point
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.storage import check_scope
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def cache_index(state: State, block: BlockRef, storage_scope: str, cse_thresh: int = 0) -> list[BlockRef]:
    """Compute the index expressions of a block's stores beforehand, each in its own block that fills a buffer.

    Before:  B[vi, vj] = A[vi // 4 + vj // 4, vj // 2]
    After:   index_var_0[v0, v1] = v0 // 4 + v1 // 4        # the block "index_0"
             index_var_1[v0] = v0 // 2        # the block "index_1"
             B[vi, vj] = A[index_var_0[vi, vj], index_var_1[vj]]

    The terms are those that a store computes at least `cse_thresh` times, and their parts where they come up less
    often. Returns the new blocks, none if there is no such term. Refused for an unknown scope (E0641), and for a term
    with a variable that is no axis of the block (E0643).
    """
    check_scope(storage_scope)
    if cse_thresh < 0:
        raise Refusal("E0613", f"`cse_thresh` of `cache_index` must be a count, not {cse_thresh}")
    tree, node = block.tree, block.block
    scope = scope_root(tree, node)
    terms = TermEquality()
    repeated = repeated_terms(_stores((*(node.init or ()), *node.body)), cse_thresh, terms)
    if not repeated:
        return []
    realize = block.realize
    loops = tree.all_loops_above(realize)
    stages = [_stage(n, term, realize, loops, storage_scope) for n, term in enumerate(repeated)]
    top: tir.Stmt = tree.child_of(scope, realize)
    edit = Rebuild(tree)
    edit.before(top, *(stage.nest for stage, _ in stages))
    loads = [(term, load) for term, (_, load) in zip(repeated, stages, strict=True)]
    init = None if node.init is None else _with_loads(node.init, loads, terms)
    body = _with_loads(node.body, loads, terms)
    used = {n for n in walk((*(init or ()), *body)) if isinstance(n, tir.BufferLoad)}
    more = (tir.BufferRegion(load.buffer, point(load.indices)) for _, load in loads if load in used)
    new = replace(node, init=init, body=body, reads=(*node.reads, *more))
    edit.put_block(node, new)
    edit.allocate(scope, *(load.buffer for _, load in stages))
    state.update(block.func_name, edit)
    return [state.block_ref(block.func_name, stage.block) for stage, _ in stages]


def _stores(body: tuple[tir.Stmt, ...]) -> list[tir.BufferStore]:
    """The stores of a block, without those of blocks inside it."""
    stores: list[tir.BufferStore] = []
    stack = list(reversed(body))
    while stack:
        match stack.pop():
            case tir.BufferStore() as store:
                stores.append(store)
            case tir.IfThenElse(then_body=then, else_body=other):
                stack += [*reversed(other or ()), *reversed(then)]
            case tir.For(body=inner) | tir.While(body=inner) | tir.AttrStmt(body=inner):
                stack += reversed(inner)
    return stores


def _stage(
    number: int, term: Expr, realize: tir.BlockRealize, loops: list[tir.For], storage: str
) -> tuple[Stage, tir.BufferLoad]:
    """Return the block that computes `term`, in loops, and the load that replaces the term."""
    values = bindings(realize)
    used = vars_in_order(term)
    for var in used:
        if var not in values:
            raise Refusal(
                "E0643", f"the term `{term}` of block `{realize.block.name}` depends on `{var.name}`, which is none of"
                " its axes", realize.block,
            )  # fmt: skip
    order = {v: n for n, v in enumerate(v for var in used for v in vars_in_order(values[var]))}
    driving = driving_loops((values[var] for var in used), loops)
    if not any(used_vars(o.min) | used_vars(o.extent) for o in driving):
        driving.sort(key=lambda loop: order[loop.var])  # as the term mentions them
    domains = {loop.var: from_range(Range(loop.min, loop.extent)) for loop in loops}
    shape: list[Expr] = []
    for var in used:
        high = eval_set(values[var], domains).high
        if high is None:
            raise Refusal("E0643", f"the axis `{var.name}` of block `{realize.block.name}` is unbounded", realize)
        shape.append(c.add(high, 1))
    strides = (1,) if len(shape) == 1 else ()
    buffer = c.make_buffer(f"index_var_{number}", tuple(shape), term.dtype, strides=strides)
    buffer = with_new_data(buffer, storage)

    fresh: dict[tir.Var, Expr] = {o.var: tir.Var(f"ax{n}", o.var.dtype) for n, o in enumerate(driving)}
    own = [tir.Var(f"v{n}", var.dtype) for n, var in enumerate(used)]
    axes = [
        tir.IterVar(var, Range(c.const(0, var.dtype), extent), IterKind.SPATIAL)
        for var, extent in zip(own, shape, strict=True)
    ]
    value = substitute(term, dict(zip(used, own, strict=True)))
    store = tir.BufferStore(buffer, value, tuple(own))
    block = tir.Block(f"index_{number}", tuple(axes), (), (tir.BufferRegion(buffer, point(own)),), (store,))
    inner = tir.BlockRealize(tuple(substitute(values[var], fresh) for var in used), TRUE, block)
    spans = [Range(substitute(o.min, fresh), substitute(o.extent, fresh)) for o in driving]
    nest = stage_in_loops([(fresh[o.var], span) for o, span in zip(driving, spans, strict=True)], inner)  # type: ignore[misc]
    return nest, tir.BufferLoad(term.dtype, buffer, tuple(used))


def _with_loads(body: tuple[tir.Stmt, ...], loads: list[tuple[Expr, tir.BufferLoad]], terms: TermEquality) -> Any:
    """The statements with each term, the larger ones first, replaced by its load in the stores of the block."""
    for term, load in loads:
        rewrite = _TermReplacer(term, load, terms)
        body = tuple(rewrite.visit(stmt) for stmt in body)
    return body


class _TermReplacer(Rewriter):
    def __init__(self, term: Expr, load: tir.BufferLoad, terms: TermEquality) -> None:
        super().__init__()
        self._term, self._load, self._terms = term, load, terms
        self._in_store = False

    def visit(self, node: Any) -> Any:
        match node:
            case tir.Buffer() | tir.BlockRealize():
                return node
            case tir.BufferStore() if not self._in_store:
                self._in_store = True
                rewritten = super().visit(node)
                self._in_store = False
                return rewritten
            case Expr() if not self._in_store or node is self._load:
                return node
            case Expr() if self._terms.same(node, self._term):
                return self._load
        return super().visit(node)
