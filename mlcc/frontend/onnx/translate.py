"""Translation of an ONNX graph to a relax module: calls the converter of each node in order."""

from __future__ import annotations

import functools
import re
from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.errors import CompileError, Span, error
from mlcc.frontend.emitter import Dim, Emitter, Shape
from mlcc.frontend.location import spans
from mlcc.frontend.onnx.elements import NarrowIntegers, sparse_data
from mlcc.frontend.onnx.functions import Functions
from mlcc.frontend.onnx.locations import location_of_node
from mlcc.frontend.onnx.names import identifier, scopes
from mlcc.frontend.onnx.node import OnnxNode, attribute_value, read_node
from mlcc.frontend.onnx.order import check_names, malformed_graph, topological_order
from mlcc.frontend.onnx.reader import OnnxModel, opsets_of
from mlcc.frontend.onnx.schemas import check
from mlcc.frontend.onnx.shape_folding import Element, KnownTensor, ShapeFolder, as_number, known_tensor
from mlcc.frontend.onnx.table import Converter, converter
from mlcc.frontend.problems import Problems, Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.tensor_data import INLINE_LIMIT, TensorData

if TYPE_CHECKING:
    import numpy as np
    import onnx

# A value of a graph: a tensor, known integers, a sequence or optional value, None if omitted, or the reason why it
# cannot be used.
Value: TypeAlias = "relax.Expr | KnownTensor | list[Any] | Unsupported | _Sentinel | None"

_MAX_FOLDED_ELEMENTS = 4096  # the most elements of operands and result for folding
_MAX_SHAPE_ELEMENTS = 1024  # the most elements of constants in the evaluation of integers

NODE_LIMIT = 100_000
_VALUE_ONLY_OPERATORS = ("DequantizeLinear", "Cast")  # operators whose results depend on an integer's value alone

# Exceptions of converters for malformed attributes and operands.
_MALFORMED = (TypeError, AttributeError, LookupError, ArithmeticError, ValueError, AssertionError)

__all__ = ["OnnxNode", "OnnxTranslator", "Value", "translate"]


class _Sentinel:
    """A unique marker value."""


FAILED = _Sentinel()  # the value of a node that could not be imported
EMPTY_OPTIONAL = _Sentinel()  # an optional value without element


class FailedInput(Exception):
    """Raised for a value that depends on a node that could not be imported."""


class NoConverter(Exception):
    """Raised for an operator without a converter or a function."""


