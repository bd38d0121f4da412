"""A checked call of a function of a launch plan: upload arguments, run, download results.

Checks, messages and results are those of compiled CPU code (`mlcc.runtime.native`). NumPy arrays are copied to the
device and back; if an argument is in device memory, it is used in place, and the results stay there, too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from mlcc.errors import CallError, Diagnostic, error
from mlcc.runtime.arguments import Argument
from mlcc.runtime.dlpack import as_array
from mlcc.runtime.explain import bind_symbols, differences, violated
from mlcc.runtime.launch.device_array import DeviceArray
from mlcc.runtime.launch.launcher import Launcher
from mlcc.runtime.launch.loaded import LoadedPlan
from mlcc.runtime.launch.recording import Recording
from mlcc.runtime.launch.run import CheckFailure, Run
from mlcc.runtime.launch.scalars import ROUND, Values
from mlcc.runtime.launch.transfer import Transfer, span, transfer
from mlcc.runtime.manifest import evaluate
from mlcc.runtime.signature import BoundArguments, BoundedResult, Signature

_MAX_WORKSPACE = 1 << 46  # of a workspace


class LaunchCall:
    """A checked call. Calling it runs the function on the arrays it was bound to and returns its results."""

    def __init__(self, signature: Signature, launcher: Launcher, bound: BoundArguments) -> None:
        self.signature = signature
        self.launcher = launcher
        self.device = launcher.module.device
        self.arguments = bound.all
        self.copied_arguments = [a for a in self.arguments if a.before is not None or a.after is not None]
        self.returned = bound.returned
        self.calls = 0
        self.recording: Recording | None = None
        self._check(bound.given)
        self.loaded: LoadedPlan | None = None

    def __call__(self) -> Any:
        with self.device.lock:
            self.device.attach()
            loaded = self._prepare()
            self._upload()
            values = self._run(loaded)
            for item in self.transfers:
                item.download(loaded)
            return self._download_results(self.returned, values)

    def timed(self, number: int) -> float:
        """Return the seconds that `number` runs take on the device, without copies from and to the host."""
        with self.device.lock:
            self.device.attach()
            loaded = self._prepare()
            self._upload()
            self._run(loaded)
            start = loaded.device.record()
            for _ in range(number):
                self._run(loaded, check=False)
            return loaded.device.elapsed(start, loaded.device.record())

    @property
    def is_on_device(self) -> bool:
        """True if an argument is in device memory; the results then are, too."""
        return any(a.located is not None for a in self.arguments)

    # ------------------------------------------------------------ checks

    def _check(self, given: Sequence[Argument]) -> None:
        """Check the arguments, each by itself and against each other. Raises CallError."""
        mismatches = self._mismatches()
        if mismatches:
            raise CallError(mismatches)
        symbols = bind_symbols(self._known_arguments())
        for argument in self.arguments:
            self._check_memory(argument, symbols)
        for constraint in self.signature.spec.constraints:
            if violated(constraint, symbols) is not None:
                raise self.signature.failure(constraint.code, self._message(constraint.code), None, given)
        self.values = self._entry_values(symbols)
        self._check_overlaps()

    def _mismatches(self) -> list[Diagnostic]:
        """Return a diagnostic for every extent that differs from its declaration."""
        return differences(self.signature.name, self._known_arguments())

    def _message(self, code: int) -> str | None:
        """Return the plan's message for an error code."""
        return self.launcher.module.plan.errors.get(code)

    def _known_arguments(self) -> list[Argument]:
        """Return the arguments whose extents are known before the run."""
        return [a for a in self.arguments if a.leaf.kind == "tensor" or not a.is_result]

    def _check_memory(self, argument: Argument, symbols: dict[str, int]) -> None:
        """Check that a tensor has memory and the declared strides; bind strides that are symbols."""
        tensor, leaf = argument.tensor, argument.leaf
        if leaf.kind != "tensor" or tensor is None:
            return
        if not tensor.address and 0 not in tensor.shape:
            raise self._error("E0805", f"the data of `{argument.name}` are null")
        if leaf.strides is None:
            return
        strides = tensor.strides or _compact(tensor.shape)
        for index, (want, have, extent) in enumerate(zip(leaf.strides, strides, tensor.shape, strict=True)):
            if isinstance(want, str) and want not in symbols:
                symbols[want] = have
                continue
            expected = evaluate(want, symbols)
            if expected != have and extent > 1:
                raise self._error("E0805", f"stride {index} of `{argument.name}` is {have}, expected {expected}")

    def _error(self, code: str, message: str) -> CallError:
        return CallError(error(code, f"`{self.signature.name}`: {message}"))

    def _entry_values(self, symbols: dict[str, int]) -> Values:
        """Compute the values known at entry: symbols, scalars, and ends of workspace slots."""
        plan, spec = self.launcher.plan, self.signature.spec
        missing = [s for s in spec.symbols if s not in symbols]
        if missing:
            raise self._error(
                "E0805", f"`{missing[0]}` cannot be derived from the arguments: pass its value as an argument"
            )
        values: Values = {s: symbols[s] for s in spec.symbols}
        for index, name in plan.floats:
            (number,) = struct.unpack("<d", struct.pack("<Q", self.arguments[index].word))
            values[name] = ROUND.get(self.arguments[index].leaf.dtype, float)(number)
        for name, expr in plan.places:
            values[name] = expr(values)
        self.workspace = plan.workspace(values)
        sizes = [self.workspace, *(values[name] for name, _ in plan.places)]
        if any(not 0 <= size < _MAX_WORKSPACE for size in sizes):
            raise self._error("E0810", "the intermediates or results are too large")
        return values

    def _check_overlaps(self) -> None:
        """Raise E0809 if memory that is written overlaps another argument."""
        ranges = [(a, span(a.tensor)) for a in self.arguments if a.leaf.kind == "tensor" and a.tensor is not None]
        for argument, (low, high) in ranges:
            if argument.leaf.role == "in" and not argument.is_result and not self._is_result(argument):
                continue
            for other, (start, end) in ranges:
                same = (other.located is None) == (argument.located is None)
                if other is not argument and same and low < end and start < high:
                    raise self._error("E0809", f"`{argument.leaf.name}` shares memory with another argument")

    def _is_result(self, argument: Argument) -> bool:
        return argument.name.partition("[")[0] == "out" and self.signature.spec.kind == "relax"

    # ------------------------------------------------------------ memory

    def _prepare(self) -> LoadedPlan:
        """Allocate device memory for all arguments and the workspace, again if the device lost its memory."""
        loaded = self.launcher.module.loaded()
        if self.loaded is not loaded:
            for argument in self.arguments:
                value = argument.located.value if argument.located is not None else None
                if isinstance(value, DeviceArray):
                    value.require()
            self.transfers: list[Transfer] = []
            self.addresses = [self._address(i, a, loaded) for i, a in enumerate(self.arguments)]
            self.workspace_block = loaded.pool.take(self.workspace + loaded.record_bytes)
            self.recording = None
            self.loaded = loaded
        return loaded

    def _address(self, index: int, argument: Argument, loaded: LoadedPlan) -> int:
        """Return the device address of an argument, and record the transfer that it needs."""
        if argument.tensor is None:
            return argument.word  # a raw pointer; unused for scalars
        shift = self.launcher.plan.shifts.get(index)
        item = transfer(argument, loaded, 0 if shift is None else shift(self.values), self._is_result(argument))
        if item.moves:
            self.transfers.append(item)
        return item.address

    def _upload(self) -> None:
        """Upload the current contents of the arguments."""
        assert self.loaded is not None
        for argument in self.copied_arguments:
            if argument.before is not None:
                as_array(argument.tensor)[...] = argument.before  # type: ignore[arg-type]
        for item in self.transfers:
            item.upload(self.loaded)

    # ------------------------------------------------------------ running

    def _run(self, loaded: LoadedPlan, check: bool = True) -> Values:
        """Run on the device and return the values of symbols known at the end. Raises CallError."""
        plan = self.launcher.plan
        self.calls += 1
        try:
            if not plan.is_static:
                run, values = self._new_run(loaded), dict(self.values)
                run(values)
            else:
                if self.recording is None:
                    self.recording = self.launcher.recorded(
                        loaded, self.addresses, self.workspace_block.address, self.workspace, self.values
                    )
                self.recording.play(self.calls > 1)
                values = self.recording.values
            if check and loaded.plan.words:
                self._new_run(loaded).check()
            return values
        except CheckFailure as exc:
            text, mismatches = self._message(exc.code), self._mismatches()
            raise self.signature.failure(exc.code, text, mismatches, self.arguments, exc.numbers) from None

    def _new_run(self, loaded: LoadedPlan) -> Run:
        return self.launcher.run(loaded, self.addresses, self.workspace_block.address, self.workspace)

    # ------------------------------------------------------------ results

    def _download_results(self, returned: Any, values: Values) -> Any:
        """Return the results for the caller."""
        for argument in self.copied_arguments:
            if argument.after is not None:
                argument.after[...] = as_array(argument.tensor)  # type: ignore[arg-type]
        if returned is None:
            return None
        scalars: dict[int, list[Any]] = {}
        for index, value in self.launcher.plan.values:
            scalars.setdefault(index, []).append(value(values))
        return self._assemble_result(returned, values, scalars, {id(a): i for i, a in enumerate(self.arguments)})

    def _assemble_result(
        self, item: Any, values: Values, numbers: dict[int, list[Any]], positions: dict[int, int]
    ) -> Any:
        """One result, or a tuple of them; `numbers` are those that are no tensors, by their places."""
        if isinstance(item, tuple):
            return tuple(self._assemble_result(i, values, numbers, positions) for i in item)
        if isinstance(item, BoundedResult):
            return self._bounded_result(
                item, tuple(d(values) for d in self.launcher.plan.actual[positions[id(item.argument)]])
            )
        if not isinstance(item, Argument):
            return item
        scalars = numbers.get(positions[id(item)], [])
        return tuple(scalars) if item.leaf.kind == "shape" else _scalar(item.leaf.dtype, scalars[0])

    def _bounded_result(self, item: BoundedResult, shape: tuple[int, ...]) -> Any:
        """Return the part of a result that was written."""
        if item.argument.located is not None:
            tensor = item.argument.located.tensor
            block = item.array._block if isinstance(item.array, DeviceArray) else None
            return DeviceArray(self.device, tensor, block).view(shape)
        return item.of_shape(shape)


def _scalar(dtype: str, value: Any) -> Any:
    if dtype == "bool":
        return bool(value)
    return float(value) if "float" in dtype else int(value)


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)
