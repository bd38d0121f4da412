"""Running graph-level functions: bindings one after the other, operators by their NumPy references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.errors import CallError, Span, did_you_mean, error
from mlcc.interp import arithmetic, environment
from mlcc.interp.graph_values import (
    Closure,
    Mismatch,
    Shape,
    Sizes,
    Tensor,
    dims_of,
    for_operator,
    for_packed,
    from_operator,
    from_python,
    match_struct_info,
    to_python,
)
from mlcc.interp.prim_func import CompiledPrimFunc, interpreter_context, run_prim_func
from mlcc.interp.state import State
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.effects import written_parameters
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.ops.relations import evaluate
from mlcc.ops.size_limits import impossible_shape, too_large
from mlcc.relax.tail_calls import tail_calls


def _with_sizes(call: relax.Call, sizes: Sizes) -> relax.Call:
    """The call with numbers for the symbolic sizes among its attributes."""

    def known(value: Any) -> Any:
        if isinstance(value, tir.Expr) and not isinstance(value, tir.IntImm) and value.dtype.is_int:
            number = evaluate(value, dict(sizes))
            return value if number is None else tir.IntImm(value.dtype, number)
        return tuple(map(known, value)) if isinstance(value, tuple) else value

    if not any(isinstance(v, (tuple, tir.Expr)) for v in call.attrs.values()):
        return call
    return replace(call, attrs=Attrs({key: known(value) for key, value in call.attrs.items()}))


def _new_tensor(dims: tuple[int, ...], dtype: DType, span: Span | None) -> Tensor:
    """A new tensor. Raises CallError for an extent that is negative, or more bytes than a tensor can have."""
    reason = impossible_shape(dims, dtype)
    if reason is not None:
        raise CallError(error(*reason, span))
    try:
        return Tensor.fresh(dims, dtype)
    except MemoryError as problem:
        raise CallError(error("E0810", str(problem), span)) from None


def _check_inputs_unmodified(func: Any, count: int, in_place: Sequence[int], call: relax.Call) -> None:
    """Refuse a function that writes one of its first `count` parameters, but for those written in place."""
    for at in written_parameters(func) if isinstance(func, tir.PrimFunc) else ():
        if at < count and at not in in_place:
            raise CallError(error("E0497", f"the function writes its parameter `{func.params[at].name}`", call.span))


def run_function(
    module: IRModule, name: str = "main", args: Sequence[Any] = (), env: Mapping[str, Any] | None = None
) -> Any:
    """Call a function of `module` on NumPy arrays, numbers, and tuples of them (shapes are tuples of integers).

    A relax function returns its result; a PrimFunc writes its outputs in place. `env` has packed functions by name;
    others come from the registry. Raises CallError.
    """
    if name not in module:
        raise CallError(
            error("E0801", f"the module has no function `{name}`", help=did_you_mean(name, module.functions))
        )
    func = module[name]
    if isinstance(func, tir.PrimFunc):
        return run_prim_func(func, args, module, env)
    with interpreter_context():
        machine = GraphInterpreter(module, env or {})
        infos = [p.struct_info for p in func.params]
        if len(args) != len(infos):
            message = f"`{name}` takes {len(infos)} arguments, but {len(args)} were given"
            raise CallError(error("E0802", message, func.span))
        values = [from_python(a, i) for a, i in zip(args, infos, strict=True)]
        return to_python(machine.call(func, values, {}, {}), func.span)


class Frame:
    """Variables and symbolic sizes of one running function."""

    __slots__ = ("sizes", "values")

    def __init__(self, values: dict[relax.Var, Any], sizes: Sizes) -> None:
        self.values = values
        self.sizes = sizes


class GraphInterpreter:
    """Runs the functions of one module; compiled TensorIR functions are kept."""

    def __init__(self, module: IRModule, env: Mapping[str, Any]) -> None:
        self.module = module
        self.env = env
        self._programs: dict[tir.PrimFunc, CompiledPrimFunc] = {}
        self._constants: dict[relax.Constant, Tensor] = {}
        self._tail_calls: dict[relax.Function, frozenset[relax.Call]] = {}
        self._rules: dict[type, Callable[[Any, Frame], Any]] = {
            relax.Var: self._var, relax.DataflowVar: self._var, relax.Constant: self._constant,
            relax.ShapeExpr: self._shape, relax.PrimValue: self._prim, relax.StringImm: lambda e, f: e.value,
            relax.DataTypeImm: lambda e, f: e.value, relax.Tuple: self._tuple, relax.TupleGetItem: self._item,
            relax.Call: self._call, relax.If: self._if, relax.SeqExpr: self._seq, relax.Function: self._function,
            relax.GlobalVar: lambda e, f: e, relax.ExternFunc: lambda e, f: e,
        }  # fmt: skip

    # ------------------------------------------------------------ functions

    def call(self, func: relax.Function, args: Sequence[Any], values: dict[relax.Var, Any], sizes: Sizes) -> Any:
        """Run a function with the captured `values` and `sizes`; run it again where it ends with a call
        of itself."""
        while True:
            result = self._run_once(func, args, values, sizes)
            if not isinstance(result, _TailCall):
                return result
            args = result.args

    def _run_once(self, func: relax.Function, args: Sequence[Any], values: dict[relax.Var, Any], sizes: Sizes) -> Any:
        frame = Frame(dict(values), dict(sizes))
        if len(args) != len(func.params):
            message = f"the function takes {len(func.params)} arguments, but {len(args)} were given"
            raise CallError(error("E0802", message, func.span))
        for param, value in zip(func.params, args, strict=True):
            frame.values[param] = value
        group = relax.TupleStructInfo(tuple(p.struct_info or relax.ObjectStructInfo() for p in func.params))
        try:
            match_struct_info(group, tuple(args), frame.sizes, "argument")
        except Mismatch as wrong:
            raise CallError(error(wrong.code, _with_parameter_names(str(wrong), func), func.span)) from None
        return self.expr(func.body, frame)

    def apply(self, callee: Any, args: Sequence[Any], node: relax.Call) -> Any:
        """Evaluate a callee and call it."""
        if isinstance(callee, relax.GlobalVar):
            func = self._global(callee, node)
            if isinstance(func, tir.PrimFunc):
                return self.run_kernel(func, list(args), (), node)
            return self.call(func, args, {}, {})
        if isinstance(callee, Closure):
            return self.call(callee.function, args, callee.values, callee.sizes)
        if isinstance(callee, _PartialCall):
            return self.apply(callee.callee, [*args, *callee.bound_args], node)
        if isinstance(callee, relax.ExternFunc):
            return self._packed(callee.name, args, node)
        raise CallError(error("E0872", "this is not a function and cannot be called", node.span))

    def _global(self, callee: relax.GlobalVar, node: relax.Expr) -> Any:
        func = self.module.functions.get(callee.name)
        if func is None:
            hint = did_you_mean(callee.name, self.module.functions)
            raise CallError(error("E0485", f"the module has no function `{callee.name}`", node.span, help=hint))
        return func

    def _function(self, func: relax.Function, frame: Frame) -> Closure:
        return Closure(func, frame.values, frame.sizes)

    # ------------------------------------------------------------ bindings

    def expr(self, expr: relax.Expr, frame: Frame) -> Any:
        """The value of an expression."""
        rule = self._rules.get(type(expr))
        if rule is None:
            raise CallError(error("E0872", f"the interpreter cannot run `{type(expr).__name__}`", expr.span))
        return rule(expr, frame)

    def _seq(self, seq: relax.SeqExpr, frame: Frame) -> Any:
        for block in seq.blocks:
            for binding in block.bindings:
                self._binding(binding, frame)
        return self.expr(seq.body, frame)

    def _binding(self, binding: relax.Binding, frame: Frame) -> None:
        assert isinstance(binding, (relax.VarBinding, relax.MatchCast))
        value = self.expr(binding.value, frame)
        if isinstance(binding, relax.MatchCast) and not isinstance(value, _TailCall):
            try:
                match_struct_info(binding.struct_info, value, frame.sizes, f"`{binding.var.name}`")
            except Mismatch as wrong:
                raise CallError(error("E0814", f"match_cast failed: {wrong}", binding.span)) from None
        frame.values[binding.var] = value

    def _if(self, expr: relax.If, frame: Frame) -> Any:
        chosen = _as_bool(self.expr(expr.condition, frame), expr.condition.span or expr.span)
        inner = Frame(dict(frame.values), dict(frame.sizes))
        return self.expr(expr.true_branch if chosen else expr.false_branch, inner)

    # ------------------------------------------------------------ simple values

    def _var(self, var: relax.Var, frame: Frame) -> Any:
        if var not in frame.values:
            raise CallError(error("E0480", f"`{var.name}` has no value here", var.span))
        return frame.values[var]

    def _constant(self, expr: relax.Constant, frame: Frame) -> Tensor:
        tensor = self._constants.get(expr)
        if tensor is None:
            array = expr.data.array
            if array is None:
                message = f"the data of constant `{expr.data.key}` are missing"
                raise CallError(error("E0489", message, expr.span))
            tensor = self._constants[expr] = Tensor.of(array, expr.data.dtype)
        return tensor

    def _shape(self, expr: relax.ShapeExpr, frame: Frame) -> Shape:
        return Shape(dims_of(expr.values, frame.sizes, expr.span))

    def _prim(self, expr: relax.PrimValue, frame: Frame) -> Any:
        value = expr.value
        kind = arithmetic.carrier(value.dtype)
        if isinstance(value, (tir.IntImm, tir.FloatImm)):
            return kind.type(value.value)
        number = evaluate(value, frame.sizes) if value.dtype.is_int else None
        if number is not None:
            return kind.type(number)
        state = State(self.env, self.module.functions)
        state.values.update({v: arithmetic.carrier(v.dtype).type(n) for v, n in frame.sizes.items()})
        from mlcc.interp.statements import Compiler

        return Compiler().expr(value)(state)

    def _tuple(self, expr: relax.Tuple, frame: Frame) -> tuple[Any, ...]:
        return tuple(self.expr(f, frame) for f in expr.fields)

    def _item(self, expr: relax.TupleGetItem, frame: Frame) -> Any:
        value = self.expr(expr.tuple_value, frame)
        if not isinstance(value, tuple) or not -len(value) <= expr.index < len(value):
            raise CallError(error("E0490", f"index {expr.index} is out of range", expr.span))
        return value[expr.index]

    # ------------------------------------------------------------ calls

    def _call(self, call: relax.Call, frame: Frame) -> Any:
        if not isinstance(call.op, tir.Op):
            callee = self.expr(call.op, frame)
            args = [self.expr(a, frame) for a in call.args]
            return _TailCall(args) if self._is_tail_call(call) else self.apply(callee, args, call)
        name = call.op.name.removeprefix("relax.")
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, call, frame)
        args = [self.expr(a, frame) for a in call.args]
        return self._operator(name, _with_sizes(call, frame.sizes), args, frame.sizes)

    def _is_tail_call(self, call: relax.Call) -> bool:
        """Return True for a recursive tail call of a function of the module."""
        func = self.module.functions.get(call.op.name) if isinstance(call.op, relax.GlobalVar) else None
        if not isinstance(func, relax.Function):
            return False
        known = self._tail_calls.get(func)
        if known is None:
            assert isinstance(call.op, relax.GlobalVar)
            known = self._tail_calls[func] = tail_calls(call.op.name, func)
        return call in known

    def _operator(self, name: str, call: relax.Call, args: list[Any], sizes: Sizes) -> Any:
        from mlcc.ops.registry import get

        op = get(name)
        if op is None or op.impl.numpy is None:
            raise CallError(error("E0872", f"the interpreter cannot run operator `{name}`", call.span))
        self._check_result_size(name, call, sizes)
        narrow = next((a.dtype for a in args if isinstance(a, Tensor) and a.dtype.is_float and a.dtype.bits < 32), None)
        try:
            result = op.impl.numpy(call, *[for_operator(a, call.span) for a in args])
        except IndexError as exc:
            raise CallError(error("E0818", f"`R.{name}`: {exc}", call.span)) from None
        except MemoryError as exc:
            raise CallError(error("E0810", f"`R.{name}`: {exc}", call.span)) from None
        except (ValueError, ZeroDivisionError) as exc:  # incompatible sizes, known only at run time
            raise CallError(error("E0805", f"`R.{name}`: {exc}", call.span)) from None
        return from_operator(result, call.struct_info, narrow)

    def _check_result_size(self, name: str, call: relax.Call, sizes: Sizes) -> None:
        """Refuse results that are too large before NumPy computes with sizes that wrap."""
        result = call.struct_info
        for info in result.fields if isinstance(result, relax.TupleStructInfo) else (result,):
            if isinstance(info, relax.TensorStructInfo) and info.dims is not None:
                why = too_large([evaluate(d, sizes) for d in info.dims], info.dtype)
                if why is not None:
                    raise CallError(error("E0447", f"`R.{name}`: {why}", call.span))

    def run_kernel(self, func: tir.PrimFunc, args: list[Any], outputs: Sequence[Any], call: relax.Call) -> Any:
        """Run a TensorIR function on arguments, which `outputs` follow."""
        program = self._programs.get(func)
        if program is None:
            program = self._programs[func] = CompiledPrimFunc(func)
        state = State(self.env, self.module.functions)
        arguments = [a.view() if isinstance(a, Tensor) else a for a in (*args, *outputs)]
        return program.run(arguments, state)

    def outputs(self, call: relax.Call, frame: Frame) -> list[Tensor]:
        """Fresh memory for the results that a call names."""
        tensors = []
        for info in _tensors(call.sinfo_args):
            dims = self._dims(info, frame, call.span)
            tensors.append(_new_tensor(dims, info.dtype or DType.of("float32"), call.span))
        return tensors

    def _dims(self, info: relax.TensorStructInfo, frame: Frame, span: Span | None) -> tuple[int, ...]:
        if info.dims is not None:
            return dims_of(info.dims, frame.sizes, span)
        if info.shape is not None:
            value = self.expr(info.shape, frame)
            if isinstance(value, Shape):
                return value.dims
        raise CallError(error("E0872", "the shape of a result is not known", span))

    def call_tir(self, call: relax.Call, frame: Frame) -> Any:
        """Call a TensorIR function with arguments, then results, then symbolic sizes."""
        func = self._global(call.args[0], call)  # type: ignore[arg-type]
        args = _spread(self.expr(call.args[1], frame))
        extra = [self.expr(a, frame) for a in call.args[2:]]
        sizes = [np.int64(n) for e in extra if isinstance(e, Shape) for n in e.dims]
        outputs = self.outputs(call, frame)
        in_place = call.attrs.get("inplace_indices") or ()
        args = [a.copy() if i in in_place and isinstance(a, Tensor) else a for i, a in enumerate(args)]
        if in_place:
            outputs = [args[i] if i >= 0 else o for i, o in zip(in_place, outputs, strict=True)]
        fresh = [o for o in outputs if not any(o is a for a in args)]
        _check_inputs_unmodified(func, len(args), in_place, call)
        if isinstance(func, relax.Function):
            return self.call(func, args, {}, {})
        self.run_kernel(func, args, [*fresh, *sizes], call)
        return _result(outputs, call)

    def call_dps(self, call: relax.Call, frame: Frame) -> Any:
        """Call a packed function (or a TensorIR function of the module) that writes into given results."""
        callee = self.expr(call.args[0], frame)
        args = _spread(self.expr(call.args[1], frame))
        outputs = self.outputs(call, frame)
        if isinstance(callee, relax.GlobalVar) or callee.name in self.module:
            func = self._global(relax.GlobalVar(callee.name), call)
            _check_inputs_unmodified(func, len(args), (), call)
            self.run_kernel(func, args, outputs, call)
            return _result(outputs, call)
        for output in outputs:
            output.storage.defined = None  # writes of the callee are not checked
        self._run_packed(callee.name, [for_packed(v) for v in (*args, *outputs)], call)
        return _result(outputs, call)

    def _run_packed(self, name: str, args: list[Any], call: relax.Call) -> Any:
        function = environment.find(name, self.env)
        if function is None:
            hint = did_you_mean(name, environment.known_names(self.env))
            raise CallError(error("E0811", f"no packed function `{name}` is registered", call.span, help=hint))
        return function(*args)

    def _packed(self, name: str, args: Sequence[Any], call: relax.Call) -> Any:
        result = self._run_packed(name, [for_packed(a) for a in args], call)
        info = call.sinfo_args[0] if len(call.sinfo_args) == 1 else call.struct_info
        return from_python(result, info)

    def call_pure_packed(self, call: relax.Call, frame: Frame) -> Any:
        callee = self.expr(call.args[0], frame)
        args = [self.expr(a, frame) for a in call.args[1:]]
        return self.apply(callee, args, call)

    def call_inplace_packed(self, call: relax.Call, frame: Frame) -> Any:
        callee = self.expr(call.args[0], frame)
        args = [self.expr(a, frame) for a in call.args[1:]]
        results = self._run_packed(callee.name, [for_packed(a) for a in args], call)
        indices = call.attrs.get("inplace_indices", ())
        if len(indices) == 1 and indices[0] >= 0:
            return args[indices[0]]
        returned = results if isinstance(results, (tuple, list)) else (results,)
        return tuple(args[i] if i >= 0 else from_python(r, None) for i, r in zip(indices, returned, strict=False))

    def invoke(self, call: relax.Call, frame: Frame) -> Any:
        """Evaluate invoke_closure(f, args) and invoke_pure_closure."""
        return self.apply(self.expr(call.args[0], frame), _spread(self.expr(call.args[1], frame)), call)

    def make_closure(self, call: relax.Call, frame: Frame) -> Any:
        """Evaluate make_closure: a function with its last arguments bound."""
        callee, bound_args = self.expr(call.args[0], frame), _spread(self.expr(call.args[1], frame))
        return _PartialCall(callee, bound_args)

    def print_values(self, call: relax.Call, frame: Frame) -> tuple[()]:
        print(self._message(call.args, call, frame))
        return ()

    def _message(self, args: Sequence[relax.Expr], call: relax.Call, frame: Frame) -> str:
        """Format a message with its values."""
        form, *values = [_item_if_scalar(to_python(self.expr(a, frame), call.span)) for a in args] or [""]
        return _format_message(form, values) if form else " ".join(map(str, values))

    def assert_holds(self, call: relax.Call, frame: Frame) -> tuple[()]:
        if not _as_bool(self.expr(call.args[0], frame), call.span):
            text = self._message(call.args[1:], call, frame)
            raise CallError(error("E0813", f"Assertion Failed: {text}" if text else "Assertion Failed", call.span))
        return ()

    def alloc_tensor(self, call: relax.Call, frame: Frame) -> Tensor:
        """builtin.alloc_tensor(shape, dtype, ...)."""
        shape, dtype = (self.expr(a, frame) for a in call.args[:2])
        return _new_tensor(shape.dims, dtype, call.span)

    def alloc_in_storage(self, call: relax.Call, frame: Frame) -> Tensor:
        """memory.alloc_tensor(storage, offset, shape, dtype, ...): each tensor has memory of its own."""
        shape, dtype = (self.expr(a, frame) for a in call.args[2:4])
        return _new_tensor(shape.dims, dtype, call.span)

    def first(self, call: relax.Call, frame: Frame) -> Any:
        return self.expr(call.args[0], frame)

    def nothing(self, call: relax.Call, frame: Frame) -> Any:
        return None if call.op.name == "relax.null_value" else ()

    def inspect(self, call: relax.Call, frame: Frame) -> Any:
        """Evaluate a `relax.inspect.tensor_*` call; tensors are contiguous and row-major with offset 0."""
        tensor = self.expr(call.args[0], frame)
        what = call.op.name.removeprefix("relax.inspect.tensor_")
        axis = int(self.expr(call.args[1], frame)) if len(call.args) > 1 else 0
        code = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 6}
        dtype = tensor.dtype
        match what:
            case "ndim":
                return np.int32(len(tensor.shape))
            case "shape_i":
                return np.int64(tensor.shape[axis])
            case "stride_i":
                return np.int64(int(np.prod(tensor.shape[axis + 1 :])))
            case "byte_offset" | "elem_offset":
                return np.int64(0)
            case "dtype_bits":
                return np.uint8(dtype.bits)
            case "dtype_lanes":
                return np.uint16(dtype.lanes)
        return np.uint8(code.get(dtype.kind, 2))


@dataclass(slots=True, eq=False)
class _TailCall:
    """The arguments of a recursive tail call, returned in place of the function's value (a trampoline)."""

    args: list[Any]


