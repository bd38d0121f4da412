"""`I` of Python files: `@I.ir_module` makes an IRModule of a class, by its source text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, overload

from mlcc.ir.module import IRModule
from mlcc.lang.decorate import module_of
from mlcc.lang.placeholder import placeholder


@overload
def ir_module(cls: type, /) -> IRModule: ...
@overload
def ir_module(*, check_well_formed: bool = True) -> Callable[[type], IRModule]: ...
def ir_module(cls: type | None = None, /, *, check_well_formed: bool = True) -> Any:
    """Return the module that the source text of a class means; nothing of it is executed.

    Free names are taken from the program around the class. `check_well_formed` is for programs written for TVM: passes
    and `mlcc.build` always verify a module. Raises CompileError with the place in the program's file.
    """
    if cls is not None:
        return module_of(cls, sys._getframe(1))
    return lambda decorated: module_of(decorated, sys._getframe(1))


def __getattr__(name: str) -> Any:
    return placeholder(f"I.{name}")


def __dir__() -> list[str]:
    return ["ir_module", "module_attrs", "module_global_infos", "vdevice"]
