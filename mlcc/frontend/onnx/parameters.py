"""Convert the inputs and outputs of an ONNX graph to those of `main`: names, symbolic shapes, dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, Diagnostic, did_you_mean, error
from mlcc.frontend.aten.symbols import parse_extent
from mlcc.frontend.onnx.elements import dtype_of
from mlcc.frontend.onnx.names import identifier
from mlcc.frontend.onnx.order import check_names
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType

if TYPE_CHECKING:
    import onnx

    from mlcc.frontend.onnx.translate import OnnxTranslator

Extent = int | str  # a number, or the name of a symbol


class Parameters:
    """The parameters of `main`: the inputs of a graph that have no initializer."""

    def __init__(
        self, t: OnnxTranslator, graph: onnx.GraphProto, shapes: Mapping[str, Sequence[Extent]],
        dtypes: str | Mapping[str, str], sanitize: bool,
    ) -> None:  # fmt: skip
        self.t = t
        self.variables: list[relax.Var] = []
        self.symbols: dict[str, int | tir.Expr] = {}
        self._shapes, self._dtypes, self._sanitize = shapes, dtypes, sanitize
        check_names(*(given.name for given in graph.input), *(out.name for out in graph.output))
        constants = {tensor.name for tensor in graph.initializer}
        constants |= {sparse.values.name for sparse in graph.sparse_initializer}
        inputs = [given for given in graph.input if given.name not in constants]
        self._refuse_unknown([given.name for given in inputs])
        problems: list[Diagnostic] = []
        stated = []
        for given in inputs:
            try:
                stated.append((given.name, self._extents(given), self._dtype(given)))
            except CompileError as problem:
                problems += problem.diagnostics
        if problems:
            raise CompileError(problems)
        self._declare([extent for _, extents, _ in stated for extent in extents])
        for name, extents, dtype in stated:
            shape = [self._extent(extent) for extent in extents]
            self.variables.append(t.parameter(self._name(name), shape, dtype))
            t.values[name] = self.variables[-1]
        t.extents_by_name.update(self.symbols)
        t.initializers(graph)

    # ------------------------------------------------------------ stated types

    def _refuse_unknown(self, names: Sequence[str]) -> None:
        """Raise CompileError for shapes and dtypes of unknown inputs."""
        stated = {} if isinstance(self._dtypes, str) else self._dtypes
        for name in (*self._shapes, *stated):
            if name not in names:
                help = did_you_mean(name, list(names)) or f"its inputs are {', '.join(names) or 'none'}"
                raise _interface_error(f"the model has no input `{name}`", help)

    def _extents(self, given: onnx.ValueInfoProto) -> list[Extent]:
        """Return the extents of an input; unknown ones without a name get new names."""
        kind = given.type.WhichOneof("value")
        if kind != "tensor_type":
            name = (kind or "value without a type").removesuffix("_type")
            article = "an" if name[0] in "aeiou" else "a"
            raise _interface_error(f"the input `{given.name}` is {article} {name}")
        known = given.type.tensor_type.shape.dim if given.type.tensor_type.HasField("shape") else None
        wanted = self._shapes.get(given.name)
        if known is None and wanted is None:
            raise _interface_error(f"the rank of the input `{given.name}` is not known", "give it a shape")
        stated = None if known is None else [_stated_extent(dim, f"{given.name}_{i}") for i, dim in enumerate(known)]
        if wanted is None:
            assert stated is not None
            return stated
        if stated is not None and len(stated) != len(wanted):
            raise _interface_error(
                f"the input `{given.name}` has {len(stated)} dimensions, but the given shape has {len(wanted)}"
            )
        for old, new in zip(stated or [], wanted, strict=False):
            if isinstance(old, int) and isinstance(new, int) and old != new:
                raise _interface_error(f"the input `{given.name}` is of shape {stated}, not {list(wanted)}")
            if isinstance(old, str):
                self._rename(old, new)
        return list(wanted)

    def _rename(self, symbol: str, wanted: Extent) -> None:
        """Record the name, or the number, that replaces a symbol of the model."""
        known = self.symbols.get(symbol, wanted)
        if known != wanted:
            raise _interface_error(f"`{symbol}` cannot be both {known} and {wanted}")
        self.symbols[symbol] = wanted  # type: ignore[assignment]

    def _dtype(self, given: onnx.ValueInfoProto) -> str:
        if not isinstance(self._dtypes, str) and given.name in self._dtypes:
            return str(DType.of(self._dtypes[given.name]))
        number = given.type.tensor_type.elem_type
        if number == 0:
            return str(DType.of(self._dtypes)) if isinstance(self._dtypes, str) else "float32"
        try:
            return dtype_of(number)
        except Unsupported as problem:
            raise _interface_error(f"the input `{given.name}`: {problem.reason}") from None

    # ------------------------------------------------------------ symbols

    def _declare(self, extents: Sequence[Extent]) -> None:
        """Create a symbol for each name. A name may also be an expression over names that are extents."""
        renamed = {name: new for name, new in self.symbols.items() if isinstance(new, (int, str))}
        self.symbols = {}
        taken: set[str] = set()
        for extent in extents:
            name = renamed.get(extent, extent) if isinstance(extent, str) else extent
            if isinstance(name, str) and name.isidentifier() and name not in self.symbols:
                self.symbols[name] = self.t.symbol(name)
                taken.add(name)
        for old, new in renamed.items():
            self.symbols[old] = new if isinstance(new, int) else self.symbols[new]
        for extent in extents:
            if isinstance(extent, str) and extent not in self.symbols:
                self.symbols[extent] = self._expression(extent) or self.t.symbol(identifier(extent, taken))

    def _expression(self, text: str) -> tir.Expr | None:
        """Parse the name of an extent as an expression over other names: `2*n`, `past + 1`."""
        known = {name: extent for name, extent in self.symbols.items() if isinstance(extent, tir.Expr)}
        try:
            return parse_extent(text, known)
        except Unsupported:
            return None

    def _extent(self, extent: Extent) -> int | tir.Expr:
        return extent if isinstance(extent, int) else self.symbols[extent]

    def _name(self, name: str) -> str:
        """Return a unique parameter name for an input. Raises CompileError for an invalid name."""
        if not self._sanitize and not (name.isidentifier() and name.isascii()):
            raise _interface_error(f"`{name}` is not a valid parameter name", "keep `sanitize_input_names=True`")
        return identifier(name, self.t.names)

    # ------------------------------------------------------------ results

    def results(self, graph: onnx.GraphProto) -> Any:
        """Return the only output of `main`, or a list. Raises for outputs without a value or of a conflicting type."""
        t, outputs = self.t, []
        if not graph.output:
            raise _interface_error("the model has no outputs")
        for out in graph.output:
            if out.name not in t.values:
                raise _interface_error(f"the output `{out.name}` is not defined")
            outputs.append(self._result(out))
        return outputs[0] if len(outputs) == 1 else outputs

    def _result(self, out: onnx.ValueInfoProto) -> Any:
        t = self.t
        try:
            with t.at(None, out.name):
                value = t.tensor(t.values[out.name])
        except Unsupported as problem:
            raise _interface_error(f"the output `{out.name}`: {problem.reason}") from None
        if value is None or not isinstance(value, (relax.Expr, list)):
            raise _interface_error(f"the output `{out.name}` has no value")
        if isinstance(value, relax.Expr):
            number = out.type.tensor_type.elem_type
            if number and number != _type_number(t.dtype(value)):
                raise _interface_error(
                    f"the output `{out.name}` is {t.dtype(value)}, which differs from the type that the model states"
                )
        return value


def _type_number(dtype: str) -> int:
    from mlcc.frontend.onnx.elements import NUMBERS

    return NUMBERS[dtype]


def _stated_extent(dim: onnx.TensorShapeProto.Dimension, otherwise: str) -> Extent:
    """Return the extent that a model states: a number, the name of a symbol, or `otherwise` if it is unknown."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    check_names(dim.dim_param)
    return dim.dim_param or otherwise


def _interface_error(message: str, help: str | None = None) -> CompileError:
    return CompileError(error("E1046", message, help=help))