class OnnxTranslator(Emitter):
    """The interface of converters: an Emitter that tracks constants and the integers of which shapes are computed.

    A converter gets inputs as `relax.Expr`, absent ones as None, sequences as lists. Operators on small constants are
    folded as they are emitted. `t.array(value)` (numbers) and `t.integers(value)` (numbers and expressions) read an
    input that is a tensor in the schema but an attribute or a shape in relax; `t.known_integers(value)` returns None
    where these would raise.
    """

    def __init__(
        self, model: OnnxModel, converters: Mapping[str, Converter] | None = None, kept: Container[str] = ()
    ) -> None:
        """`kept` are the initializers that become parameters, not constants."""
        super().__init__()
        self.kept: dict[relax.Var, TensorData] = {}
        self.inspected_initializers: set[str] = set()  # initializers whose elements the import depends on
        self._keep = kept
        self._origins: dict[TensorData, frozenset[str]] = {}  # the initializers from which a constant was folded
        self.model = model
        self.own = dict(converters or {})
        self.opsets: Mapping[str, int] = opsets_of(model.proto.opset_import)
        self.values: MutableMapping[str, Value] = {"": None}
        self.problems = Problems()
        self.evaluator = ShapeFolder()
        self._known: dict[relax.Expr, KnownTensor] = {}
        self._tensors: MutableMapping[KnownTensor, relax.Expr] = {}  # tensors emitted for known integers
        self._attributes: Mapping[str, Any] | None = None  # of the function whose body is walked
        self._functions = Functions(model.proto)
        self._count = 0  # nodes walked
        self._stated: Mapping[str, onnx.ValueInfoProto] = {}  # the current graph's statements of its values' types
        self.names: set[str] = set()  # of the parameters
        self.extents_by_name: dict[str, int | tir.Expr] = {}  # symbols that the model names

    # ------------------------------------------------------------ for converters

    def array(self, value: relax.Expr) -> np.ndarray:
        """The elements of a constant. Raises Unsupported for values known at run time only."""
        elements = self.constant_array(value)
        if elements is None:
            raise Unsupported("an input must be constant", "make it an initializer of the model")
        return elements

    def constant_array(self, value: relax.Expr | None) -> np.ndarray | None:
        """The elements of a constant; None for values known at run time only."""
        from mlcc.ir.narrow_floats import decode

        if isinstance(value, relax.Constant) and value.data.array is not None:
            self.inspected_initializers |= self._origins.get(value.data, frozenset())
            return decode(value.data.array, value.data.dtype)
        return None

    def integers(self, value: relax.Expr) -> list[Element]:
        """The elements of an integer vector: numbers, and expressions over symbolic extents.

        Raises Unsupported for values known at run time only.
        """
        elements = self.known_integers(value)
        if elements is None:
            raise Unsupported("an input on which shapes depend is known at run time only")
        return elements

    def known_integers(self, value: relax.Expr | None) -> list[Element] | None:
        """Like `integers`, but return None for values known at run time only."""
        array = self.constant_array(value)
        if array is not None and (array.dtype.kind in "iub" or _holds_integers(array)):
            return [int(v) for v in array.reshape(-1)]
        symbolic = None if value is None else self._known.get(value)
        return None if symbolic is None else list(symbolic.elements.reshape(-1))

    def extents(self, value: relax.Expr, limit: Dim | None = None) -> list[Dim]:
        """The elements of an integer vector as extents: known ones, or symbols defined by the tensor at run time.

        `limit` is an upper bound of an extent, if it is a number; memory is planned by it.
        """
        elements = self.known_integers(value)
        if elements is not None:
            return list(elements)
        length = self.static_shape(value)
        if length is None or len(length) != 1:
            raise Unsupported("the rank of the result is known at run time only")
        extents = self.emit(self.op.tensor_to_shape(self.cast(value, "int64")))
        symbols = [self.fresh("extent") for _ in range(length[0])]
        self.match_cast(extents, relax.ShapeStructInfo(tuple(symbols), length[0]))
        most = None if limit is None else as_number(c.as_expr(limit))
        return [c.minimum(s, most) for s in symbols] if isinstance(most, int) and most > 0 else list(symbols)

    def integer_tensor(self, elements: Shape, dtype: str, shape: Sequence[int] | None = None) -> relax.Expr:
        """Return a tensor of known integers, a vector unless a shape is given."""
        listed = list(elements)
        return self.tensor(known_tensor(listed, (len(listed),) if shape is None else shape, dtype))

    def scalar_of(self, value: relax.Expr | None, default: Any = None) -> Any:
        """Return the only element of a constant as a number; `default` for an omitted input."""
        return default if value is None else self.array(value).reshape(-1)[0].item()

    def simplify(self, element: Element) -> Element:
        """Return a number or expression in canonical form, assuming that symbols are non-negative."""
        return self.evaluator.simplify(element)

    def tensor(self, value: Value) -> Any:
        """Convert a value for converters: known integers become a tensor."""
        if isinstance(value, Unsupported):
            raise value
        if not isinstance(value, KnownTensor):
            return value
        if value not in self._tensors:
            self._tensors[value] = self._tensor(value)
            self._known[self._tensors[value]] = value
        return self._tensors[value]

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """Open a scope for tensors of known integers: those emitted inside are not reused after it."""
        before, self._tensors = self._tensors, ChainMap({}, self._tensors)
        try:
            yield
        finally:
            self._tensors = before

    def _tensor(self, value: KnownTensor) -> relax.Expr:
        shape, dtype = value.elements.shape, DType.of(value.dtype)
        flat = value.elements.reshape(-1).tolist()
        if not value.symbolic:
            import numpy as np

            return self.constant(np.array(flat, str(dtype)).reshape(shape))
        tensor: relax.Expr = self.emit(self.op.shape_to_tensor(self.shape_expr([_as_int(e) for e in flat])))
        return self.reshape(self.cast(tensor, dtype), shape)

    def emit(self, value: Any, hint: str = "") -> relax.Expr:  # type: ignore[override]
        """Bind a variable to an expression. Operators on small constants are evaluated instead."""
        if isinstance(value, (relax.Var, relax.Constant)):
            return value
        folded = _fold(value)
        if isinstance(folded, relax.Constant) and folded.data.array is not None:
            key = hint or self._hint if folded.data.size > 1 else ""
            constant = self.constant(folded.data.array, str(folded.data.dtype), key)
            operands = [leaf.data for leaf in _leaves(value.args) if isinstance(leaf, relax.Constant)]
            self._origins[constant.data] = frozenset().union(*(self._origins.get(data, ()) for data in operands))
            return constant
        return super().emit(value, _plain_name(hint or self._hint))

    # ------------------------------------------------------------ walking

    def walk(self, graph: onnx.GraphProto | onnx.FunctionProto) -> None:
        """Emit every node. Collect problems and skip the nodes that depend on a failed one."""
        self._count += len(graph.node)
        if self._count > NODE_LIMIT:
            raise CompileError(error("E1045", f"{self.model.name} has more than {NODE_LIMIT} nodes"))
        nodes = topological_order(graph.node, self.values.__contains__, f"the graph `{graph.name}`")
        before, self._stated = self._stated, {value.name: value for value in graph.value_info}
        try:
            self._walk(nodes)
        finally:
            self._stated = before

    def _walk(self, nodes: Sequence[onnx.NodeProto]) -> None:
        for proto, span in zip(nodes, spans(self.model.name, map(location_of_node, nodes)), strict=True):
            self._node(read_node(proto, self.opsets, self.model.tensor, self._attributes), span)

    def _node(self, node: OnnxNode, span: Span) -> None:
        """Emit a node, and record its problem if it has one."""
        inputs = [self.values[name] for name in node.inputs]
        for name in node.outputs:
            if name:
                self.values[name] = FAILED
        if any(value is FAILED for value in inputs):
            return  # made by a node that could not be imported
        try:
            with self.at(span, next((name for name in node.outputs if name), "")):
                self._bind(node, self._convert(node, inputs))
        except NoConverter:
            self.problems.unknown(node.title, span)
        except FailedInput:
            pass
        except Unsupported as problem:
            self.problems.unsupported(node.title, span, problem)
        except _MALFORMED as problem:
            reason = f"it does not match its schema ({type(problem).__name__}: {problem})"
            self.problems.unsupported(node.title, span, Unsupported(reason))

    def _convert(self, node: OnnxNode, inputs: Sequence[Value]) -> Any:
        """Convert a node: the user's converter, the model's function, folding, the table, or its schema's function."""
        check(node)
        own = self.own.get(node.title)
        function = self._functions.of_model(node) if own is None else None
        if function is not None:
            return self.call(function, node, inputs)
        folded = self._fold_shape_node(node, inputs) if own is None else None
        if folded is not None:
            return [folded]
        convert = own or converter(node.domain, node.operator, node.version)
        if convert is not None:
            return convert(self, node, *(self._operand(node, v) for v in inputs))
        function = self._functions.of_schema(node, [self._type(v) for v in inputs])
        if function is None:
            raise NoConverter
        return self.call(function, node, inputs)

    def _operand(self, node: OnnxNode, value: Value) -> Any:
        """Convert a value for the converter of a node; 4-bit and 2-bit integers are widened where possible."""
        if isinstance(value, NarrowIntegers) and node.operator in _VALUE_ONLY_OPERATORS:
            return weight(self, value.widened)
        return self.tensor(value)

    def _type(self, value: Value) -> str | None:
        """The dtype of a value, if it is a tensor."""
        if isinstance(value, KnownTensor):
            return value.dtype
        return self.dtype(value) if isinstance(value, relax.Expr) else None

    # ------------------------------------------------------------ nested graphs

    def call(self, function: onnx.FunctionProto, node: OnnxNode, inputs: Sequence[Value]) -> list[Value]:
        """Inline a call of a function of the model. Return its outputs."""
        given = dict(zip(function.input, inputs, strict=False))
        attributes = {a.name: attribute_value(a, self.model.tensor) for a in function.attribute_proto}
        attributes.update(node.attributes)
        before = self.opsets, self._attributes, self.values
        self.opsets = {**self.opsets, **opsets_of(function.opset_import)}
        self._attributes = attributes
        self.values = {"": None, **dict.fromkeys(function.input), **given}
        try:
            with self._functions.entered(function):
                self.walk(function)
            return self._outputs(function.output)
        finally:
            self.opsets, self._attributes, self.values = before

    def inline(self, graph: onnx.GraphProto, inputs: Sequence[Value]) -> list[Value]:
        """Inline a graph that is an attribute, in the scope of the outer values. Return its outputs."""
        if len(inputs) != len(graph.input):
            raise Unsupported(f"the graph `{graph.name}` has {len(graph.input)} inputs, but {len(inputs)} are given")
        outer = self.values
        self.values = ChainMap({}, outer)
        try:
            self.initializers(graph)
            self.values.update(zip((value.name for value in graph.input), inputs, strict=True))
            self.walk(graph)
            return self._outputs([out.name for out in graph.output])
        finally:
            self.values = outer

    def _outputs(self, names: Sequence[str]) -> list[Value]:
        for name in names:
            if name not in self.values:
                raise malformed_graph("a graph", f"its result `{name}` is not defined")
        results = [self.values[name] for name in names]
        if any(value is FAILED for value in results):
            raise FailedInput
        return results

    def initializers(self, graph: onnx.GraphProto) -> None:
        """Read the initializers of a graph as values."""
        dense = ((tensor.name, functools.partial(self._weight, tensor)) for tensor in graph.initializer)
        sparse = (
            (tensor.values.name, functools.partial(_dense_weight, self, tensor)) for tensor in graph.sparse_initializer
        )
        seen = set()
        readers: list[tuple[str, Callable[[], relax.Expr]]] = [*dense, *sparse]
        for name, read in readers:
            check_names(name)
            if name in seen:
                raise malformed_graph(f"the graph `{graph.name}`", f"it has two initializers `{name}`")
            seen.add(name)
            try:
                self.values[name] = read()
            except Unsupported as problem:
                self.values[name] = problem  # raised by the first reader

    def _weight(self, proto: onnx.TensorProto) -> relax.Expr:
        data = self.model.tensor(proto)
        if proto.name in self._keep:
            var = self.parameter(identifier(proto.name, self.names), data.shape, str(data.dtype))
            self.kept[var] = data
            return var
        constant = weight(self, data)
        self._origins[constant.data] = frozenset([proto.name])
        return constant

    # ------------------------------------------------------------ results

    def _bind(self, node: OnnxNode, result: Any) -> None:
        """Assign the outputs of a node: an expression, or a list of one for each output."""
        results = [result] if isinstance(result, relax.Expr) or result is None else list(result)
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.values[name] = self._bind_result(name, value) if isinstance(value, relax.Expr) else value
        if any(name and self.values[name] is FAILED for name in node.outputs):
            raise Unsupported("one of its outputs is not supported")

    def _bind_result(self, name: str, value: relax.Expr) -> relax.Expr:
        """Bind a result to a variable, with the shape that the model states if none is inferred."""
        var = self.named(self.emit(value, name), _plain_name(name))
        info, stated = var.struct_info, self._stated.get(name)
        if not isinstance(info, relax.TensorStructInfo) or info.shape is not None or stated is None:
            return var
        kind = stated.type.tensor_type
        if not kind.HasField("shape") or info.ndim not in (-1, len(kind.shape.dim)):
            return var
        return self.named(self.with_shape(var, [self._extent(dim) for dim in kind.shape.dim]), _plain_name(name))

    def _extent(self, dim: onnx.TensorShapeProto.Dimension) -> Dim:
        """Return an extent that the model states; a new name becomes a symbol defined at run time."""
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return int(dim.dim_value)
        if not dim.dim_param:
            return self.fresh("extent")
        if dim.dim_param not in self.extents_by_name:
            self.extents_by_name[dim.dim_param] = self.fresh(dim.dim_param)
        return self.extents_by_name[dim.dim_param]

    def _fold_shape_node(self, node: OnnxNode, inputs: Sequence[Value]) -> Value:
        """Evaluate a node on known integers. Return None to leave it to its converter."""
        if node.domain or len([name for name in node.outputs if name]) != 1 or not node.outputs[0]:
            return None
        if node.operator in ("Shape", "Size"):
            result = self._shape(node, inputs)
        else:
            operands = [self._as_known(v) for v in inputs]
            if not any(isinstance(v, KnownTensor) for v in inputs) or any(o is _NOT_CONSTANT for o in operands):
                return None
            result = self.evaluator.evaluate(node, operands)
        if result is None or result.symbolic:
            return result
        return self.tensor(result)

    def _shape(self, node: OnnxNode, inputs: Sequence[Value]) -> KnownTensor | None:
        value = inputs[0] if inputs else None
        if isinstance(value, KnownTensor):
            extents: Sequence[Element] = value.elements.shape
        elif isinstance(value, relax.Expr):
            extents = [as_number(e) for e in self.shape(value)]
        else:
            return None
        if node.operator == "Size":
            count: tir.Expr = c.const(1, "int64")
            for extent in extents:
                count = c.mul(count, extent)
            return known_tensor([self.simplify(count)], (), "int64")
        begin, end = node.attribute("start", 0), node.attribute("end")
        chosen = list(extents)[slice(begin, end)]
        return known_tensor(chosen, (len(chosen),), "int64")

    def _as_known(self, value: Value) -> Any:
        """Convert a value to an operand of the evaluation of integers."""
        if value is None or isinstance(value, KnownTensor):
            return value
        if isinstance(value, relax.Constant):
            data = value.data
            if data.array is None or data.size > _MAX_SHAPE_ELEMENTS or not (data.dtype.is_int or data.dtype.is_bool):
                return _NOT_CONSTANT
            self.inspected_initializers |= self._origins.get(data, frozenset())
            return KnownTensor(data.array.astype(object), str(data.dtype))
        return self._known.get(value, _NOT_CONSTANT) if isinstance(value, relax.Expr) else _NOT_CONSTANT


