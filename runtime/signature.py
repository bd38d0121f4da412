"""Function signatures at run time: convert and check arguments, allocate results, explain rejected arguments.

Native code checks shapes, symbols and overlap; arguments that it rejects are checked again here, to report which one
differs and how.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from mlcc.errors import CallError, Diagnostic, error
from mlcc.runtime.abi import STORAGE, fill_numbers, kind_of
from mlcc.runtime.arguments import Argument, aliased_arguments, convert_tensor, flatten
from mlcc.runtime.explain import bind_symbols, violated
from mlcc.runtime.manifest import FunctionSpec, Value, evaluate, show_tensor

_DIAGNOSTIC_CODES = {
    "ASSERT": "E0813", "CAST": "E0814", "MEMORY": "E0810", "WORKSPACE": "E0810", "PACKED_UNSET": "E0811",
    "PACKED_FAILED": "E0812", "OVERLAP": "E0809", "VALUE": "E0817", "INDEX": "E0818", "OUTSIDE": "E0870",
    "UNWRITTEN": "E0871", "RACE": "E0873",
}  # fmt: skip


class Placement(Protocol):
    """The interface that places arguments and results: in host memory only, or in device memory as well."""

    def locate(self, value: Any) -> Any:
        """Prepare an argument for `arguments.flatten`: `Located` for a device array. Raises CallError."""

    def empty(self, value: Value, shape: tuple[int, ...], given: Sequence[Argument]) -> Any:
        """Allocate an array for a result of a call with the arguments `given`."""


class HostPlacement:
    """Arguments in the host's memory, and results as NumPy arrays."""

    def locate(self, value: Any) -> Any:
        return value

    def empty(self, value: Value, shape: tuple[int, ...], given: Sequence[Argument]) -> np.ndarray:
        name, _, lanes = value.dtype.partition("x")
        array = np.empty((*shape, int(lanes)) if value.code[2] > 1 else shape, STORAGE.get(name, name))
        exotic = next((a.extended_dtype for a in given if a.extended_dtype is not None), None)
        return array.view(exotic) if exotic is not None and exotic.name == value.dtype else array


HOST = HostPlacement()


class BoundArguments(NamedTuple):
    """The converted arguments of one call.

    `returned` is the call's return value, nested as declared; an `Argument` or `Cut` in it is read after the call.
    """

    given: list[Argument]
    results: list[Argument]
    returned: Any

    @property
    def all(self) -> list[Argument]:
        return [*self.given, *self.results]


@dataclass(slots=True)
class BoundedResult:
    """A result with data-dependent extents, stored in an array with their upper bounds."""

    argument: Argument
    array: Any

    def of_shape(self, shape: tuple[int, ...]) -> Any:
        """Return a view of the elements that were written."""
        lanes = self.argument.leaf.code[2]
        return self.array.reshape(-1)[: math.prod(shape) * lanes].reshape((*shape, lanes) if lanes > 1 else shape)


