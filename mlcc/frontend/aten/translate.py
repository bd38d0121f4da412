"""Translation of a PyTorch program to a relax module: calls the converter of each node in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mlcc.errors import Span
from mlcc.frontend.aten.complex import PARTS, Complex, complex_converter, has_complex_converter
from mlcc.frontend.aten.custom_converters import custom_converters
from mlcc.frontend.aten.functionalize import functionalize
from mlcc.frontend.aten.graph import (
    Argument,
    AtenNode,
    Extent,
    Graph,
    NumberMeta,
    Program,
    Ref,
    SymbolicNumber,
    TensorMeta,
)  # fmt: skip
from mlcc.frontend.aten.inline import inline_wrappers
from mlcc.frontend.aten.symbols import parse_extent, symbols_of
from mlcc.frontend.aten.table import Converter, converter
from mlcc.frontend.emitter import Emitter
from mlcc.frontend.location import spans
from mlcc.frontend.problems import Problems, Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ops import values
from mlcc.relax import convert
from mlcc.relax.calls import call_dps_packed


class Translator(Emitter):
    """The interface of converters: an Emitter that knows the metadata of operands and results.

    A converter gets tensors as `relax.Expr`, symbolic numbers as `tir.Expr`, graphs as `Inner`, and returns the same
    kinds. Its result is bound to a variable with the name of the node's value and the shape that the exporter states.
    A symbolic number that the exporter states as an expression over known symbols needs no converter.
    """

    def __init__(
        self, program: Program, converters: Mapping[str, Converter] | None = None, allow_packed: bool = False
    ) -> None:
        super().__init__()
        self.allow_packed = allow_packed  # operators without a converter become packed functions
        self.problems = Problems()
        self.name = program.name
        self.program = functionalize(_with_wrappers_inlined(program), self._refuse)
        self.own = custom_converters(converters or {})
        self.symbols: dict[str, tir.Expr] = {}
        self.values: dict[str, Any] = {}
        self.node: AtenNode | None = None  # the current node
        self.outputs: tuple[TensorMeta | NumberMeta | None, ...] = ()  # of the current node
        self._metas: Mapping[str, Any] = {}

    # ------------------------------------------------------------ for converters

    def extent(self, extent: Extent) -> int | tir.Expr:
        """Convert an extent of the metadata to a number or an expression."""
        return extent if isinstance(extent, int) else parse_extent(extent, self.symbols)

    def out_shape(self, index: int = 0) -> tuple[int | tir.Expr, ...]:
        """The shape that the exporter states for a result of the current node."""
        meta = self.outputs[index] if index < len(self.outputs) else None
        if not isinstance(meta, TensorMeta):
            raise Unsupported("the program does not state the shape of the result")
        return tuple(self.extent(e) for e in meta.shape)

    def out_dtype(self, index: int = 0) -> str:
        """The dtype that the exporter states for a result of the current node."""
        meta = self.outputs[index] if index < len(self.outputs) else None
        if meta is None:
            raise Unsupported("the program does not state the dtype of the result")
        return meta.dtype

    def define(self, name: str, value: tir.Expr | relax.Expr) -> tir.Expr:
        """Define a symbol by an expression, or by a vector of one int64."""
        if name in self.symbols and not isinstance(self.symbols[name], tir.Var):
            return self.symbols[name]
        symbol = self.symbols.setdefault(name, self.symbol(name))
        if isinstance(value, relax.Expr):
            given: relax.Expr = self.emit(self.op.tensor_to_shape(value))
        else:
            given = self.shape_expr([value])
        self.match_cast(given, relax.ShapeStructInfo((symbol,), 1))
        most = self.program.ranges.get(name, (0, None))[1]
        if isinstance(value, relax.Expr) and most is not None:  # upper bounds of extents are used to plan memory
            self.check_range(symbol, None, most)
            self.symbols[name] = c.minimum(symbol, c.const(most, "int64"))
        return self.symbols[name]

    def inline_graph(self, graph: Graph, operands: Sequence[Any]) -> list[Any]:
        """Inline a graph that is an argument; return its results."""
        outside, node, outputs = self.values, self.node, self.outputs
        self.values = dict(zip(graph.inputs, operands, strict=False))
        try:
            self.walk(graph)
            return [self.argument(value) for value in graph.outputs]
        finally:
            self.values, self.node, self.outputs = outside, node, outputs

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """Open a scope for symbols: those defined inside are dropped on exit."""
        before, self.symbols = self.symbols, dict(self.symbols)
        try:
            yield
        finally:
            self.symbols = before

    def branch_body(self, graph: Graph, operands: Sequence[Any]) -> relax.SeqExpr:
        """Convert a graph that is an argument to a separate sequence whose result is the tuple of its outputs."""
        with self.new_scope():
            return self.bb.sequence(lambda: self.emit(convert.as_expr(self.inline_graph(graph, operands))))

    def check_range(self, value: tir.Expr, least: int | None, most: int | None) -> None:
        """Emit a run-time check that a number is in a range."""
        ends = [c.maximum(value, c.const(least, "int64"))] if least is not None else []
        ends += [c.minimum(value, c.const(most, "int64"))] if most is not None else []
        for inside in ends:
            if tir.const_int(inside) is None:
                self.bb.match_cast(self.shape_expr([inside]), relax.ShapeStructInfo((value,), 1), "in_range")

    def check(self, condition: tir.Expr) -> None:
        """Emit a run-time check of a condition."""
        if not isinstance(condition, tir.IntImm):
            one, zero = c.const(1, "int64"), c.const(0, "int64")
            chosen = tir.Select(one.dtype, condition, one, zero)
            self.bb.match_cast(self.shape_expr([chosen]), relax.ShapeStructInfo((one,), 1), "holds")

    def tvm_node_meta(self) -> Mapping[str, Any]:
        """Return the metadata of the current node, in the form of TVM's nodes."""
        return {"outputs": self.outputs}

    # ------------------------------------------------------------ walking

    def walk(self, graph: Graph) -> None:
        """Emit every node of the graph. Collect problems and skip the nodes that depend on a failed one."""
        outside, self._metas = self._metas, graph.values
        for node, span in zip(graph.nodes, spans(self.name, (n.place for n in graph.nodes)), strict=True):
            self._node(node, span)
        self._metas = outside

    def _refuse(self, node: AtenNode, problem: Unsupported) -> None:
        self.problems.unsupported(node.target, spans(self.name, [node.place])[0], problem)

    def _node(self, node: AtenNode, span: Span) -> None:
        self.node = node
        self.outputs = tuple(self._metas.get(name) if name else None for name in node.outputs)
        convert = self.own.get(node.target) or self.own.get(node.target.rpartition(".")[0])
        if convert is None and self._bind_known_number(node):
            return
        convert = convert or converter(node.target) or (call_packed if self.allow_packed else None)
        if convert is None and not has_complex_converter(node.target):
            self.problems.unknown(node.target, span)
            return
        try:
            with self.at(span, _without_in_place_mark(_stem(node))):
                arguments = {name: self.argument(value) for name, value in node.arguments.items()}
                self._declare_results()
                result = complex_converter(node.target, arguments, convert)(self, **arguments)
                self._bind(node, result)
        except _FailedInput:
            pass
        except Unsupported as problem:
            self.problems.unsupported(node.target, span, problem)
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError) as problem:
            # the arguments of a converter are not validated before it uses them
            why = f"its arguments do not match the operator ({type(problem).__name__}: {str(problem)[:200]})"
            self.problems.unsupported(node.target, span, Unsupported(why))

    def _bind_known_number(self, node: AtenNode) -> bool:
        """Bind a run-time number to the expression that the exporter states for it, if its symbols are known."""
        if len(node.outputs) != 1 or not node.outputs[0] or not isinstance(self.outputs[0], NumberMeta):
            return False
        value = self.outputs[0].value
        if isinstance(value, str):
            if self.outputs[0].dtype == "float64" or any(s not in self.symbols for s in symbols_of(value)):
                return False
            try:
                self.values[node.outputs[0]] = parse_extent(value, self.symbols)
            except Unsupported:
                return False
        elif value is None:
            return False
        else:
            self.values[node.outputs[0]] = value
        return True

    def _declare_results(self) -> None:
        """Create symbols for data-dependent extents of results; `_with_stated_meta` takes them from the results."""
        for meta in self.outputs:
            for extent in meta.shape if isinstance(meta, TensorMeta) else ():
                if isinstance(extent, str) and extent.isidentifier() and extent not in self.symbols:
                    self.symbols[extent] = self.symbol(extent)

    def argument(self, value: Argument) -> Any:
        """Convert an argument for converters. Raises _FailedInput for a value of a node that could not be imported."""
        if isinstance(value, Ref):
            if value.name not in self.values:
                raise _FailedInput(value.name)
            return self.values[value.name]
        if isinstance(value, SymbolicNumber):
            return parse_extent(value.text, self.symbols)
        if isinstance(value, (tuple, list)):
            return [self.argument(v) for v in value]
        if isinstance(value, Mapping):
            return {key: self.argument(v) for key, v in value.items()}
        return value

    def _bind(self, node: AtenNode, result: Any) -> None:
        if node.is_list and len(node.outputs) == 1 and node.outputs[0] and self.outputs[0] is None:
            self.values[node.outputs[0]] = list(result)  # elements are read by `getitem`
            return
        for name, meta, value in zip(node.outputs, self.outputs, _flat(result), strict=False):
            if name is not None and value is not None:
                self.values[name] = self._with_stated_meta(node, name, meta, value)

    def _with_stated_meta(self, node: AtenNode, name: str, meta: Any, value: Any) -> Any:
        """Return a result with the shape and dtype that the exporter states."""
        if isinstance(value, Complex) and isinstance(meta, TensorMeta):
            shape, dtype = [self.extent(e) for e in meta.shape], PARTS[meta.dtype]
            return value.map(lambda part: self.emit(self.with_stated_shape(part, shape, dtype), name))
        if not isinstance(meta, TensorMeta) or not isinstance(value, relax.Expr):
            return value
        if node.casts:
            value = self.cast(value, meta.dtype)
        if self.dtype(value) != meta.dtype:
            raise Unsupported(f"its result is {self.dtype(value)}, but the program states {meta.dtype}")
        known = self.with_stated_shape(value, [self.extent(e) for e in meta.shape], meta.dtype)
        return (
            known if isinstance(known, relax.Constant) else self.named(self.emit(known), _without_in_place_mark(name))
        )


