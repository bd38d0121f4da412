"""Functions of loaded artifacts: a signature, and an executor that runs the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mlcc.runtime.signature import Signature


class Call(Protocol):
    """A checked call. Calling it runs the function on the arrays it was bound to and returns its results."""

    def __call__(self) -> Any: ...

    def timed(self, number: int) -> float:
        """Seconds that `number` runs take."""


class Executor(Protocol):
    """The interface that runs a function: machine code (`native.NativeExecutor`) or a device (`LaunchExecutor`)."""

    def call(self, args: tuple[Any, ...], out: Any) -> Any:
        """The results of a call. Raises CallError."""

    def bind(self, args: Sequence[Any], out: Any) -> Call:
        """Check the arguments of a call that is made later. Raises CallError."""


class Function:
    """A function of a loaded artifact.

    A relax function returns its results as NumPy arrays (bfloat16 and 8-bit floats as their bits). A PrimFunc is called
    with its outputs passed in and returns None; without them, it makes and returns fresh ones.
    """

    def __init__(self, signature: Signature, executor: Executor) -> None:
        self.signature = signature
        self.executor = executor
        self.spec = signature.spec
        self.name = signature.name
        self._call = executor.call

    def __repr__(self) -> str:
        return f"<mlcc function {self.name}({', '.join(self.parameter_names)})>"

    @property
    def parameter_names(self) -> list[str]:
        return self.signature.parameter_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """The parameters of a PrimFunc that may be left out at the end of a call, because it writes them."""
        return self.signature.output_names

    @property
    def written_names(self) -> tuple[str, ...]:
        """All tensor parameters that a PrimFunc writes, wherever they stand."""
        return self.signature.written_names

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Call it. `out` takes the results of a relax function: an array, or a tuple of arrays."""
        return self._call(args, out)

    def bind(self, *args: Any, out: Any = None) -> Call:
        """Check the arguments now and get a call that costs next to nothing: `call = f.bind(x, out=y); call()`.

        Every call reads the arrays anew and writes the same results; a device that can replays them as a whole. Raises
        CallError, listing all that is wrong.
        """
        return self.executor.bind(args, out)

    def call_with_fresh_outputs(self, args: Sequence[Any]) -> Any:
        """Call it with one value per parameter, None for outputs of a PrimFunc to be made; returns its outputs."""
        written = self.written_names
        if not written:
            return self(*args)
        whole = self.signature.with_fresh_outputs(args)
        self(*whole)
        outputs = [value for name, value in zip(self.parameter_names, whole, strict=True) if name in written]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
