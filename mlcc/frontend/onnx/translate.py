"""From an ONNX graph to a relax module: walks the nodes, each said by its converter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcc.errors import Span
from mlcc.frontend.emitter import Emitter
from mlcc.frontend.onnx.table import Converter, converter
from mlcc.frontend.place import Place, spans
from mlcc.frontend.problems import Problems, Unsupported
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule

if TYPE_CHECKING:
    import numpy as np
    import onnx


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node with its attributes as Python values: numbers, strings, lists, arrays, graphs."""

    operator: str
    domain: str
    name: str
    inputs: tuple[str, ...]  # "" for one that is left out
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    version: int  # of its domain's opset

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, or what the schema has in its place."""
        return self.attributes.get(name, default)


class OnnxTranslator(Emitter):
    """What a converter works with: an Emitter that knows what is constant, and integers that shapes are made of.

    A converter gets inputs as `relax.Expr`, absent ones as None. Inputs that a schema takes as tensors and relax as
    attributes (shapes, axes, pads) it asks for as `t.integers(value)` or `t.array(value)`.
    """

    def __init__(self, name: str, opsets: Mapping[str, int]) -> None:
        super().__init__()
        self.name = name
        self.opsets = opsets
        self.values: dict[str, relax.Expr | None] = {"": None}
        self.problems = Problems()

    # ------------------------------------------------------------ for converters

    def array(self, value: relax.Expr) -> np.ndarray:
        """The elements of a constant. Raises Unsupported for what is known at run time only."""
        if isinstance(value, relax.Constant) and value.data.array is not None:
            return value.data.array
        raise Unsupported("an input must be constant here")

    def integers(self, value: relax.Expr) -> list[int | tir.Expr]:
        """The elements of an integer vector: numbers, and expressions over the symbolic extents they were made of."""
        return [int(v) for v in self.array(value).reshape(-1)]

    # ------------------------------------------------------------ walking

    def walk(self, nodes: Iterable[OnnxNode]) -> None:
        """Emit every node; problems are gathered, and what depends on them is left out."""
        listed = list(nodes)
        places = (Place(n.operator if not n.domain else f"{n.domain}.{n.operator}", n.name) for n in listed)
        for node, span in zip(listed, spans(self.name, places), strict=True):
            self._node(node, span)

    def _node(self, node: OnnxNode, span: Span) -> None:
        operator = node.operator if not node.domain else f"{node.domain}.{node.operator}"
        convert: Converter | None = converter(node.domain, node.operator, node.version)
        if convert is None:
            self.problems.unknown(operator, span)
            return
        if any(name not in self.values for name in node.inputs):
            return  # made by a node that could not be imported
        try:
            with self.at(span, next((name for name in node.outputs if name), "")):
                result = convert(self, node, *(self.values[name] for name in node.inputs))
                results = list(result) if isinstance(result, (list, tuple)) else [result]
                for name, value in zip(node.outputs, results, strict=False):
                    if name:
                        self.values[name] = value if isinstance(value, relax.Constant) else self.emit(value, name)
        except Unsupported as problem:
            self.problems.unsupported(operator, span, problem)


def translate(model: onnx.ModelProto, name: str = "model.onnx") -> IRModule:
    """The module of a model, weights bound. Raises CompileError that lists everything that cannot be imported."""
    from onnx import helper, numpy_helper

    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    t = OnnxTranslator(name, opsets)
    for tensor in model.graph.initializer:
        t.values[tensor.name] = t.constant(numpy_helper.to_array(tensor), key=tensor.name)
    params = []
    symbols: dict[str, tir.Expr] = {}
    for given in model.graph.input:
        if given.name not in t.values:
            kind = given.type.tensor_type
            extents = [_extent(t, symbols, d) for d in kind.shape.dim]
            dtype = str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
            t.values[given.name] = t.parameter(given.name, extents, dtype)
            params.append(t.values[given.name])
    with t.function(params, {"num_input": len(params)}):  # type: ignore[arg-type]
        t.walk(_node(n, opsets) for n in model.graph.node)
        t.problems.raise_all()
        results = [t.values[out.name] for out in model.graph.output]
        t.result(results[0] if len(results) == 1 else results)
    return t.module()


def _extent(t: Emitter, symbols: dict[str, tir.Expr], dim: onnx.TensorShapeProto.Dimension) -> int | tir.Expr:
    if dim.dim_param:
        return symbols.setdefault(dim.dim_param, t.symbol(dim.dim_param))
    return int(dim.dim_value)


def _node(node: onnx.NodeProto, opsets: Mapping[str, int]) -> OnnxNode:
    from onnx import helper

    domain = "" if node.domain == "ai.onnx" else node.domain
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return OnnxNode(
        node.op_type, domain, node.name, tuple(node.input), tuple(node.output), attributes, opsets.get(domain, 1)
    )
