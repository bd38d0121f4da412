"""The common interface of loaded artifacts: functions by name, and a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlcc.errors import CallError, did_you_mean, error
from mlcc.runtime.function import Function
from mlcc.runtime.manifest import Manifest
from mlcc.runtime.timing import Timer


class Executable:
    """A loaded artifact: `exe["main"](x, w)` calls a function; `exe.functions` are all of them by name."""

    def __init__(self, facts: Manifest) -> None:
        self._facts = facts
        self.functions: dict[str, Function] = {}

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest, a description of the artifact; see `docs/abi.md`."""
        return self._facts.raw

    def time_evaluator(self, name: str, number: int = 10, repeat: int = 5, min_seconds: float = 0.0) -> Timer:
        """A timer for a function: `exe.time_evaluator("main", number=100)(x, w).median` is in seconds.

        Machine code is called in a native loop. A device measures by its own clock, and what is copied to and from the
        host is not counted.
        """
        return Timer(self[name], number, repeat, min_seconds)

    def __getitem__(self, name: str) -> Function:
        function = self.functions.get(name)
        if function is None:
            hint = did_you_mean(name, self.functions) or f"it has {', '.join(self.functions) or 'none'}"
            raise CallError(error("E0801", f"the artifact has no function `{name}`", help=hint))
        return function

    def __getattr__(self, name: str) -> Any:
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in self.__dict__.get("functions", ()):
            text += f': call the function as exe["{name}"](...)'
        raise AttributeError(text)

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __repr__(self) -> str:
        return f"<mlcc executable with {', '.join(self.functions) or 'no functions'}>"
