"""Names of symbolic extents, and solving extents that are expressions for their symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.frontend.aten.graph import Extent, Program, TensorMeta
from mlcc.frontend.aten.symbols import parse_extent
from mlcc.frontend.emitter import Emitter
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import tir


class SymbolNames:
    """Names of symbolic sizes: the user's, or else PyTorch's (`s77`).

    The user names an extent by input and axis (`{"x.0": "batch"}`, `{"x": {0: "batch"}}`, `{"x": ["batch", None]}`) or
    by PyTorch's name for it. Raises CompileError E1013 for names that match nothing.
    """

    def __init__(self, program: Program, given: Mapping[str, Any]) -> None:
        self._shapes: dict[str, tuple[Extent, ...]] = {}
        for user in program.inputs:
            meta = program.graph.values.get(user.value)
            if user.kind == "user" and isinstance(meta, TensorMeta):
                self._shapes[user.value] = meta.shape
        self._symbols = {e for shape in self._shapes.values() for e in shape if isinstance(e, str) and e.isidentifier()}
        self._names: dict[str, str] = {}
        for where, what in given.items():
            self._add(str(where), what)

    def variable(self, symbol: str) -> tir.Var:
        """The variable for a symbol."""
        return Emitter.symbol(self._names.get(symbol, symbol))

    def _add(self, where: str, what: Any) -> None:
        if isinstance(what, Mapping):
            for axis, name in what.items():
                self._add_axis(f"{where}.{axis}", where, int(axis), name)
        elif isinstance(what, (list, tuple)):
            for axis, name in enumerate(what):
                if isinstance(name, str):
                    self._add_axis(f"{where}.{axis}", where, axis, name)
        elif where in self._symbols:
            self._assign(where, where, str(what))
        else:
            user, _, axis = where.rpartition(".")
            number = int(axis) if axis.lstrip("-").isdigit() else None
            if number is None:
                raise _name_error(f"the program has no symbol `{where}`", did_you_mean(where, self._symbols))
            self._add_axis(where, user, number, what)

    def _add_axis(self, where: str, user: str, axis: int, name: Any) -> None:
        shape = self._shapes.get(user)
        if shape is None:
            raise _name_error(f"the program has no input `{user}`", did_you_mean(user, self._shapes))
        if not -len(shape) <= axis < len(shape):
            raise _name_error(f"`{user}` has {len(shape)} dimensions, so there is no `{where}`", None)
        extent = shape[axis]
        if extent == name:
            return
        if not isinstance(extent, str) or not extent.isidentifier():
            help = "export the program with `dynamic_shapes` for this extent" if isinstance(extent, int) else None
            raise _name_error(f"`{where}` is {extent}, which cannot be named", help)
        self._assign(where, extent, str(name))

    def _assign(self, where: str, symbol: str, name: str) -> None:
        known = self._names.setdefault(symbol, name)
        other = next((s for s, n in self._names.items() if n == name and s != symbol), None)
        if known != name:
            raise _name_error(f"`{where}` and another extent are equal: name both `{known}` or `{name}`", None)
        if not name.isidentifier() or other is not None:
            why = (
                "is not an identifier"
                if other is None
                else f"would name two extents that may differ, `{other}` and `{symbol}`"
            )
            raise _name_error(f"`{name}` {why}", None)


def _name_error(message: str, help: str | None) -> CompileError:
    return CompileError(error("E1013", message, help=help))


def solve_symbol(text: str, unknown: Sequence[str], extent: tir.Expr, symbols: Mapping[str, tir.Expr]) -> tir.Expr:
    """Solve an equation that is linear in a symbol for the symbol. Raises Unsupported."""
    name = unknown[0]
    if len(unknown) > 1:
        raise Unsupported(f"an input's extent is `{text}`, which cannot be solved for {' and '.join(unknown)}")
    zero, one, two = (parse_extent(text, {**symbols, name: c.const(n, "int64")}) for n in (0, 1, 2))
    factor, more = tir.const_int(c.sub(one, zero)), tir.const_int(c.sub(two, one))
    if factor is None or factor < 1 or factor != more:
        raise Unsupported(f"an input's extent is `{text}`, which cannot be solved for {name}")
    return c.floordiv(c.sub(extent, zero), c.const(factor, "int64"))
