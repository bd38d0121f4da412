"""Build the module of a program: `main` with its parameters and results, the ranges of symbols, and the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.frontend.aten.complex import PARTS, Complex, complex_unsupported
from mlcc.frontend.aten.graph import Input, NumberMeta, Program, TensorMeta, Weight
from mlcc.frontend.aten.parameters import SymbolNames, solve_symbol
from mlcc.frontend.aten.promotion import RuntimeFloat
from mlcc.frontend.aten.schema import value_refs
from mlcc.frontend.aten.symbols import symbols_of
from mlcc.frontend.aten.table import Converter
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ops import values

_MIN_SYMBOL = 2  # PyTorch assumes this lower bound of symbols, but also runs programs with smaller sizes


@dataclass(frozen=True)
class Options:
    """Options of the conversion of a program to a module."""

    keep_params: bool = False  # make parameters of the model parameters of `main`
    keep_state: bool = False  # make buffers that the program changes parameters of `main`
    unwrap: bool = False  # return a single result without a tuple
    dim_names: Mapping[str, Any] = field(default_factory=dict)
    converters: Mapping[str, Converter] = field(default_factory=dict)
    nest_results: Callable[[list[Any]], list[Any]] = list  # nests results as the model returns them
    allow_packed: bool = False  # operators without a converter become packed functions


def translate(program: Program, options: Options = Options()) -> IRModule:  # noqa: B008
    """Translate a program to a module. Raises CompileError that lists everything that cannot be imported."""
    try:
        return _translate(program, options)
    except Unsupported as problem:  # for inputs or results; those of nodes are collected
        raise CompileError(error("E1002", f"{program.name}: {problem.reason}", help=problem.help)) from None


def _translate(program: Program, options: Options) -> IRModule:
    t = Translator(program, options.converters, options.allow_packed)
    main = _Main(t, options)
    params = main.parameters()
    results = [out for out in t.program.outputs if out.kind in ("user", "loss")]
    changed = [out for out in t.program.outputs if out.kind.endswith("_mutation")]
    attrs = {"num_input": main.inputs, **main.bounds()}
    if changed:
        attrs["mutated"] = [out.target for out in changed]
    if main.kept:
        attrs["params"] = [weight.load() for weight in main.kept]
    with t.function(params, attrs):
        main.check_sizes()
        t.walk(t.program.graph)
        t.problems.raise_all()
        outputs = options.nest_results([_result(t, out.value) for out in results])
        outputs += [_result(t, out.value) for out in changed]
        outputs = [value for value in outputs if value is not None]
        t.result(outputs[0] if options.unwrap and len(outputs) == 1 else outputs)
    return t.module()


def _result(t: Translator, value: Any) -> Any:
    """Return a result, a tensor or a number; None for results that are not computed values, such as strings."""
    argument = t.argument(value)
    if argument is None or isinstance(argument, str):
        return None
    if isinstance(argument, Complex):
        raise complex_unsupported()
    if isinstance(argument, RuntimeFloat):
        return argument.value
    if isinstance(argument, (bool, int, tir.Expr)):
        return relax.PrimValue(
            c.as_expr(argument) if isinstance(argument, tir.Expr) else c.const(argument, _number_dtype(argument))
        )
    return t.scalar(argument, "float64") if isinstance(argument, float) else argument


def _number_dtype(value: bool | int) -> str:
    return "bool" if isinstance(value, bool) else "int64"


class _Main:
    """The parameters of `main`: inputs in the order of `forward`, then the kept weights and buffers of the model."""

    def __init__(self, t: Translator, options: Options) -> None:
        self.t, self.options = t, options
        self.program = t.program
        self.names = SymbolNames(self.program, options.dim_names)
        self.inputs = 0
        self.kept: list[Any] = []
        self._derived: list[tuple[relax.Var, int, str]] = []  # parameter, axis, expression of its extent
        self._constants: dict[Any, relax.Constant | Complex] = {}

    def parameters(self) -> list[relax.Var]:
        """Return the parameters; other weights that the program uses become constants."""
        users = [given for given in self.program.inputs if given.kind == "user"]
        for given in users:
            self._declare(self._meta(given))
        params = [param for given in users if (param := self._user_parameter(given)) is not None]
        self.inputs = len(params)
        changed = [out.target for out in self.program.outputs if out.kind.endswith("_mutation")]
        state: dict[str, relax.Var] = {}
        nodes = self.program.graph.nodes
        used = {ref.name for node in nodes for ref in value_refs(node.arguments.values())}
        used |= {ref.name for ref in value_refs(self.program.graph.outputs)}
        for given in self.program.inputs:
            if given.kind == "user" or given.target not in self.program.weights:
                continue
            if given.kind == "parameter" and self.options.keep_params:
                params.append(self._weight_parameter(given))
                self.kept.append(self.program.weights[given.target])
            elif given.kind != "parameter" and self.options.keep_state and given.target in changed:
                state[given.target] = self._weight_parameter(given)
            elif given.value in used:
                self.t.values[given.value] = self._constant(given)
        return [*params, *(state[name] for name in changed if name in state)]

    def _meta(self, given: Input) -> TensorMeta | NumberMeta | None:
        return self.program.graph.values.get(given.value)

    def _declare(self, meta: TensorMeta | NumberMeta | None) -> None:
        """Create variables for the symbols that are extents themselves, not parts of an expression."""
        extents: Iterable[Any] = meta.shape if isinstance(meta, TensorMeta) else [meta.value] if meta else []
        for extent in extents:
            if isinstance(extent, str) and extent.isidentifier() and extent not in self.t.symbols:
                self.t.symbols[extent] = self.names.variable(extent)

    def _user_parameter(self, given: Input) -> relax.Var | None:
        """Create a parameter for an input; None for an input that the export fixed to a constant."""
        meta = self._meta(given)
        if isinstance(meta, TensorMeta):
            param = self._tensor_parameter(given.value, meta)
        elif isinstance(meta, NumberMeta) and isinstance(meta.value, str) and meta.value in self.t.symbols:
            symbol = self.t.symbols[meta.value]
            param = relax.Var(given.value, relax.PrimStructInfo(DType.of("int64"), symbol))
            self.t.values[given.value] = symbol
            return param
        else:
            self.t.values[given.value] = given.constant
            return None
        self.t.values[given.value] = param
        return param

    def _tensor_parameter(self, name: str, meta: TensorMeta) -> relax.Var:
        """Create a tensor parameter. An extent such as `2*s + 1` is solved for `s` at the beginning of `main`."""
        if meta.dtype in PARTS:
            raise complex_unsupported()
        extents: list[int | tir.Expr] = []
        derived: list[tuple[int, str]] = []
        for axis, extent in enumerate(meta.shape):
            unknown = isinstance(extent, str) and any(s not in self.t.symbols for s in symbols_of(extent))
            if unknown:
                derived.append((axis, str(extent)))
                extents.append(self.t.symbol(f"{name}_{axis}"))
            else:
                extents.append(self.t.extent(extent))
        param = self.t.parameter(name, extents, meta.dtype)
        self._derived += [(param, axis, text) for axis, text in derived]
        return param

    def _weight_parameter(self, given: Input) -> relax.Var:
        weight = self.program.weights[given.target]
        if weight.dtype in PARTS:
            raise complex_unsupported()
        param = self.t.parameter(given.value, weight.shape, weight.dtype)
        self.t.values[given.value] = param
        return param

    def _constant(self, given: Input) -> relax.Constant | Complex:
        """Return a weight as a constant; tensors with identical memory are one constant."""
        weight = self.program.weights[given.target]
        key = (weight.storage, weight.layout, weight.shape, weight.dtype) if weight.storage else given.target
        if key not in self._constants:
            self._constants[key] = self._load_constant(weight, given.target)
        return self._constants[key]

    def _load_constant(self, weight: Weight, name: str) -> relax.Constant | Complex:
        if weight.dtype not in PARTS:
            return self.t.constant(weight.load(), weight.dtype, name)
        numbers = weight.load()
        parts = (("real", numbers.real), ("imag", numbers.imag))
        return Complex(*(self.t.constant(part.copy(), key=f"{name}.{which}") for which, part in parts))

    # ------------------------------------------------------------ sizes

    def bounds(self) -> dict[str, dict[str, int]]:
        """Return the ranges of symbols as attributes of `main`."""
        symbols = self.t.symbols
        ranges = {v.name: r for s, r in self.program.ranges.items() if isinstance(v := symbols.get(s), tir.Var)}
        least = {name: low for name, (low, _) in ranges.items() if low > 0}
        most = {name: high for name, (_, high) in ranges.items() if high is not None}
        attributes = {"tir_var_lower_bound": least, "tir_var_upper_bound": most}
        return {name: part for name, part in attributes.items() if part}

    def check_sizes(self) -> None:
        """Solve the derived extents of inputs for their symbols, and emit run-time checks of the symbols' ranges."""
        for param, axis, text in self._derived:
            unknown = [s for s in symbols_of(text) if s not in self.t.symbols]
            if unknown:
                self.t.symbols[unknown[0]] = self.names.variable(unknown[0])
                self.t.define(unknown[0], solve_symbol(text, unknown, self.t.shape(param)[axis], self.t.symbols))
        for param in dict.fromkeys(param for param, _, _ in self._derived):
            meta = self.program.graph.values[param.name]
            assert isinstance(meta, TensorMeta)
            shape = [self.t.extent(e) for e in meta.shape]
            info = values.tensor_info(shape, meta.dtype)
            self.t.values[param.name] = self.t.bb.match_cast(param, info, param.name)
        for symbol, (least, most) in self.program.ranges.items():
            if symbol in self.t.symbols:
                self.t.check_range(self.t.symbols[symbol], least if least > _MIN_SYMBOL else None, most)
