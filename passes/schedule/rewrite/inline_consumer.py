"""Inlining of a consumer into its producer: the consumer's iterations that read the stored element."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import eval_set, from_range
from mlcc.arith.iter_inverse import inverse_affine_iter_map
from mlcc.arith.iter_map import NotAffine, detect_iter_map, iter_map_simplify
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import Substitute, substitute
from mlcc.passes.schedule.analysis.bindings import bindings
from mlcc.passes.schedule.analysis.conditions import complete_block_violation
from mlcc.passes.schedule.analysis.scope import scope_info
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.rewrite.inline_producer import only_store
from mlcc.passes.schedule.substitution import proves_below
from mlcc.passes.schedule.tree import Tree

AUTO_COPY = "auto_copy"  # blocks that copy a region with loops of their own


def single_read(tree: Tree, block: tir.Block, scope: tir.Block) -> tir.Buffer:
    """Return the only buffer that `block` reads and the scope computes; refuse (E0645) none or several."""
    writers = scope_info(tree, scope).writers
    buffers = list(dict.fromkeys(r.buffer for r in block.reads if r.buffer in writers))
    if len(buffers) == 1:
        return buffers[0]
    names = ", ".join(f"`{b.name}`" for b in buffers)
    words = f"reads {names}" if buffers else "reads none of those"
    raise Refusal(
        "E0645",
        f"block `{block.name}` must read exactly one buffer that block `{scope.name}` computes, but {words}",
        (block, *(w for b in buffers for w in writers[b])),
        None
        if len(buffers) < 2
        else "inline a producer with `compute_inline`, or move the block with "
        "`reverse_compute_at`, which takes several producers",
    )


def single_producer(tree: Tree, block: tir.Block, scope: tir.Block, buffer: tir.Buffer) -> tir.Block:
    """Return the only block that writes `buffer`, which only `block` reads; refuse (E0646) other cases."""
    leaves = [r.block for r in tree.realizes if _is_leaf_writer(tree, r.block, buffer) and tree.is_under(r, scope)]
    if len(leaves) != 1:
        names = ", ".join(f"`{b.name}`" for b in leaves)
        raise Refusal("E0646", f"`{buffer.name}` must have one producer, but has {names or 'none'}", (block, *leaves))
    (producer,) = leaves
    words = complete_block_violation(tree, producer, scope)
    if words is not None:
        raise Refusal(
            "E0656",
            f"block `{block.name}` cannot move into `{producer.name}`, which is not complete: it {words}",
            (block, producer),
        )
    others = [b for b in scope_info(tree, scope).readers.get(buffer, ()) if b is not block]
    if others:
        names = ", ".join(f"`{b.name}`" for b in others)
        raise Refusal(
            "E0646",
            f"`{buffer.name}` cannot be removed with block `{block.name}`: {names} reads it too",
            (block, *others),
            f'inline the producer into all of them: `sch.compute_inline("{producer.name}")`',
        )
    return producer


def _is_leaf_writer(tree: Tree, block: tir.Block, buffer: tir.Buffer) -> bool:
    """Return True if `block` writes `buffer` and no block inside it does."""

    def writes(b: tir.Block) -> bool:
        return any(w.buffer is buffer for w in b.writes)

    if not writes(block) or tree.scope(block) is None:
        return False
    stack = tree.child_realizes(block)
    while stack:
        inner = stack.pop().block
        if writes(inner):
            return False
        stack += tree.child_realizes(inner)
    return True


class ConsumerInlining:
    """The consumer's store as a function of the producer's. Refuses (E0645) what does not fit."""

    def __init__(
        self, consumer: tir.BlockRealize, loops: Sequence[tir.For], producer: tir.Block, buffer: tir.Buffer,
        around: Sequence[tir.For] = (),
    ) -> None:  # fmt: skip
        """Create the inlining. `loops` are those above the consumer, `around` those above the producer."""
        self._around = around
        self._consumer, self._producer, self._buffer = consumer.block, producer, buffer
        if tir.const_int(consumer.predicate) != 1:
            raise self._refusal(f"it runs only where {consumer.predicate}")
        outer = {loop.var for loop in loops}
        for loop in loops:  # a part of the axes' domains, which says nothing of it
            if any(n in outer for end in (loop.min, loop.extent) for n in walk(end) if isinstance(n, tir.Var)):
                raise self._refusal(f"the range of its loop `{loop.var.name}` depends on another loop")
        self._store = only_store(self._consumer)
        self._analyzer = Analyzer()
        self._values: dict[tir.Var, tir.Expr] = {}
        self._solve()

    def _refusal(self, why: str) -> Refusal:
        consumer, producer = self._consumer, self._producer
        return Refusal(
            "E0645",
            f"block `{consumer.name}` cannot be inlined into `{producer.name}`: {why}",
            (consumer, producer),
        )

    # ------------------------------------------------------------ which iteration takes which element

    def _solve(self) -> None:
        """Express the consumer's axes by the indices at which the producer stores."""
        domain = {a.var: a.dom for a in self._consumer.iter_vars}
        for axis in self._consumer.iter_vars:
            if isinstance(axis.dom.min, tir.IntImm) and tir.const_int(axis.dom.extent) == 1:
                self._values[axis.var] = axis.dom.min
        indices = self._load_indices()
        iter_map = detect_iter_map(indices, domain, tir.TRUE, "none", self._analyzer, simplify_trivial=False)
        shown = f"{self._buffer.name}[{', '.join(map(str, indices))}]"
        if not iter_map:
            raise self._refusal(f"the indices of `{shown}` are not affine in its axes ({iter_map.reason})")
        stored = self._producer_store()
        try:
            self._values.update(inverse_affine_iter_map(iter_map.indices, stored.indices))
        except NotAffine as failure:
            raise self._refusal(f"`{shown}` does not determine the iteration of an element ({failure})") from None
        domains = {a.var: from_range(a.dom) for a in self._producer.iter_vars}
        for axis in self._consumer.iter_vars:
            value = self._values.get(axis.var)
            if value is None:
                raise self._refusal(f"`{shown}` does not determine the `{axis.var.name}` of an element")
            reached = eval_set(value, domains)
            low, last = axis.dom.min, c.sub(c.add(axis.dom.min, axis.dom.extent), 1)
            short = reached.low is not None and self._analyzer.prove(c.greater(reached.low, low))
            if short or reached.high is not None and self._analyzer.prove(c.less(reached.high, last)):
                raise self._refusal(
                    f"`{self._producer.name}` does not cover every `{axis.var.name}`, which runs from {low} to "
                    f"{self._analyzer.simplify(last)}"
                )
        own = {a.var: a.dom for a in self._consumer.iter_vars if tir.const_int(a.dom.extent) != 1}
        back = inverse_affine_iter_map(iter_map.indices, indices)
        if not all(self._is_same(back.get(var), var, own) for var in own):
            raise self._refusal(f"`{shown}` is the same element in several of its iterations")

    def _is_same(self, value: tir.Expr | None, var: tir.Var, domain: dict[tir.Var, tir.Range]) -> bool:
        """Return True if `value`, an axis recovered from its indices, equals that axis: the map is one-to-one."""
        if value is None:
            return False
        analyzer = Analyzer()
        for axis in self._consumer.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        return analyzer.prove_equal(var, iter_map_simplify((analyzer.simplify(value),), domain)[0])

    def _load_indices(self) -> tuple[tir.Expr, ...]:
        loads = [n for n in walk(self._store) if isinstance(n, tir.BufferLoad) and n.buffer is self._buffer]
        if not loads:
            raise self._refusal(f"it does not load from `{self._buffer.name}`")
        first = loads[0].indices
        for load in loads[1:]:
            if not all(same_expr(a, b) for a, b in zip(first, load.indices, strict=True)):
                raise self._refusal(f"it loads two elements of `{self._buffer.name}`: {loads[0]} and {load}")
        return first

    def _producer_store(self) -> tir.BufferStore:
        """The store in the producer: its body, guarded perhaps, or inside the loops of a copy."""
        body = self._producer.body
        match body:
            case (tir.IfThenElse(then_body=then, else_body=None),):
                body = then
            case _ if AUTO_COPY in self._producer.annotations:
                while len(body) == 1 and isinstance(body[0], tir.For):
                    body = body[0].body
        if len(body) == 1 and isinstance(body[0], tir.BufferStore) and body[0].buffer is self._buffer:
            if any(isinstance(n, tir.BufferLoad) and n.buffer is self._buffer for n in walk(body[0].value)):
                raise self._refusal(f"`{self._producer.name}` adds to what `{self._buffer.name}` holds")
            return body[0]
        raise self._refusal(f"the body of `{self._producer.name}` is not a single store to `{self._buffer.name}`")

    # ------------------------------------------------------------ the new program

    def store_for(self, stored: tir.BufferStore) -> tir.Stmt:
        """Return the consumer's store, with its load replaced by the value that the producer would have stored."""
        loads = [n for n in walk(self._store) if isinstance(n, tir.BufferLoad) and n.buffer is self._buffer]
        return Substitute({**self._values, **dict.fromkeys(loads, stored.value)}).visit(self._store)  # type: ignore[no-any-return]

    def realize(self, old: tir.Block, made: tir.BlockRealize) -> tir.BlockRealize:
        """Return the producer's realize, restricted to iterations that the consumer has."""
        if old is not self._producer:
            return made
        analyzer, block = self._analyzer, made.block
        for axis in block.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        if AUTO_COPY in block.annotations:
            for node in walk(block.body):
                if isinstance(node, tir.For):
                    analyzer.bind(node.var, tir.Range(tir.IntImm(node.extent.dtype, 0), node.extent))
        predicate = analyzer.simplify(self._in_bounds({a.var: a.dom for a in block.iter_vars}))
        if tir.const_int(predicate) == 1:
            return made
        match block.body:
            case (tir.IfThenElse(condition=guard, then_body=then, else_body=None),):
                if not same_expr(predicate, analyzer.simplify(guard)):
                    predicate = analyzer.simplify(c.logical_and(predicate, guard))
                    block = replace(block, body=then)
        for loop in self._around:
            analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
        outer = analyzer.simplify(substitute(predicate, bindings(made)))
        with analyzer.constraint(outer):
            implied = analyzer.prove(made.predicate)
        if not implied:
            outer = analyzer.simplify(c.logical_and(made.predicate, outer))
        return replace(made, block=block, predicate=outer)

    def _in_bounds(self, ranges: dict[tir.Var, tir.Range]) -> tir.Expr:
        """Return the condition that the producer's iteration is in the consumer's domain.

        Bounds that follow from the symbolic `ranges` are left out.
        """
        condition: tir.Expr = tir.TRUE
        for axis in self._consumer.iter_vars:
            value, low = self._values[axis.var], axis.dom.min
            end = c.add(low, axis.dom.extent)
            condition = c.logical_and(condition, c.greater_equal(value, low))
            whole, limit = _without_division(value, end)
            if not (isinstance(whole, tir.Var) and proves_below(self._analyzer, whole, limit, ranges)):
                condition = c.logical_and(condition, c.less(value, end))
        return condition


def _without_division(value: tir.Expr, end: tir.Expr) -> tuple[tir.Expr, tir.Expr]:
    """Return `x // n < end` as `x < end * n`."""
    match value:
        case tir.FloorDiv(lhs=x, rhs=tir.IntImm(value=n)) if n > 0:
            return x, c.mul(end, c.const(n, end.dtype))
    return value, end
