"""Syntax trees of `@T.prim_func` to PrimFuncs; `walk` is where it starts."""
