"""Passes over relax functions, one per file, and their shared helpers."""
