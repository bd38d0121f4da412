"""The graphs of a module: nodes of its functions with shapes and places in the source model, and edges between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import Span
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.relax.origins import origin
from mlcc.relax.queries import all_bindings, tir_callee, used_constants, used_vars

_INTEGER = re.compile(r"T\.u?int\d+\((-?\d+)\)")
# `layer1.0.conv1 (Conv2d) resnet.py:97`, as importers write behind bindings
_ORIGIN = re.compile(r"([\w.]+)(?: \(\w+\))?(?: \S+:\d+)?")


@dataclass(slots=True, eq=False)
class GraphNode:
    """A node. `kind` is input, constant, call or output; `spans` are the places in the source that it comes from.

    `is_function`: it is a call of a function of the module, or a field of its result, whose kernels that function has.
    """

    id: int
    name: str
    op: str
    kind: str
    shape: str = ""
    dtype: str = ""
    path: str = ""
    bytes: int | None = None
    line: int | None = None
    kernel: str | None = None
    spans: tuple[Span, ...] = ()
    is_function: bool = False

    def data(self) -> dict[str, Any]:
        return {
            "id": self.id, "name": self.name, "op": self.op, "kind": self.kind, "shape": self.shape,
            "dtype": self.dtype, "path": self.path, "kernel": self.kernel, "bytes": self.bytes, "line": self.line,
        }  # fmt: skip


@dataclass(slots=True, eq=False)
class Graph:
    """The graph of a function at a stage. `edges` are pairs of ids: the second node uses the value of the first."""

    function: str
    stage: str
    nodes: list[GraphNode] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def unique(self, name: str) -> str:
        """Return a name that no node has yet: `name`, or with a number."""
        chosen, number = name, 1
        while chosen in self.names:
            chosen, number = f"{name}_{number}", number + 1
        self.names.add(chosen)
        return chosen

    def data(self) -> dict[str, Any]:
        return {
            "function": self.function, "stage": self.stage, "nodes": [node.data() for node in self.nodes],
            "edges": [list(edge) for edge in self.edges],
        }  # fmt: skip


class GraphBuilder:
    """Make the graphs of modules; ids of nodes are unique among all that one builder makes."""

    def __init__(self) -> None:
        self._count = 0

    def graphs(self, module: IRModule, stage: str) -> list[Graph]:
        """Return a graph of each relax function, and of each public PrimFunc if the module has no relax functions."""
        functions = [(n, f) for n, f in module.functions.items() if isinstance(f, relax.Function)]
        if functions:
            return [self._of_relax(name, func, stage) for name, func in functions]
        kernels = [(n, f) for n, f in module.functions.items() if isinstance(f, tir.PrimFunc) and not f.is_private]
        return [self._of_prim(name, func, stage) for name, func in kernels]

    def _node(self, graph: Graph, name: str, op: str, kind: str, **facts: Any) -> GraphNode:
        node = GraphNode(self._count, graph.unique(name), op, kind, **facts)
        self._count += 1
        graph.nodes.append(node)
        return node

    # ------------------------------------------------------------ relax functions

    def _of_relax(self, name: str, func: relax.Function, stage: str) -> Graph:
        graph = Graph(name, stage)
        nodes: dict[relax.Var, GraphNode] = {}
        constants: dict[relax.Constant, GraphNode] = {}
        values: list[tuple[GraphNode, Any]] = []
        for param in func.params:
            nodes[param] = self._node(graph, param.name, "", "input", line=line_of(param.span), **_type(param))
        for binding, _ in all_bindings(func.body):
            value = binding.value  # type: ignore[attr-defined]
            if isinstance(value, relax.Var) and value in nodes and isinstance(binding, relax.VarBinding):
                nodes[binding.var] = nodes[value]  # another name of a value
                continue
            if isinstance(value, relax.Constant) and isinstance(binding, relax.VarBinding):
                nodes[binding.var] = self._constant(graph, value, constants, binding.var.name)
                continue
            callee = tir_callee(value)
            spans = tuple(span for span in (getattr(value, "span", None), binding.span) if span is not None)
            node = self._node(
                graph, binding.var.name, operation(value), "call", kernel=callee, spans=spans,
                line=line_of(spans[0] if spans else None), path=next(filter(None, map(module_path, spans)), ""),
                **_type(binding.var),
            )  # fmt: skip
            node.is_function = _is_of_function(value, nodes)
            nodes[binding.var] = node
            values.append((node, value))
        for node, value in values:  # at last, since a branch comes before what is bound in it
            inputs = [nodes[var] for var in _operands(value) if var in nodes]
            inputs += [self._constant(graph, constant, constants) for constant in used_constants(value)]
            graph.edges += [(source.id, node.id) for source in dict.fromkeys(inputs)]
        results = func.body.body
        fields = results.fields if isinstance(results, relax.Tuple) else (results,)
        for number, value in enumerate(fields):
            label = f"out{number}" if isinstance(results, relax.Tuple) else "out"
            source = nodes.get(value) if isinstance(value, relax.Var) else None
            output = self._node(graph, label, "", "output", line=line_of(value.span), **_type(value))
            if source is not None:
                graph.edges.append((source.id, output.id))
        return graph

    def _constant(
        self, graph: Graph, constant: relax.Constant, known: dict[relax.Constant, GraphNode], name: str = ""
    ) -> GraphNode:
        if constant not in known:
            label = name or constant.data.key or "constant"
            known[constant] = self._node(graph, label, "", "constant", line=line_of(constant.span), **_type(constant))
        return known[constant]

    # ------------------------------------------------------------ PrimFuncs

    def _of_prim(self, name: str, func: tir.PrimFunc, stage: str) -> Graph:
        """A graph of the blocks of a PrimFunc, by the buffers that they read and write; of one node without blocks."""
        graph = Graph(name, stage)
        blocks = [block for block in find(func.body, tir.Block) if block is not func.root]
        leaves = [b for b in blocks if not any(True for inner in find(b.body, tir.Block))]
        written = {buffer for block in leaves for buffer in _written(block)}
        parameters = [b for b in func.buffers if b is not None]
        last: dict[tir.Buffer, GraphNode] = {
            b: self._node(graph, b.name, "", "input", line=line_of(b.span), **_buffer_type(b))
            for b in parameters
            if b not in written or not leaves
        }
        if not leaves:
            self._node(graph, name, "T.prim_func", "call", kernel=name, line=line_of(func.span))
            graph.edges += [(node.id, graph.nodes[-1].id) for node in last.values()]
        for block in leaves:
            outputs = _written(block)
            facts = _buffer_type(outputs[0]) if outputs else {}
            node = self._node(
                graph, block.name, "T.block", "call", kernel=name, line=line_of(block.span),
                spans=(block.span,) if block.span is not None else (), **facts,
            )  # fmt: skip
            used = [last[b] for b in _read(block) if b in last]
            graph.edges += [(source.id, node.id) for source in dict.fromkeys(used)]
            last.update(dict.fromkeys(outputs, node))
        for buffer in parameters:
            if buffer in written and leaves:
                output = self._node(graph, buffer.name, "", "output", line=line_of(buffer.span), **_buffer_type(buffer))
                graph.edges.append((last[buffer].id, output.id))
        return graph


def _written(block: tir.Block) -> list[tir.Buffer]:
    return list(dict.fromkeys(store.buffer for store in find(block.body, tir.BufferStore)))


def _read(block: tir.Block) -> list[tir.Buffer]:
    return list(dict.fromkeys(load.buffer for load in find(block.body, tir.BufferLoad)))


# ---------------------------------------------------------------- what a node shows


def operation(value: Any) -> str:
    """Return the operation of a binding's value as its text begins: `R.nn.conv2d`, or the function that it calls."""
    callee = tir_callee(value)
    if callee is not None:
        return callee
    if isinstance(value, relax.Call):
        if value.args and isinstance(value.args[0], relax.ExternFunc):
            return value.args[0].name
        name = str(getattr(value.op, "name", "call"))
        return f"R.{name.removeprefix('relax.')}" if name.startswith("relax.") else name
    if isinstance(value, relax.TupleGetItem):
        return f"field {value.index}"
    return {relax.Tuple: "tuple", relax.If: "if"}.get(type(value), type(value).__name__)


