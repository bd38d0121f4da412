"""Explanations of the decisions of `fuse`: one line for each edge of the dataflow graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ops import FusionKind
from mlcc.passes.fusion.fuse import Fuse, Kinds, fused_groups
from mlcc.passes.fusion.fusion_graph import MAX_FUSED, Group, Node, Refusal, Rule
from mlcc.passes.manage.manager import Observer, Pass
from mlcc.relax.queries import all_bindings, is_primitive, tir_callee, used_vars

KIND_NAMES = {
    FusionKind.ELEMWISE: "element-wise",
    FusionKind.BROADCAST: "broadcast",
    FusionKind.INJECTIVE: "injective",
    FusionKind.COMM_REDUCE: "reduction",
    FusionKind.OUT_EWISE_FUSABLE: "out-fusable",
    FusionKind.TUPLE: "tuple",
    FusionKind.OPAQUE: "opaque",
}
_INTO_FUSABLE = "fuses through element-wise, broadcast or injective operations into any kernel that is not opaque"
_ALLOWED = {
    FusionKind.ELEMWISE: _INTO_FUSABLE,
    FusionKind.BROADCAST: _INTO_FUSABLE,
    FusionKind.INJECTIVE: "fuses only with element-wise, broadcast or injective operations",
    FusionKind.OUT_EWISE_FUSABLE: "fuses only with element-wise or broadcast operations",
}


@dataclass
class WhyFuse(Observer):
    """Write, before every `fuse` of a pipeline, how it will treat each edge and why."""

    write: Callable[[str], None]

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        if isinstance(current, Fuse):
            self.write(explain(module, current.level))


def explain(module: IRModule, level: int = 2) -> str:
    """Explain for each edge of each relax function whether its ends are fused, and by which rule, or why not."""
    lines = ["# --- why fuse"]
    for name, found in decisions(module, level).items():
        lines += [f"{name}:", *(f"  {subject}: {text}" if subject else f"  {text}" for subject, text in found)]
    return "\n".join(lines) + "\n"


def decisions(module: IRModule, level: int = 2) -> dict[str, list[tuple[str, str]]]:
    """Return for each relax function its edges, `a = R.add (broadcast) -> b = R.exp (element-wise)`, each with what is
    decided about it and why. One entry without an edge says why a function is left alone."""
    kinds = Kinds(module)
    found: dict[str, list[tuple[str, str]]] = {}
    for name, func in module.functions.items():
        if not isinstance(func, relax.Function):
            continue
        if level <= 0:
            found[name] = [("", "left alone: level 0 fuses nothing")]
        elif is_primitive(func):
            found[name] = [("", "left alone: it has the attribute Primitive, so it is one kernel already")]
        elif "Codegen" in func.attrs:
            text = f"left alone: it has the attribute Codegen, so it belongs to `{func.attrs['Codegen']}`"
            found[name] = [("", text)]
        else:
            found[name] = list(_of_function(func, kinds)) or [("", "no edges")]
    return found


def _of_function(func: relax.Function, kinds: Kinds) -> Iterator[tuple[str, str]]:
    bound_in: dict[relax.Var, tuple[relax.BindingBlock, relax.Binding]] = {}
    blocks: dict[relax.BindingBlock, _Block] = {}
    for binding, block in all_bindings(func.body):
        if isinstance(block, relax.DataflowBlock) and block not in blocks:
            blocks[block] = _Block(block, kinds)
        for var in dict.fromkeys(_operands(binding)):
            if var in bound_in:
                source, producer = bound_in[var]
                yield _edge(producer, source, binding, block, blocks, kinds)
        bound_in[binding.var] = (block, binding)


def _operands(binding: Any) -> Iterator[relax.Var]:
    """Yield the operands of a binding's value, without those used inside branches and nested functions."""
    value = binding.value
    if isinstance(value, relax.If):
        yield from used_vars(value.condition)
    elif not isinstance(value, relax.Function):
        yield from used_vars(value)


