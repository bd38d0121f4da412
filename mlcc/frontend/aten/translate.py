"""From a program of PyTorch to a relax module: walks the nodes, each said by its converter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.errors import Span
from mlcc.frontend.aten.graph import (
    Argument,
    AtenNode,
    Graph,
    Input,
    NumberMeta,
    Program,
    Ref,
    Symbolic,
    TensorMeta,
)  # fmt: skip
from mlcc.frontend.aten.symbols import parse_extent
from mlcc.frontend.aten.table import Converter, converter
from mlcc.frontend.emitter import Emitter
from mlcc.frontend.place import spans
from mlcc.frontend.problems import Problems, Unsupported
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule


class Translator(Emitter):
    """What a converter works with: an Emitter that knows the operands' and results' meta data.

    A converter gets tensors as `relax.Expr`, numbers of run time as `tir.Expr`, and returns the same. What it returns
    is bound to a variable with the name of the node's value and the shape that the exporter states.
    """

    def __init__(self, program: Program, converters: Mapping[str, Converter] | None = None) -> None:
        super().__init__()
        self.program = program
        self.own = dict(converters or {})
        self.symbols: dict[str, tir.Expr] = {}
        self.values: dict[str, Any] = {}
        self.outputs: tuple[TensorMeta | NumberMeta | None, ...] = ()  # of the node at hand
        self.problems = Problems()
        self._metas: Mapping[str, Any] = {}

    # ------------------------------------------------------------ for converters

    def extent(self, extent: int | str) -> int | tir.Expr:
        """An extent of meta data as a number or an expression."""
        return extent if isinstance(extent, int) else parse_extent(extent, self.symbols)

    def out_shape(self, index: int = 0) -> tuple[int | tir.Expr, ...]:
        """The shape that the exporter states for a result of the node at hand."""
        meta = self.outputs[index] if index < len(self.outputs) else None
        if not isinstance(meta, TensorMeta):
            raise Unsupported("the program does not state the shape of the result")
        return tuple(self.extent(e) for e in meta.shape)

    def out_dtype(self, index: int = 0) -> str:
        """The dtype that the exporter states for a result of the node at hand."""
        meta = self.outputs[index] if index < len(self.outputs) else None
        if meta is None:
            raise Unsupported("the program does not state the dtype of the result")
        return meta.dtype

    # ------------------------------------------------------------ walking

    def walk(self, graph: Graph) -> None:
        """Emit every node of the graph; problems are gathered, and what depends on them is left out."""
        self._metas = graph.values
        for node, span in zip(graph.nodes, spans(self.program.name, (n.place for n in graph.nodes)), strict=True):
            self._node(node, span)

    def _node(self, node: AtenNode, span: Span) -> None:
        convert = self.own.get(node.target) or converter(node.target)
        if convert is None:
            self.problems.unknown(node.target, span)
            return
        self.outputs = tuple(self._metas.get(name) if name else None for name in node.outputs)
        try:
            with self.at(span, next((name for name in node.outputs if name), "")):
                arguments = {name: self.argument(value) for name, value in node.arguments.items()}
                self._bind(node, convert(self, **arguments))
        except _Missing:
            pass
        except Unsupported as problem:
            self.problems.unsupported(node.target, span, problem)
        except TypeError as problem:
            if "argument" not in str(problem):
                raise
            self.problems.unsupported(node.target, span, Unsupported(f"its arguments are not known: {problem}"))

    def argument(self, value: Argument) -> Any:
        """An argument as converters take it. Raises KeyError for a value of a node that could not be imported."""
        if isinstance(value, Ref):
            if value.name not in self.values:
                raise _Missing(value.name)
            return self.values[value.name]
        if isinstance(value, Symbolic):
            return parse_extent(value.text, self.symbols)
        if isinstance(value, (tuple, list)):
            return [self.argument(v) for v in value]
        return value

    def _bind(self, node: AtenNode, result: Any) -> None:
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if node.listed and len(node.outputs) == 1 and node.outputs[0]:  # a list that `getitem` takes apart
            self.values[node.outputs[0]] = results
            return
        for name, meta, value in zip(node.outputs, self.outputs, results, strict=False):
            if name is not None and value is not None:
                self.values[name] = self._stated(name, meta, value)

    def _stated(self, name: str, meta: Any, value: Any) -> Any:
        """A result with the shape and dtype that the exporter states."""
        if not isinstance(meta, TensorMeta) or not isinstance(value, relax.Expr):
            return value
        if self.dtype(value) != meta.dtype:
            raise Unsupported(f"it gives {self.dtype(value)} where the program states {meta.dtype}")
        return self.emit(self.as_known(value, [self.extent(e) for e in meta.shape], meta.dtype), name)


class _Missing(Exception):
    """A value of a node that could not be imported."""


def translate(program: Program, converters: Mapping[str, Converter] | None = None) -> IRModule:
    """The module of a program, weights bound. Raises CompileError that lists everything that cannot be imported."""
    t = Translator(program, converters)
    params = _parameters(t)
    with t.function(params, {"num_input": len(params)}):
        t.walk(program.graph)
        t.problems.raise_all()
        results = [t.argument(out.value) for out in program.outputs if out.kind == "user"]
        t.result(results[0] if len(results) == 1 else results)
    return t.module()


def _parameters(t: Translator) -> list[relax.Var]:
    """The user's inputs as parameters; weights become constants."""
    made = []
    for given in t.program.inputs:
        meta = t.program.graph.values[given.value]
        if given.kind == "user":
            if given.constant is not None or not isinstance(meta, TensorMeta):
                continue
            for extent in meta.shape:
                _declare(t, extent)
            t.values[given.value] = t.parameter(given.value, [t.extent(e) for e in meta.shape], meta.dtype)
            made.append(t.values[given.value])
        else:
            t.values[given.value] = _weight(t, given)
    return made


def _weight(t: Translator, given: Input) -> relax.Constant:
    weight = t.program.weights[given.target]
    return t.constant(weight.load(), weight.dtype, given.target)


def _declare(t: Translator, extent: int | str) -> None:
    """A symbol that an input's shape has for the first time."""
    if isinstance(extent, str) and extent.isidentifier() and extent not in t.symbols:
        t.symbols[extent] = t.symbol(extent)
