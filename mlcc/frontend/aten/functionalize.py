"""Functionalization: in-place operators become functional, writes through views update the viewed tensor.

A view records its base. A write makes a new version of a value; through a view, also of each base up to the tensor that
owns the storage. Other views of that storage are rederived at their next use.
Inputs and buffers that a program writes to become outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mlcc.frontend.aten.graph import Argument, AtenNode, Graph, Output, Program, Ref, Subgraph, TensorMeta
from mlcc.frontend.aten.layout import is_contiguous
from mlcc.frontend.aten.schema import value_refs
from mlcc.frontend.aten.views import View, ViewStep, as_arguments, view_steps
from mlcc.frontend.problems import Unsupported

_UNMARKED_IN_PLACE = {
    "__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__idiv__": "div", "__iand__": "bitwise_and",
    "__ior__": "bitwise_or", "__ixor__": "bitwise_xor", "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift", "_index_put_impl_": "index_put",
}  # fmt: skip
_SELF_NAMED_INPUT = frozenset(
    ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)  # `self` in place
_METADATA_ONLY = frozenset(("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "as_strided", "detach"))
_MUTATION_KINDS = {"user": "user_input_mutation", "parameter": "parameter_mutation"}  # others: buffer_mutation

Refuse = Callable[[AtenNode, Unsupported], None]


def functionalize(program: Program, refuse: Refuse) -> Program:
    """Return the program without in-place operators. Nodes that have no functional form are passed to `refuse`."""
    rewriter = Functionalizer(program.graph, refuse, _shared_inputs(program))
    graph = rewriter.graph()
    outputs = [replace(given, value=value) for given, value in zip(program.outputs, graph.outputs, strict=True)]
    known = {given.target for given in outputs if given.kind.endswith("_mutation")}
    for given in program.inputs:
        value = rewriter.changed(given.value)
        target = given.target or given.value
        if value is not None and target not in known:
            outputs.append(Output(value, _MUTATION_KINDS.get(given.kind, "buffer_mutation"), target))
    graph = replace(graph, outputs=tuple(given.value for given in outputs))
    return replace(program, graph=graph, outputs=tuple(outputs))


def _shared_inputs(program: Program) -> dict[str, str]:
    """Map inputs that share memory with another used input to that input's name."""
    used = {ref.name for node in program.graph.nodes for ref in value_refs(node.arguments.values())}
    by_storage: dict[str, list[str]] = {}
    for given in program.inputs:
        weight = program.weights.get(given.target)
        if weight is not None and weight.storage and given.value in used:
            by_storage.setdefault(weight.storage, []).append(given.value)
    return {name: other for names in by_storage.values() for name in names for other in names if other != name}


@dataclass
class _Storage:
    """Memory that values share."""

    current: Ref
    version: int = 0


@dataclass
class _Value:
    """A value and its base, if it is a view; `current` is its value as of `version` of its storage."""

    storage: _Storage
    parent: str | None
    step: ViewStep | None
    current: Ref
    version: int


