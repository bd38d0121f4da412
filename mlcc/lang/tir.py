"""`T` of Python files: `@T.prim_func` makes a PrimFunc of a function, by its source text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, overload

from mlcc.ir.tir import PrimFunc
from mlcc.lang.decorate import function_of
from mlcc.lang.placeholder import placeholder


@overload
def prim_func(function: Callable[..., Any], /) -> PrimFunc: ...
@overload
def prim_func(
    *, private: bool = False, s_tir: bool = ..., check_well_formed: bool = True, persistent: bool = ...
) -> Callable[[Callable[..., Any]], PrimFunc]: ...
def prim_func(function: Any = None, /, **options: Any) -> Any:
    """Return the PrimFunc that the source text of a function means; nothing of it is executed.

    The options are read from the text, too. In a class under `@I.ir_module` the function is part of that module. Raises
    CompileError with the place in the program's file.
    """
    if function is not None:
        return function_of(function, sys._getframe(1), "@T.prim_func")
    return lambda decorated: function_of(decorated, sys._getframe(1), "@T.prim_func")


def __getattr__(name: str) -> Any:
    return placeholder(f"T.{name}")


def __dir__() -> list[str]:
    from mlcc.ir.dtypes import NAMES
    from mlcc.ir.intrinsics import INTRINSICS

    return sorted({"prim_func", *_CONSTRUCTS, *(n for n in (*NAMES, *INTRINSICS) if n.isidentifier())})


_CONSTRUCTS = (
    "Buffer", "Cast", "Select", "alloc_buffer", "allocate", "attr", "axis", "block", "block_attr", "call_extern",
    "decl_buffer", "env_thread", "evaluate", "func_attr", "grid", "handle", "if_then_else", "init", "launch_thread",
    "match_buffer", "max", "min", "parallel", "reads", "sblock", "serial", "thread_binding", "unroll", "vectorized",
    "where", "writes",
)  # fmt: skip
