"""The reference interpreter: it defines what a program computes, and every pass and target is compared with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcc.interp.graph import run_function
    from mlcc.interp.prim_func import run_prim_func

__all__ = ["run_function", "run_prim_func"]


def __getattr__(name: str) -> Any:
    if name == "run_prim_func":
        from mlcc.interp.prim_func import run_prim_func

        return run_prim_func
    if name == "run_function":
        from mlcc.interp.graph import run_function

        return run_function
    raise AttributeError(f"module 'mlcc.interp' has no attribute {name!r}")
