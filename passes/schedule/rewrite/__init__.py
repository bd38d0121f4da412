"""Rewrites of functions shared by several primitives."""
