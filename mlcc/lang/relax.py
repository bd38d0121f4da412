"""`R` of Python files: `@R.function` makes a relax Function of a function, by its source text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, overload

from mlcc.ir.relax import Function
from mlcc.lang.decorate import function_of
from mlcc.lang.placeholder import placeholder


@overload
def function(decorated: Callable[..., Any], /) -> Function: ...
@overload
def function(
    *, pure: bool = True, private: bool = False, check_well_formed: bool = True
) -> Callable[[Callable[..., Any]], Function]: ...
def function(decorated: Any = None, /, **options: Any) -> Any:
    """Return the relax function that the source text of a function means; nothing of it is executed.

    The options are read from the text, too. In a class under `@I.ir_module` the function is part of that module. Raises
    CompileError with the place in the program's file.
    """
    if decorated is not None:
        return function_of(decorated, sys._getframe(1), "@R.function")
    return lambda later: function_of(later, sys._getframe(1), "@R.function")


def __getattr__(name: str) -> Any:
    return placeholder(f"R.{name}")


def __dir__() -> list[str]:
    from mlcc.relax import op

    constructs = ("Callable", "Object", "Prim", "Shape", "Tensor", "Tuple", "dataflow", "match_cast", "output", "shape")
    return sorted({"function", *constructs, *(n for n in dir(op) if not n.startswith("_"))})