class Signature:
    """The parameters, results and constraints of a function, and the placement of its arrays."""

    def __init__(self, spec: FunctionSpec, placement: Placement = HOST) -> None:
        self.spec = spec
        self.name = spec.name
        self.placement = placement

    @property
    def parameter_names(self) -> list[str]:
        return [p.name for p in self.spec.params]

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the output parameters of a PrimFunc that may be omitted at the end of a call."""
        names: list[str] = []
        if self.spec.kind == "prim":
            for param in reversed(self.spec.params):
                if param.kind != "tensor" or param.role == "in":
                    break
                names.insert(0, param.name)
        return tuple(names)

    @property
    def written_names(self) -> tuple[str, ...]:
        """All tensor parameters that a PrimFunc writes, wherever they stand."""
        return tuple(p.name for p in self.spec.params if self._is_written(p))

    def bind(self, args: Sequence[Any], out: Any) -> BoundArguments:
        """Convert the arguments of a call and allocate omitted outputs. Raises CallError listing all mismatches."""
        given = self._arguments(args)
        if self.spec.kind == "prim":
            returned = self._add_outputs(given) if len(args) < len(self.spec.params) else None
            if out is not None:
                text = f"`{self.name}` is a PrimFunc: pass its outputs as arguments, not as `out`"
                raise CallError(error("E0802", text))
            self._check_aliasing(given)
            return BoundArguments(given, [], returned)
        assert self.spec.results is not None
        results, returned = self._results(self.spec.results, given, out)
        self._check_aliasing([*given, *results])
        return BoundArguments(given, results, returned)

    def with_fresh_outputs(self, args: Sequence[Any]) -> list[Any]:
        """Allocate the outputs of a PrimFunc whose arguments are None. Raises CallError."""
        params = self.spec.params
        missing = {p.name for p, v in zip(params, args, strict=True) if v is None and self._is_written(p)}
        if not missing:
            return list(args)
        inputs = [(p, v) for p, v in zip(params, args, strict=True) if p.name not in missing]
        given: list[Argument] = []
        self._convert_all([p for p, _ in inputs], [v for _, v in inputs], given)
        symbols = bind_symbols(given)
        return [
            self._new_array(p, symbols, given) if p.name in missing else v for p, v in zip(params, args, strict=True)
        ]

    def failure(
        self, code: int, text: str | None, found: list[Diagnostic] | None = None, given: Sequence[Argument] = (),
        numbers: tuple[int, int] | None = None,
    ) -> CallError:  # fmt: skip
        """Return the error for an error code of the function.

        `text` is its message; `found` are the mismatches of the arguments `given`, which explain it; `numbers` are the
        values that the message shows, if it does not contain them yet.
        """
        kind = kind_of(code)
        if found and kind is not None and kind.name not in _DIAGNOSTIC_CODES:
            return CallError(found)
        message = text.removeprefix(f"{self.name}: ") if text else f"error {code}"
        if numbers is not None:
            message = fill_numbers(message, *numbers)
        broken = next((c for c in self.spec.constraints if c.code == code), None)
        if broken is not None:
            message = violated(broken, bind_symbols(given)) or message
        line = dict(self.spec.lines).get(code)
        if line is not None:
            message += f", in line {line}"
        return CallError(error(_DIAGNOSTIC_CODES.get(kind.name if kind else "", "E0805"), f"`{self.name}`: {message}"))

    def _is_written(self, param: Value) -> bool:
        return self.spec.kind == "prim" and param.kind == "tensor" and param.role != "in"

    # ------------------------------------------------------------ arguments

    def _arguments(self, args: Sequence[Any]) -> list[Argument]:
        params = self.spec.params
        count, expected = len(args), len(params)
        if count != expected and count != expected - len(self.output_names):
            names = ", ".join(self.parameter_names)
            allowed = f"{expected}" if not self.output_names else f"{expected - len(self.output_names)} or {expected}"
            text = f"`{self.name}` takes {allowed} argument{'s' if allowed != '1' else ''} ({names}), got {count}"
            raise CallError(error("E0802", text))
        arguments: list[Argument] = []
        self._convert_all(params[:count], args, arguments)
        return arguments

    def _convert_all(self, params: Sequence[Value], args: Sequence[Any], arguments: list[Argument]) -> None:
        findings: list[Diagnostic] = []
        for param, value in zip(params, args, strict=True):
            self._flatten(param, value, param.name, arguments, findings)
        if findings:
            raise CallError(findings)

    def _flatten(
        self, spec: Value, value: Any, name: str, arguments: list[Argument], findings: list[Diagnostic]
    ) -> None:
        """Convert one parameter, or the results as `out`."""
        try:
            placed = self.placement.locate(value)
        except CallError as exc:
            findings += exc.diagnostics
            return
        flatten(spec, placed, self.name, name, arguments, findings)

    def _check_aliasing(self, arguments: list[Argument]) -> None:
        """Raise E0809 if an argument that is written through a copy aliases another; native code checks the others."""
        pair = aliased_arguments(arguments)
        if pair is not None:
            written, other = pair
            message = f"`{self.name}`: `{written.name}` shares memory with `{other.name}`"
            raise CallError(error("E0809", message))

    # ------------------------------------------------------------ results

    def _outputs(self, given: list[Argument]) -> list[Any]:
        symbols = bind_symbols(given)
        count = len(self.output_names)
        return [self._new_array(p, symbols, given) for p in self.spec.params[len(self.spec.params) - count :]]

    def _add_outputs(self, given: list[Argument]) -> Any:
        """Allocate the outputs that a call of a PrimFunc omits, and add them to its arguments; return the results."""
        input_count = len(given)
        outputs = self._outputs(given)
        self._convert_all(self.spec.params[len(self.spec.params) - len(outputs) :], outputs, given)
        for output in given[input_count:]:
            output.is_result = True
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _results(self, spec: Value, given: list[Argument], out: Any) -> tuple[list[Argument], Any]:
        """Return the arguments for the results, and the return value nested as declared."""
        results: list[Argument] = []
        if out is None:
            return results, self._new_result(spec, bind_symbols(given), given, results)
        findings: list[Diagnostic] = []
        self._flatten(spec, out, "out", results, findings)
        if findings:
            raise CallError(findings)
        return results, _mark_bounded(spec, out, iter(results))

    def _new_result(self, value: Value, symbols: dict[str, int], given: list[Argument], results: list[Argument]) -> Any:
        """Allocate a result or a tuple of results, and append their arguments to `results`."""
        if value.kind == "tuple":
            return tuple(self._new_result(f, symbols, given, results) for f in value.fields)
        if value.kind == "tensor":
            array = self._new_array(value, symbols, given)
            results.append(convert_tensor(value, self.placement.locate(array), "the result", True))
            results[-1].name = "out"
            return BoundedResult(results[-1], array) if value.at_most else array
        count = len(value.dims) if value.kind == "shape" else 1
        results.append(Argument(value, "the result", "out", is_result=True, words=(0,) * count))
        return results[-1]

    def _new_array(self, value: Value, symbols: dict[str, int], given: Sequence[Argument]) -> Any:
        """Allocate an array that the function writes. Raises CallError."""
        try:
            return self.placement.empty(value, tuple(evaluate(d, symbols) for d in value.dims), given)
        except KeyError as exc:
            text = f"the shape of `{value.name}` of `{self.name}` depends on `{exc.args[0]}`: pass it as an argument"
            raise CallError(error("E0805", text)) from None
        except CallError:
            raise
        except (ValueError, MemoryError, OverflowError) as exc:
            violation = next(filter(None, (violated(c, symbols) for c in self.spec.constraints)), None)
            if violation is not None:
                raise CallError(error("E0814", f"`{self.name}`: {violation}")) from None
            text = f"cannot allocate a result of `{self.name}`, {show_tensor(value)}: {exc}"
            raise CallError(error("E0810", text)) from None


def _mark_bounded(spec: Value, out: Any, arguments: Iterator[Argument]) -> Any:
    """Return the caller's `out`, with results of data-dependent extents as `Cut`."""
    if spec.kind == "tuple":
        return tuple(_mark_bounded(f, o, arguments) for f, o in zip(spec.fields, out, strict=True))
    argument = next(arguments)
    return BoundedResult(argument, out) if spec.at_most else out