_NOT_CONSTANT = object()
_VIEWS = frozenset(["relax.permute_dims", "relax.reshape", "relax.expand_dims"])


def _holds_integers(array: np.ndarray) -> bool:
    """Return True if an array of at most 16 floats holds integers only, as counts may be written."""
    if array.dtype.kind != "f" or array.size > 16:
        return False
    return all(abs(v) < 2**53 and v.is_integer() for v in array.reshape(-1).tolist())


def _as_int(element: Any) -> Any:
    """Convert an element of an integer or bool tensor to an extent."""
    if isinstance(element, tir.Expr) and element.dtype.is_bool:
        return tir.Select(DType.of("int64"), element, c.const(1, "int64"), c.const(0, "int64"))
    return element


def _plain_name(name: str) -> str:
    """Strip the parts of a name that exporters add: `/layer1/layer1.0/Conv_output_0` is `layer1_0_Conv`."""
    return re.sub(r"\W+", "_", "_".join(scopes(name.removesuffix("_output_0"))), flags=re.ASCII).strip("_") or name


def _fold(value: Any) -> relax.Expr | None:
    """Fold an operator on small constants; None if it cannot be folded."""
    from mlcc.passes.graph.fold_constants import fold_call

    if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op):
        return None
    if any(isinstance(leaf, relax.Var) for leaf in _leaves(value.args)):
        return None
    data = [leaf.data for leaf in _leaves(value.args) if isinstance(leaf, relax.Constant)]
    if value.op.name in _VIEWS and any(d.dtype.is_float and d.size > INLINE_LIMIT for d in data):
        return None  # a weight keeps its name in the text; the pass `fold-constants` folds this
    if value.op.name == "relax.dequantize" and data[0].size > INLINE_LIMIT:
        return None  # the pass `integer-products` matches integer weights
    return (
        fold_call(value, _MAX_FOLDED_ELEMENTS, _MAX_FOLDED_ELEMENTS)
        if sum(d.size for d in data) <= _MAX_FOLDED_ELEMENTS
        else None
    )


def _leaves(args: Iterable[relax.Expr]) -> Iterable[relax.Expr]:
    for arg in args:
        if isinstance(arg, relax.Tuple):
            yield from _leaves(arg.fields)
        else:
            yield arg


def weight(t: Emitter, data: TensorData) -> relax.Constant:
    """Return a tensor of the model as a constant."""
    assert data.array is not None
    return t.constant(data.array, str(data.dtype), data.key)


def _dense_weight(t: Emitter, proto: onnx.SparseTensorProto) -> relax.Constant:
    return weight(t, sparse_data(proto))


def translate(model: Any, name: str | None = None) -> IRModule:
    """Translate a model with bound weights. Raises CompileError that lists everything that cannot be imported."""
    from mlcc.frontend.onnx.importer import from_onnx

    return from_onnx(model, name=name)
