"""Syntax trees of `@R.function` to relax functions; `walk` is where it starts."""
