"""Names of the variables of an imported function: the model's names for its values, derived names inside a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.grammar.printer.names import Names
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find, replace
from mlcc.ir.visit import substitute
from mlcc.relax.queries import all_bindings

# the part of a variable name for an operator, if it differs from the operator's name
_SHORT = {
    "permute_dims": "t", "astype": "cast", "expand_dims": "unsqueeze", "strided_slice": "slice",
    "broadcast_to": "expand", "scatter_elements": "scatter", "gather_elements": "gather", "shape_to_tensor": "shape",
}  # fmt: skip


@dataclass
class _Emitted:
    """The node that a variable was emitted for, and the name of the node's value if the variable is that value."""

    node: str
    value: str = ""


class VariableNames:
    """Records the nodes of variables while a function is built, and renames the variables when it is done.

    A builder names variables as they are emitted, before it is known which of a node's variables holds its result.
    """

    def __init__(self) -> None:
        self._emitted: dict[str, _Emitted] = {}  # by the builder's name, which is unique

    def record(self, var: relax.Var, node: str) -> None:
        """Note the node that a variable was emitted for."""
        self._emitted.setdefault(var.name, _Emitted(node))

    def name_value(self, var: relax.Var, name: str) -> None:
        """Note that a variable is a value of the source model. The first name of a variable is kept."""
        known = self._emitted.get(var.name)
        if known is not None and not known.value:
            known.value = name

    def apply(self, module: IRModule) -> IRModule:
        """Return the module with renamed variables: values are `linear`, intermediates `linear_matmul`."""
        copy = module.copy()
        for name, func in module.functions.items():
            if isinstance(func, relax.Function):
                copy.functions[name] = self._rename(func)
        return copy

    def _rename(self, func: relax.Function) -> relax.Function:
        names = Names()
        for name in dict.fromkeys(var.name for var in (*func.params, *find(func, tir.Var))):
            names.fresh(name)
        stems = self._nodes_of([binding for binding, _ in all_bindings(func.body)])
        values = {b: known.value for b, known in stems.items() if known.value}
        chosen = {binding.var: names.fresh(name) for binding, name in values.items()}
        for binding, known in stems.items():
            if not known.value:
                chosen[binding.var] = names.fresh(_intermediate(binding, known.node, chosen))
        return substitute(func, {var: replace(var, name=name) for var, name in chosen.items() if name != var.name})

    def _nodes_of(self, bindings: list[relax.Binding]) -> dict[relax.Binding, _Emitted]:
        """Map bindings to their nodes. Nested operands take the node of the expression that is emitted after them."""
        stems: dict[relax.Binding, _Emitted] = {}
        nested: list[relax.Binding] = []
        for binding in bindings:
            known = self._emitted.get(binding.var.name)
            if known is None:
                nested.append(binding)
                continue
            stems.update((part, _Emitted(known.node)) for part in nested)
            stems[binding] = known
            nested = []
        return stems


def _intermediate(binding: relax.Binding, node: str, chosen: Mapping[relax.Var, str]) -> str:
    """Return a name for an intermediate of a node: `linear_matmul`; for a tuple item, the tuple's name and index."""
    value = getattr(binding, "value", None)
    whole = value.tuple_value if isinstance(value, relax.TupleGetItem) else None
    if isinstance(whole, relax.Var) and whole in chosen:
        return f"{chosen[whole]}_{value.index}"  # type: ignore[union-attr]
    return "_".join(part for part in (node, _operator(binding, node)) if part)


def _operator(binding: relax.Binding, node: str) -> str:
    """Return the name part for a binding's operator. The parts of a multi-result operator are `all`, not its name."""
    if isinstance(binding, relax.MatchCast):
        return "checked"
    value = getattr(binding, "value", None)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op):
        return ""
    name = value.op.name.rpartition(".")[2]
    several = isinstance(binding.var.struct_info, relax.TupleStructInfo)
    return "all" if several and node.startswith(name) else _SHORT.get(name, name)
