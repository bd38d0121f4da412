"""Grouping of operations into kernels, by post-dominators of the dataflow graph and fusion kinds.

An operation may join its immediate post-dominator if the kinds of all operations on the paths between them allow it.
All its users are then in the same kernel, and nothing is computed twice. This is the algorithm of TVM's FuseOps, on one
dataflow block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from mlcc.ops import FusionKind

MAX_FUSED = 256  # operations in one kernel


@dataclass(eq=False)
class Node:
    """One binding. `exposed`: its value is used outside the block, so that it can only end a kernel."""

    index: int
    kind: FusionKind
    exposed: bool
    users: list[tuple[Node, FusionKind]] = field(default_factory=list)


@dataclass(eq=False)
class Group:
    """A set of nodes (union-find). At a root, `kind` is the kind of the group as a whole."""

    kind: FusionKind
    parent: Group | None = None
    size: int = 1
    has_anchor: bool = False

    def root(self) -> Group:
        top = self
        while top.parent is not None:
            top = top.parent
        node = self
        while node.parent is not None and node.parent is not top:
            node.parent, node = top, node.parent
        return top


@dataclass(eq=False)
class _Dominator:
    """A node of the post-dominator tree. `kind` is the most complex kind on any path up to the parent."""

    node: Node
    parent: _Dominator | None
    depth: int
    kind: FusionKind


class Rule(Enum):
    """The reason why an operation is not fused into its immediate post-dominator."""

    OPAQUE = "it cannot be part of a kernel"
    EXPOSED = "its value leaves the dataflow block"
    NO_SINK = "the paths from it do not join"
    TOO_LARGE = "the kernel would have too many operations"
    REDUCTION = "a reduction ends its kernel"
    PATH = "a step on the way is of a kind that its own kind does not allow"
    BLOCKED = "an operation on the way, or at its end, is of a kind that its own kind does not allow"


@dataclass(frozen=True, eq=False)
class Refusal:
    """The reason why a node of kind `kind` (or in a kernel of that kind) was not fused.

    `sink` is its immediate post-dominator, `blocking` the node that forbids the fusion; either may be None.
    """

    rule: Rule
    kind: FusionKind
    sink: Node | None = None
    blocking: Node | None = None


def partition(nodes: list[Node], refusals: dict[Node, Refusal] | None = None) -> list[Group]:
    """Return the group of each node; producers must come before their users.

    `refusals` receives the reason for every node that did not join any of its users.
    """
    groups = [Group(n.kind, has_anchor=n.kind is FusionKind.OUT_EWISE_FUSABLE) for n in nodes]
    tree = _post_dominators(nodes)
    for phase in (0, 1):
        for node, group in zip(nodes, groups, strict=True):
            outcome = _sink(node, group, tree[node.index], groups, phase)
            if isinstance(outcome, Node):
                _join(node, outcome, groups)
            elif outcome is not None and refusals is not None:
                refusals[node] = outcome
    return [g.root() for g in groups]


# ---------------------------------------------------------------- dominators


def _post_dominators(nodes: list[Node]) -> list[_Dominator]:
    """Return the post-dominator tree as one entry per node."""
    tree: list[_Dominator | None] = [None] * len(nodes)
    for node in reversed(nodes):
        parent, kind = (None, FusionKind.OPAQUE) if node.exposed else _common_user(node, tree)
        tree[node.index] = _Dominator(node, parent, parent.depth + 1 if parent else 1, kind)
    return tree  # type: ignore[return-value]


def _common_user(node: Node, tree: list[_Dominator | None]) -> tuple[_Dominator | None, FusionKind]:
    """Return the nearest node on all paths from `node`, and the most complex kind on these paths."""
    kind = FusionKind.ELEMWISE
    common: _Dominator | None = None
    for number, (user, edge) in enumerate(node.users):
        user_node = tree[user.index]
        if number == 0:
            common = user_node
        else:
            common, kind = _common_ancestor(common, user_node, kind)
        kind = max(kind, edge)
    return common, kind


def _common_ancestor(
    a: _Dominator | None, b: _Dominator | None, kind: FusionKind
) -> tuple[_Dominator | None, FusionKind]:
    while a is not b:
        if a is None or b is None:
            return None, kind
        depth = max(a.depth, b.depth)
        steps = [x for x in (a, b) if x.depth == depth]
        kind = max(kind, *(x.kind for x in steps))
        a, b = (a.parent if a in steps else a), (b.parent if b in steps else b)
    return a, kind


# ---------------------------------------------------------------- grouping


def _sink(node: Node, group: Group, dominator: _Dominator, groups: list[Group], phase: int) -> Node | Refusal | None:
    """Return the node whose group `node` joins in this phase, or the refusal; None if nothing changes.

    Complex operations (a matmul) take elementwise work behind them first; injective work joins in the second phase, so
    that it does not come between a matmul and its epilogue.
    """
    kind = group.kind
    if kind is FusionKind.OPAQUE:
        return Refusal(Rule.OPAQUE, kind)
    if dominator.parent is None:
        return Refusal(Rule.EXPOSED if node.exposed else Rule.NO_SINK, kind)
    sink = dominator.parent.node
    if group.root() is groups[sink.index].root():
        return None
    if _size_up_to(node, sink, groups) > MAX_FUSED:
        return Refusal(Rule.TOO_LARGE, kind, sink)
    if kind is FusionKind.OUT_EWISE_FUSABLE:
        if phase == 1:
            return None  # it was handled in the first phase
        wanted, allowed = dominator.kind is FusionKind.ELEMWISE, _at_most_broadcast
    elif kind <= FusionKind.BROADCAST:
        wanted = dominator.kind <= FusionKind.INJECTIVE or dominator.kind is FusionKind.COMM_REDUCE
        allowed = _at_most_fusable_sink
    elif kind is FusionKind.INJECTIVE:
        wanted, allowed = phase == 1, _at_most_injective
    else:
        return Refusal(Rule.REDUCTION, kind, sink)
    blocking = _first_blocking(node, sink, groups, allowed)
    if wanted and blocking is None:
        return sink
    return Refusal(Rule.PATH if blocking is None else Rule.BLOCKED, kind, sink, blocking)


def _at_most_broadcast(kind: FusionKind, is_sink: bool) -> bool:
    return kind <= FusionKind.BROADCAST


def _at_most_injective(kind: FusionKind, is_sink: bool) -> bool:
    return kind <= FusionKind.INJECTIVE


def _at_most_fusable_sink(kind: FusionKind, is_sink: bool) -> bool:
    """Allow injective work on the way, and any fusible kernel at the end."""
    return kind <= (FusionKind.OUT_EWISE_FUSABLE if is_sink else FusionKind.INJECTIVE)


def _between(node: Node, sink: Node) -> list[Node]:
    """Return the nodes on the paths from `node` to `sink`, exclusive, up to the limit of a kernel."""
    seen: dict[Node, None] = {}
    stack = [user for user, _ in reversed(node.users)]
    while stack and len(seen) <= MAX_FUSED:
        top = stack.pop()
        if top is not sink and top not in seen:
            seen[top] = None
            stack.extend(user for user, _ in reversed(top.users))
    return list(seen)


def _first_blocking(
    node: Node, sink: Node, groups: list[Group], allowed: Callable[[FusionKind, bool], bool]
) -> Node | None:
    """Return the first node on the way from `node` to `sink`, inclusive, whose kind is not allowed there."""
    for other in (*_between(node, sink), sink):
        if not allowed(groups[other.index].root().kind, other is sink):
            return other
    return None


def _size_up_to(node: Node, sink: Node, groups: list[Group]) -> int:
    between = sum(groups[n.index].size for n in (node, *_between(node, sink)))
    return groups[sink.index].root().size + between


def _join(node: Node, sink: Node, groups: list[Group]) -> None:
    """Merge `node`, and all nodes between it and `sink`, into the group of `sink`."""
    for member in (node, *_between(node, sink)):
        _merge(groups[member.index].root(), groups[sink.index].root())


def _merge(child: Group, parent: Group) -> None:
    if child is parent:
        return
    parent.size += child.size
    child.parent = parent
    if child.has_anchor:
        parent.has_anchor = True
        parent.kind = max(child.kind, parent.kind)
