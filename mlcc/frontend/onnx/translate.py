"""From an ONNX graph to a relax module: walks the nodes, each said by its converter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.errors import Span
from mlcc.frontend.emitter import Emitter
from mlcc.frontend.onnx.integers import Element, Evaluator, Known, known, plain
from mlcc.frontend.onnx.node import OnnxNode
from mlcc.frontend.onnx.table import Converter, converter
from mlcc.frontend.place import Place, spans
from mlcc.frontend.problems import Problems, Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.tensor_data import TensorData

if TYPE_CHECKING:
    import numpy as np
    import onnx

# A value of a graph: a tensor, integers that are known, a sequence or optional value, what is left out, or the reason
# why it cannot be used.
Value: TypeAlias = "relax.Expr | Known | list[Any] | Unsupported | None"

_FOLD_LIMIT = 4096  # elements of operands and result of what is evaluated at import
_KNOWN_LIMIT = 1024  # elements of constants that integers are computed with

__all__ = ["OnnxNode", "OnnxTranslator", "Value", "translate"]


class OnnxTranslator(Emitter):
    """What a converter works with: an Emitter that knows what is constant, and integers that shapes are made of.

    A converter gets inputs as `relax.Expr`, absent ones as None, sequences as lists. Operators on small constants are
    evaluated as they are emitted, so that what is computed from constants is constant, too. Inputs that a schema takes
    as tensors and relax as attributes or shapes a converter asks for by `t.array(value)` (numbers) or
    `t.integers(value)` (numbers and expressions); `t.known(value)` is None where these would raise.
    """

    def __init__(self, name: str, opsets: Mapping[str, int]) -> None:
        super().__init__()
        self.name = name
        self.opsets = opsets
        self.values: dict[str, Value] = {"": None}
        self.problems = Problems()
        self.evaluator = Evaluator()
        self._known: dict[relax.Expr, Known] = {}

    # ------------------------------------------------------------ for converters

    def array(self, value: relax.Expr) -> np.ndarray:
        """The elements of a constant. Raises Unsupported for what is known at run time only."""
        found = self.constant_array(value)
        if found is None:
            raise Unsupported("an input must be constant here", "make it an initializer of the model")
        return found

    def constant_array(self, value: relax.Expr | None) -> np.ndarray | None:
        """The elements of a constant; None for what is known at run time only."""
        from mlcc.ir.narrow import decode

        if isinstance(value, relax.Constant) and value.data.array is not None:
            return decode(value.data.array, value.data.dtype)
        return None

    def integers(self, value: relax.Expr) -> list[Element]:
        """The elements of an integer vector: numbers, and expressions over the symbolic extents they were made of.

        Raises Unsupported for what is known at run time only.
        """
        found = self.known(value)
        if found is None:
            raise Unsupported("an input that shapes depend on is known at run time only")
        return found

    def known(self, value: relax.Expr | None) -> list[Element] | None:
        """As `integers`; None for what is known at run time only."""
        array = self.constant_array(value)
        if array is not None and array.dtype.kind in "iub":
            return [int(v) for v in array.reshape(-1)]
        symbolic = None if value is None else self._known.get(value)
        return None if symbolic is None else list(symbolic.elements.reshape(-1))

    def scalar_of(self, value: relax.Expr | None, default: Any = None) -> Any:
        """The only element of a constant as a number; `default` for an input that is left out."""
        return default if value is None else self.array(value).reshape(-1)[0].item()

    def simplify(self, element: Element) -> Element:
        """A number or expression in canonical form, where symbols are no less than 0."""
        return self.evaluator.simplify(element)

    def tensor(self, value: Value) -> Any:
        """A value as converters take it: integers that are known become a tensor."""
        if isinstance(value, Unsupported):
            raise value
        if not isinstance(value, Known):
            return value
        if value.expr is None:
            value.expr = self._tensor(value)
            self._known[value.expr] = value
        return value.expr

    def _tensor(self, value: Known) -> relax.Expr:
        shape, dtype = value.elements.shape, DType.of(value.dtype)
        flat = value.elements.reshape(-1).tolist()
        if not value.symbolic:
            import numpy as np

            return self.constant(np.array(flat, str(dtype)).reshape(shape))
        made: relax.Expr = self.emit(self.op.shape_to_tensor(self.shape_expr([_as_int(e) for e in flat])))
        return self.reshape(self.cast(made, dtype), shape)

    def emit(self, value: Any, hint: str = "") -> relax.Expr:  # type: ignore[override]
        """Bind a variable to an expression. Operators on small constants are evaluated instead."""
        if isinstance(value, (relax.Var, relax.Constant)):
            return value
        folded = _folded(value)
        if isinstance(folded, relax.Constant):
            key = hint or self._hint
            return self.constant(folded.data.array, str(folded.data.dtype), key) if folded.data.size > 1 else folded
        return super().emit(value, _plain_name(hint or self._hint))

    # ------------------------------------------------------------ walking

    def walk(self, nodes: Iterable[OnnxNode]) -> None:
        """Emit every node; problems are gathered, and what depends on them is left out."""
        listed = list(nodes)
        places = (Place(n.title, n.name) for n in listed)
        for node, span in zip(listed, spans(self.name, places), strict=True):
            self.node(node, span)

    def node(self, node: OnnxNode, span: Span) -> None:
        """Emit a node; a problem is noted."""
        convert: Converter | None = converter(node.domain, node.operator, node.version)
        if any(name not in self.values for name in node.inputs):
            return  # made by a node that could not be imported
        inputs = [self.values[name] for name in node.inputs]
        try:
            with self.at(span, next((name for name in node.outputs if name), "")):
                made = self._evaluated(node, inputs)
                if made is not None:
                    self.values[node.outputs[0]] = made
                elif convert is None:
                    self.problems.unknown(node.title, span)
                else:
                    self._bind(node, convert(self, node, *(self.tensor(v) for v in inputs)))
        except Unsupported as problem:
            self.problems.unsupported(node.title, span, problem)
        except TypeError as problem:
            if "positional argument" not in str(problem):
                raise
            self.problems.unsupported(node.title, span, Unsupported("it has more or fewer inputs than its schema"))

    def _bind(self, node: OnnxNode, result: Any) -> None:
        """Give the outputs of a node their values: an expression, or a list of one for each."""
        results = [result] if isinstance(result, relax.Expr) or result is None else list(result)
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.values[name] = self.emit(value, name) if isinstance(value, relax.Expr) else value

    def _evaluated(self, node: OnnxNode, inputs: Sequence[Value]) -> Value:
        """The result of a node on integers that are known; None if it is left to its converter."""
        if node.domain or len([name for name in node.outputs if name]) != 1 or not node.outputs[0]:
            return None
        if node.operator in ("Shape", "Size"):
            made = self._shape(node, inputs)
        else:
            operands = [self._as_known(v) for v in inputs]
            if not any(isinstance(v, Known) for v in inputs) or any(o is _UNKNOWN for o in operands):
                return None
            made = self.evaluator.evaluate(node, operands)
        if made is None or made.symbolic:
            return made
        return self.tensor(made)  # type: ignore[no-any-return]

    def _shape(self, node: OnnxNode, inputs: Sequence[Value]) -> Known | None:
        value = inputs[0] if inputs else None
        if isinstance(value, Known):
            extents: Sequence[Element] = value.elements.shape
        elif isinstance(value, relax.Expr):
            extents = [plain(e) for e in self.shape(value)]
        else:
            return None
        if node.operator == "Size":
            count: tir.Expr = c.const(1, "int64")
            for extent in extents:
                count = c.mul(count, extent)
            return known([self.simplify(count)], (), "int64")
        begin, end = node.attribute("start", 0), node.attribute("end")
        chosen = list(extents)[slice(begin, end)]
        return known(chosen, (len(chosen),), "int64")

    def _as_known(self, value: Value) -> Any:
        """A value as operand of the evaluation of integers."""
        if value is None or isinstance(value, Known):
            return value
        if isinstance(value, relax.Constant) and value.data.array is not None and value.data.size <= _KNOWN_LIMIT:
            if value.data.dtype.is_int or value.data.dtype.is_bool:
                return Known(value.data.array.astype(object), str(value.data.dtype))
        return self._known.get(value, _UNKNOWN) if isinstance(value, relax.Expr) else _UNKNOWN


_UNKNOWN = object()


def _as_int(element: Any) -> Any:
    """An element of a tensor of integers or bools as an extent."""
    if isinstance(element, tir.Expr) and element.dtype.is_bool:
        return tir.Select(DType.of("int64"), element, c.const(1, "int64"), c.const(0, "int64"))
    return element


def _plain_name(name: str) -> str:
    """A name of ONNX without what exporters put around it: `/layer/conv/Conv_output_0` is `layer_conv_Conv`."""
    return re.sub(r"\W+", "_", name.removesuffix("_output_0"), flags=re.ASCII).strip("_") or name


def _folded(value: Any) -> relax.Expr | None:
    """The result of an operator on small constants."""
    from mlcc.passes.graph.fold_constants import fold_call

    if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op):
        return None
    if any(isinstance(leaf, relax.Var) for leaf in _leaves(value.args)):
        return None
    size = sum(leaf.data.size for leaf in _leaves(value.args) if isinstance(leaf, relax.Constant))
    return fold_call(value, _FOLD_LIMIT, _FOLD_LIMIT) if size <= _FOLD_LIMIT else None


def _leaves(args: Iterable[relax.Expr]) -> Iterable[relax.Expr]:
    for arg in args:
        if isinstance(arg, relax.Tuple):
            yield from _leaves(arg.fields)
        else:
            yield arg


def translate(model: onnx.ModelProto, name: str = "model.onnx") -> IRModule:
    """The module of a model, weights bound. Raises CompileError that lists everything that cannot be imported."""
    from mlcc.frontend.onnx.elements import dtype_of, tensor_data
    from mlcc.frontend.onnx.node import plain_domain, read_node

    opsets = {plain_domain(o.domain): o.version for o in model.opset_import}
    t = OnnxTranslator(name, opsets)
    for tensor in model.graph.initializer:
        t.values[tensor.name] = weight(t, tensor_data(tensor))
    params = []
    symbols: dict[str, tir.Expr] = {}
    for given in model.graph.input:
        if given.name not in t.values:
            kind = given.type.tensor_type
            extents = [_extent(t, symbols, d) for d in kind.shape.dim]
            t.values[given.name] = t.parameter(given.name, extents, dtype_of(kind.elem_type))
            params.append(t.values[given.name])
    with t.function(params, {"num_input": len(params)}):  # type: ignore[arg-type]
        t.walk(read_node(n, opsets) for n in model.graph.node)
        t.problems.raise_all()
        results = [t.tensor(t.values[out.name]) for out in model.graph.output]
        t.result(results[0] if len(results) == 1 else results)
    return t.module()


def weight(t: Emitter, data: TensorData) -> relax.Constant:
    """A tensor of the model as a constant."""
    assert data.array is not None
    return t.constant(data.array, str(data.dtype), data.key)


def _extent(t: Emitter, symbols: dict[str, tir.Expr], dim: onnx.TensorShapeProto.Dimension) -> int | tir.Expr:
    if dim.dim_param:
        return symbols.setdefault(dim.dim_param, t.symbol(dim.dim_param))
    return int(dim.dim_value)
