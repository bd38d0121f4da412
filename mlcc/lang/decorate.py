"""What the three decorators share: from a decorated class or function to a module or function of the IR."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType, FunctionType
from typing import Any

from mlcc.grammar.parser import parse_within
from mlcc.ir.module import Func, IRModule
from mlcc.lang.capture import lookup
from mlcc.lang.source import find

_MODULE_DECORATOR = "ir_module"


def module_of(cls: type, frame: FrameType) -> IRModule:
    """Return the module that the text of a class means; its decorator runs in `frame`. Raise CompileError."""
    if not isinstance(cls, type):
        raise TypeError(f"@I.ir_module stands above a class, not above {type(cls).__name__}")
    members = [m for m in vars(cls).values() if isinstance(m, FunctionType)]
    names = lookup(_namespaces(members, frame), aliases())
    return parse_within(find(cls, frame).text, names)


def function_of(function: Any, frame: FrameType, decorator: str) -> Any:
    """Return the function that the text of a Python function means. Raise CompileError.

    A function in a class under `@I.ir_module` is returned as it is: that decorator reads the whole class.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"{decorator} stands above a function, not above {type(function).__name__}")
    found = find(function, frame)
    if found.owner is not None and _is_module(found.owner, frame):
        return function
    module = parse_within(found.text, lookup(_namespaces([function], frame), aliases()))
    parsed: Func = module[function.__name__]
    return parsed


def aliases() -> dict[int, str]:
    """Return the names in texts of the modules and decorators of `mlcc.lang`, by the ids of the objects."""
    from mlcc.lang import ir, relax, tir

    known: list[tuple[Any, str]] = [(ir, "I"), (relax, "R"), (tir, "T"), (sys.modules["mlcc.lang"], "tvm.script")]
    known += [(ir.ir_module, "I.ir_module"), (tir.prim_func, "T.prim_func"), (relax.function, "R.function")]
    if "mlcc.lang.tvm" in sys.modules:
        known += [(sys.modules["mlcc.lang.tvm"], "tvm")]
    return {id(value): path for value, path in known}


def _namespaces(functions: list[FunctionType], frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """Yield the names that a text sees, innermost first: closures, the scope of the decorator, and the module's."""
    for function in functions:
        yield inspect.getclosurevars(function).nonlocals
    yield frame.f_locals
    for function in functions:
        yield function.__globals__
    yield frame.f_globals


def _is_module(owner: ast.ClassDef, frame: FrameType) -> bool:
    """Return True if a class is decorated by `I.ir_module`, by any name; `frame` runs the body of the class."""
    outer = frame.f_back or frame
    for decorator in owner.decorator_list:
        head = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(head, ast.Attribute) and head.attr == _MODULE_DECORATOR:
            return True
        if isinstance(head, ast.Name):
            value = outer.f_locals.get(head.id, outer.f_globals.get(head.id))
            if aliases().get(id(value)) == f"I.{_MODULE_DECORATOR}":
                return True
    return False
