"""A module that grows: functions are added under unique names, and equal ones are shared."""

from __future__ import annotations

from mlcc.ir.equal import structural_equal, structural_hash
from mlcc.ir.module import Func, IRModule


class ModuleBuilder:
    """A copy of a module to which functions are added. An added function that equals one of it is that one."""

    def __init__(self, module: IRModule) -> None:
        self.module = module.copy()
        self._by_hash: dict[int, list[str]] = {}
        self._listed: set[str] = set()
        self._added: dict[Func, str] = {}  # functions compare by identity

    def add(self, func: Func, hint: str) -> str:
        """The name of the function: `hint`, `hint1`, ... if it is new."""
        if func not in self._added:
            self._added[func] = self._add(func, hint)
        return self._added[func]

    def _add(self, func: Func, hint: str) -> str:
        for name in self.module:
            if name not in self._listed:
                self._list(name, self.module[name])
        known = self._by_hash.get(structural_hash(func), ())
        for name in known:
            if structural_equal(self.module[name], func):
                return name
        name = self.module.unique_name(hint.replace(".", "_"))
        self.module.functions[name] = func
        self._list(name, func)
        return name

    def _list(self, name: str, func: Func) -> None:
        self._by_hash.setdefault(structural_hash(func), []).append(name)
        self._listed.add(name)