def _is_of_function(value: Any, nodes: Mapping[relax.Var, GraphNode]) -> bool:
    """Return True for a call of a function of the module, and for a field of the result of one."""
    if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Var):
        owner = nodes.get(value.tuple_value)
        return owner is not None and owner.is_function
    return isinstance(getattr(value, "op", None), relax.GlobalVar)


def line_of(span: Span | None) -> int | None:
    """Return the line of the source in which a span begins."""
    return None if span is None else span.source.line_col(span.start)[0]


def module_path(span: Span | None) -> str:
    """Return the path of the module that a span belongs to in the source model, such as `layer1.0.conv1`."""
    from mlcc.frontend.location import location_of

    location = location_of(span)
    if location is not None:
        return location.module
    match = _ORIGIN.fullmatch(origin(span))
    return match[1] if match is not None and not match[1].isdigit() else ""


def _type(expr: relax.Expr) -> dict[str, Any]:
    """Return shape, dtype and bytes of a value; what is unknown is empty."""
    return _facts(expr.struct_info)


def _facts(info: relax.StructInfo | None) -> dict[str, Any]:
    if isinstance(info, relax.TensorStructInfo):
        dims = info.dims
        return {"shape": _shape(dims), "dtype": str(info.dtype or ""), "bytes": _bytes(dims, info.dtype)}
    if isinstance(info, relax.TupleStructInfo) and info.fields:
        return _tuple_facts([_facts(part) for part in info.fields])
    return {"shape": "" if info is None else str(info), "dtype": "", "bytes": None}


