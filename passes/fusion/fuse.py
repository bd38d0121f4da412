"""Operator fusion: the operations of each kernel are outlined into a function."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ops import FusionKind
from mlcc.ops.shapes import shapes_known
from mlcc.passes.fusion.decoders import fuse_decoders
from mlcc.passes.fusion.fusion_graph import Group, Node, Refusal, partition
from mlcc.passes.fusion.grouping import Grouper, ordering_dependences, written_in_place
from mlcc.passes.fusion.op_pattern import kind_of
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import equal_struct_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import is_primitive, tir_callee, used_vars


@dataclass(frozen=True)
class Fuse(Pass):
    """Group operations of dataflow blocks into functions with the attribute Primitive, one kernel each.

    Works on operators and on `call_tir` alike: kinds come from the operator table, the attribute `op_pattern`, or the
    blocks of the TIR function. An operation joins the one that all paths from it lead to, so that nothing is computed
    twice. Functions that have the attribute are left alone. Level 0 fuses nothing, the others everything that can be
    fused. `mlcc passes --why-fuse` explains each decision. With `dequantize`, matrix products also take in the
    operations that decode an operand, as in the dequantization of weights.

    Before:  lv = R.matmul(x, w)
             lv1 = R.add(lv, b)
             gv = R.nn.relu(lv1)
    After:   gv = cls.fused_matmul_add_relu(x, w, b)
    """

    name: ClassVar[str] = "fuse"
    level: Literal[0, 1, 2, 3] = 2
    dequantize: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        if self.level <= 0:
            return module.copy()
        builder = ModuleBuilder(module)
        kinds = Kinds(module)
        for name in sorted(module):
            func = module[name]
            if isinstance(func, relax.Function) and not is_primitive(func) and "Codegen" not in func.attrs:
                builder.module.functions[name] = _Fuser(builder, kinds, self.dequantize).visit_function(func)
        return builder.module


class Kinds:
    """The fusion kinds of bound values."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self._of_function: dict[str, FusionKind] = {}
        functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
        self._packed = {param for func in functions for param in _packed_weights(func)}

    def of_binding(self, binding: relax.Binding) -> FusionKind:
        return self.of(binding.value) if isinstance(binding, relax.VarBinding) else FusionKind.OPAQUE

    def of(self, value: relax.Expr) -> FusionKind:
        if isinstance(value, relax.TupleGetItem):
            return FusionKind.OPAQUE if value.tuple_value in self._packed else FusionKind.INJECTIVE
        if not isinstance(value, relax.Call):
            return FusionKind.OPAQUE
        callee = tir_callee(value)
        if callee is None:
            return _operator_kind(value)
        return self._function(callee) if isinstance(value.args[1], relax.Tuple) else FusionKind.OPAQUE

    def _function(self, name: str) -> FusionKind:
        if name not in self._of_function:
            func = self.module.functions.get(name)
            self._of_function[name] = kind_of(func) if isinstance(func, tir.PrimFunc) else FusionKind.OPAQUE
        return self._of_function[name]


def _packed_weights(func: relax.Function) -> tuple[relax.Var, ...]:
    """Return the parameters after the inputs that the attribute `num_input` counts.

    Taking a weight out of such a tuple is not an operation of a kernel, as in TVM.
    """
    count = func.attrs.get("num_input")
    input_count = count.value if isinstance(count, tir.IntImm) else count
    return func.params[input_count:] if isinstance(input_count, int) and input_count >= 0 else ()


def _operator_kind(call: relax.Call) -> FusionKind:
    """Return the kind of an operator call; opaque if it cannot be lowered."""
    known = ops.get(call.op.name) if isinstance(call.op, tir.Op) else None
    if known is None or known.impl.lower is None or not known.pure or not shapes_known(call):
        return FusionKind.OPAQUE
    tensors = [a for a in call.args if isinstance(a.struct_info, relax.TensorStructInfo)]
    if known.kind is FusionKind.BROADCAST and any(_same_shape(a, call) for a in tensors):
        return FusionKind.ELEMWISE  # it has the layout of one of its operands
    return known.kind


def _same_shape(a: relax.Expr, b: relax.Expr) -> bool:
    left, right = a.struct_info, b.struct_info
    if not (isinstance(left, relax.TensorStructInfo) and isinstance(right, relax.TensorStructInfo)):
        return False
    return equal_struct_info(
        left.shape.struct_info if left.shape else None, right.shape.struct_info if right.shape else None
    )


class _Fuser(Grouper):
    """Fuse the operations of one function."""

    def __init__(self, builder: ModuleBuilder, kinds: Kinds, dequantize: bool) -> None:
        super().__init__(builder)
        self.kinds = kinds
        self.dequantize = dequantize

    def groups(self, block: relax.DataflowBlock) -> list[Group]:
        groups = fused_groups(block, self.kinds)[1]
        return fuse_decoders(block, groups, self.module) if self.dequantize else groups

    def style(self, group: Group) -> None:
        """Leave single operations as they are."""

    def anchor(self, bindings: list[relax.VarBinding]) -> relax.VarBinding:
        """Return the operation of the most complex kind, such as a product; the last one of several."""
        return max(reversed(bindings), key=self.kinds.of_binding)


def fused_groups(
    block: relax.DataflowBlock, kinds: Kinds, refusals: dict[Node, Refusal] | None = None
) -> tuple[list[Node], list[Group]]:
    """Return the dataflow graph of a block, and the group of each binding.

    A call that works in place may only write into values that its own kernel computes and nothing else uses, since
    values never change at the graph level. Any other in-place call stays outside groups.
    """
    excluded_vars: set[relax.Var] = set()
    while True:
        nodes = _block_nodes(block, kinds, excluded_vars)
        groups = partition(nodes, refusals)
        excluded = set(_escaping_writes(block, nodes, groups)) - excluded_vars
        if not excluded:
            return nodes, groups
        excluded_vars |= excluded
        if refusals is not None:
            refusals.clear()


def _escaping_writes(block: relax.DataflowBlock, nodes: list[Node], groups: list[Group]) -> Iterable[relax.Var]:
    """Yield the calls in a group that write in place into a value that is not the group's own, or has other uses."""
    node_of = {b.var: n for b, n in zip(block.bindings, nodes, strict=True)}
    for binding, node, group in zip(block.bindings, nodes, groups, strict=True):
        if node.kind is FusionKind.OPAQUE:
            continue
        for target in written_in_place(binding.value):  # type: ignore[attr-defined]
            source = node_of.get(target)
            is_internal = source is not None and groups[source.index] is group and not source.exposed
            is_own_call = is_internal and isinstance(block.bindings[source.index].value, relax.Call)  # type: ignore
            if not is_own_call or len(source.users) != 1:  # type: ignore[union-attr]
                yield binding.var


def _block_nodes(block: relax.DataflowBlock, kinds: Kinds, excluded_vars: Collection[relax.Var]) -> list[Node]:
    """Return the dataflow graph of a block, one node per binding; the bindings in `excluded_vars` are opaque."""
    dependences = ordering_dependences(block)
    nodes: list[Node] = []
    producer: dict[relax.Var, Node] = {}
    for index, binding in enumerate(block.bindings):
        kind = FusionKind.OPAQUE if binding.var in excluded_vars else kinds.of_binding(binding)
        node = Node(index, kind, not isinstance(binding.var, relax.DataflowVar))
        for var in (*used_vars(binding.value), *dependences.get(binding.var, ())):  # type: ignore[attr-defined]
            if var in producer:
                producer[var].users.append((node, kind))
        nodes.append(node)
        producer[binding.var] = node
    return nodes