def call_packed(t: Translator, **arguments: Any) -> list[relax.Expr]:
    """Emit a call of the packed function named after the operator, with its tensors and numbers."""
    assert t.node is not None
    given = [
        value for value in _flat(list(arguments.values())) if isinstance(value, (relax.Expr, tir.Expr, int, float))
    ]
    infos = [values.tensor_info(t.out_shape(i), t.out_dtype(i)) for i in range(len(t.outputs))]
    call = t.emit(call_dps_packed(t.node.target, given, infos if len(infos) > 1 else infos[0]))
    return [t.emit(relax.TupleGetItem(call, i)) for i in range(len(infos))] if len(infos) > 1 else [call]


def _stem(node: AtenNode) -> str:
    """Return the stem of a node's variable names: its value's name, or the operator's if it has several values."""
    named = [name for name in node.outputs if name]
    return named[0] if len(named) == 1 else node.target.split(".")[1:2][0] if "." in node.target else node.target


def _without_in_place_mark(name: str) -> str:
    """Strip the in-place mark from a value's name: `relu__1` becomes `relu_1`."""
    return re.sub(r"(?<=[^_])_(?=(_\d+)?$)", "", name)


class _FailedInput(Exception):
    """Raised for a value of a node that could not be imported."""


def _flat(results: Any) -> list[Any]:
    if isinstance(results, (list, tuple)):
        return [leaf for part in results for leaf in _flat(part)]
    return [results]


def _with_wrappers_inlined(program: Program) -> Program:
    from dataclasses import replace

    graph = inline_wrappers(program.graph)
    if graph is program.graph:
        return program
    outputs = tuple(replace(out, value=value) for out, value in zip(program.outputs, graph.outputs, strict=True))
    return replace(program, graph=graph, outputs=outputs)