class _Block:
    """The decisions for one dataflow block."""

    def __init__(self, block: relax.DataflowBlock, kinds: Kinds) -> None:
        self.bindings: tuple[Any, ...] = block.bindings
        self.refusals: dict[Node, Refusal] = {}
        self.kinds = kinds
        self.nodes: list[Node]
        self.groups: list[Group]
        self.nodes, self.groups = fused_groups(block, kinds, self.refusals)
        self.at = {b.var: n for b, n in zip(block.bindings, self.nodes, strict=True)}

    def name(self, node: Node) -> str:
        kind = self.groups[node.index].kind
        within = f", in a kernel that is {KIND_NAMES[kind]}" if kind is not node.kind else ""
        return f"`{self.bindings[node.index].var.name}` ({KIND_NAMES[node.kind]}{within})"

    def decision(self, producer: relax.Var, user: relax.Var) -> str:
        node, other = self.at[producer], self.at[user]
        if self.groups[node.index] is self.groups[other.index]:
            members = sum(g is self.groups[node.index] for g in self.groups)
            return f"fused: one kernel of {members} operations"
        return f"not fused: {self.refused(node, other)}"

    def opaque(self, node: Node) -> str:
        binding = self.bindings[node.index]
        if self.kinds.of_binding(binding) is FusionKind.OPAQUE:
            return f"`{binding.var.name}` is opaque: it cannot be part of a kernel"
        return f"`{binding.var.name}` writes in place into a value with other uses, so it is not fused"

    def refused(self, node: Node, user: Node) -> str:
        if user.kind is FusionKind.OPAQUE:
            return self.opaque(user)
        refusal = self.refusals[node]
        name = self.bindings[node.index].var.name
        sink = f"`{self.bindings[refusal.sink.index].var.name}`" if refusal.sink is not None else ""
        if refusal.rule is Rule.OPAQUE:
            return self.opaque(node)
        if refusal.rule is Rule.EXPOSED:
            return f"`{name}` is needed outside its dataflow block, so it ends its kernel"
        if refusal.rule is Rule.NO_SINK:
            users = ", ".join(dict.fromkeys(f"`{self.bindings[u.index].var.name}`" for u, _ in node.users))
            return f"the paths from its users ({users}) do not join: if fused, `{name}` would be computed twice"
        if refusal.rule is Rule.TOO_LARGE:
            return f"the kernel up to {sink} would have more than {MAX_FUSED} operations"
        if refusal.rule is Rule.REDUCTION:
            return f"`{name}` is a reduction, which ends its kernel"
        kernel = f", in a kernel that is {KIND_NAMES[refusal.kind]}," if refusal.kind is not node.kind else ""
        allowed = f"`{name}`{kernel} {_ALLOWED[refusal.kind]}"
        if refusal.blocking is None or (refusal.blocking is refusal.sink and refusal.blocking is user):
            blocking_node = self.name(refusal.blocking or user)
            return f"{allowed}; {blocking_node} is not one of these"
        on_way = "ends" if refusal.blocking is refusal.sink else "is on"
        return f"{allowed}; {self.name(refusal.blocking)} {on_way} the way from it to {sink}"


def _edge(
    producer: Any, source: relax.BindingBlock, user: Any, block: relax.BindingBlock,
    blocks: dict[relax.BindingBlock, _Block], kinds: Kinds,
) -> tuple[str, str]:  # fmt: skip
    ends = f"{_describe(producer, kinds.of_binding(producer))} -> {_describe(user, kinds.of_binding(user))}"
    for binding, home in ((producer, source), (user, block)):
        if not isinstance(home, relax.DataflowBlock):
            return ends, f"not fused: `{binding.var.name}` is bound outside dataflow blocks"
    if source is not block:
        return ends, f"not fused: `{producer.var.name}` and `{user.var.name}` are in different dataflow blocks"
    return ends, blocks[block].decision(producer.var, user.var)


def _describe(binding: Any, kind: FusionKind) -> str:
    return f"{binding.var.name} = {_operation(binding)} ({KIND_NAMES[kind]})"


def _operation(binding: Any) -> str:
    value = binding.value
    if isinstance(binding, relax.MatchCast):
        return "R.match_cast"
    callee = tir_callee(value)
    if callee is not None:
        return f"R.{value.op.name.removeprefix('relax.')} {callee}"
    if isinstance(value, relax.Call):
        if value.args and isinstance(value.args[0], relax.ExternFunc):
            return f"R.{value.op.name.removeprefix('relax.')} {value.args[0].name}"
        name = str(getattr(value.op, "name", "call"))
        return f"R.{name.removeprefix('relax.')}" if name.startswith("relax.") else name
    return {relax.TupleGetItem: "field", relax.Tuple: "tuple", relax.If: "if"}.get(type(value), type(value).__name__)
