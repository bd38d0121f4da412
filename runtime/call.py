"""Calling a function of an artifact: arguments to an argument vector, checks, results back.

Native code checks shapes, symbols and overlap; what it refuses is looked at again here, to say which argument differs
and how.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from mlcc.errors import CallError, Diagnostic, error
from mlcc.runtime.abi import ALIGNMENT, STORAGE, ErrorFn, QueryFn, RunFn, filled, kind_of
from mlcc.runtime.arguments import Argument, convert_tensor, extent, flatten, pack, shared_memory
from mlcc.runtime.dlpack import as_array, of_array
from mlcc.runtime.explain import bind_symbols, differences, violated
from mlcc.runtime.fast import Area, FastPath
from mlcc.runtime.manifest import FunctionSpec, Value, evaluate, show_tensor
from mlcc.runtime.packed import Frame, Frames

_CODES = {"ASSERT": "E0813", "CAST": "E0814", "MEMORY": "E0810", "WORKSPACE": "E0810", "PACKED_UNSET": "E0811",
          "PACKED_FAILED": "E0812", "OVERLAP": "E0809", "VALUE": "E0817", "INDEX": "E0818",
          "OUTSIDE": "E0870", "UNWRITTEN": "E0871", "RACE": "E0873"}  # fmt: skip


@dataclass(slots=True)
class Entry:
    """The machine code of one function. `frames` is None if nothing packed can be called."""

    query: Any
    run: Any
    error: Any
    frames: Frames | None
    prepare: Any  # called before each call: binds packed functions that were registered meanwhile

    @staticmethod
    def at(query: int, run: int, text: int, frames: Frames | None, prepare: Any) -> Entry:
        return Entry(QueryFn(query), RunFn(run), ErrorFn(text), frames, prepare)

    def framed(self, frame: Frame, native: Any, *args: Any) -> int:
        """Call native code that may call packed functions; an exception of one of them comes out here."""
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


class Function:
    """A function of a loaded artifact.

    A relax function returns its results as NumPy arrays (bfloat16 and 8-bit floats as their bits). A PrimFunc is called
    with its outputs passed in and returns None; without them, it makes and returns fresh ones.
    """

    def __init__(self, spec: FunctionSpec, entry: Entry) -> None:
        self.spec = spec
        self.name = spec.name
        self._entry = entry
        self._spare: list[Workspace] = []
        self._fast = FastPath.of(spec)

    def __repr__(self) -> str:
        return f"<mlcc function {self.name}({', '.join(self.parameter_names)})>"

    @property
    def parameter_names(self) -> list[str]:
        return [p.name for p in self.spec.params]

    @property
    def output_names(self) -> tuple[str, ...]:
        """The parameters of a PrimFunc that may be left out at the end of a call, because it writes them."""
        names: list[str] = []
        if self.spec.kind == "prim":
            for param in reversed(self.spec.params):
                if param.kind != "tensor" or param.role == "in":
                    break
                names.insert(0, param.name)
        return tuple(names)

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Call it. `out` takes the results of a relax function: an array, or a tuple of arrays."""
        fast = self._fast
        if fast is not None and len(args) == fast.count and (out is None or fast.takes(out)):
            ready = fast.prepare(args, out)
            if ready is not None:
                made, code = self._call_fast(fast, *ready, args)
                if code == 0:
                    return made if out is None else out
        call = self.bind(*args, out=out, _spare=self._spare)
        result = call()
        if call.workspace.size:
            self._spare.append(call.workspace)
        return result

    def _call_fast(
        self, fast: FastPath, area: Area, results: list[np.ndarray], args: tuple[Any, ...]
    ) -> tuple[Any, int]:
        """The results and the query's error code; raises CallError for an error of the call itself."""
        entry = self._entry
        if area.workspace < 0:  # other extents than in the call before: have them checked
            code = entry.query(area.base, area.facts, 1)
            if code != 0:
                fast.areas.append(area)
                return None, code  # the long way finds the same, and says what is wrong
            area.workspace = area.cells[len(fast.dtypes)]
        workspace = take_workspace(self.name, area.workspace, self._spare)
        if entry.frames is None:
            code = entry.run(area.base, area.facts + 8, workspace.address)
        else:
            readonly = tuple(extent(of_array(a)) for a in args if not a.flags.writeable)
            frame = Frame((args, results, area, workspace), readonly)
            code = entry.framed(frame, entry.run, area.base, area.facts + 8, workspace.address)
        if code != 0:
            raise self._failure(code)
        fast.areas.append(area)
        if workspace.size:
            self._spare.append(workspace)
        return results[0] if fast.single else tuple(results), 0

    def _failure(
        self, code: int, found: list[Diagnostic] | None = None, given: Sequence[Argument] = (),
        numbers: tuple[int, int] | None = None,
    ) -> CallError:  # fmt: skip
        """The error for a code of native code; `found` is what the arguments `given` show of its cause, `numbers` those
        that the text mentions, where it does not have them yet."""
        kind = kind_of(code)
        if found and kind is not None and kind.name not in _CODES:
            return CallError(found)
        text = self._entry.error(code)
        message = text.decode("utf-8", "replace").removeprefix(f"{self.name}: ") if text else f"error {code}"
        if numbers is not None:
            message = filled(message, *numbers)
        broken = next((c for c in self.spec.constraints if c.code == code), None)
        if broken is not None:
            message = violated(broken, bind_symbols(given)) or message
        line = dict(self.spec.lines).get(code)
        if line is not None:
            message += f", in line {line}"
        return CallError(error(_CODES.get(kind.name if kind else "", "E0805"), f"`{self.name}`: {message}"))

    def call_with_fresh_outputs(self, args: Sequence[Any]) -> Any:
        """Call it with one value per parameter, None for outputs of a PrimFunc to be made; returns its outputs."""
        names = self.output_names
        given = list(args)
        if self.spec.kind == "relax" or not names:
            return self(*given)
        inputs = given[: len(given) - len(names)]
        outputs = given[len(given) - len(names) :]
        if all(o is None for o in outputs):
            return self(*inputs)
        fresh = self._fresh_outputs(self._arguments(inputs))
        outputs = [f if o is None else o for o, f in zip(outputs, fresh, strict=True)]
        self(*inputs, *outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def bind(self, *args: Any, out: Any = None, _spare: list[Workspace] | None = None) -> BoundCall:
        """Check the arguments now and get a call that costs next to nothing: `call = f.bind(x, out=y); call()`.

        Every call reads the arrays anew and writes the same results. Raises CallError, listing all that is wrong.
        """
        given = self._arguments(args)
        returned: Any = None
        if self.spec.kind == "prim":
            if len(args) < len(self.spec.params):
                returned = self._fresh_outputs(given)
                self._add(self.spec.params[len(args) :], returned, given)
                for fresh in given[len(given) - len(returned) :]:
                    fresh.is_result = True
                returned = returned[0] if len(returned) == 1 else tuple(returned)
            if out is not None:
                raise CallError(
                    error("E0802", f"`{self.name}` is a PrimFunc: pass its outputs as arguments, not as `out`")
                )
            self._apart(given)
            return self._bound(given, [], returned, _spare)
        assert self.spec.results is not None
        results, returned = self._results(self.spec.results, given, out)
        self._apart([*given, *results])
        return self._bound(given, results, returned, _spare)

    def _bound(
        self, given: list[Argument], results: list[Argument], returned: Any, spare: list[Workspace] | None
    ) -> BoundCall:
        return BoundCall(self, given, results, returned, spare)

    # ------------------------------------------------------------ parts of bind

    def _apart(self, arguments: list[Argument]) -> None:
        """Refuse what is written through a copy and shares memory with another argument; native code sees the rest."""
        pair = shared_memory(arguments)
        if pair is not None:
            written, other = pair
            message = f"`{self.name}`: `{written.name}` shares memory with `{other.name}`"
            raise CallError(error("E0809", message))

    def _arguments(self, args: Sequence[Any]) -> list[Argument]:
        params = self.spec.params
        count, most = len(args), len(params)
        if count != most and count != most - len(self.output_names):
            names = ", ".join(self.parameter_names)
            allowed = f"{most}" if not self.output_names else f"{most - len(self.output_names)} or {most}"
            raise CallError(
                error(
                    "E0802",
                    f"`{self.name}` takes {allowed} argument{'s' if allowed != '1' else ''} ({names}), got {count}",
                )
            )
        made: list[Argument] = []
        self._add(params[:count], args, made)
        return made

    def _add(self, params: Sequence[Value], args: Sequence[Any], into: list[Argument]) -> None:
        wrong: list[Diagnostic] = []
        for param, value in zip(params, args, strict=True):
            self._flatten(param, value, param.name, into, wrong)
        if wrong:
            raise CallError(wrong)

    def _flatten(self, spec: Value, value: Any, name: str, into: list[Argument], wrong: list[Diagnostic]) -> None:
        """Convert one parameter, or the results as `out`."""
        flatten(spec, value, self.name, name, into, wrong)

    def _fresh_outputs(self, given: list[Argument]) -> list[Any]:
        symbols = bind_symbols(given)
        count = len(self.output_names)
        return [self._fresh(p, symbols, given) for p in self.spec.params[len(self.spec.params) - count :]]

    def _results(self, spec: Value, given: list[Argument], out: Any) -> tuple[list[Argument], Any]:
        """The places of the results and, nested as declared, what the call returns (None: a scalar, read later)."""
        made: list[Argument] = []
        if out is not None:
            wrong: list[Diagnostic] = []
            self._flatten(spec, out, "out", made, wrong)
            if wrong:
                raise CallError(wrong)
            return made, _cut(spec, out, iter(made))
        return made, self._made(spec, bind_symbols(given), given, made)

    def _made(self, value: Value, symbols: dict[str, int], given: list[Argument], into: list[Argument]) -> Any:
        """A fresh result, or a tuple of them, whose places go to `into`."""
        if value.kind == "tuple":
            return tuple(self._made(f, symbols, given, into) for f in value.fields)
        if value.kind == "tensor":
            array = self._fresh(value, symbols, given)
            into.append(self._result(value, array))
            into[-1].name = "out"
            return Cut(into[-1], array) if value.at_most else array
        count = len(value.dims) if value.kind == "shape" else 1
        into.append(Argument(value, "the result", "out", is_result=True, words=(0,) * count))
        return into[-1]

    def _result(self, value: Value, array: Any) -> Argument:
        """The place of a fresh result."""
        return convert_tensor(value, array, "the result", True)

    def _fresh(self, value: Value, symbols: dict[str, int], given: Sequence[Argument]) -> Any:
        """A new array for something that the function writes. Raises CallError."""
        exotic = next((a.exotic for a in given if a.exotic is not None), None)
        made = self._sized(value, symbols, lambda shape: self._array(value, shape))
        if exotic is not None and exotic.name == value.dtype:
            return made.view(exotic)
        return made

    @staticmethod
    def _array(value: Value, shape: tuple[int, ...]) -> np.ndarray:
        name, _, lanes = value.dtype.partition("x")
        return np.empty((*shape, int(lanes)) if value.code[2] > 1 else shape, STORAGE.get(name, name))

    def _sized(self, value: Value, symbols: dict[str, int], make: Callable[[tuple[int, ...]], Any]) -> Any:
        """What `make` makes of the shape that a value has. Raises CallError."""
        try:
            return make(tuple(evaluate(d, symbols) for d in value.dims))
        except KeyError as exc:
            raise CallError(
                error(
                    "E0805",
                    f"the shape of `{value.name}` of `{self.name}` depends on `{exc.args[0]}`: pass it as an argument",
                )
            ) from None
        except CallError:
            raise
        except (ValueError, MemoryError, OverflowError) as exc:
            wrong = next(filter(None, (violated(c, symbols) for c in self.spec.constraints)), None)
            if wrong is not None:
                raise CallError(error("E0814", f"`{self.name}`: {wrong}")) from None
            raise CallError(
                error("E0810", f"cannot make a result of `{self.name}`, {show_tensor(value)}: {exc}")
            ) from None


@dataclass(slots=True)
class Cut:
    """A result whose extents the data decide, in an array of the greatest extents that it can have."""

    argument: Argument
    array: Any

    def read(self, memory: Any) -> Any:
        """The elements that were written, as a view of their shape."""
        at = self.argument.word - ctypes.addressof(memory)
        shape = struct.unpack_from(f"<{len(self.argument.leaf.dims)}q", memory, at)
        lanes = self.argument.leaf.code[2]
        return self.array.reshape(-1)[: math.prod(shape) * lanes].reshape((*shape, lanes) if lanes > 1 else shape)


def _cut(spec: Value, out: Any, made: Iterator[Argument]) -> Any:
    """`out` as the caller gave it, with what has to be cut to its extents marked."""
    if spec.kind == "tuple":
        return tuple(_cut(f, o, made) for f, o in zip(spec.fields, out, strict=True))
    argument = next(made)
    return Cut(argument, out) if spec.at_most else out


class Workspace:
    """Aligned memory for intermediates."""

    __slots__ = ("address", "memory", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = np.empty(size + ALIGNMENT, np.uint8) if size else None
        start = 0 if self.memory is None else self.memory.__array_interface__["data"][0]
        self.address = -(-start // ALIGNMENT) * ALIGNMENT


NO_WORKSPACE = Workspace(0)


class BoundCall:
    """A checked call. Calling it runs the function on the arrays it was bound to and returns its results."""

    __slots__ = ("_frame", "_places", "_run", "_simple", "arguments", "function", "memory", "returned", "workspace")

    def __init__(
        self, function: Function, given: list[Argument], results: list[Argument], returned: Any,
        spare: list[Workspace] | None,
    ) -> None:  # fmt: skip
        self.function = function
        self.arguments = [*given, *results]
        self.returned = returned
        self.memory, base, query = pack(self.arguments, len(results), 1 + len(function.spec.symbols))
        entry = function._entry
        entry.prepare()
        code = entry.query(base, query, 1)
        if code != 0:
            self._refuse(code)
        size = struct.unpack_from("<q", self.memory, query - base)[0]
        self.workspace = take_workspace(function.name, size, spare)
        self._places = (base, query + 8, self.workspace.address)
        self._frame: Frame | None = None
        if entry.frames is not None:
            readonly = tuple(extent(a.tensor) for a in given if a.tensor is not None and a.tensor.readonly)
            self._frame = Frame((self.memory, self.workspace, self.arguments), readonly)
        self._run = entry.run
        copies = any(a.before is not None or a.after is not None for a in self.arguments)
        plain = all(a.leaf.kind == "tensor" and not a.leaf.at_most for a in results)
        self._simple = self._frame is None and not copies and plain

    def __call__(self) -> Any:
        if self._simple:
            code = self._run(*self._places)
            if code == 0:
                return self.returned
            self._refuse(code)
        for argument in self.arguments:
            if argument.before is not None:
                as_array(argument.tensor)[...] = argument.before  # type: ignore[arg-type]
        code = self._framed(self._run, *self._places)
        if code != 0:
            self._refuse(code)
        for argument in self.arguments:
            if argument.after is not None:
                argument.after[...] = as_array(argument.tensor)  # type: ignore[arg-type]
        return self._read(self.returned)

    def timed(self, loop: Any, number: int, clock: int) -> float:
        """Seconds that `number` runs in the native `loop` take."""
        nanoseconds = ctypes.c_int64()
        run = ctypes.cast(self._run, ctypes.c_void_p).value
        code = self._framed(loop, run, *self._places, number, clock, ctypes.addressof(nanoseconds))
        if code != 0:
            self._refuse(code)
        return nanoseconds.value * 1e-9

    def _framed(self, native: Any, *args: Any) -> int:
        """Call native code; where it may call packed functions, with what they need to know of this call."""
        if self._frame is None:
            return native(*args)  # type: ignore[no-any-return]
        frame = Frame(self._frame.owner, self._frame.readonly)
        return self.function._entry.framed(frame, native, *args)

    def _read(self, returned: Any) -> Any:
        """Results that are no arrays, read from where the function wrote them."""
        if isinstance(returned, tuple):
            return tuple(self._read(r) for r in returned)
        if isinstance(returned, Cut):
            return returned.read(self.memory)
        if not isinstance(returned, Argument):
            return returned
        at = returned.word - ctypes.addressof(self.memory)
        if returned.leaf.kind == "shape":
            return struct.unpack_from(f"<{len(returned.words)}q", self.memory, at)
        kind, _, _ = returned.leaf.code
        code = "<d" if kind in (2, 4, 10, 12) else "<?" if kind == 6 else "<Q" if kind == 1 else "<q"
        return struct.unpack_from(code, self.memory, at)[0]

    def _refuse(self, code: int) -> NoReturn:
        """Raise the error for a code of native code, with what the arguments show of its cause."""
        seen = [a for a in self.arguments if a.leaf.kind == "tensor" or not a.is_result]
        raise self.function._failure(code, differences(self.function.name, seen), seen)


def take_workspace(name: str, size: int, spare: list[Workspace] | None) -> Workspace:
    """Memory of at least `size` bytes, from an earlier call if there is some. Raises CallError."""
    if not size:
        return NO_WORKSPACE
    while spare:
        try:
            found = spare.pop()
        except IndexError:  # another thread was faster
            break
        if found.size >= size:
            return found
    try:
        return Workspace(size)
    except (MemoryError, ValueError):
        raise CallError(error("E0810", f"`{name}` needs a workspace of {size} bytes, which cannot be had")) from None
