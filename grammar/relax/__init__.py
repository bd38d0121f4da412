"""Syntax trees of `@R.function` to relax functions; the entry point is `walk`."""
