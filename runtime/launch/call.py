"""Calling a function of a launch plan: arguments to the device, checks, the run, results back.

Checks, messages and results are those of compiled CPU code (`mlcc.runtime.call`). NumPy arrays are copied in and out;
an array in the device's memory is used where it is, and then the results stay there too.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlcc.errors import CallError, Diagnostic, error
from mlcc.runtime.arguments import Argument, flatten
from mlcc.runtime.call import Cut, Function
from mlcc.runtime.dlpack import Located, as_array
from mlcc.runtime.explain import bind_symbols, differences, violated
from mlcc.runtime.launch.device_array import DeviceArray, locate
from mlcc.runtime.launch.plan import FunctionPlan
from mlcc.runtime.launch.quick import QuickCalls
from mlcc.runtime.launch.run import Failure, Loaded, Recorder, Recording, Run
from mlcc.runtime.launch.scalars import ROUND, Values
from mlcc.runtime.launch.transfer import Transfer, span, transfer
from mlcc.runtime.manifest import FunctionSpec, Value, evaluate

if TYPE_CHECKING:
    from mlcc.runtime.launch.executable import PlanExecutable

_MOST_BYTES = 1 << 46  # of a workspace
_MOST_RECORDINGS = 8


class _Texts:
    """What a Function asks its machine code for, but for the code."""

    frames = None

    def __init__(self, owner: PlanExecutable) -> None:
        self.owner = owner

    def error(self, code: int) -> bytes | None:
        text = self.owner.plan.errors.get(code)
        return None if text is None else text.encode()


class PlanFunction(Function):
    """A function of a launch plan."""

    def __init__(self, spec: FunctionSpec, plan: FunctionPlan, owner: PlanExecutable) -> None:
        super().__init__(spec, _Texts(owner))  # type: ignore[arg-type]
        self._fast = None
        self.plan = plan
        self.owner = owner
        self.recordings: OrderedDict[Any, Recording] = OrderedDict()
        self._quick = QuickCalls.of(spec, plan)

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Call it. `out` takes the results of a relax function: an array, or a tuple of arrays."""
        quick = self._quick
        with self.owner.device.lock:
            if quick is None or out is not None or len(args) != quick.count:
                return self.bind(*args, out=out)()
            key = quick.key(args, self.owner.device)
            known = quick.known.get(key)
            if known is not None:
                return quick.call(self, known, args)
            call = self.bind(*args)
            result = call()
            if key is not None:
                quick.remember(key, call)
            return result

    def recorded(
        self, loaded: Loaded, addresses: Sequence[int], room: int, workspace: int, values: Values
    ) -> Recording:
        """What was noted for these addresses and values, or is noted now. Raises Failure."""
        key = (loaded.generation, room, tuple(addresses), tuple(values.items()))
        found = self.recordings.get(key)
        if found is None:
            run, made = Run(loaded, self.plan, addresses, room, room + workspace), dict(values)
            recorder = run.sink = Recorder()
            run(made)
            recorder.blocks = run.blocks
            found = self.recordings[key] = Recording(recorder, made, loaded.device)
            if len(self.recordings) > _MOST_RECORDINGS:
                self.recordings.popitem(last=False)
        else:
            self.recordings.move_to_end(key)
        return found

    def bind(self, *args: Any, out: Any = None, _spare: Any = None) -> Any:
        """Check the arguments now and get a call that costs little: `call = f.bind(x, out=y); call()`.

        Every call reads the arrays anew and writes the same results. Where the device can, it replays as a whole.
        Raises CallError, listing all that is wrong.
        """
        with self.owner.device.lock:
            return super().bind(*args, out=out)

    def _bound(self, given: list[Argument], results: list[Argument], returned: Any, spare: Any) -> Any:
        return PlanCall(self, given, results, returned)

    def _flatten(self, spec: Value, value: Any, name: str, into: list[Argument], wrong: list[Diagnostic]) -> None:
        try:
            placed = locate(value, self.owner.device)
        except CallError as exc:
            wrong += exc.diagnostics
            return
        flatten(spec, placed, self.name, name, into, wrong)

    def _fresh(self, value: Value, symbols: dict[str, int], given: Sequence[Argument]) -> Any:
        if not any(a.located is not None for a in given):
            return super()._fresh(value, symbols, given)
        pool = self.owner.loaded().pool
        return self._sized(value, symbols, lambda shape: DeviceArray.empty(pool, shape, value.dtype))

    def _result(self, value: Value, array: Any) -> Argument:
        if isinstance(array, DeviceArray):
            return super()._result(value, Located(array.tensor, array))
        return super()._result(value, array)