@dataclass(slots=True, eq=False)
class _PartialCall:
    """A closure built by `make_closure`: a function and its first arguments."""

    callee: Any
    bound_args: list[Any]


def _spread(value: Any) -> list[Any]:
    """The arguments of a call that takes them as one tuple, or as a single value."""
    return list(value) if isinstance(value, tuple) else [value]


def _tensors(infos: Sequence[relax.StructInfo]) -> list[relax.TensorStructInfo]:
    tensors: list[relax.TensorStructInfo] = []
    for info in infos:
        if isinstance(info, relax.TupleStructInfo):
            tensors += _tensors(info.fields)
        elif isinstance(info, relax.TensorStructInfo):
            tensors.append(info)
    return tensors


def _result(outputs: list[Tensor], call: relax.Call) -> Any:
    single = len(call.sinfo_args) == 1 and isinstance(call.sinfo_args[0], relax.TensorStructInfo)
    return outputs[0] if single else tuple(outputs)


def _as_bool(value: Any, span: Span | None) -> bool:
    if isinstance(value, Tensor):
        value = value.values(span)
        if value.size != 1:
            message = f"a condition must be a single bool, not a tensor of shape {value.shape}"
            raise CallError(error("E0491", message, span))
        value = value.reshape(())[()]
    return bool(value)


