"""Run machine code: the executor of functions in objects and shared libraries, and their executable."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from mlcc.errors import CallError, error
from mlcc.runtime import registry
from mlcc.runtime.abi import ALIGNMENT, ErrorFn, ProfileFn, QueryFn, RunFn, SetSlotFn, TimeFn
from mlcc.runtime.arguments import Argument, address_range, pack_arguments
from mlcc.runtime.dlpack import as_array, of_array
from mlcc.runtime.executable import Executable
from mlcc.runtime.explain import differences
from mlcc.runtime.fast import FastPath
from mlcc.runtime.function import Function
from mlcc.runtime.manifest import Manifest
from mlcc.runtime.native_function import NativeFunction
from mlcc.runtime.packed import Frame, Frames, make_trampoline
from mlcc.runtime.profile_counters import ProfileCounters
from mlcc.runtime.repeated_call import make_repeated_call
from mlcc.runtime.signature import BoundArguments, BoundedResult, Signature

if TYPE_CHECKING:
    from mlcc.runtime.execution_log import ExecutionLog


@dataclass(slots=True)
class Entry:
    """The machine code of one function. `frames` is None if it calls no packed functions."""

    query: Any
    run: Any
    error: Any
    frames: Frames | None
    prepare: Callable[[], None]  # called before each call, to bind newly registered packed functions
    time_loop: Callable[[], Any]  # returns native code that runs a function repeatedly

    def framed(self, frame: Frame, native: Any, *args: Any) -> int:
        """Call native code that may call packed functions; re-raise an exception of one of them."""
        assert self.frames is not None
        self.prepare()
        self.frames.push(frame)
        try:
            code: int = native(*args)
        finally:
            self.frames.pop()
        if frame.exception is not None:
            raise frame.exception
        return code

    def text(self, code: int) -> str | None:
        """Return the machine code's message for an error code."""
        message = self.error(code)
        return message.decode("utf-8", "replace") if message else None


class NativeExecutor:
    """Call machine code, reusing workspaces between calls."""

    def __init__(self, signature: Signature, entry: Entry) -> None:
        self.signature = signature
        self.entry = entry
        self.fast = FastPath.of(signature.spec)
        self.spare: list[Workspace] = []
        self._is_first = True
        self._repeat: Callable[[tuple[Any, ...]], Any] | None = None  # made at the second call

    def call(self, args: tuple[Any, ...], out: Any) -> Any:
        """Call the function, by the fast path for common arguments. Raises CallError."""
        if out is None and self._repeat is not None:
            result = self._repeat(args)
            if result is not None:
                return result
        return self._first_call(args, out)

    def _fail(self, code: int) -> NoReturn:
        raise self.signature.failure(code, self.entry.text(code))

    def _first_call(self, args: tuple[Any, ...], out: Any) -> Any:
        """Call the function with extents, or by a path, that it was not called with before. Raises CallError."""
        fast, entry = self.fast, self.entry
        ready = None if fast is None else fast.prepare(args, out)
        if fast is None or ready is None:
            return self._checked_call(args, out)
        area, results = ready
        if area.run_args is None:
            if entry.query(area.base, area.facts, 1) != 0:
                fast.areas.append(area)
                return self._checked_call(args, out)  # fails, too, with an explanation
            size = area.cells[len(fast.dtypes)]
            if area.workspace is None or area.workspace.size < size:
                area.workspace = None  # the memory is free before more is taken
                area.workspace = take_workspace(self.signature.name, size, self.spare)
            area.run_args = area.base, area.facts + 8, area.workspace.address
        run_args = area.run_args
        if entry.frames is None:
            code = entry.run(*run_args)
        else:
            readonly = tuple(address_range(of_array(a)) for a in args if not a.flags.writeable)
            frame = Frame((args, results, area), readonly)
            code = entry.framed(frame, entry.run, *run_args)
        if code != 0:
            self._fail(code)
        fast.areas.append(area)
        if self._repeat is None and entry.frames is None and not self._is_first:
            self._repeat = make_repeated_call(fast, entry.run, self._fail)
        self._is_first = False
        return out if out is not None else results[0] if fast.single else tuple(results)

    def _checked_call(self, args: tuple[Any, ...], out: Any) -> Any:
        """Call the function by the general path. Raises CallError."""
        call = NativeCall(self, self.signature.bind(args, out), self.spare)
        result = call()
        if call.workspace.size:
            self.spare.append(call.workspace)
        return result

    def bind(self, args: Sequence[Any], out: Any) -> NativeCall:
        return NativeCall(self, self.signature.bind(args, out))