class PlanCall:
    """A checked call. Calling it runs the function on the arrays it was bound to and returns its results."""

    def __init__(self, function: PlanFunction, given: list[Argument], results: list[Argument], returned: Any) -> None:
        self.function = function
        self.arguments = [*given, *results]
        self.rearranged = [a for a in self.arguments if a.before is not None or a.after is not None]
        self.returned = returned
        self.calls = 0
        self.recording: Recording | None = None
        self._check(len(given))
        self.loaded: Loaded | None = None

    def __call__(self) -> Any:
        function = self.function
        with function.owner.device.lock:
            function.owner.device.attach()
            loaded = self._ready()
            self._fetch()
            values = self._run(loaded)
            for moved in self.transfers:
                moved.back(loaded)
            return self._read(self.returned, values)

    def timed(self, loop: Any, number: int, clock: int) -> float:
        """Seconds that `number` runs take on the device; copies to and from the host are not among them."""
        with self.function.owner.device.lock:
            self.function.owner.device.attach()
            loaded = self._ready()
            self._fetch()
            self._run(loaded)
            start = loaded.device.record()
            for _ in range(number):
                self._run(loaded, check=False)
            return loaded.device.elapsed(start, loaded.device.record())

    # ------------------------------------------------------------ checks

    def _check(self, inputs: int) -> None:
        """Everything that can be wrong with arguments, each by itself and together. Raises CallError."""
        function, spec = self.function, self.function.spec
        wrong = self._differences()
        if wrong:
            raise CallError(wrong)
        symbols = bind_symbols(self._given())
        for argument in self.arguments:
            self._memory(argument, symbols)
        for constraint in spec.constraints:
            if violated(constraint, symbols) is not None:
                raise function._failure(constraint.code, None, self.arguments[:inputs])
        self.values = self._entry_values(symbols)
        self._overlaps()

    def _differences(self) -> list[Diagnostic]:
        """Every extent that is not as declared."""
        return differences(self.function.name, self._given())

    def _given(self) -> list[Argument]:
        """The arguments whose extents are known before the run."""
        return [a for a in self.arguments if a.leaf.kind == "tensor" or not a.is_result]

    def _memory(self, argument: Argument, symbols: dict[str, int]) -> None:
        """The memory of a tensor: there is some, and strides are as declared; those that are symbols are bound."""
        tensor, leaf = argument.tensor, argument.leaf
        if leaf.kind != "tensor" or tensor is None:
            return
        if not tensor.address and 0 not in tensor.shape:
            raise self._refused("E0805", f"the data of `{argument.name}` are null")
        if leaf.strides is None:
            return
        strides = tensor.strides or _compact(tensor.shape)
        for index, (want, have, extent) in enumerate(zip(leaf.strides, strides, tensor.shape, strict=True)):
            if isinstance(want, str) and want not in symbols:
                symbols[want] = have
                continue
            expected = evaluate(want, symbols)
            if expected != have and extent > 1:
                raise self._refused("E0805", f"stride {index} of `{argument.name}` is {have}, expected {expected}")

    def _refused(self, code: str, message: str) -> CallError:
        return CallError(error(code, f"`{self.function.name}`: {message}"))

    def _entry_values(self, symbols: dict[str, int]) -> Values:
        """Symbols, scalars, and the ends of the parts of the workspace, whose size comes last."""
        plan, spec = self.function.plan, self.function.spec
        missing = [s for s in spec.symbols if s not in symbols]
        if missing:
            raise self._refused("E0805", f"`{missing[0]}` cannot be told from the arguments: pass what it is as one")
        values: Values = {s: symbols[s] for s in spec.symbols}
        for index, name in plan.floats:
            (number,) = struct.unpack("<d", struct.pack("<Q", self.arguments[index].word))
            values[name] = ROUND.get(self.arguments[index].leaf.dtype, float)(number)
        for name, expr in plan.places:
            values[name] = expr(values)
        self.workspace = plan.workspace(values)
        sizes = [self.workspace, *(values[name] for name, _ in plan.places)]
        if any(not 0 <= size < _MOST_BYTES for size in sizes):
            raise self._refused("E0810", "the intermediates or results are too large")
        return values

    def _overlaps(self) -> None:
        """What is written shares no memory with anything else."""
        seen = [(a, span(a.tensor)) for a in self.arguments if a.leaf.kind == "tensor" and a.tensor is not None]
        for argument, (low, high) in seen:
            if argument.leaf.role == "in" and not argument.is_result and not self._is_result(argument):
                continue
            for other, (start, end) in seen:
                same = (other.located is None) == (argument.located is None)
                if other is not argument and same and low < end and start < high:
                    raise self._refused("E0809", f"`{argument.leaf.name}` shares memory with another argument")

    def _is_result(self, argument: Argument) -> bool:
        return argument.name.partition("[")[0] == "out" and self.function.spec.kind == "relax"

    # ------------------------------------------------------------ memory

    def _ready(self) -> Loaded:
        """Places for everything on the device, made anew where its memory was lost."""
        loaded = self.function.owner.loaded()
        if self.loaded is not loaded:
            for argument in self.arguments:
                value = argument.located.value if argument.located is not None else None
                if isinstance(value, DeviceArray):
                    value.require()
            self.transfers: list[Transfer] = []
            self.addresses = [self._address(i, a, loaded) for i, a in enumerate(self.arguments)]
            self.room = loaded.pool.take(self.workspace + loaded.record_bytes)
            self.recording = None
            self.loaded = loaded
        return loaded

    def _address(self, index: int, argument: Argument, loaded: Loaded) -> int:
        """Where the device finds an argument."""
        if argument.tensor is None:
            return argument.word  # an address that was given as such; a scalar's is not used
        shift = self.function.plan.shifts.get(index)
        made = transfer(argument, loaded, 0 if shift is None else shift(self.values), self._is_result(argument))
        if made.moves:
            self.transfers.append(made)
        return made.address

    def _fetch(self) -> None:
        """The arguments' content as it is now, to the device."""
        assert self.loaded is not None
        for argument in self.rearranged:
            if argument.before is not None:
                as_array(argument.tensor)[...] = argument.before  # type: ignore[arg-type]
        for moved in self.transfers:
            moved.to(self.loaded)

    # ------------------------------------------------------------ running

    def _run(self, loaded: Loaded, check: bool = True) -> Values:
        """Have the device do it; gives the values that are known at the end. Raises CallError."""
        function, plan = self.function, self.function.plan
        self.calls += 1
        try:
            if not plan.is_static:
                run, values = self._new_run(loaded), dict(self.values)
                run(values)
            else:
                if self.recording is None:
                    self.recording = function.recorded(
                        loaded, self.addresses, self.room.address, self.workspace, self.values
                    )
                self.recording.play(self.calls > 1)
                values = self.recording.values
            if check and loaded.plan.words:
                self._new_run(loaded).check()
            return values
        except Failure as exc:
            raise self.function._failure(exc.code, self._differences(), self.arguments, exc.numbers) from None

    def _new_run(self, loaded: Loaded) -> Run:
        work = self.room.address
        return Run(loaded, self.function.plan, self.addresses, work, work + self.workspace)

    # ------------------------------------------------------------ results

    def _read(self, returned: Any, values: Values) -> Any:
        """Results as the caller gets them."""
        for argument in self.rearranged:
            if argument.after is not None:
                argument.after[...] = as_array(argument.tensor)  # type: ignore[arg-type]
        if returned is None:
            return None
        numbers: dict[int, list[Any]] = {}
        for index, value in self.function.plan.values:
            numbers.setdefault(index, []).append(value(values))
        return self._returned(returned, values, numbers, {id(a): i for i, a in enumerate(self.arguments)})

    def _returned(self, item: Any, values: Values, numbers: dict[int, list[Any]], places: dict[int, int]) -> Any:
        """One result, or a tuple of them; `numbers` are those that are no tensors, by their places."""
        if isinstance(item, tuple):
            return tuple(self._returned(i, values, numbers, places) for i in item)
        if isinstance(item, Cut):
            return self._cut(item, tuple(d(values) for d in self.function.plan.actual[places[id(item.argument)]]))
        if not isinstance(item, Argument):
            return item
        found = numbers.get(places[id(item)], [])
        return tuple(found) if item.leaf.kind == "shape" else _scalar(item.leaf.dtype, found[0])

    def _cut(self, item: Cut, shape: tuple[int, ...]) -> Any:
        """The part of a result that was written."""
        if item.argument.located is not None:
            tensor = item.argument.located.tensor
            block = item.array._block if isinstance(item.array, DeviceArray) else None
            return DeviceArray(self.function.owner.device, tensor, block).view(shape)
        lanes = item.argument.leaf.code[2]
        flat = item.array.reshape(-1)[: math.prod(shape) * lanes]
        return flat.reshape((*shape, lanes) if lanes > 1 else shape)


def _scalar(dtype: str, value: Any) -> Any:
    if dtype == "bool":
        return bool(value)
    return float(value) if "float" in dtype else int(value)


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    made: list[int] = []
    step = 1
    for extent in reversed(shape):
        made.insert(0, step)
        step *= extent
    return tuple(made)
