"""Running a TensorIR function: arguments become views of their memory, the body runs in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mlcc.arith.empty_reduction import insert_empty_reduction_inits
from mlcc.errors import CallError, error
from mlcc.interp import arithmetic
from mlcc.interp.calls import Returned
from mlcc.interp.expressions import ExprCompiler
from mlcc.interp.memory import Pointer, Storage, View, compact_strides
from mlcc.interp.state import State, make_view
from mlcc.interp.statements import Compiler
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import is_narrow
from mlcc.ir.visit import used_vars
from mlcc.recursion import deep_recursion

_NARROW_NAMES = {"bfloat16": "bfloat", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


def run_prim_func(
    func: tir.PrimFunc, args: Sequence[Any], module: IRModule | None = None, env: Mapping[str, Any] | None = None
) -> Any:
    """Run `func` on NumPy arrays and scalars, in place; its returned value, if it returns one.

    Arrays of types that NumPy does not have are uint16/uint8 bit patterns or `ml_dtypes` arrays. Raises CallError for
    arguments that do not fit, indices out of bounds, reads of memory that nobody wrote, and failed assertions.
    """
    with interpreter_context():
        state = State(env or {}, module.functions if module is not None else {})
        return CompiledPrimFunc(func).run([as_argument(a) for a in args], state)


@contextmanager
def interpreter_context() -> Iterator[None]:
    """Set up Python for a run: a deep recursion limit for deep expressions, and no NumPy warnings."""
    with deep_recursion(), np.errstate(all="ignore"):
        yield


def as_argument(value: Any) -> Any:
    """An argument as a storage array, a pointer or a NumPy scalar."""
    if isinstance(value, (Pointer, View)):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.name in _NARROW_NAMES:
            return value.view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
        return value
    if isinstance(value, (bool, int, float, np.generic)):
        return value
    raise CallError(error("E0803", f"`{type(value).__name__}` cannot be an argument of a TensorIR function"))


class CompiledPrimFunc:
    """A function turned into closures, ready to run any number of times."""

    def __init__(self, func: tir.PrimFunc) -> None:
        self.func = func
        compiler = Compiler()
        body = insert_empty_reduction_inits(func).body
        self._body = compiler.body(body) if body else lambda s: None
        self._expr = compiler

    def run(self, args: Sequence[Any], state: State) -> Any:
        """Bind arguments and run the body."""
        func = self.func
        if len(args) != len(func.params):
            name = func.attrs.get("global_symbol", "the function")
            message = f"{name} takes {len(func.params)} arguments, but {len(args)} were given"
            raise CallError(error("E0802", message, func.span))
        copies: list[tuple[np.ndarray, np.ndarray]] = []
        late: list[tuple[tir.Buffer, Any, list[Any]]] = []
        for param, buffer, arg in zip(func.params, func.buffers, args, strict=True):
            if buffer is None:
                state.values[param] = _scalar(param, arg)
            else:
                late.append((buffer, arg, []))
        for buffer, arg, _ in late:
            view = (
                self._view_of_pointer(buffer, arg, state)
                if isinstance(arg, Pointer)
                else _argument_view(buffer, arg, copies)
            )
            state.views[buffer] = view
            state.values[buffer.data] = Pointer(view.storage, _pointer_offset(buffer, view))
            _bind_vars(buffer, view, state)
        for param, buffer in zip(func.params, func.buffers, strict=True):
            if buffer is not None:
                state.values[param] = state.values[buffer.data]
                _check_sizes(buffer, state.views[buffer], state, self._expr)
        try:
            self._body(state)
        except Returned as returned:
            return returned.value
        finally:
            for array, copy in copies:
                array[...] = copy
        return None

    def _view_of_pointer(self, buffer: tir.Buffer, arg: Pointer, state: State) -> View:
        """Return a view of the memory behind a pointer; scalar arguments give the sizes."""
        known = state.values.keys()
        if not all(used_vars(n) <= known for n in (*buffer.shape, *buffer.strides)):
            raise CallError(error("E0872", f"a pointer has no shape to bind those of `{buffer.name}` to", buffer.span))
        shape, strides = (tuple(int(self._expr.expr(n)(state)) for n in of) for of in (buffer.shape, buffer.strides))
        size = arithmetic.stored(buffer.dtype).itemsize * buffer.dtype.lanes
        return make_view(buffer, arg.storage, shape, strides or compact_strides(shape), arg.offset // size)


def call_in_place(func: tir.PrimFunc, args: Sequence[Any], caller: State, node: Any) -> Any:
    """A call from another TensorIR function: pointers and scalars are passed on."""
    state = State(caller.env, caller.functions)
    return CompiledPrimFunc(func).run(args, state)


def _scalar(param: tir.Var, arg: Any) -> Any:
    if param.dtype.is_handle:
        return _handle(param, arg)
    if isinstance(arg, np.ndarray) and arg.ndim == 0:
        arg = arg[()]
    if isinstance(arg, (np.ndarray, Pointer, View)):
        message = f"parameter `{param.name}` must be a scalar of {param.dtype}, not an array"
        raise CallError(error("E0803", message, param.span))
    kind = arithmetic.carrier(param.dtype)
    if param.dtype.is_int or param.dtype.is_bool:
        integer = int(arg)
        info = None if param.dtype.is_bool else np.iinfo(kind)
        if integer != arg or (info is not None and not info.min <= integer <= info.max):
            raise CallError(error("E0817", f"{arg} does not fit parameter `{param.name}`: {param.dtype}", param.span))
        return kind.type(integer)
    round_or_wrap = arithmetic.rounding_function(param.dtype)
    number = kind.type(arg)
    return number if round_or_wrap is None else round_or_wrap(number)


def _handle(param: tir.Var, arg: Any) -> Any:
    """A handle without a buffer: the memory of an array."""
    if isinstance(arg, View):
        return Pointer(arg.storage, arg.offset * arg.data.itemsize)
    if isinstance(arg, np.ndarray) and arg.flags.c_contiguous:
        return Pointer(Storage.of(arg, param.name), 0)
    if isinstance(arg, Pointer):
        return arg
    raise CallError(error("E0803", f"parameter `{param.name}` is a handle: pass an array", param.span))


def _argument_view(buffer: tir.Buffer, arg: Any, copies: list[tuple[np.ndarray, np.ndarray]]) -> View:
    """Return a view of an argument's memory as the parameter's buffer."""
    if isinstance(arg, View):
        return View(
            arg.storage, arg.data, buffer.dtype, arg.shape, arg.strides, arg.offset, buffer.name, arg.narrow, arg.steps
        )
    if not isinstance(arg, np.ndarray):
        arg = np.asarray(arg)
    lanes = buffer.dtype.lanes
    _check_array(buffer, arg)
    shape = arg.shape[: len(buffer.shape)]
    flat, strides, offset = _flat(arg, buffer, copies)
    if lanes > 1:
        strides = tuple(x // lanes for x in strides[: len(shape)])
    storage = Storage.of(flat, buffer.name)
    data, narrow = storage.typed(flat.dtype), is_narrow(buffer.dtype)
    return View(storage, data, buffer.dtype, shape, strides, offset, buffer.name, narrow, {})


def _check_array(buffer: tir.Buffer, array: np.ndarray) -> None:
    """Check dtype and rank of an argument; vectors count as one more dimension at the end."""
    kind = arithmetic.stored(buffer.dtype)
    if array.dtype != kind:
        accepted = f"{buffer.dtype.element}" + (f" ({kind} bit patterns)" if is_narrow(buffer.dtype) else "")
        message = f"argument `{buffer.name}` is {array.dtype}, it should be {accepted}"
        raise CallError(error("E0804", message, buffer.span))
    rank = len(buffer.shape) + (buffer.dtype.lanes > 1)
    if array.ndim != rank or (buffer.dtype.lanes > 1 and array.shape[-1] != buffer.dtype.lanes):
        message = f"argument `{buffer.name}` has shape {array.shape}, it should have {rank} dimensions"
        raise CallError(error("E0805", message, buffer.span))


def _flat(
    array: np.ndarray, buffer: tir.Buffer, copies: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, tuple[int, ...], int]:
    """One-dimensional memory, strides in elements, and the first element's number.

    A strided array stays where it is if the buffer asks for strides; a compact buffer gets a copy, written back later.
    """
    if array.flags.c_contiguous:
        return array.reshape(-1), compact_strides(array.shape), 0
    if not buffer.strides or not array.flags.aligned or any(x % array.itemsize for x in array.strides):
        copy = np.ascontiguousarray(array)
        if array.flags.writeable:
            copies.append((array, copy))
        return copy.reshape(-1), compact_strides(copy.shape), 0
    low, high = np.lib.array_utils.byte_bounds(array)
    start = array.__array_interface__["data"][0] - low
    count = (high - low) // array.itemsize
    corner = array[tuple(slice(None, None, -1) if x < 0 else slice(None) for x in array.strides)]
    flat = np.lib.stride_tricks.as_strided(corner, (count,), (array.itemsize,))
    return flat, tuple(x // array.itemsize for x in array.strides), start // array.itemsize


def _pointer_offset(buffer: tir.Buffer, view: View) -> int:
    return int(view.offset * view.data.itemsize * buffer.dtype.lanes)


def _bind_vars(buffer: tir.Buffer, view: View, state: State) -> None:
    """Bind symbolic sizes to the sizes of the argument."""
    strides = view.strides if buffer.strides else ()
    for part, size in (*zip(buffer.shape, view.shape, strict=False), *zip(buffer.strides, strides, strict=False)):
        if isinstance(part, tir.Var) and part not in state.values:
            state.values[part] = arithmetic.carrier(part.dtype).type(size)
    offset = buffer.elem_offset
    if isinstance(offset, tir.Var) and offset not in state.values:
        state.values[offset] = arithmetic.carrier(offset.dtype).type(0)


def _check_sizes(buffer: tir.Buffer, view: View, state: State, expr: ExprCompiler) -> None:
    """Check sizes and strides of an argument against the declared ones."""
    for at, (part, size) in enumerate(zip(buffer.shape, view.shape, strict=True)):
        wanted = int(expr.expr(part)(state))
        if wanted != size:
            message = f"dimension {at} of argument `{buffer.name}` is {size}, it should be {wanted}"
            raise CallError(error("E0805", message, buffer.span))
    for at, (part, stride) in enumerate(zip(buffer.strides, view.strides, strict=False)):
        wanted = int(expr.expr(part)(state))
        if wanted != stride and view.shape[at] > 1 and 0 not in view.shape:
            message = f"stride {at} of argument `{buffer.name}` is {stride}, it should be {wanted}"
            raise CallError(error("E0805", message, buffer.span))
