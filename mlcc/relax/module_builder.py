"""A builder of modules: functions are added under unique names, and equal ones are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.equal import structural_equal, structural_hash
from mlcc.ir.module import Func, IRModule
from mlcc.ir.shared_places import with_places_of


class ModuleBuilder:
    """A copy of a module to which functions are added. An added function that equals one of it is that one, whose
    statements then have the places of both."""

    def __init__(self, module: IRModule, unique_name: Callable[[str], str] | None = None) -> None:
        self.module = module.copy()
        self._unique_name = unique_name or self.module.unique_name
        self._by_signature: dict[tuple[Any, ...], list[str]] = {}
        self._indexed: set[str] = set()
        self._added: dict[Func, str] = {}  # functions compare by identity
        self._hashes: dict[Func, int] = {}

    def add(self, func: Func, hint: str, unique_name: Callable[[str], str] | None = None) -> str:
        """The name of the function: `hint`, `hint1`, ... if it is new, or as `unique_name` makes it."""
        if func not in self._added:
            self._added[func] = self._add(func, hint, unique_name or self._unique_name)
        return self._added[func]

    def update(self, name: str, func: Func) -> None:
        """Put a function in the place of the one of that name."""
        self._added = {f: n for f, n in self._added.items() if n != name}
        self.module.functions[name] = func
        self._index_by_signature(name, func)

    def _add(self, func: Func, hint: str, unique_name: Callable[[str], str]) -> str:
        for name in self.module:
            if name not in self._indexed:
                self._index_by_signature(name, self.module[name])
        alike = self._by_signature.get(_signature(func), ())
        for name in alike:
            other = self.module[name]
            maybe = len(alike) == 1 or self._hash(other) == self._hash(
                func
            )  # two hashes take longer than one comparison
            if maybe and structural_equal(other, func):
                self.module.functions[name] = with_places_of(other, func)
                return name
        name = unique_name(hint.replace(".", "_"))
        self.module.functions[name] = func
        self._index_by_signature(name, func)
        return name

    def _index_by_signature(self, name: str, func: Func) -> None:
        self._by_signature.setdefault(_signature(func), []).append(name)
        self._indexed.add(name)

    def _hash(self, func: Func) -> int:
        if func not in self._hashes:
            self._hashes[func] = structural_hash(func)
        return self._hashes[func]


def _signature(func: Func) -> tuple[Any, ...]:
    """Return a key that equal functions share: kind, attribute names, dtypes and constant shapes of parameters."""
    key: list[Any] = [type(func), *sorted(func.attrs)]
    if isinstance(func, tir.PrimFunc):
        key += [(b.dtype, *map(tir.const_int, b.shape)) if b is not None else None for b in func.buffers]
    else:
        for param in func.params:
            info = param.struct_info
            dims = info.dims if isinstance(info, relax.TensorStructInfo) else None
            key.append((type(info), *map(tir.const_int, dims or ())))
    return tuple(key)