def _with_parameter_names(message: str, func: relax.Function) -> str:
    """`argument[2] ...` with the parameter's name instead of its number."""
    for at, param in enumerate(func.params):
        message = message.replace(f"argument[{at}]", f"argument `{param.name}`")
    return message


def _item_if_scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _format_message(form: str, values: list[Any]) -> str:
    """Apply Python's `format`; values that do not fit are listed after the text."""
    try:
        return form.format(*values)
    except (IndexError, KeyError, ValueError):
        return " ".join([form, *map(str, values)])


_SPECIAL: dict[str, Callable[[GraphInterpreter, relax.Call, Frame], Any]] = {
    "call_tir": GraphInterpreter.call_tir, "call_tir_inplace": GraphInterpreter.call_tir,
    "call_tir_with_grad": GraphInterpreter.call_tir,
    "dist.call_tir_local_view": GraphInterpreter.call_tir, "call_dps_packed": GraphInterpreter.call_dps,
    "call_pure_packed": GraphInterpreter.call_pure_packed, "call_inplace_packed": GraphInterpreter.call_inplace_packed,
    "invoke_closure": GraphInterpreter.invoke, "invoke_pure_closure": GraphInterpreter.invoke,
    "make_closure": GraphInterpreter.make_closure,
    "print": GraphInterpreter.print_values, "assert_op": GraphInterpreter.assert_holds,
    "null_value": GraphInterpreter.nothing,
    "builtin.alloc_tensor": GraphInterpreter.alloc_tensor, "memory.alloc_tensor": GraphInterpreter.alloc_in_storage,
    "vm.alloc_tensor": GraphInterpreter.alloc_in_storage, "memory.alloc_storage": GraphInterpreter.nothing,
    "vm.alloc_storage": GraphInterpreter.nothing, "memory.kill_storage": GraphInterpreter.nothing,
    "memory.kill_tensor": GraphInterpreter.nothing,
    "vm.kill_object": GraphInterpreter.nothing, "hint_on_device": GraphInterpreter.first,
    "to_vdevice": GraphInterpreter.first,
    "builtin.stop_lift_params": GraphInterpreter.first, "memory.ensure_zero_offset": GraphInterpreter.first,
}  # fmt: skip
_SPECIAL.update({f"inspect.tensor_{n}": GraphInterpreter.inspect for n in (
    "ndim", "shape_i", "stride_i", "byte_offset", "elem_offset", "dtype_code", "dtype_bits", "dtype_lanes",
)})  # fmt: skip

SPECIAL_OPERATORS = frozenset(_SPECIAL)  # names without `R.`