def _tuple_facts(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the shapes of a tuple's fields in brackets, their dtype if they share one, and the sum of their bytes."""
    dtypes = {facts["dtype"] for facts in fields}
    sizes = [facts["bytes"] for facts in fields]
    same = len(dtypes) == 1
    shapes = [facts["shape"] if same else f"{facts['shape']} {facts['dtype']}".strip() for facts in fields]
    return {
        "shape": f"[{', '.join(shapes)}]", "dtype": dtypes.pop() if same else "",
        "bytes": None if None in sizes else sum(sizes),
    }  # fmt: skip


def _buffer_type(buffer: tir.Buffer) -> dict[str, Any]:
    return {"shape": _shape(buffer.shape), "dtype": str(buffer.dtype), "bytes": _bytes(buffer.shape, buffer.dtype)}


def _shape(dims: tuple[tir.Expr, ...] | None) -> str:
    return "" if dims is None else f"({', '.join(map(_extent, dims))}{',' if len(dims) == 1 else ''})"


def _extent(dim: tir.Expr) -> str:
    """Return an extent as text, without the dtypes of its numbers."""
    return _INTEGER.sub(r"\1", str(dim))


def _bytes(dims: tuple[tir.Expr, ...] | None, dtype: Any) -> int | None:
    if dims is None or dtype is None or dtype.is_void:
        return None
    total = dtype.bytes * dtype.lanes
    for dim in dims:
        extent = tir.const_int(dim)
        if extent is None:
            return None
        total *= extent
    return int(total)


def _operands(value: Any) -> Iterator[relax.Var]:
    """Yield the variables that a value uses: of a branch the condition, and what its cases give."""
    if isinstance(value, relax.If):
        yield from used_vars(value.condition)
        for case in (value.true_branch, value.false_branch):
            yield from used_vars(case.body if isinstance(case, relax.SeqExpr) else case)
    elif not isinstance(value, relax.Function):
        yield from used_vars(value)