class Workspace:
    """Aligned memory for intermediates."""

    __slots__ = ("address", "memory", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = np.empty(size + ALIGNMENT, np.uint8) if size else None
        start = 0 if self.memory is None else self.memory.__array_interface__["data"][0]
        self.address = -(-start // ALIGNMENT) * ALIGNMENT


NO_WORKSPACE = Workspace(0)


class NativeCall:
    """A checked call. Calling it runs the function on the arrays it was bound to and returns its results."""

    __slots__ = ("_frame", "_run", "_run_args", "_simple", "arguments", "executor", "memory", "returned", "workspace")

    def __init__(self, executor: NativeExecutor, bound: BoundArguments, spare: list[Workspace] | None = None) -> None:
        self.executor = executor
        self.arguments = bound.all
        self.returned = bound.returned
        entry, spec = executor.entry, executor.signature.spec
        self.memory, base, query = pack_arguments(self.arguments, len(bound.results), 1 + len(spec.symbols))
        entry.prepare()
        code = entry.query(base, query, 1)
        if code != 0:
            self._raise_error(code)
        size = struct.unpack_from("<q", self.memory, query - base)[0]
        self.workspace = take_workspace(spec.name, size, spare)
        self._run_args = (base, query + 8, self.workspace.address)
        self._frame: Frame | None = None
        if entry.frames is not None:
            readonly = tuple(address_range(a.tensor) for a in bound.given if a.tensor is not None and a.tensor.readonly)
            self._frame = Frame((self.memory, self.workspace, self.arguments), readonly)
        self._run = entry.run
        copies = any(a.before is not None or a.after is not None for a in self.arguments)
        plain = all(a.leaf.kind == "tensor" and not a.leaf.at_most for a in bound.results)
        self._simple = self._frame is None and not copies and plain

    def __call__(self) -> Any:
        if self._simple:
            code = self._run(*self._run_args)
            if code == 0:
                return self.returned
            self._raise_error(code)
        for argument in self.arguments:
            if argument.before is not None:
                as_array(argument.tensor)[...] = argument.before  # type: ignore[arg-type]
        code = self._call_native(self._run, *self._run_args)
        if code != 0:
            self._raise_error(code)
        for argument in self.arguments:
            if argument.after is not None:
                argument.after[...] = as_array(argument.tensor)  # type: ignore[arg-type]
        return self._read(self.returned)

    def timed(self, number: int) -> float:
        """Return the seconds that `number` runs in a native loop take."""
        nanoseconds = ctypes.c_int64()
        loop = self.executor.entry.time_loop()
        run = ctypes.cast(self._run, ctypes.c_void_p).value
        code = self._call_native(loop, run, *self._run_args, number, _clock(), ctypes.addressof(nanoseconds))
        if code != 0:
            self._raise_error(code)
        return nanoseconds.value * 1e-9

    def _call_native(self, native: Any, *args: Any) -> int:
        """Call native code, with a frame for packed functions if it may call some."""
        if self._frame is None:
            return native(*args)  # type: ignore[no-any-return]
        frame = Frame(self._frame.owner, self._frame.readonly)
        return self.executor.entry.framed(frame, native, *args)

    def _read(self, returned: Any) -> Any:
        """Read results other than arrays from the memory of the call."""
        if isinstance(returned, tuple):
            return tuple(self._read(r) for r in returned)
        if isinstance(returned, BoundedResult):
            count = len(returned.argument.leaf.dims)
            return returned.of_shape(struct.unpack_from(f"<{count}q", self.memory, self._offset(returned.argument)))
        if not isinstance(returned, Argument):
            return returned
        if returned.leaf.kind == "shape":
            return struct.unpack_from(f"<{len(returned.words)}q", self.memory, self._offset(returned))
        kind, _, _ = returned.leaf.code
        code = "<d" if kind in (2, 4, 10, 12) else "<?" if kind == 6 else "<Q" if kind == 1 else "<q"
        return struct.unpack_from(code, self.memory, self._offset(returned))[0]

    def _offset(self, argument: Argument) -> int:
        """Return the offset, in the memory of the call, of a result or its shape."""
        return argument.word - ctypes.addressof(self.memory)

    def _raise_error(self, code: int) -> NoReturn:
        """Raise the error for a native error code, explained by the arguments if possible."""
        signature = self.executor.signature
        arguments = [a for a in self.arguments if a.leaf.kind == "tensor" or not a.is_result]
        raise signature.failure(code, self.executor.entry.text(code), differences(signature.name, arguments), arguments)


@functools.cache
def _clock() -> int:
    """Return the address of the clock function for native code."""
    return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0


def take_workspace(name: str, size: int, spare: list[Workspace] | None) -> Workspace:
    """Return a workspace of at least `size` bytes, reusing that of an earlier call. Raises CallError."""
    if not size:
        return NO_WORKSPACE
    while spare:
        try:
            workspace = spare.pop()
        except IndexError:  # another thread was faster
            break
        if workspace.size >= size:
            return workspace
    try:
        return Workspace(size)
    except (MemoryError, ValueError):
        raise CallError(error("E0810", f"`{name}` is out of memory for a workspace of {size} bytes")) from None


class NativeExecutable(Executable):
    """A loaded object or shared library."""

    def __init__(self, facts: Manifest, find: Callable[[str], int], constants: tuple[int, int]) -> None:
        """`find` returns the address of a symbol; `constants` is the address range of constants."""
        super().__init__(facts)
        self._find = find
        self._frames = Frames() if facts.packed else None
        self._bound_at = -1
        self._slots: list[Any] = []
        if self._frames is not None:
            self._set_slot = SetSlotFn(find(f"{facts.prefix}_set_packed_slot"))
            self._slots = [make_trampoline(spec, self._frames, constants) for spec in facts.packed]
        for name, spec in facts.functions.items():
            query, run, text = (find(f"{spec.symbol}_{part}") for part in ("query", "run", "error"))
            code = QueryFn(query), RunFn(run), ErrorFn(text)
            entry = Entry(*code, self._frames, self._bind_packed, self._time_loop)
            signature = Signature(spec)
            self.functions[name] = Function(signature, NativeExecutor(signature, entry))

    def profile_counters(self) -> ProfileCounters | None:
        """Return the counters of an object that was compiled with `profile`, None for others."""
        sites = self.manifest.get("profile")
        if sites is None:
            return None
        table = ProfileFn(self._find(f"{self._facts.prefix}_profile"))
        return ProfileCounters(table(), sites, _clock())

    def execution_log(self) -> ExecutionLog | None:
        """Begin to log events in an object that was compiled with `profile`; return None for others."""
        events = self.manifest.get("events")
        if events is None:
            return None
        from mlcc.runtime.execution_log import ExecutionLog  # for this alone

        self.profile_counters()  # sets the clock
        return ExecutionLog(ProfileFn(self._find(f"{self._facts.prefix}_profile_log"))(), events)

    def _time_loop(self) -> Any:
        return TimeFn(self._find(f"{self._facts.prefix}_time_run"))

    def _bind_packed(self) -> None:
        """Bind the slots of packed functions to the registered ones: native code directly, others by a trampoline."""
        version = registry.version()
        if not self._slots or self._bound_at == version:
            return
        self._bound_at = version
        for index, (spec, trampoline) in enumerate(zip(self._facts.packed, self._slots, strict=True)):
            function = registry.get_func(spec.name)
            if isinstance(function, NativeFunction):
                self._set_slot(index, function.address, function.context)
            else:
                self._set_slot(index, ctypes.cast(trampoline, ctypes.c_void_p), None)
