"""Fusion: which operations become one kernel, and how."""