class Functionalizer:
    """Functionalizes one graph."""

    def __init__(self, graph: Graph, refuse: Refuse, shared: Mapping[str, str]) -> None:
        self.given, self.refuse, self.shared = graph, refuse, shared
        self.metas = dict(graph.values)
        self.nodes: list[AtenNode] = []
        self.values: dict[str, _Value] = {}
        self.taken = {name for node in graph.nodes for name in node.outputs if name} | set(graph.inputs)
        self.node: AtenNode | None = None
        # whether the graph needs to track which values are views
        self.looks = any(functional_name(n.target) or n.target.startswith("aten.as_strided.") for n in graph.nodes)

    def graph(self) -> Graph:
        """Return the graph without in-place operators."""
        for node in self.given.nodes:
            self.node = node
            try:
                self._node(node)
            except Unsupported as problem:
                self.refuse(node, problem)
        outputs = tuple(self._resolve(value) for value in self.given.outputs)
        return Graph(self.given.inputs, tuple(self.nodes), outputs, self.metas)

    def changed(self, name: str) -> Ref | None:
        """Return the final value of an input that was written to, else None."""
        value = self.values.get(name)
        return value.storage.current if value is not None and value.storage.version else None

    # ------------------------------------------------------------ nodes

    def _node(self, node: AtenNode) -> None:
        name = functional_name(node.target)
        if name is None:
            self._without_write(node)
        elif name in _METADATA_ONLY:  # changes only metadata, not memory: later nodes use the result
            self._without_write(replace(node, target=f"aten.{name}.{node.target.rpartition('.')[2]}"))
        else:
            self._write(node, name)

    def _without_write(self, node: AtenNode) -> None:
        """Add a node that writes nothing; its results may be views."""
        if node.target.startswith("aten.as_strided."):
            node = self._as_strided_of_owner(node)
        arguments = {key: self._resolve(value) for key, value in node.arguments.items()}
        self.nodes.append(replace(node, arguments=arguments))
        views = view_steps(node, self.metas) if self.looks else ()
        for name, view in zip(node.outputs, views, strict=False):
            if name and view is not None:
                self._add_view(name, view, Ref(name))

    def _as_strided_of_owner(self, node: AtenNode) -> AtenNode:
        """Rewrite `as_strided` of a view to one of the tensor that owns the memory, in which offsets are counted."""
        given = node.arguments.get("self")
        owner = given.name if isinstance(given, Ref) else ""
        while owner in self.values and self.values[owner].parent is not None:
            owner = self.values[owner].parent or owner
        if not is_contiguous(self._meta(owner)):
            raise Unsupported("`as_strided` of a tensor that is not contiguous")
        if Ref(owner) != given and not isinstance(node.arguments.get("storage_offset"), int):
            raise Unsupported("`as_strided` with an offset relative to a view")
        return replace(node, arguments={**node.arguments, "self": Ref(owner)})

    def _write(self, node: AtenNode, name: str) -> None:
        written = node.arguments.get("self")
        meta = self.metas.get(written.name) if isinstance(written, Ref) else None
        if not isinstance(written, Ref) or not isinstance(meta, TensorMeta):
            raise Unsupported("it writes to something that is not a tensor of the program")
        arguments = {key: self._resolve(value) for key, value in node.arguments.items()}
        result = node.outputs[0] if node.outputs else None
        new = self._new_value(node, name, arguments, meta, result)
        self._assign(written.name, new)
        if result:
            self.metas.setdefault(result, meta)
            self._add_view(result, View(written.name, ViewStep()), new)

    def _new_value(
        self, node: AtenNode, name: str, arguments: dict[str, Argument], meta: TensorMeta, result: str | None
    ) -> Ref:
        """Emit the functional form of an in-place operator; return the new value of the tensor that it writes to."""
        if name == "copy" or name == "fill" and isinstance(arguments.get("value"), Ref):
            return self._converted(arguments.get("src", arguments.get("value")), meta, result)
        if name == "fill":
            given = {"self": arguments["self"], "fill_value": arguments.get("value")}
            return self.emit("aten.full_like.default", given, meta, result)
        if name == "zero":
            return self.emit("aten.zeros_like.default", {"self": arguments["self"]}, meta, result)
        arguments.pop("unsafe", None)
        if name in _SELF_NAMED_INPUT:
            arguments = {"input" if key == "self" else key: value for key, value in arguments.items()}
        return self.emit(f"aten.{name}.{node.target.rpartition('.')[2]}", arguments, meta, result, casts=True)

    def _converted(self, source: Argument, meta: TensorMeta, result: str | None) -> Ref:
        """Convert a value to the dtype and shape of the tensor that it is copied to."""
        known = self.metas.get(source.name) if isinstance(source, Ref) else None
        if not isinstance(source, Ref) or not isinstance(known, TensorMeta):
            raise Unsupported("what it copies is not a tensor of the program")
        if known.dtype != meta.dtype:
            source = self._cast(source, replace(known, dtype=meta.dtype))
        if known.shape == meta.shape:
            return source
        return self.emit("aten.expand.default", {"self": source, "size": as_arguments(meta.shape)}, meta, result)

    def _cast(self, source: Ref, meta: TensorMeta, result: str | None = None) -> Ref:
        return self.emit("aten._to_copy.default", {"self": source, "dtype": meta.dtype}, meta, result)

    # ------------------------------------------------------------ values

    def emit(
        self,
        target: str,
        arguments: Mapping[str, Argument],
        meta: TensorMeta,
        name: str | None = None,
        casts: bool = False,
    ) -> Ref:
        """Append a node with one tensor as its result, under a new name if none is given."""
        assert self.node is not None
        name = name or self._fresh(self.node.place.node or "value")
        self.metas[name] = meta
        self.nodes.append(AtenNode(target, arguments, (name,), self.node.place, casts=casts))
        return Ref(name)

    def _fresh(self, hint: str) -> str:
        number = 1
        while f"{hint}_{number}" in self.taken:
            number += 1
        self.taken.add(f"{hint}_{number}")
        return f"{hint}_{number}"

    def _value(self, name: str) -> _Value:
        """Return the state of a value; a value that is not a view owns its memory."""
        if name not in self.values:
            self.values[name] = _Value(_Storage(Ref(name)), None, None, Ref(name), 0)
        return self.values[name]

    def _add_view(self, name: str, view: View, current: Ref) -> None:
        storage = self._value(view.of).storage
        self.values[name] = _Value(storage, view.of, view.step, current, storage.version)

    def _resolve(self, value: Argument) -> Argument:
        """Replace the values in an argument by their current versions."""
        if isinstance(value, Ref):
            return self._read(value.name)
        if isinstance(value, (tuple, list)):
            return tuple(self._resolve(part) for part in value)
        if isinstance(value, Mapping):
            return {key: self._resolve(part) for key, part in value.items()}
        return Subgraph(self._subgraph(value.graph)) if isinstance(value, Subgraph) else value

    def _subgraph(self, graph: Graph) -> Graph:
        """Functionalize a graph that is an argument."""
        rewriter = Functionalizer(graph, self.refuse, {})
        rewritten = rewriter.graph()
        if any(rewriter.changed(name) for name in graph.inputs):
            raise Unsupported("a nested graph writes to a tensor of the outer graph")
        return rewritten

    def _read(self, name: str) -> Ref:
        """Return the current version of a value. A view is rederived if its storage was written to since."""
        value = self.values.get(name)
        if value is None:
            return Ref(name)
        if value.parent is None:
            return value.storage.current
        if value.version != value.storage.version:
            assert value.step is not None
            base = self._read(value.parent)
            value.current = value.step.rederive(self, base, self._meta(value.parent), self._meta(name))
            value.version = value.storage.version
        return value.current

    def _assign(self, name: str, new: Ref) -> None:
        """Set a value to `new`, and with it all values that share its memory."""
        value = self._value(name)
        if value.parent is None:
            if name in self.shared:
                raise Unsupported(f"it writes to `{name}`, which shares memory with `{self.shared[name]}`")
            value.storage.current = new
            value.storage.version += 1
        else:
            assert value.step is not None
            base = self._read(value.parent)
            self._assign(
                value.parent, value.step.write_back(self, base, new, self._meta(value.parent), self._meta(name))
            )
        value.current, value.version = new, value.storage.version

    def _meta(self, name: str) -> TensorMeta:
        meta = self.metas.get(name)
        if not isinstance(meta, TensorMeta):
            raise Unsupported(f"the program does not state the shape of `{name}`")
        return meta


def functional_name(target: str) -> str | None:
    """The functional name of an operator that writes to its `self`: `relu` of `aten.relu_.default`. Else None."""
    if not target.startswith("aten."):
        return None
    name = target.split(".")[1]
    if name in _UNMARKED_IN_PLACE:
        return _UNMARKED_IN_PLACE[name]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else None
