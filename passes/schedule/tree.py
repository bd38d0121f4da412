"""An index over one function's loops and blocks, and edits of it that copy only the paths that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.ir.node import replace

if TYPE_CHECKING:
    from mlcc.arith.analyzer import Analyzer

Stmt = tir.Stmt
Body = tuple[Stmt, ...]

KnownLoops = tuple["Analyzer", dict[tir.Var, tuple[tir.Expr, tir.Expr]]]  # what the analyzer has loops bound to

_MAX_FACTS = 1 << 14  # they keep the nodes of earlier steps alive


class Tree:
    """The parents, loops and blocks of the current function; invalid once the function has changed.

    The parent of a statement is the `For`, `Block`, `IfThenElse`, ... whose body holds it; the parent of a `Block` is
    its `BlockRealize`. Statements inside a block's init have that block as their parent.
    """

    def __init__(self, func: tir.PrimFunc) -> None:
        self.func = func
        self.realizes: list[tir.BlockRealize] = []
        self.loops: list[tir.For] = []
        self._parents: dict[int, Stmt | None] = {}
        self._by_var: dict[tir.Var, tir.For] = {}
        self._realize_of: dict[int, tir.BlockRealize] = {}
        self.cache: dict[Any, Any] = {}  # what analyses have found out; keys are theirs
        self._facts: dict[Any, Any] = {}  # shared with the functions before and after steps
        self.earlier_analyzer: KnownLoops | None = None  # of this function or of one before it; see `analyzer_of`
        self._visit(func.body, None)

    def _visit(self, body: Body, parent: Stmt | None) -> None:
        for stmt in body:
            self._parents[id(stmt)] = parent
            match stmt:
                case tir.For():
                    self.loops.append(stmt)
                    self._by_var[stmt.var] = stmt
                    self._visit(stmt.body, stmt)
                case tir.BlockRealize(block=block):
                    self.realizes.append(stmt)
                    self._realize_of[id(block)] = stmt
                    self._parents[id(block)] = stmt
                    if block.init is not None:
                        self._visit(block.init, block)
                    self._visit(block.body, block)
                case tir.IfThenElse(then_body=then, else_body=other):
                    self._visit(then, stmt)
                    self._visit(other or (), stmt)
                case tir.While() | tir.AttrStmt():
                    self._visit(stmt.body, stmt)

    def memoized(self, key: Any, find: Callable[[], Any]) -> Any:
        """Return the result of `find()`, memoized; one from before some steps is reused.

        `key` holds all nodes that it depends on: they compare by identity, and a step keeps the nodes that it does not
        change.
        """
        value = self._facts.get(key, self)
        if value is self:
            value = self._facts[key] = find()
        return value

    def inherit_memo(self, before: Tree) -> None:
        """Take over the memoized facts of the function as it was before a step, unless they have become too many."""
        if len(before._facts) < _MAX_FACTS:
            self._facts = before._facts
            self.earlier_analyzer = before.earlier_analyzer

    @property
    def root(self) -> tir.Block | None:
        """The root block, None for a function without blocks."""
        return self.func.root

    def __contains__(self, node: Stmt) -> bool:
        return id(node) in self._parents

    def parent(self, node: Stmt) -> Stmt | None:
        """The statement whose body holds `node`; of a block its realize; None at the top."""
        return self._parents[id(node)]

    def realize(self, block: tir.Block) -> tir.BlockRealize:
        return self._realize_of[id(block)]

    def has_block(self, block: tir.Block) -> bool:
        return id(block) in self._realize_of

    def loop(self, var: tir.Var) -> tir.For | None:
        """The loop over `var`."""
        return self._by_var.get(var)

    def ancestors(self, node: Stmt) -> Iterator[Stmt]:
        """Yield the statements around `node`, innermost first: loops, blocks and their realizes, branches."""
        at = self.parent(node)
        while at is not None:
            yield at
            at = self.parent(at)

    def loops_above(self, node: Stmt) -> list[tir.For]:
        """Return the loops between `node` and the enclosing block, outermost first.

        For a block: the loops around its realize.
        """
        if isinstance(node, tir.Block):
            node = self.realize(node)
        loops = []
        for at in self.ancestors(node):
            if isinstance(at, tir.Block):
                break
            if isinstance(at, tir.For):
                loops.append(at)
        loops.reverse()
        return loops

    def all_loops_above(self, node: Stmt) -> list[tir.For]:
        """The loops up to the top of the function, through enclosing blocks, outermost first."""
        loops = [at for at in self.ancestors(node) if isinstance(at, tir.For)]
        loops.reverse()
        return loops

    def scope(self, node: Stmt) -> tir.Block | None:
        """Return the innermost block that encloses `node` (not `node` itself); None for the root block."""
        if isinstance(node, tir.Block):
            node = self.realize(node)
        return next((at for at in self.ancestors(node) if isinstance(at, tir.Block)), None)

    def child_realizes(self, node: Stmt | Body) -> list[tir.BlockRealize]:
        """The outermost blocks below a block, loop, branch or body, in order; a realize gives itself."""
        realizes = self.cache.get(("children", node))
        if realizes is None:
            realizes = self.cache["children", node] = child_realizes(node)
        return list(realizes)

    def blocks_named(self, name: str) -> list[tir.Block]:
        return [r.block for r in self.realizes if r.block.name == name]

    def is_under(self, node: Stmt, above: Stmt) -> bool:
        """Return True if `node` is `above` or below it."""
        return node is above or any(at is above for at in self.ancestors(node))

    def child_of(self, above: Stmt, node: Stmt) -> Stmt:
        """Return the statement in the body of `above` that is, or contains, `node`."""
        at = node
        for up in self.ancestors(node):
            if up is above:
                return at
            at = up
        raise ValueError("the node is not below it")


def child_realizes(node: Stmt | Body) -> list[tir.BlockRealize]:
    """The outermost blocks below a block, loop, branch or body, in order; a realize gives itself."""
    realizes: list[tir.BlockRealize] = []
    stack: list[Any] = [node]
    while stack:
        match stack.pop():
            case tuple() as body:
                stack.extend(reversed(body))
            case tir.BlockRealize() as realize:
                realizes.append(realize)
            case tir.IfThenElse(then_body=then, else_body=other):
                stack += [other or (), then]
            case tir.For(body=body) | tir.Block(body=body) | tir.While(body=body) | tir.AttrStmt(body=body):
                stack.append(body)
    return realizes


class Rebuild:
    """Edits of one function, made in one pass that copies only the statements above an edit.

    `put` replaces a statement by others, `amend` changes a node after what is inside it has been rebuilt. Enclosing
    blocks that are copied on the way are recorded in `reuse` (old block -> new block) by themselves; who replaces a
    statement that contains blocks adds to `reuse` those that live on. An edit inside a statement that is itself `put`
    has no effect.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.reuse: dict[tir.Block, tir.Block] = {}
        self._put: dict[int, Body] = {}
        self._before: dict[int, Body] = {}
        self._after: dict[int, Body] = {}
        self._amend: dict[int, list[Callable[[Any], Any]]] = {}
        self._dirty: set[int] = set()

    def put(self, old: Stmt, *new: Stmt) -> None:
        """Replace `old` by the statements `new`; without any, remove it."""
        self._put[id(old)] = new
        self._mark(old)

    def put_block(self, old: tir.Block, new: tir.Block) -> None:
        """Replace the block of a realize; handles of `old` then mean `new`."""
        realize = self.tree.realize(old)
        self.put(realize, replace(realize, block=new))
        self.reuse[old] = new

    def before(self, place: Stmt, *new: Stmt) -> None:
        """Put `new` in front of `place`, which may itself be rebuilt."""
        self._before[id(place)] = self._before.get(id(place), ()) + new
        self._mark(place)

    def after(self, place: Stmt, *new: Stmt) -> None:
        """Insert `new` after `place`."""
        self._after[id(place)] = new + self._after.get(id(place), ())
        self._mark(place)

    def amend(self, node: Stmt, change: Callable[[Any], Any]) -> None:
        """Apply `change` to a `For`, `Block` or `BlockRealize` once its inside is rebuilt."""
        self._amend.setdefault(id(node), []).append(change)
        self._mark(node)

    def allocate(self, block: tir.Block, *buffers: tir.Buffer) -> None:
        """Add buffers to those that `block` allocates."""
        self.amend(block, lambda b: replace(b, alloc_buffers=(*b.alloc_buffers, *buffers)))

    def _mark(self, node: Stmt) -> None:
        self._dirty.add(id(node))
        for at in self.tree.ancestors(node):
            if id(at) in self._dirty:
                break
            self._dirty.add(id(at))

    def build(self) -> tir.PrimFunc:
        """The function after all edits."""
        return replace(self.tree.func, body=self._body(self.tree.func.body))

    def _body(self, body: Body) -> Body:
        if not any(id(s) in self._dirty for s in body):
            return body
        stmts: list[Stmt] = []
        for stmt in body:
            stmts += self._before.get(id(stmt), ())
            put = self._put.get(id(stmt))
            stmts += (self._stmt(stmt),) if put is None else put
            stmts += self._after.get(id(stmt), ())
        return tuple(stmts)

    def _stmt(self, stmt: Stmt) -> Stmt:
        if id(stmt) not in self._dirty:
            return stmt
        rewritten: Any
        match stmt:
            case tir.BlockRealize(block=block):
                rewritten = replace(stmt, block=self._block(block))
            case tir.IfThenElse(then_body=then, else_body=other):
                rewritten = replace(
                    stmt, then_body=self._body(then), else_body=None if other is None else self._body(other)
                )
            case tir.For() | tir.While() | tir.AttrStmt():
                rewritten = replace(stmt, body=self._body(stmt.body))
            case _:
                rewritten = stmt
        for change in self._amend.get(id(stmt), ()):
            rewritten = change(rewritten)
        return rewritten  # type: ignore[no-any-return]

    def _block(self, block: tir.Block) -> tir.Block:
        if id(block) not in self._dirty:
            return block
        init = None if block.init is None else self._body(block.init)
        new_block = replace(block, init=init, body=self._body(block.body))
        for change in self._amend.get(id(block), ()):
            new_block = change(new_block)
        if new_block is not block:
            self.reuse[block] = new_block
        return new_block
