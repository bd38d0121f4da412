"""Syntax trees of `@T.prim_func` to PrimFuncs; the entry point is `walk`."""
