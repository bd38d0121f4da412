"""Packed functions at run time: Python callables behind C function pointers.

An exception of a Python function is stored in the frame of the current call, reported to native code as an error code,
and raised again when the native call returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlcc.errors import CallError, Diagnostic, Label, MlccError, error
from mlcc.runtime import registry
from mlcc.runtime.abi import DLTENSOR, KIND_BY_NAME, PackedFn
from mlcc.runtime.dlpack import NotATensor, Tensor, as_array, borrow, view
from mlcc.runtime.manifest import PackedSpec

_FAILED = KIND_BY_NAME["PACKED_FAILED"].code
_SCALARS = {"int": "<q", "float": "<d", "bool": "<?", "pointer": "<Q"}


@dataclass(slots=True, eq=False)
class Frame:
    """One native call in progress: the owners of its memory, its read-only parts, and errors raised in it."""

    owner: Any = None
    readonly: tuple[tuple[int, int], ...] = ()  # address ranges
    exception: BaseException | None = None


@dataclass(slots=True)
class Frames:
    """The calls of one executable that are in progress. A thread created by native code belongs to the latest one."""

    local: threading.local = field(default_factory=threading.local)
    every: list[Frame] = field(default_factory=list)

    def push(self, frame: Frame) -> None:
        stack = getattr(self.local, "stack", None)
        if stack is None:
            stack = self.local.stack = []
        stack.append(frame)
        self.every.append(frame)

    def pop(self) -> None:
        self.every.remove(self.local.stack.pop())

    def current(self) -> Frame | None:
        stack = getattr(self.local, "stack", None)
        if stack:
            return stack[-1]  # type: ignore[no-any-return]
        return self.every[-1] if self.every else None


def make_trampoline(spec: PackedSpec, frames: Frames, constants: tuple[int, int]) -> Any:
    """Return a C function pointer that looks up `spec.name` in the registry and calls it."""

    def trampoline(_context: int | None, pointers: int, count: int) -> int:
        frame = frames.current() or Frame()
        try:
            function = registry.get_func(spec.name)
            if function is None:
                raise registry.missing(spec.name)
            kinds = ("tensor",) * count if spec.args is None else spec.args
            if count != len(kinds) + spec.results:
                raise CallError(error("E0812", f"packed function `{spec.name}` was called with {count} arguments"))
            readonly = (constants, *frame.readonly)
            words = struct.unpack(f"<{count}Q", ctypes.string_at(pointers, 8 * count)) if count else ()
            tensors = [read_tensor(word, frame.owner) for word in words]
            inputs = [decode(k, t, readonly) for k, t in zip(kinds, tensors, strict=False)]
            outputs = tensors[len(kinds) :]
            if spec.style == "dps":
                function(*inputs, *(view(t) for t in outputs))
            else:
                store_results(spec.name, function(*inputs), outputs)
            return 0
        except BaseException as exc:
            if not isinstance(exc, MlccError) and not hasattr(exc, "mlcc_packed"):
                with contextlib.suppress(AttributeError, TypeError):
                    exc.mlcc_packed = spec.name  # type: ignore[attr-defined]
            if frame.exception is None:
                frame.exception = exc
            return _FAILED

    return PackedFn(trampoline)


def packed_function_error(exc: BaseException) -> CallError | None:
    """Return the error to show for an exception raised by a packed function; None for other exceptions."""
    name = getattr(exc, "mlcc_packed", None)
    if name is None:
        return None
    import traceback  # slow to load, and seldom wanted

    frames = traceback.extract_tb(exc.__traceback__)
    location = f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}" if frames else ""
    message = f"packed function `{name}` raised {type(exc).__name__}: {exc}".rstrip(": ")
    return CallError(Diagnostic(code="E0812", message=message, primary=Label(None, location)))


def read_tensor(address: int, owner: Any) -> Tensor:
    """Read a DLTensor of native code, which is valid and compact."""
    data, _, _, ndim, code, bits, lanes, shape, _, offset = DLTENSOR.unpack(ctypes.string_at(address, DLTENSOR.size))
    dims = struct.unpack(f"<{ndim}q", ctypes.string_at(shape, 8 * ndim)) if ndim else ()
    return Tensor(data + offset, dims, None, (code, bits, lanes), False, owner)


def decode(kind: str, tensor: Tensor, readonly: tuple[tuple[int, int], ...]) -> Any:
    """Convert an input to a Python value."""
    if kind == "tensor":
        if any(low <= tensor.address < high for low, high in readonly):
            tensor = Tensor(tensor.address, tensor.shape, None, tensor.code, True, tensor.owner)
        return view(tensor)
    count = tensor.shape[0] if tensor.shape else 1
    if kind == "str":
        return ctypes.string_at(tensor.address, count).decode("utf-8", "replace")
    if kind == "shape":
        return struct.unpack(f"<{count}q", ctypes.string_at(tensor.address, 8 * count))
    code = _SCALARS[kind]
    return struct.unpack(code, ctypes.string_at(tensor.address, struct.calcsize(code)))[0]


def store_results(name: str, value: Any, outputs: list[Tensor]) -> None:
    """Copy the values returned by a function into its result buffers."""
    values = list(value) if isinstance(value, (tuple, list)) and len(outputs) != 1 else [value]
    if not outputs:
        return
    if len(values) != len(outputs):
        raise CallError(
            error("E0812", f"packed function `{name}` returned {len(values)} values, expected {len(outputs)}")
        )
    for index, (result, output) in enumerate(zip(values, outputs, strict=True)):
        label = (
            f"result {index} of packed function `{name}`"
            if len(outputs) > 1
            else f"the result of packed function `{name}`"
        )
        if isinstance(result, (int, float, np.generic)) and not output.shape:
            result = np.asarray(result, as_array(output).dtype)
        try:
            source = borrow(result)
        except NotATensor as exc:
            raise CallError(error("E0812", f"{label} is {exc}")) from None
        if source.shape != output.shape or source.code != output.code:
            raise CallError(
                error(
                    "E0812",
                    f"{label} is {source.dtype}{list(source.shape)}, expected {output.dtype}{list(output.shape)}",
                )
            )
        as_array(output)[...] = as_array(source)
