"""Rewrites of functions that several primitives share."""
